"""The policy from one YAML file, with errors that name their line."""

from adapters.policy_file.loader import PolicyFile, load_policy
from adapters.policy_file.problems import PolicyError, Problem

__all__ = ["PolicyError", "PolicyFile", "Problem", "load_policy"]

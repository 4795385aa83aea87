"""Machines without any scheduler, without a managed BMC, without a provisioner."""

from adapters.standalone.scheduler import NoPower, NoProvisioner, StandaloneScheduler

__all__ = ["NoPower", "NoProvisioner", "StandaloneScheduler"]

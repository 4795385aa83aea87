"""What is wrong with a policy file, said so that a person finds the line."""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import PermanentError


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        line: line of the file, from 1.
        path: where in the policy, such as ``rules[2].match.severity``; empty for the file as a whole.
        message: what is wrong and what to write instead.
    """

    line: int
    path: str
    message: str

    def located(self, name: str) -> str:
        """Return ``file:line: path: message``."""
        where = f"{self.path}: " if self.path else ""
        return f"{name}:{self.line}: {where}{self.message}"


class PolicyError(PermanentError):
    """A policy that cannot be used. The text has one line for each problem."""

    def __init__(self, name: str, problems: tuple[Problem, ...]) -> None:
        self.name = name
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(problem.located(name) for problem in self.problems))

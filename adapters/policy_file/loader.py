"""Reading the policy file: at the start, and again whenever it changes."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from adapters.policy_file.document import Document, in_words, read_document
from adapters.policy_file.problems import PolicyError, Problem
from domain.catalog import CATALOG
from domain.policy import Policy

log = logging.getLogger(__name__)

MAX_BYTES = 1024 * 1024
"""Largest policy file that is read, in bytes."""


def load_policy(text: str, name: str) -> Policy:
    """Return the policy in a YAML text.

    Args:
        text: the file's content.
        name: what the errors call it.

    Raises:
        PolicyError: with all that is wrong, each with its line.
    """
    document = read_document(text)
    if document.problems:
        raise PolicyError(name, tuple(document.problems))
    if document.data is None:
        raise PolicyError(name, (Problem(1, "", "the policy is empty: begin with `version: 1`"),))
    if not isinstance(document.data, dict):
        raise PolicyError(name, (Problem(1, "", "a policy is a mapping: begin with `version: 1`"),))
    problems = []
    if "version" not in document.data:
        problems.append(Problem(1, "version", "missing: write `version: 1` as the first line"))
    try:
        policy = Policy.model_validate(document.data, extra="forbid")
    except ValidationError as error:
        problems += _problems(error, document)
    else:
        problems += _odd_names(policy, document)
    if problems:
        raise PolicyError(name, tuple(problems))
    return policy


def _problems(error: ValidationError, document: Document) -> list[Problem]:
    problems = []
    for item in error.errors(include_url=False):
        path = item["loc"]
        if item["type"] == "extra_forbidden":
            said = f"unknown{_did_you_mean(str(path[-1]), _fields_at(path[:-1]))}"
        elif item["type"] == "missing":
            said = "missing"
        elif item["type"] in ("enum", "literal_error"):
            expected = str(item.get("ctx", {}).get("expected", ""))
            choices = expected.replace(" or ", ", ").replace("'", "").split(", ")
            given = item["input"]
            said = f"{_shown(given)} is none of: {', '.join(choices)}{_close_to(str(given), choices)}"
        else:
            said = f"{item['msg'].removeprefix('Value error, ')} (found {_shown(item['input'])})"
        problems.append(Problem(document.line_of(path), in_words(path), said))
    return problems


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    choices = sorted(known)
    return _close_to(word, choices) or (f": known here are {', '.join(choices)}" if choices else "")


def _close_to(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f": did you mean {close[0]!r}?" if close else ""


def _fields_at(path: tuple[str | int, ...]) -> list[str]:
    """Return the names that the policy knows at a path."""
    here: object = Policy
    for part in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            here = field.annotation if field else None
        else:
            here = next((arg for arg in reversed(get_args(here)) if arg is not Ellipsis), None)
        while get_origin(here) in (Union, UnionType):
            here = get_args(here)[0]
    return list(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []


def _odd_names(policy: Policy, document: Document) -> list[Problem]:
    """Return what is well formed and yet cannot be meant: unknown fault classes, a name used twice."""
    problems = []
    for number, rule in enumerate(policy.rules):
        for pattern in rule.match.fault:
            problems += _unknown_fault(pattern, ("rules", number, "match", "fault"), document)
    for number, grace in enumerate(policy.grace):
        problems += _unknown_fault(grace.fault, ("grace", number, "fault"), document)
    for number, ladder in enumerate(policy.ladders):
        problems += _unknown_fault(ladder.fault, ("ladders", number, "fault"), document)
    used = Counter(rule.name for rule in policy.rules)
    for number, rule in enumerate(policy.rules):
        if used[rule.name] > 1:
            said = f"{rule.name!r} names more than one rule"
            problems.append(Problem(document.line_of(("rules", number, "name")), f"rules[{number}].name", said))
    return problems


def _unknown_fault(pattern: str, path: tuple[str | int, ...], document: Document) -> list[Problem]:
    if any(fnmatchcase(name, pattern) for name in CATALOG):
        return []
    hint = _close_to(pattern, CATALOG) or "; `kintsugi catalog` lists them"
    said = f"{pattern!r} fits no fault class{hint}"
    return [Problem(document.line_of(path), in_words(path), said)]


class PolicyFile:
    """Port ``PolicySource`` on a file. Without a file, the built-in policy, which only observes."""

    def __init__(self, path: Path | None) -> None:
        """Read the policy.

        Raises:
            PolicyError: the file cannot be read or used; there is no older policy to fall back on yet.
        """
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._policy = Policy()
        if path is not None:
            self._stamp = _stamp(path)
            self._policy = _read(path)

    async def current(self) -> Policy:
        """Return the newest valid policy; an invalid or vanished file keeps the last one and is logged."""
        if self._path is not None:
            await asyncio.to_thread(self._refresh, self._path)
        return self._policy

    def _refresh(self, path: Path) -> None:
        stamp = _stamp(path)
        if stamp == self._stamp:
            return
        # Remembered before the file is read: a write that comes in between is seen the next time.
        self._stamp = stamp
        try:
            self._policy = _read(path)
        except PolicyError as error:
            log.error("the edited policy cannot be used, the last valid one stays in force:\n%s", error)
        else:
            log.info("policy %s was read again", path)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> Policy:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PolicyError(str(path), (Problem(1, "", f"cannot be read: {error.strerror}"),)) from None
    if len(content) > MAX_BYTES:
        raise PolicyError(str(path), (Problem(1, "", f"larger than {MAX_BYTES} bytes, which is no policy"),))
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise PolicyError(str(path), (Problem(line, "", "not UTF-8"),)) from None
    return load_policy(text, str(path))

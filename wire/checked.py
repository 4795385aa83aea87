"""Checks on single fields of messages that come from outside, each with an error that names the field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import wraps
from typing import Generic, ParamSpec, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

MAX_NAME = 253
"""Longest name of a cluster, pool or node, in characters (a DNS name, as Kubernetes and Slurm use)."""

MAX_LABEL = 256
"""Longest identifier or label, in characters."""

MAX_MESSAGE = 4096
"""Longest sentence for a person, in characters."""

MAX_COUNT = 2**53 - 1
"""Largest count: what every JSON reader keeps exactly (RFC 8259, section 6)."""

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SECONDS = 253_402_300_799  # 9999-12-31T23:59:59Z, the end of protobuf's range
_MAX_NANOS = 999_999_999

EnumT = TypeVar("EnumT", bound=StrEnum)
ItemT = TypeVar("ItemT")
P = ParamSpec("P")
R = TypeVar("R")


class MalformedError(ValueError):
    """A message that cannot be a word of the domain; the text names the field and what is wrong with it."""


def sendable(convert: Callable[P, R]) -> Callable[P, R]:
    """Make a conversion to protobuf raise ``MalformedError`` for what protobuf refuses (ranges, bad text)."""

    @wraps(convert)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return convert(*args, **kwargs)
        except MalformedError:
            raise
        except (ValueError, OverflowError) as error:
            raise MalformedError(f"cannot be put on the wire: {error}") from None

    return checked


def present(field: str, is_set: bool) -> None:
    """Raise ``MalformedError`` unless the field is set."""
    if not is_set:
        raise MalformedError(f"{field} is missing")


def name(field: str, value: str) -> str:
    """Return a name of a cluster, pool or node: letters, digits, ``.``, ``_``, ``-``, and never a slash."""
    if len(value) > MAX_NAME or not _NAME.fullmatch(value):
        raise MalformedError(
            f"{field} is {shown(value)}, but must be 1 to {MAX_NAME} letters, digits, '.', '_' or '-',"
            " starting and ending with a letter or digit"
        )
    return value


def label(field: str, value: str, *, required: bool = False, limit: int = MAX_LABEL) -> str:
    """Return an identifier or label on one line, at most ``limit`` characters long."""
    if required and not value:
        raise MalformedError(f"{field} is missing")
    if len(value) > limit:
        raise MalformedError(f"{field} has {len(value)} characters, at most {limit} are allowed")
    if _CONTROL.search(value):
        raise MalformedError(f"{field} is {shown(value)}, which holds control characters")
    return value


def text(field: str, value: str, limit: int) -> str:
    """Return free text of at most ``limit`` characters."""
    if len(value) > limit:
        raise MalformedError(f"{field} has {len(value)} characters, at most {limit} are allowed")
    return value


def cut(value: str, limit: int) -> str:
    """Return free text as it can be sent: valid Unicode, cut at ``limit`` characters."""
    return value[:limit].encode("utf-8", "replace").decode("utf-8")


def items(field: str, values: Iterable[ItemT], count: int, limit: int) -> Iterable[ItemT]:
    """Return the values after checking that there are not too many."""
    if count > limit:
        raise MalformedError(f"{field} has {count} entries, at most {limit} are allowed")
    return values


def integer(field: str, value: int, low: int, high: int = MAX_COUNT) -> int:
    """Return a whole number in ``low`` to ``high``."""
    if not low <= value <= high:
        raise MalformedError(f"{field} is {value}, but must be {low} to {high}")
    return value


def number(field: str, value: float, low: float, high: float) -> float:
    """Return a finite number in ``low`` to ``high``."""
    if not math.isfinite(value) or not low <= value <= high:
        raise MalformedError(f"{field} is {value}, but must be {low:g} to {high:g}")
    return value


def time_from_pb(field: str, value: Timestamp) -> datetime:
    """Return a timestamp (UTC, cut to microseconds); years 1970 to 9999."""
    if not (0 <= value.seconds <= _MAX_SECONDS and 0 <= value.nanos <= _MAX_NANOS):
        raise MalformedError(
            f"{field} is {value.seconds} s and {value.nanos} ns after 1970, but must be in 1970 to 9999"
        )
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def time_to_pb(value: datetime) -> Timestamp:
    """Return a timestamp; the time must carry its zone."""
    if value.tzinfo is None:
        raise MalformedError(f"the time {value} carries no time zone")
    since = value - _EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def shown(value: str) -> str:
    """Return a value as it may stand in an error: quoted, escaped, short."""
    return repr(value if len(value) <= 60 else value[:60] + "…")


class EnumTable(Generic[EnumT]):
    """The two-way table between a domain enum and a protobuf enum; complete, or it fails at import.

    Args:
        words: the domain enum.
        numbers: the protobuf enum's names and numbers (``Enum.items()``).
        prefix: what the protobuf names start with.
    """

    def __init__(self, words: type[EnumT], numbers: Iterable[tuple[str, int]], prefix: str) -> None:
        by_name: Mapping[str, int] = dict(numbers)
        self._prefix = prefix
        self._names = {word: f"{prefix}_{word.name}" for word in words}
        self._words = {by_name[pb_name]: word for word, pb_name in self._names.items()}
        if len(self._words) + 1 != len(by_name):
            raise ValueError(f"{prefix} and {words.__name__} do not have the same members")

    def pb_name(self, word: EnumT) -> str:
        """Return the protobuf name of a word, which message constructors take for its number."""
        return self._names[word]

    def optional(self, field: str, number: int) -> EnumT | None:
        """Return the word of a number, None for unspecified."""
        if number == 0:
            return None
        if number not in self._words:
            raise MalformedError(f"{field} is {number}, which this version does not know")
        return self._words[number]

    def word(self, field: str, number: int) -> EnumT:
        """Return the word of a number; unspecified is an error."""
        word = self.optional(field, number)
        if word is None:
            raise MalformedError(f"{field} is {self._prefix}_UNSPECIFIED, but a value is required")
        return word

"""Signals as people and programs send them: any name, any payload, and never a stuck workflow.

A typed signal handler drops a payload that it cannot decode without a word, and one more argument than it
expects fails the workflow task for ever. So workflows take signals through one dynamic handler, which looks the
name up in a table and turns whatever is wrong into a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from domain.model import Message


class NotUnderstoodError(Exception):
    """A signal that means nothing here; the text says what would."""


def understand(name: str, args: Sequence[RawValue], known: Mapping[str, type[Message]]) -> Message:
    """Return the message that a signal carries.

    Raises:
        NotUnderstoodError: unknown name, not exactly one argument, or JSON of another shape.
    """
    model = known.get(name)
    if model is None:
        raise NotUnderstoodError(f"there is no signal {name!r}; known are: {', '.join(known)}")
    if len(args) != 1:
        raise NotUnderstoodError(f"{name} takes one JSON object as --input, got {len(args)}: {_example(model)}")
    try:
        said: Message = workflow.payload_converter().from_payload(args[0].payload, model)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'input'}: {e['msg']}" for e in error.errors())
        raise NotUnderstoodError(f"{name}: {wrong}. {_example(model)}") from None
    except Exception as error:
        raise NotUnderstoodError(f"{name}: the input is no JSON object ({error}). {_example(model)}") from None
    return said


def _example(model: type[Message]) -> str:
    fields = ", ".join(f'"{name}": …' for name, field in model.model_fields.items() if field.is_required())
    return f"It wants {{{fields}}}"

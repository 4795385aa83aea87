"""One input model and one result model per message, names pinned, one workflow class a file."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.common import RawValue

ROOT = Path(__file__).resolve().parents[2]
SPOKEN = ("approve", "reject", "pause", "resume", "abort", "override")


def modules_of(room: str) -> list[types.ModuleType]:
    names = sorted(path.relative_to(ROOT).with_suffix("") for path in (ROOT / room).rglob("*.py"))
    return [importlib.import_module(".".join(name.parts)) for name in names if name.name != "__init__"]


def classes_of(room: str) -> Iterator[type]:
    for module in modules_of(room):
        for _, found in inspect.getmembers(module, inspect.isclass):
            if found.__module__ == module.__name__:
                yield found


def workflow_definitions() -> list[workflow._Definition]:
    found = (workflow._Definition.from_class(cls) for cls in classes_of("workflows"))
    return [definition for definition in found if definition is not None]


def activity_functions() -> list[Callable[..., Any]]:
    functions: list[Callable[..., Any]] = [
        function
        for cls in classes_of("activities")
        for _, function in inspect.getmembers(cls, inspect.isfunction)
        if activity._Definition.from_callable(function) is not None
    ]
    for module in modules_of("activities"):
        functions += [
            function
            for _, function in inspect.getmembers(module, inspect.isfunction)
            if function.__module__ == module.__name__ and activity._Definition.from_callable(function) is not None
        ]
    return functions


def workflow_messages() -> list[tuple[str, Callable[..., Any]]]:
    messages: list[tuple[str, Callable[..., Any]]] = []
    for definition in workflow_definitions():
        owner = definition.cls.__name__
        messages.append((f"{owner}.run", definition.run_fn))
        messages += [(f"{owner} signal {name}", signal.fn) for name, signal in definition.signals.items() if name]
        messages += [(f"{owner} update {name}", update.fn) for name, update in definition.updates.items() if name]
        messages += [(f"{owner} query {name}", query.fn) for name, query in definition.queries.items() if name]
    return messages


def is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def complaints(name: str, function: Callable[..., Any], argument_needed: bool) -> list[str]:
    hints = typing.get_type_hints(function)
    result = hints.pop("return", None)
    parameters = [each for each in inspect.signature(function).parameters if each != "self"]
    found = []
    if len(parameters) > 1 or (argument_needed and not parameters):
        found.append(f"{name} takes {len(parameters)} arguments: one model can grow by fields with defaults")
    for parameter in parameters:
        if not (is_model(hints.get(parameter)) or hints.get(parameter) is RawValue):
            found.append(f"{name} takes {parameter}: {hints.get(parameter)}, which is no model")
    if not (result in (None, type(None)) or is_model(result)):
        found.append(f"{name} returns {result}, which is no model")
    return found


def test_activities_take_and_return_one_model() -> None:
    functions = activity_functions()
    assert functions
    found = [
        text for function in functions for text in complaints(function.__qualname__, function, argument_needed=False)
    ]
    assert not found


def test_workflow_messages_take_and_return_one_model() -> None:
    messages = workflow_messages()
    assert messages
    found = [
        text
        for name, function in messages
        for text in complaints(name, function, argument_needed=" query " not in name)
    ]
    assert not found


def test_activity_names_are_pinned_and_unique() -> None:
    names: dict[str, str] = {}
    found = []
    for function in activity_functions():
        definition = activity._Definition.must_from_callable(function)
        if not _decorator_pins_a_name(function, "defn"):
            found.append(f"{function.__qualname__}: a renamed method would orphan running activities; pin name=")
        if definition.name in names:
            found.append(f"{definition.name} is both {names[definition.name]} and {function.__qualname__}")
        names[str(definition.name)] = function.__qualname__
    assert not found


def test_workflow_names_are_pinned() -> None:
    unpinned = [d.cls.__name__ for d in workflow_definitions() if not _decorator_pins_a_name(d.cls, "defn")]
    assert not unpinned, f"a renamed class would orphan running workflows; pin name=: {unpinned}"


def test_one_workflow_class_a_file_named_for_it() -> None:
    places: dict[str, list[str]] = {}
    for definition in workflow_definitions():
        places.setdefault(definition.cls.__module__, []).append(definition.cls.__name__)
    expected = {f"workflows.{_snake(name)}" for names in places.values() for name in names}
    assert set(places) == expected
    assert all(len(names) == 1 for names in places.values()), places


def test_workflows_run_in_the_sandbox() -> None:
    assert not [d.cls.__name__ for d in workflow_definitions() if not d.sandboxed]


def signals_of(definition: workflow._Definition) -> dict[str, object]:
    """Return name and argument of each signal; a dynamic handler's are in its module's table ``SIGNALS``."""
    named = {
        name: next(iter(typing.get_type_hints(signal.fn).values()), None)
        for name, signal in definition.signals.items()
        if name
    }
    if None in definition.signals:
        table = vars(importlib.import_module(definition.cls.__module__)).get("SIGNALS")
        assert isinstance(table, dict), f"{definition.cls.__name__} takes any signal: its module says which in SIGNALS"
        named |= table
    return named


def test_every_signal_carries_one_model() -> None:
    found = [
        f"{definition.cls.__name__} signal {name} carries {carried}"
        for definition in workflow_definitions()
        for name, carried in signals_of(definition).items()
        if not is_model(carried)
    ]
    assert not found


def test_what_people_say_is_both_a_signal_and_an_update() -> None:
    definitions = {definition.cls.__name__: definition for definition in workflow_definitions()}
    repair = definitions["RepairWorkflow"]
    assert set(SPOKEN) <= set(signals_of(repair))
    updates = {name for name in repair.updates if name}
    missing = {word for word in SPOKEN if not {word, f"{word}_update"} & updates}
    assert not missing, f"a caller must be told at once why it does not apply: {missing}"


def test_updates_are_checked_before_they_leave_an_event() -> None:
    silent = [
        f"{definition.cls.__name__} update {name}"
        for definition in workflow_definitions()
        for name, update in definition.updates.items()
        if name and update.validator is None
    ]
    assert not silent


def _snake(name: str) -> str:
    """Return ``PoolWorkflow`` as ``pool_workflow``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _decorator_pins_a_name(thing: object, decorator: str) -> bool:
    source = inspect.getsource(typing.cast("Any", thing))
    node = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == decorator
        and any(keyword.arg == "name" for keyword in call.keywords)
        for call in node.decorator_list
    )

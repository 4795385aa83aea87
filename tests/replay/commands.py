"""The commands that each workflow module gives to Temporal, in the order of its source.

Read from the syntax tree, so that comments and everything else that a replay does not see do not count; nor do the
names and the order of functions. A change here is a change that may break repairs that are running.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).with_name("commands.json")
MODULES = tuple(sorted(path.stem for path in (ROOT / "workflows").glob("[a-z]*.py")))

COMMANDS = frozenset(
    {
        "continue_as_new",
        "deprecate_patch",
        "execute_activity_method",
        "execute_child_workflow",
        "execute_local_activity_method",
        "get_external_workflow_handle",
        "patched",
        "random",
        "signal",
        "sleep",
        "start_activity_method",
        "start_child_workflow",
        "start_local_activity_method",
        "upsert_memo",
        "upsert_search_attributes",
        "uuid4",
        "wait_condition",
    }
)


def commands_of(source: str) -> dict[str, list[str]]:
    """Return the commands of each function: ``name(first argument)``, and ``with a timer`` where it bounds a wait."""
    found: dict[str, list[str]] = {}
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
            calls = list(_calls(function))
            if calls:
                found[function.name] = calls
    return found


def _calls(function: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
            continue
        yield from _calls(node)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in COMMANDS or ast.unparse(node.func).startswith("workflow.signal"):
            continue
        first = node.args[0] if node.args else None
        about = ast.unparse(first) if isinstance(first, ast.Attribute | ast.Constant) else ""
        timer = " with a timer" if any(keyword.arg == "timeout" for keyword in node.keywords) else ""
        yield f"{node.func.attr}({about}){timer}"


def current() -> dict[str, dict[str, list[str]]]:
    """Return the commands of all workflow modules as they are now."""
    return {name: commands_of((ROOT / "workflows" / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES}


def recorded() -> dict[str, dict[str, list[str]]]:
    """Return the commands as they were when the histories were recorded."""
    read: dict[str, dict[str, list[str]]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return read


def write() -> None:
    """Record the commands as they are now."""
    RECORDED.write_text(json.dumps(current(), indent=2, sort_keys=True) + "\n", encoding="utf-8")

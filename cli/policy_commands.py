"""Commands about what is decided: ``policy check``, ``policy explain``, ``catalog``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import CouldNotError, RefusedError
from domain.faults import Severity

if TYPE_CHECKING:
    from domain.catalog import FaultClass
    from domain.policy import Policy, Rule

PolicyPath = Annotated[Path, typer.Argument(metavar="FILE", help="The policy, in YAML.")]
PANEL = "Decide"
_STYLE = {"auto": "green", "approve": "yellow", "observe": "dim"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    policy = typer.Typer(
        help="Check a policy, or ask it who decides what.",
        no_args_is_help=True,
        epilog="Example: kintsugi policy check policy.yaml",
    )
    policy.command(epilog="Example: kintsugi policy check policy.yaml")(check)
    policy.command(epilog="Example: kintsugi policy explain policy.yaml --fault gpu.fallen_off_bus --pool train")(
        explain
    )
    app.add_typer(policy, name="policy", rich_help_panel=PANEL)
    app.command(
        rich_help_panel=PANEL, epilog="Examples: kintsugi catalog 'gpu.*'   kintsugi catalog gpu.fallen_off_bus"
    )(catalog)


def read_policy(path: Path) -> Policy:
    """Return the policy in a file.

    Raises:
        CouldNotError: the file cannot be read.
        RefusedError: it is not valid; one line for each problem.
    """
    from adapters.policy_file import PolicyError, load_policy

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise CouldNotError(f"{path}: {why}") from None
    try:
        return load_policy(text, str(path))
    except PolicyError as error:
        raise RefusedError(f"the policy is not valid\n{error}") from None


def check(file: PolicyPath) -> None:
    """Check a policy. Each problem is printed with its line."""
    policy = read_policy(file)
    acts = sorted({rule.decide.value for rule in policy.rules})
    print(f"{file}: valid; {len(policy.rules)} rules ({', '.join(acts) or 'observes everything'})")


def explain(
    file: PolicyPath,
    fault: Annotated[str, typer.Option("--fault", help="Fault class; `kintsugi catalog` lists them.")],
    pool: Annotated[str, typer.Option("--pool", help="Pool of the node.")] = "default",
    cluster: Annotated[str, typer.Option("--cluster", help="Cluster of the node.")] = "local",
    severity: Annotated[Severity | None, typer.Option("--severity", help="When it differs from the catalog's.")] = None,
) -> None:
    """Print which rule decides each action for a fault in a pool."""
    from rich.table import Table
    from rich.text import Text

    from cli.terminal import console, took
    from domain.policy import Action

    known = _fault_class(fault)
    policy = read_policy(file)
    weight = severity or known.severity
    table = Table("action", "who decides", "rule", "approvals", "answer within", "then", box=None, padding=(0, 1))
    for action in Action:
        rule = policy.rule(cluster, pool, fault, weight, action)
        asked = rule.decide.value == "approve"
        table.add_row(
            action, Text(rule.decide, style=_STYLE[rule.decide]), _name(rule, policy),
            str(rule.approvals) if asked else "", took(rule.answer_within) if asked else "",
            rule.no_answer if asked else "",
        )  # fmt: skip
    ours = policy.for_pool(pool)
    ladder = policy.ladder_for(fault)
    out = console()
    out.print(Text(f"{fault} ({weight}) in {cluster}/{pool}", style="bold"))
    out.print(table)
    out.print(f"ladder: {' → '.join(ladder or known.ladder)} ({'policy' if ladder else 'catalog'})")
    out.print(f"grace before a rung is run: {took(policy.grace_for(fault))}")
    out.print(
        f"budget: {ours.budget.max_nodes} nodes and {ours.budget.max_percent:g} %, the stricter;"
        f" breaker: {ours.breaker.nodes} nodes within {took(ours.breaker.window)}; cool-down: {took(ours.cool_down)}"
    )


def _name(rule: Rule, policy: Policy) -> str:
    if rule not in policy.rules:
        return rule.name
    return f"{rule.name} (rule {policy.rules.index(rule) + 1})"


def catalog(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A fault class, or a pattern.")] = None,
) -> None:
    """Print the fault classes: severity, reach, ladder, what they mean and when they are over."""
    from rich.table import Table
    from rich.text import Text

    from cli.terminal import console
    from domain.catalog import CATALOG

    out = console()
    if name is not None and name in CATALOG:
        found = CATALOG[name]
        out.print(Text(f"{found.name}: {found.title}", style="bold"))
        out.print(f"severity {found.severity}, reaches the {found.scope}, ladder {' → '.join(found.ladder)}")
        out.print(Text(found.explanation))
        out.print(Text(f"over when: {found.clears}"))
        out.print(Text(f"source: {found.source}", style="dim"))
        return
    fitting = [entry for entry in CATALOG.values() if name is None or fnmatchcase(entry.name, name)]
    if not fitting:
        _fault_class(name or "")
    table = Table("fault class", "severity", "scope", "ladder", "what", box=None, padding=(0, 1))
    for entry in fitting:
        table.add_row(entry.name, entry.severity, entry.scope, " → ".join(entry.ladder), entry.title)
    out.print(table)


def _fault_class(name: str) -> FaultClass:
    import difflib

    from domain.catalog import CATALOG

    if name in CATALOG:
        return CATALOG[name]
    close = difflib.get_close_matches(name, list(CATALOG), n=1)
    hint = f": did you mean {close[0]}?" if close else "; `kintsugi catalog` lists them"
    raise RefusedError(f"there is no fault class {name!r}{hint}")

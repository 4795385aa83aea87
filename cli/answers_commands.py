"""Commands by which a person answers: ``approve``, ``reject``, ``pause``, ``resume``, ``abort``, ``override`` …"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client import ANSWER_SECONDS, Address, Namespace, address_to_show, connected, run
from cli.commands_to_type import me
from cli.errors import CouldNotError, RefusedError
from cli.look_commands import Repair
from domain.model import Message
from domain.repair import OverrideAction

if TYPE_CHECKING:
    from temporalio.client import Client

    from domain.repair import Answer


def _somebody(by: str) -> str:
    if not by.strip():
        raise typer.BadParameter("say who you are: it goes to the ledger")
    return by


By = Annotated[
    str,
    typer.Option(
        "--by", help="Who says so; goes to the ledger.", show_default="you", default_factory=me, callback=_somebody
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; goes to the ledger.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")]
Pool = Annotated[str, typer.Argument(metavar="CLUSTER/POOL", help="The pool; its name alone if only one has it.")]
PANEL = "Answer"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands: list[tuple[Callable[..., None], str]] = [
        (approve, "kintsugi approve gpu-3   (shows what waits, and asks)"),
        (reject, "kintsugi reject gpu-3 --reason 'firmware update first'"),
        (pause, "kintsugi pause gpu-3 --reason 'electrician in the rack'"),
        (resume, "kintsugi resume gpu-3"),
        (abort, "kintsugi abort gpu-3 --reason 'I take it from here'"),
        (override, "kintsugi override gpu-3 burn_in --reason 'reseated the card'"),
        (close_breaker, "kintsugi close-breaker local/train --reason 'the check was wrong'"),
        (admit, "kintsugi admit local/train gpu-3 --reason 'it holds the job up'"),
    ]
    for command, example in commands:
        name = command.__name__.replace("_", "-")
        app.command(name, rich_help_panel=PANEL, epilog=f"Example: {example}")(command)


def approve(
    repair: Repair,
    by: By,
    step: Annotated[str | None, typer.Option("--step", help="The step; what waits now when left out.")] = None,
    digest: Annotated[str | None, typer.Option("--digest", help="The plan you saw; the one now when left out.")] = None,
    reason: Reason = "",
    yes: Yes = False,
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """Approve the step that a repair waits for. What you approve is printed first."""
    from cli import lookup, render
    from cli.terminal import console
    from domain.repair import Approve

    async def say() -> None:
        async with connected(address, namespace) as client:
            repair_id = await lookup.find_repair(client, repair)
            state = (await lookup.get_repair(client, repair_id)).state
            wait = state.wait
            if state.outcome is not None:
                raise RefusedError(f"this repair is over ({state.outcome}): {state.outcome_detail}")
            if wait is None:
                raise RefusedError(f"nothing waits for an answer now; the repair is in phase {state.phase}")
            console().print(render.wait_text(state, wait, address_to_show(client)))
            if wait.override_only:
                raise RefusedError("an approval is not enough here: use override or abort")
            _confirm(f"Approve {step or wait.step_id} of plan {digest or wait.digest} as {by}?", yes)
            said = Approve(by=by, step=step or wait.step_id, digest=digest or wait.digest, reason=reason)
            await _tell(client, repair_id, "approve", said)

    run(say())


def reject(
    repair: Repair,
    by: By,
    step: Annotated[str | None, typer.Option("--step", help="The step; what waits now when left out.")] = None,
    reason: Reason = "",
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """Say no to the step that a repair waits for; it then holds until an override or abort."""
    from cli import lookup
    from domain.repair import Reject

    async def say() -> None:
        async with connected(address, namespace) as client:
            repair_id = await lookup.find_repair(client, repair)
            asked = step
            if asked is None:
                wait = (await lookup.get_repair(client, repair_id)).state.wait
                if wait is None:
                    raise RefusedError("nothing waits for an answer now")
                asked = wait.step_id
            await _tell(client, repair_id, "reject", Reject(by=by, step=asked, reason=reason))

    run(say())


def pause(repair: Repair, by: By, reason: Reason = "", address: Address = None, namespace: Namespace = None) -> None:
    """Let no further step begin until `resume`; the one under way goes on."""
    from domain.repair import Pause

    run(_to_repair(repair, "pause", Pause(by=by, reason=reason), address, namespace))


def resume(repair: Repair, by: By, reason: Reason = "", address: Address = None, namespace: Namespace = None) -> None:
    """Go on after a pause."""
    from domain.repair import Resume

    run(_to_repair(repair, "resume", Resume(by=by, reason=reason), address, namespace))


def abort(
    repair: Repair,
    by: By,
    reason: Reason = "",
    give_back: Annotated[
        bool, typer.Option("--give-back", help="Also undo our quarantine, on your word and without proof.")
    ] = False,
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """Stop a repair. The node stays out, in your hands, unless --give-back."""
    from domain.repair import Abort

    run(_to_repair(repair, "abort", Abort(by=by, reason=reason, give_back=give_back), address, namespace))


def override(
    repair: Repair,
    action: Annotated[OverrideAction, typer.Argument(help="What to do now instead; `proceed` does the waiting step.")],
    by: By,
    reason: Annotated[str, typer.Option("--reason", help="Why; goes to the ledger. Required.")],
    yes: Yes = False,
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """Order by name what a repair does next, whatever the policy says."""
    from domain.repair import Override

    if not reason.strip():
        raise CouldNotError("an override needs a --reason: it goes to the ledger under your name")
    if action is OverrideAction.RETURN:
        _confirm(f"Give the node of {repair} back without burn-in, on the word of {by}?", yes)
    run(_to_repair(repair, "override", Override(by=by, action=action, reason=reason), address, namespace))


def close_breaker(
    pool: Pool, by: By, reason: Reason = "", address: Address = None, namespace: Namespace = None
) -> None:
    """Close a pool's breaker: repairs may start again."""
    from domain.pool import CloseBreaker

    run(_to_pool(pool, "close_breaker", CloseBreaker(by=by, reason=reason), address, namespace))


def admit(
    pool: Pool,
    node: Annotated[str, typer.Argument(help="The node whose repair waits.")],
    by: By,
    reason: Reason = "",
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """Start a waiting repair although the pool would wait (budget, cool-down)."""
    from domain.pool import Admit

    run(_to_pool(pool, "admit", Admit(by=by, node=node, reason=reason), address, namespace))


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CouldNotError("nobody can be asked here; say --yes when you mean it")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing was sent")


async def _to_repair(repair: str, name: str, said: Message, address: str | None, namespace: str | None) -> None:
    from cli import lookup

    async with connected(address, namespace) as client:
        await _tell(client, await lookup.find_repair(client, repair), name, said)


async def _to_pool(pool: str, name: str, said: Message, address: str | None, namespace: str | None) -> None:
    from cli import lookup
    from workflows.ids import pool_workflow_id

    async with connected(address, namespace) as client:
        await _tell(client, pool_workflow_id(*await lookup.find_pool(client, pool)), name, said)


async def _tell(client: Client, workflow_id: str, name: str, said: Message) -> None:
    answer = await tell(client, workflow_id, name, said)
    print(answer.message)
    if not answer.accepted:
        raise RefusedError("refused")


async def tell(client: Client, workflow_id: str, name: str, said: Message) -> Answer:
    """Say something to a workflow and return its answer.

    Raises:
        RefusedError: it does not apply now; the text is the workflow's own.
        CouldNotError: nobody answered in time, so it is not known whether it was heard.
    """
    import asyncio
    import shlex

    from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError

    from domain.repair import Answer

    handle = client.get_workflow_handle(workflow_id)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer: Answer = await handle.execute_update(f"{name}_update", said, result_type=Answer)
            return answer
    except WorkflowUpdateFailedError as error:
        raise RefusedError(str(getattr(error.cause, "message", error.cause))) from None
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        signal = ["temporal", "workflow", "signal", "--workflow-id", workflow_id, "--name", name]
        raise CouldNotError(
            f"no worker answered within {ANSWER_SECONDS:.0f} s, so nobody knows whether it was heard: look with"
            " `kintsugi show`. A signal waits until a worker is back:\n  "
            + shlex.join([*signal, "--input", said.model_dump_json()])
        ) from None

"""The control plane of one machine: which processes, on which ports, in which order."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import temporalio.api.enums.v1
import temporalio.api.taskqueue.v1
import temporalio.api.workflowservice.v1
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

from cli import control_plane, temporal_server
from cli.control_plane import ControlPlane
from cli.errors import CouldNotError
from cli.launch import environment, module_command
from cli.ports import LOOPBACK, answers, is_free, prefer
from cli.supervisor import Child, Supervisor
from cli.terminal import console
from runtime import temporal
from runtime.settings import GatewaySettings, SettingsError, WorkerSettings, load
from workflows.ids import WORKFLOW_TASK_QUEUE

_PYTHON_LEVEL = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR"}


@dataclass(frozen=True)
class Wanted:
    """What ``kintsugi up`` was asked for."""

    state_dir: Path
    policy: Path | None
    port: int
    ui_port: int
    log_level: str


async def run_until_stopped(wanted: Wanted) -> None:
    """Start everything, say where it is, and stop it in order on SIGINT or SIGTERM.

    Raises:
        CouldNotError: something cannot be started; everything that was is stopped again.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    supervisor = Supervisor(lambda text: console().print(text, style="yellow", markup=False))
    with _only_one(wanted.state_dir):
        starting = asyncio.create_task(_start(supervisor, wanted))
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                plane = starting.result()
                control_plane.announce(wanted.state_dir, plane)
                _say_where(plane, wanted)
                await stopped
                console().print("stopping …")
        finally:
            for task in (starting, stopped):
                task.cancel()
            await asyncio.gather(starting, stopped, return_exceptions=True)
            control_plane.withdraw(wanted.state_dir)
            await supervisor.stop()


async def _start(supervisor: Supervisor, wanted: Wanted) -> ControlPlane:
    try:
        gateway_settings = load(GatewaySettings)
        worker_settings = load(WorkerSettings)
        configured = ClientConfig.load_client_connect_config()
    except (SettingsError, ValueError, RuntimeError) as error:
        raise CouldNotError(str(error)) from None
    level = _PYTHON_LEVEL[wanted.log_level]
    address = configured.get("target_host")
    web_ui = ""
    if address is None:
        address, web_ui = await start_temporal(
            supervisor, wanted.state_dir, wanted.port, wanted.ui_port, wanted.log_level
        )
    client = await reach(address)
    listen = gateway_settings.listen
    if "listen" not in gateway_settings.model_fields_set:
        listen = f"{LOOPBACK}:{prefer(7443)}"
    elif (port := listen.rpartition(":")[2]).isdigit() and not is_free(int(port)):
        raise CouldNotError(f"the gateway's address {listen} is taken by another program (KINTSUGI_GATEWAY_LISTEN)")
    given = {"TEMPORAL_ADDRESS": address}
    await start_gateway(supervisor, wanted.state_dir, {**given, "KINTSUGI_GATEWAY_LISTEN": listen}, level)
    ledger = wanted.state_dir / "ledger.db"
    if "ledger" in worker_settings.model_fields_set:
        ledger = worker_settings.ledger
    given["KINTSUGI_WORKER_LEDGER"] = str(ledger)
    if wanted.policy is not None:
        given["KINTSUGI_WORKER_POLICY"] = str(wanted.policy)
    await start_worker(supervisor, wanted.state_dir, given, client, level)
    return ControlPlane(
        pid=os.getpid(), temporal=address, namespace=client.namespace, web_ui=web_ui, gateway=listen, ledger=ledger
    )


async def start_temporal(
    supervisor: Supervisor, state_dir: Path, port: int, ui_port: int, log_level: str = "warn"
) -> tuple[str, str]:
    """Start the embedded Temporal; return its address and the URL of its web UI. Taken ports give way to free ones."""
    port, ui_port = prefer(port), prefer(ui_port)
    address = f"{LOOPBACK}:{port}"
    child = Child(
        "temporal",
        temporal_server.command(port, ui_port, state_dir / "temporal.db", log_level),
        state_dir / "temporal.log",
        environment(),
        stop_seconds=10,
    )

    async def ready() -> bool:
        return await answers(address) and await _serves(address)

    await supervisor.add(child, ready, within_seconds=60)
    return address, f"http://{LOOPBACK}:{ui_port}"


async def _serves(address: str) -> bool:
    try:
        await temporal.connect(address, attempts=1)
    except (ConnectionError, SettingsError):
        return False
    return True


async def reach(address: str) -> Client:
    """Return a client. Raises ``CouldNotError`` when Temporal does not answer there."""
    try:
        async with asyncio.timeout(20):
            return await temporal.connect(address, attempts=3)
    except (ConnectionError, SettingsError, TimeoutError) as error:
        raise CouldNotError(str(error) or f"Temporal at {address} does not answer within 20 s") from None


async def start_gateway(supervisor: Supervisor, state_dir: Path, given: dict[str, str], level: str) -> None:
    """Start the gateway at ``KINTSUGI_GATEWAY_LISTEN`` and wait until it takes connections."""
    listen = given["KINTSUGI_GATEWAY_LISTEN"]
    host, _, port = listen.rpartition(":")
    reachable = f"{LOOPBACK if host in ('0.0.0.0', '[::]', '') else host}:{port}"
    child = Child(
        "gateway",
        module_command("gateway"),
        state_dir / "gateway.log",
        environment({"KINTSUGI_GATEWAY_LOG_LEVEL": level, **given}),
    )
    await supervisor.add(child, lambda: answers(reachable), within_seconds=60)


async def start_worker(
    supervisor: Supervisor, state_dir: Path, given: dict[str, str], client: Client, level: str
) -> None:
    """Start a worker and wait until Temporal sees it ask for work."""
    child = Child(
        "worker",
        module_command("worker"),
        state_dir / "worker.log",
        environment({"KINTSUGI_WORKER_LOG_LEVEL": level, **given}),
        stop_seconds=20,
    )
    await supervisor.add(child, lambda: _is_polled(client), within_seconds=90)


async def _is_polled(client: Client) -> bool:
    request = temporalio.api.workflowservice.v1.DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=temporalio.api.taskqueue.v1.TaskQueue(name=WORKFLOW_TASK_QUEUE),
        task_queue_type=temporalio.api.enums.v1.TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        return bool((await client.workflow_service.describe_task_queue(request)).pollers)
    except RPCError:
        return False


@contextmanager
def _only_one(state_dir: Path) -> Iterator[None]:
    """Hold the state directory against a second control plane. The kernel lets go when this process dies."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CouldNotError(
            f"the state directory {state_dir} cannot be used: {error.strerror}; see --state-dir"
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            running = control_plane.running(state_dir)
            who = f" (process {running.pid})" if running else ""
            raise CouldNotError(
                f"a control plane runs in {state_dir} already{who}; stop it, or use --state-dir"
            ) from None
        yield
    finally:
        os.close(handle)


def _say_where(plane: ControlPlane, wanted: Wanted) -> None:
    out = console()
    out.print("Kintsugi is up. Ctrl-C stops it.", style="bold green")
    rows = [
        ("Temporal", plane.temporal + ("" if plane.web_ui else " (configured, not started here)")),
        ("web UI", plane.web_ui),
        ("gateway", plane.gateway),
        ("policy", str(wanted.policy) if wanted.policy else "built-in: observes, acts on nothing (see --policy)"),
        ("ledger", str(plane.ledger)),
        ("logs", f"{wanted.state_dir}/*.log"),
    ]
    for name, value in rows:
        if value:
            out.print(f"  {name:<9} {value}", markup=False, soft_wrap=True)
    out.print("Next:")
    where = "" if wanted.state_dir == control_plane.default_state_dir() else f" --address {plane.temporal}"
    nexts = [
        (f"KINTSUGI_AGENT_GATEWAY={plane.gateway} kintsugi agent", "a node agent, here or elsewhere"),
        (f"kintsugi pool{where}", "nodes and their health"),
        (f"kintsugi repairs{where}", "what is being repaired"),
    ]
    wide = max(len(command) for command, _ in nexts)
    for command, what in nexts:
        out.print(f"  {command:<{wide}}  {what}", markup=False, soft_wrap=True)

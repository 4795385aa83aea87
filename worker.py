"""The worker: hosts the workflows, and the activities of one cluster. The only place that wires adapters."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

import activities
import domain
from activities.current_policy import PolicyActivities
from activities.registry import World, effects
from adapters.ledger.sqlite import SqliteLedger
from adapters.node_agent.client import NodeAgentClient
from adapters.notify.apprise_notifier import AppriseNotifier
from adapters.policy_file.loader import PolicyFile
from adapters.simulated.cluster import SimulatedCluster
from adapters.standalone.scheduler import NoPower, NoProvisioner, StandaloneScheduler
from domain.errors import KintsugiError
from runtime import exits, logs
from runtime.settings import SettingsError, WorkerSettings, load
from runtime.temporal import connect, ensure_search_attributes, sandbox_runner
from workflows import search_attributes
from workflows.ids import WORKFLOW_TASK_QUEUE, cluster_task_queue
from workflows.pool_workflow import PoolWorkflow
from workflows.repair_workflow import RepairWorkflow

log = logging.getLogger(__name__)

HEARTBEAT_THROTTLE = timedelta(seconds=0.5)
"""Heartbeats carry progress bars, and a cancelled activity hears of it only when it heartbeats."""


def wire(settings: WorkerSettings) -> World:
    """Return the adapters that the settings name.

    Raises:
        KintsugiError: the policy file or the ledger cannot be used; the text says why.
    """
    agents = NodeAgentClient(settings.tls)
    ledger = SqliteLedger(settings.ledger)
    notifier = AppriseNotifier(settings.notify_urls)
    policy = PolicyFile(settings.policy)
    if settings.scheduler == "simulated":
        cluster = SimulatedCluster(settings.simulator)
        return World(cluster, cluster, cluster, agents, ledger, notifier, policy)
    standalone = StandaloneScheduler(settings.ledger.with_name("standalone.db"))
    return World(standalone, NoPower(), NoProvisioner(), agents, ledger, notifier, policy)


def workers(client: Client, cluster: str, world: World, shutdown: timedelta) -> tuple[Worker, Worker]:
    """Return the worker of the workflows and the worker of the cluster's activities."""
    workflows = Worker(
        client,
        task_queue=WORKFLOW_TASK_QUEUE,
        workflows=[PoolWorkflow, RepairWorkflow],
        activities=[PolicyActivities(world.policy).current],
        workflow_runner=sandbox_runner(),
        graceful_shutdown_timeout=shutdown,
    )
    acting = Worker(
        client,
        task_queue=cluster_task_queue(cluster),
        activities=effects(world),
        graceful_shutdown_timeout=shutdown,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
    )
    return workflows, acting


async def serve(settings: WorkerSettings) -> None:
    """Work until SIGTERM or SIGINT; running activities get the settings' time to end by themselves."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    world = wire(settings)
    await world.policy.current()
    connecting = asyncio.create_task(connect(metrics_listen=settings.metrics_listen))
    stopped = asyncio.create_task(stop.wait())
    # Temporal may be away for as long as it likes; a stop must not wait for it.
    await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        connecting.cancel()
        return
    client = connecting.result()
    await ensure_search_attributes(client, search_attributes.ALL)
    workflows, acting = workers(client, settings.cluster, world, timedelta(seconds=settings.shutdown_seconds))
    async with workflows, acting:
        log.info("working for cluster %s, scheduler %s", settings.cluster, settings.scheduler)
        await stopped
        log.info("stopping")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the worker; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="kintsugi worker",
        description="Run workflows and one cluster's activities.",
        epilog="example: kintsugi worker --cluster prod --policy /etc/kintsugi/policy.yaml\n"
        "Every setting can also be given as KINTSUGI_WORKER_<NAME> or in the table [worker] of kintsugi.toml.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cluster", help="cluster whose activities run here")
    parser.add_argument("--policy", type=Path, help="policy file; without one the policy only observes")
    given = parser.parse_args(argv)
    if Path(activities.__file__).parent.parent != Path(domain.__file__).parent.parent:
        exits.complain(f"a foreign package named 'activities' is installed at {activities.__file__}; use an own venv")
        exits.leave(exits.USAGE)
    try:
        settings = load(WorkerSettings, cluster=given.cluster, policy=given.policy)
        logs.configure(settings.log_level, settings.log_json)
        asyncio.run(serve(settings))
    except (SettingsError, KintsugiError, OSError) as error:
        exits.complain(str(error))
        exits.leave(exits.USAGE)
    except RPCError as error:
        exits.complain(f"Temporal did not let this worker set itself up: {error}")
        exits.leave(1)
    except KeyboardInterrupt:
        exits.leave(exits.INTERRUPTED)
    exits.leave(exits.OK)


if __name__ == "__main__":
    main()

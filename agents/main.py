"""The node agent as a process: settings, composition, signals and exit status."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import agents
import domain
from agents.agent import Agent
from agents.boot import read_boot_facts
from agents.errors import StartError
from agents.kernel.kmsg import KmsgSource
from agents.operations.driver import OperationDriver
from agents.operations.inspect_only import InspectOnlyDriver
from agents.probe.nvml_probe import NvmlProbe
from runtime import exits, logs
from runtime.settings import AgentSettings, SettingsError, load

log = logging.getLogger(__name__)

_EXAMPLES = """\
examples:
  kintsugi agent                                 watch this node, report to the gateway on 127.0.0.1:7443
  kintsugi agent --gateway gw.example.com:7443 --cluster prod --pool h100
  kintsugi agent --state-dir ./agent-state       without root
  kintsugi agent --accept-injected               a drill: act on lines that a process wrote to /dev/kmsg

Every setting can also be given as KINTSUGI_AGENT_<NAME> or in the table [agent] of kintsugi.toml; TLS is set there.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; what is not given stays with the settings."""
    made = argparse.ArgumentParser(
        prog="kintsugi agent",
        description="Watch this node's kernel log and GPUs, report faults, carry out operations.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--gateway", metavar="HOST:PORT", help="the gateway to report to")
    made.add_argument("--cluster", metavar="NAME", help="the cluster this node belongs to")
    made.add_argument("--pool", metavar="NAME", help="the pool this node belongs to")
    made.add_argument("--node", metavar="NAME", help="this node's name in its scheduler (default: the host name)")
    made.add_argument("--state-dir", metavar="DIR", type=Path, help="spool and journal; must survive restarts")
    made.add_argument("--listen", metavar="HOST:PORT", help="where operations are served; port 0 picks a free one")
    made.add_argument(
        "--accept-injected",
        action="store_true",
        default=None,
        help="act on kernel log records that a process wrote (tests and drills only)",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the agent until SIGTERM or SIGINT and leave with its exit status."""
    _refuse_foreign_package()
    options = parser().parse_args(arguments)
    try:
        settings = load(AgentSettings, **vars(options))
        logs.configure(settings.log_level, settings.log_json)
        status = asyncio.run(_serve(settings))
    except (SettingsError, StartError) as error:
        exits.complain(str(error))
        status = exits.USAGE
    except KeyboardInterrupt:
        status = exits.INTERRUPTED
    except Exception as error:
        log.debug("the agent broke", exc_info=True)
        exits.complain(f"the agent broke: {_root_cause(error)}. KINTSUGI_AGENT_LOG_LEVEL=DEBUG shows where")
        status = 1
    exits.leave(status)


def choose_driver(name: str) -> OperationDriver:
    """Return what carries out operations.

    Raises:
        StartError: no driver has this name.
    """
    if name == "none":
        return InspectOnlyDriver()
    raise StartError(f"the setting `driver` (KINTSUGI_AGENT_DRIVER) is {name!r}, but only 'none' is known")


async def _serve(settings: AgentSettings) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gpus = NvmlProbe(settings.probe_deadline_seconds)
    agent = Agent(settings, read_boot_facts(), KmsgSource(settings.kernel_log), gpus, choose_driver(settings.driver))
    running = asyncio.create_task(agent.run(), name="agent")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
            raise RuntimeError("it ended by itself")
        log.info("stopping")
        return exits.OK
    finally:
        for task in (running, stopping):
            task.cancel()
        await asyncio.wait((running, stopping))
        await gpus.close()


def _refuse_foreign_package() -> None:
    """Stop when `agents` is another project's package: the name is taken on PyPI too."""
    ours = Path(str(domain.__file__)).resolve().parent.parent
    found = Path(str(agents.__file__)).resolve().parent.parent
    if found != ours:
        exits.complain(
            f"the package `agents` was found in {found}, but Kintsugi is in {ours}: another project's package hides"
            " ours. Use an environment of its own for Kintsugi"
        )
        exits.leave(exits.USAGE)


def _root_cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1:])

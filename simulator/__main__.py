"""``python -m simulator``: serves a simulated cluster until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from simulator import gangs
from simulator.scenarios import TRAINING_NODES, training_job
from simulator.service import WorldService
from simulator.timing import Timing
from simulator.world import Layout, World


def main() -> int:
    """Read the command line, serve, and return the exit status."""
    parser = _parser()
    options = parser.parse_args()
    try:
        timing = Timing.model_validate(dict(options.timing))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        parser.error(f"--timing {first['loc'][0]}: {first['msg']} (known: {', '.join(Timing.model_fields)})")
    layout = Layout(options.cluster, options.pool, options.nodes, options.spares, options.gpus)
    world = World(layout, seed=options.seed, timing=timing, began=datetime.now(UTC), speed=options.speed)
    if options.job_nodes:
        gangs.submit(world, training_job(min(options.job_nodes, options.nodes), options.gpus))
    try:
        asyncio.run(_serve(WorldService(world, options.speed), options.listen, options.ready_file))
    except OSError as error:
        parser.exit(2, f"simulator: {error}\n")
    return 0


async def _serve(service: WorldService, listen: str, ready_file: Path | None) -> None:
    serving = asyncio.create_task(service.serve(listen, lambda address: _tell(address, ready_file)))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        if not serving.cancelled():
            raise


def _tell(address: str, ready_file: Path | None) -> None:
    print(f"simulated cluster at {address}", flush=True)
    if ready_file is not None:
        # Renamed into place, so that nobody reads half an address.
        draft = ready_file.with_name(ready_file.name + ".new")
        draft.write_text(address, encoding="utf-8")
        os.replace(draft, ready_file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator", description="Serve a simulated GPU cluster.")
    parser.add_argument("--listen", default="127.0.0.1:7450", help="host:port; port 0 picks a free one")
    parser.add_argument("--cluster", default="local", help="name of the cluster")
    parser.add_argument("--pool", default="h100", help="name of its one pool")
    parser.add_argument("--nodes", type=_between(1, 5000), default=8, help="nodes, gpu-01 and so on")
    parser.add_argument("--spares", type=_between(0, 500), default=1, help="hot spares, spare-01 and so on")
    parser.add_argument("--gpus", type=_between(1, 16), default=8, help="GPUs of each node")
    parser.add_argument(
        "--job-nodes", type=_between(0, 5000), default=TRAINING_NODES, help="nodes of the training job, 0 for no job"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same cluster")
    parser.add_argument("--speed", type=_speed, default=1.0, help="simulated seconds in a second")
    parser.add_argument(
        "--timing",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=SECONDS",
        help=f"how long something takes, in simulated seconds: {', '.join(Timing.model_fields)}",
    )
    parser.add_argument("--ready-file", type=Path, help="file to write the address to once it is served")
    return parser


def _between(low: int, high: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be {low} to {high}")
        return value

    return number


def _speed(text: str) -> float:
    value = float(text)
    if not 0 < value <= 10_000:
        raise argparse.ArgumentTypeError("must be above 0 and at most 10000")
    return value


def _pair(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    if name not in Timing.model_fields:
        raise argparse.ArgumentTypeError(f"{name!r} is unknown; choose one of {', '.join(Timing.model_fields)}")
    try:
        return name, float(seconds)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SECONDS") from None


if __name__ == "__main__":
    raise SystemExit(main())

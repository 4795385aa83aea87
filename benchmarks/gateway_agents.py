"""What a connected agent costs one gateway process.

A gateway runs in a process of its own, with a hand-over that accepts everything at once. This process connects
light agents to it, each on a TCP connection of its own, saying hello with eight GPUs and then a heartbeat every
five seconds, and reads the gateway's memory before and after. Everything is on loopback, without TLS.

    python benchmarks/gateway_agents.py                 2,000 agents for 15 s
    python benchmarks/gateway_agents.py --agents 500 --seconds 5
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import grpc.aio
import psutil

from domain.nodes import Gpu, Inventory, NodeIdentity, NodeRef
from domain.reports import PoolReport
from gateway.server import Gateway
from runtime.settings import GatewaySettings
from wire import convert
from wire.v1 import health_pb2, health_pb2_grpc

Stream: TypeAlias = grpc.aio.StreamStreamCall[health_pb2.AgentMessage, health_pb2.GatewayMessage]

AT_ONCE = 64
KIB = 1024
MIB = 1024 * 1024


class TakesAll:
    """A hand-over that accepts every report at once."""

    async def send(self, cluster: str, pool: str, report: PoolReport, request_id: str) -> None:
        """Accept."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=2000, help="how many agents connect (default 2000)")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long heartbeats run (default 15)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if arguments.serve:
        asyncio.run(_serve())
    else:
        command = [sys.executable, __file__, "--serve"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            port = int(child.stdout.readline())
            asyncio.run(_measure(port, psutil.Process(child.pid), arguments.agents, arguments.seconds))
            child.stdin.close()


async def _serve() -> None:
    gateway = Gateway(GatewaySettings(listen="127.0.0.1:0", silence_seconds=60.0), TakesAll())
    await gateway.start()
    print(gateway.port, flush=True)
    # Until the measuring process closes the pipe, whichever way it ends.
    await asyncio.to_thread(sys.stdin.read)
    await gateway.stop()


async def _measure(port: int, gateway: psutil.Process, agents: int, seconds: float) -> None:
    channels: list[grpc.aio.Channel] = []
    gate = asyncio.Semaphore(AT_ONCE)
    await _one(port, agents, gate, channels)  # the first connection loads what all of them share
    before = gateway.memory_info().rss
    began = time.monotonic()
    calls = await asyncio.gather(*(_one(port, number, gate, channels) for number in range(agents)))
    connecting = time.monotonic() - began
    connected = gateway.memory_info().rss
    used = gateway.cpu_times()
    await _beat(calls, seconds)
    after = gateway.memory_info().rss
    cpu = gateway.cpu_times()
    for call in calls:
        call.cancel()
    await asyncio.gather(*(channel.close() for channel in channels))
    busy = (cpu.user + cpu.system - used.user - used.system) / seconds
    print(f"agents connected            {agents}")
    print(f"connect rate                {agents / connecting:.0f} /s ({connecting:.1f} s, {AT_ONCE} at once)")
    print(f"gateway RSS before          {before / MIB:.1f} MiB")
    print(f"gateway RSS connected       {connected / MIB:.1f} MiB")
    print(f"gateway RSS after {seconds:g} s     {after / MIB:.1f} MiB")
    print(f"per agent                   {(after - before) / agents / KIB:.1f} KiB")
    print(f"gateway CPU at heartbeats   {100 * busy:.1f} % of a core ({agents / 5:.0f} heartbeats/s)")


async def _one(port: int, number: int, gate: asyncio.Semaphore, channels: list[grpc.aio.Channel]) -> Stream:
    node = NodeRef(cluster="bench", pool="h100", name=f"gpu-{number}")
    inventory = Inventory(
        gpus=tuple(
            Gpu(
                uuid=f"GPU-{number:08d}-0000-0000-0000-{index:012d}",
                serial=f"165{number:07d}{index}",
                pci_bus_id=f"0000:{16 + index:02x}:00.0",
                model="NVIDIA H100 80GB HBM3",
                index=index,
            )
            for index in range(8)
        ),
        driver_version="570.124.06",
        kernel_release="6.8.0-60-generic",
    )
    identity = NodeIdentity(node=node, boot_id=f"boot-{number}", inventory=inventory)
    async with gate:
        channel = grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        )
        channels.append(channel)
        call: Stream = health_pb2_grpc.HealthStub(channel).Report()  # type: ignore[no-untyped-call]
        hello = health_pb2.Hello(identity=convert.identity_to_pb(identity), spool_id=f"spool-{number}")
        await call.write(health_pb2.AgentMessage(hello=hello))
        await call.read()
        return call


async def _beat(calls: list[Stream], seconds: float) -> None:
    ends = time.monotonic() + seconds
    sequence = 0
    while time.monotonic() < ends:
        sequence += 1
        message = health_pb2.AgentMessage(heartbeat=health_pb2.Heartbeat(sequence=sequence))
        pause = 5.0 / len(calls)
        began = time.monotonic()
        for number, call in enumerate(calls):
            await call.write(message)
            ahead = began + number * pause - time.monotonic()
            if ahead > 0.01:
                await asyncio.sleep(ahead)


if __name__ == "__main__":
    main()

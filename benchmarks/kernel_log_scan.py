"""Time our kernel log scan beside ``grep -c 'NVRM: Xid'`` on the same file, alternating, in one run.

    python -m benchmarks.kernel_log_scan [--gib 1] [--rounds 5] [--xid-every 4096] [--directory DIR]

The scan does what the agent does with every line: find it, read it, and give a finding. grep only counts. Both read
the file from the page cache, which one unmeasured pass of each fills.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from domain.kernel_scan import scan

GIB = 1 << 30
CHUNK = 1 << 19
NOISE_EVERY = 500
"""One line in so many is the driver's and tells of no fault."""

ORDINARY = (
    "systemd[1]: Started Session {n} of User root.",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "XFS (nvme0n1p2): Mounting V5 Filesystem",
    "mlx5_core 0000:{b:02x}:00.0: Port module event: module 0, Cable plugged",
    "nvidia-uvm: Loaded the UVM driver, major device number {n}.",
    'audit: type=1400 audit(1700000000.{n:03d}:2): apparmor="STATUS" operation="profile_load" pid={n}',
    "cni0: port {b}(veth{n:x}) entered blocking state",
    "Memory cgroup out of memory: Killed process {n} (python3) total-vm:{n}kB, anon-rss:{n}kB",
    "EXT4-fs (nvme1n1): mounted filesystem with ordered data mode. Quota mode: none.",
)
DRIVER_NOISE = (
    "NVRM: GPU at PCI:0000:{b:02x}:00: GPU-00000000-0000-0000-0000-{n:012d}",
    "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: (status == NV_OK) @ rs_client.c:{n}",
    "nvidia-nvswitch1: open (major=510)",
)
FAULTS = (
    "NVRM: Xid (PCI:0000:{b:02x}:00): 13, pid={n}, name=python3, Graphics SM Warp Exception on (GPC 9, TPC 1, SM 1)",
    "NVRM: Xid (PCI:0000:{b:02x}:00): 45, pid={n}, name=pt_main_thread, Ch 00000008",
    "NVRM: Xid (PCI:0000:{b:02x}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:{b:02x}:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "nvidia-nvswitch1: SXid (PCI:0000:{b:02x}:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
)


def write_log(path: Path, size: int, every: int, seed: int = 1) -> Counter[str]:
    """Write a log of about ``size`` bytes, one line in ``every`` telling of a fault; return how many of each kind.

    A block of 16 MiB is made once and repeated, so that writing takes seconds.
    """
    chance = random.Random(seed)
    lines: list[str] = []
    counts: Counter[str] = Counter()
    length = 0
    number = 0
    while length < min(size, 16 << 20):
        number += 1
        fault = number % every == 0
        noise = number % NOISE_EVERY == 0
        form = chance.choice(FAULTS if fault else DRIVER_NOISE if noise else ORDINARY)
        words = form.format(n=chance.randrange(1000, 4_000_000), b=chance.randrange(1, 255))
        line = f"[{number * 0.013:12.6f}] {words}\n"
        if fault:
            counts["xid" if "NVRM: Xid" in line else "sxid"] += 1
        lines.append(line)
        length += len(line)
    block = "".join(lines).encode()
    repeats = max(1, round(size / len(block)))
    with path.open("wb") as log:
        for _ in range(repeats):
            log.write(block)
    return Counter({kind: count * repeats for kind, count in counts.items()})


def read_in_chunks(path: Path) -> Iterator[bytearray]:
    """Yield the file piece by piece in one buffer that stays in the processor's cache."""
    buffer = bytearray(CHUNK)
    with path.open("rb", buffering=0) as log:
        while read := log.readinto(buffer):
            yield buffer if read == CHUNK else buffer[:read]


def our_scan(path: Path) -> tuple[float, Counter[str]]:
    begun = time.perf_counter()
    found = Counter(str(hit.finding.kind) for hit in scan(read_in_chunks(path)))
    return time.perf_counter() - begun, found


def grep_count(grep: str, path: Path) -> tuple[float, int]:
    begun = time.perf_counter()
    done = subprocess.run(
        [grep, "-c", "NVRM: Xid", str(path)], capture_output=True, check=True, text=True, env={"LC_ALL": "C"}
    )
    return time.perf_counter() - begun, int(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description="kernel log scan beside grep")
    parser.add_argument("--gib", type=float, default=1.0, help="size of the log in GiB")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each, alternating")
    parser.add_argument("--xid-every", type=int, default=4096, help="one line in so many tells of a fault")
    parser.add_argument("--directory", help="where the log is written (default: the system's temporary directory)")
    options = parser.parse_args()
    grep = shutil.which("grep")
    if grep is None:
        print("grep is not installed: there is nothing to compare with", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = Path(directory) / "kern.log"
        expected = write_log(path, int(options.gib * GIB), options.xid_every)
        size = path.stat().st_size
        found = our_scan(path)[1]
        if found != expected or grep_count(grep, path)[1] != expected["xid"]:
            print(f"the scan found {dict(found)}, the log holds {dict(expected)}", file=sys.stderr)
            return 1
        ours: list[float] = []
        greps: list[float] = []
        for _ in range(options.rounds):
            ours.append(our_scan(path)[0])
            greps.append(grep_count(grep, path)[0])
    for name, seconds in (("kintsugi scan", ours), ("grep -c 'NVRM: Xid'", greps)):
        rates = sorted(size / GIB / each for each in seconds)
        print(f"{name:22} {statistics.median(rates):6.2f} GiB/s   (of {len(rates)}: {rates[0]:.2f} to {rates[-1]:.2f})")
    ratio = statistics.median(greps) / statistics.median(ours)
    print(f"{'ratio to grep':22} {ratio:6.2f}         ({size / GIB:.2f} GiB, {dict(expected)} lines found)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

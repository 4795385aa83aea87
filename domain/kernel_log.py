"""Reading of kernel log lines: which lines of the NVIDIA driver tell of a fault, and what they say.

One line in, one finding out. The line may be the bare text of a ``/dev/kmsg`` record or carry the prefix of
``dmesg`` (all time formats and ``--decode``), journald, syslog or Talos. What stands before the driver's
words must be such a prefix as a whole: words that a device or a process smuggled into another kernel
message (a USB product name, a process name) are not the driver's.

A line is cut at ``MAX_LINE``, its prefix at ``MAX_PREFIX``, and every pattern is anchored and possessive or
bounded: time is linear in the line's length. Forms: ``kernel_rc.c`` and ``osapi.c`` of NVIDIA's
open-gpu-kernel-modules, and ``error_nvswitch.c`` for SXids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from domain.observations import MAX_TEXT

MAX_LINE = 8192
"""Characters of a line that are read; a ``/dev/kmsg`` record is no longer (``Documentation/ABI/testing``)."""

MAX_PREFIX = 320


class KernelKind(StrEnum):
    """What a line tells of. The values are observation kinds."""

    XID = "xid"
    SXID = "sxid"
    GPU_FALLEN_OFF_BUS = "gpu_fallen_off_bus"
    GPU_INIT_FAILED = "gpu_init_failed"


@dataclass(frozen=True, slots=True)
class KernelFinding:
    """What one line says.

    Attributes:
        code: the Xid or SXid, None for the forms without a number.
        pci: address as printed, in lower case, with domain ``0000`` where none was printed: ``0000:1b:00``
        (the
            function only where printed). Empty when unreadable. For an SXid it is the switch's.
        pid: process named in the line, None when there is none.
        detail: what follows code, pid and name; at most ``MAX_TEXT`` characters.
        mig: MIG instance inside the parentheses, such as ``GPU-I:05 GPU-CI:00``.
        caused_by: the earlier Xid that the line names as its cause (driver 590 and later).
        by_kernel: False when the prefix shows that a process wrote the record (facility other than ``kern``).
    """

    kind: KernelKind
    code: int | None = None
    pci: str = ""
    pid: int | None = None
    process_name: str = ""
    detail: str = ""
    mig: str = ""
    caused_by: int | None = None
    by_kernel: bool = True


_PREFIX = re.compile(
    r"""\s*+
    (?:MESSAGE=)?+
    (?:<(?P<priority>\d{1,4}+)>(?:\d\ )?+)?+
    (?:(?P<record>\d{1,4}+),\d++,\d++,[^;]{0,80}+;)?+                  # /dev/kmsg
    (?:(?P<decoded>[a-z0-9]{1,12}+)\s{0,8}+:[a-z]{1,8}+\s{0,8}+:\s++)?+   # dmesg --decode
    (?:[^\s:]\S{0,63}:\s(?P<talos>[a-z0-9]{1,12}+):\s++[a-z]{1,10}+:\s++)?+
    (?:\d{4}-\d\d-\d\d[T\ ][0-9:.,+Z-]{8,24}+\s++(?!\S{0,80}\skernel))?+   # dmesg --time-format=iso
    (?:(?:\S{0,79}[^\s:]\s++){0,7}?kernel(?:\[\d{1,10}+\])?+(?::|\s-\s-\s-)\s++)?+   # syslog, journald
    (?:\[[^\]]{1,48}+\]:?\s*+){0,3}+
    """,
    re.VERBOSE,
)
_ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{1,2}:[0-9a-f]{2}(?:\.[0-9a-f])?")
_XID = re.compile(
    r"Xid \((?:PCI:)?(?P<pci>[^\s()]{0,40}+)(?P<mig>(?:\ GPU-C?I:[0-9A-Fa-f]{1,8}+){0,2}+)\)?+:? ++"
    r"(?P<code>\d{1,9}+)(?!\d)(?:\s{0,4}+,\s*+(?P<rest>.*+))?+",
    re.DOTALL,
)
_SWITCH = re.compile(r"nvidia-nvswitch\d{1,3}+: ++\Z")
_SXID = re.compile(
    r"SXid \((?:PCI:)?(?P<pci>[^\s()]{0,40}+)\)?+:? ++"
    r"(?P<code>\d{1,9}+)(?!\d)(?:\s{0,4}+,\s*+(?P<rest>.*+))?+",
    re.DOTALL,
)
_PID = re.compile(r"pid=(?:'[^']{0,40}+'|(?P<pid>\d{1,10}+)|[^,]{0,40}+)(?:,\s*+|\Z)")
_NAME = re.compile(r"name=(?P<name>[^,]{0,256}+)(?:,\s*+|\Z)")
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,9}+)\s*+\Z")
_GPU_SAYS = re.compile(r"GPU\ ?(?P<pci>[0-9A-Za-z:.-]{1,40}): ++")
_THE_GPU = re.compile(r"The NVIDIA GPU (?P<pci>[^\s()]{1,40}+)")
_OFF_BUS = "fallen off the bus"
_KERNEL_FACILITIES = ("kern", None)


def parse_line(text: str) -> KernelFinding | None:
    """Return what a kernel log line tells, or None when it tells of no fault. Never raises.

    A line that was cut off gives what can still be read of it. The second and third line of an SXid
    (registers) give None and a finding without weight respectively: see ``domain.classify``.
    """
    at = text.find("NVRM: ", 0, MAX_LINE)
    if at >= 0:
        body = text[at + 6 : MAX_LINE]
        by_kernel = _written_by_kernel(text[:at])
        return None if by_kernel is None else _parse_driver_words(body, by_kernel)
    at = text.find("SXid (", 0, MAX_LINE)
    if at < 0:
        return None
    switch = _SWITCH.search(text, max(0, at - 32), at)
    if switch is None:
        return None
    by_kernel = _written_by_kernel(text[: switch.start()])
    return None if by_kernel is None else _parse_sxid(text[at:MAX_LINE], by_kernel)


def _written_by_kernel(prefix: str) -> bool | None:
    """Return whether the kernel wrote a line with this prefix; None when it is no log prefix at all."""
    if not prefix:
        return True
    if len(prefix) > MAX_PREFIX:
        return None
    match = _PREFIX.fullmatch(prefix)
    if match is None:
        return None
    if any(match[name] not in _KERNEL_FACILITIES for name in ("decoded", "talos")):
        return False
    # A syslog priority is facility * 8 + level (RFC 3164, section 4.1.1); the kernel's facility is 0.
    return all(match[name] is None or int(match[name]) < 8 for name in ("priority", "record"))


def _parse_driver_words(body: str, by_kernel: bool) -> KernelFinding | None:
    if body.startswith("Xid ("):
        return _parse_xid(body, by_kernel)
    if _OFF_BUS in body:
        said = _GPU_SAYS.match(body) or _THE_GPU.match(body)
        if said is None and not body.lstrip().startswith(_OFF_BUS):
            return None
        pci = read_address(said["pci"]) if said else ""
        return KernelFinding(
            KernelKind.GPU_FALLEN_OFF_BUS, pci=pci, detail=body[:MAX_TEXT].strip(), by_kernel=by_kernel
        )
    if "nit" in body:
        said = _GPU_SAYS.match(body)
        if said is not None and body.startswith(("RmInitAdapter failed", "rm_init_adapter failed"), said.end()):
            return KernelFinding(
                KernelKind.GPU_INIT_FAILED,
                pci=read_address(said["pci"]),
                detail=body[:MAX_TEXT].strip(),
                by_kernel=by_kernel,
            )
    return None


def _parse_xid(body: str, by_kernel: bool) -> KernelFinding | None:
    match = _XID.match(body)
    if match is None:
        return None
    rest = match["rest"] or ""
    pid: int | None = None
    name = ""
    found = _PID.match(rest)
    if found is not None:
        pid = int(found["pid"]) if found["pid"] else None
        rest = rest[found.end() :]
    found = _NAME.match(rest)
    if found is not None:
        name = "" if found["name"] == "<unknown>" else found["name"]
        rest = rest[found.end() :]
    cause = _CAUSED_BY.search(rest, max(0, len(rest) - 64))
    return KernelFinding(
        kind=KernelKind.XID,
        code=int(match["code"]),
        pci=read_address(match["pci"]),
        pid=pid,
        process_name=name,
        detail=rest[:MAX_TEXT].strip(),
        mig=match["mig"].strip(),
        caused_by=int(cause[1]) if cause else None,
        by_kernel=by_kernel,
    )


def _parse_sxid(body: str, by_kernel: bool) -> KernelFinding | None:
    match = _SXID.match(body)
    if match is None:
        return None
    rest = match["rest"] or ""
    if rest.startswith("Data {"):
        return None
    return KernelFinding(
        kind=KernelKind.SXID,
        code=int(match["code"]),
        pci=read_address(match["pci"]),
        detail=rest[:MAX_TEXT].strip(),
        by_kernel=by_kernel,
    )


def read_address(text: str) -> str:
    """Return a PCI address in lower case, with domain ``0000`` where none is printed; empty if it is none."""
    address = text.lower().removeprefix("pci:")
    if _ADDRESS.fullmatch(address) is None:
        return ""
    return address if address.count(":") == 2 else f"0000:{address}"


class MessageJoiner:
    """Joins the driver's one message that spans lines: "The NVIDIA GPU <address>" … "fallen off the bus".

    ``osapi.c`` prints it with line breaks inside, so a reader sees one record or three. This remembers the
    address of the first line for the lines right after it. Use one joiner for one log.
    """

    def __init__(self) -> None:
        self._address = ""
        self._lines_left = 0

    def parse(self, text: str) -> KernelFinding | None:
        """Return what ``parse_line`` returns, with the address that an earlier line of the message gave."""
        finding = parse_line(text)
        if self._lines_left:
            self._lines_left -= 1
            if finding is not None and finding.kind is KernelKind.GPU_FALLEN_OFF_BUS and not finding.pci:
                return KernelFinding(
                    finding.kind, pci=self._address, detail=finding.detail, by_kernel=finding.by_kernel
                )
        if finding is None and "NVRM: The NVIDIA GPU " in text[:MAX_LINE]:
            at = text.find("NVRM: The NVIDIA GPU ")
            said = _THE_GPU.match(text, at + 6)
            if said is not None and _written_by_kernel(text[:at]) is not None:
                self._address = read_address(said["pci"])
                self._lines_left = 2
        return finding

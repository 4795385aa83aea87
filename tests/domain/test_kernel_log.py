import csv
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domain.kernel_log import MAX_LINE, KernelFinding, KernelKind, MessageJoiner, parse_line
from domain.kernel_scan import scan
from domain.nodes import Gpu, Inventory
from domain.observations import MAX_TEXT

DATA = Path(__file__).parents[1] / "data"


def table(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def field_case(number: str) -> list[str]:
    [path] = (DATA / "field_cases").glob(f"{number}-*.json")
    lines: list[str] = json.loads(path.read_text(encoding="utf-8"))["input"]
    return lines


def findings(lines: list[str]) -> list[KernelFinding]:
    joiner = MessageJoiner()
    return [found for line in lines if (found := joiner.parse(line)) is not None]


XID_LINES = [row["line"] for row in table("xid_lines.tsv")]
SXID_LINES = [row["line"] for row in table("sxid_lines.tsv")]
XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


@pytest.mark.parametrize("row", table("xid_lines.tsv"), ids=lambda row: row["line"][:60])
def test_real_xid_lines(row: dict[str, str]) -> None:
    found = parse_line(row["line"])
    assert found is not None
    assert (found.kind, found.code) == ("xid", int(row["code"]))
    assert row["pci"] in ("-", found.pci)


@pytest.mark.parametrize("row", table("sxid_lines.tsv"), ids=lambda row: row["line"][:60])
def test_real_sxid_lines(row: dict[str, str]) -> None:
    found = parse_line(row["line"])
    if ", Data {" in row["line"]:
        assert found is None  # registers of the line before, no event of their own
    else:
        assert found is not None
        assert (found.kind, found.code, found.pci) == ("sxid", int(row["code"]), row["pci"])


def test_all_parts_of_a_line() -> None:
    assert parse_line(XID_79) == KernelFinding(
        kind=KernelKind.XID,
        code=79,
        pci="0000:1b:00",
        pid=1234,
        process_name="python3",
        detail="GPU has fallen off the bus.",
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("train.3", "train.3"), ("ray::WorkerDict", "ray::WorkerDict"), ("a[b](c)", "a[b](c)"), ("<unknown>", "")],
)
def test_process_names_hold_dots_colons_and_brackets(name: str, expected: str) -> None:
    found = parse_line(f"NVRM: Xid (PCI:0000:01:00): 43, pid=7, name={name}, Ch 00000008")
    assert found is not None
    assert (found.pid, found.process_name, found.detail) == (7, expected, "Ch 00000008")


def test_mig_instances_stand_apart_from_the_address() -> None:
    found = parse_line("NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 94, pid=12, Contained: CE. RST: No, D-RST: No")
    assert found is not None
    assert (found.pci, found.mig, found.pid) == ("0000:3b:00", "GPU-I:05 GPU-CI:00", 12)
    assert found.detail == "Contained: CE. RST: No, D-RST: No"


def test_an_address_without_domain_is_the_same_gpu() -> None:
    inventory = Inventory(gpus=(Gpu(uuid="GPU-a", pci_bus_id="00000000:18:00.0"),))
    [off, off_too, xid, unreadable] = findings(field_case("003"))
    assert inventory.uuid_at(off.pci) == "GPU-a"
    assert off_too.pci == "0000:29:00.0"
    assert (xid.code, xid.pci) == (14, "0000:03:00")
    assert (unreadable.kind, unreadable.pci) == (KernelKind.GPU_FALLEN_OFF_BUS, "")


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "   ",
        "4,1227,437812449932,-;",
        "4,1227,437812449932,c,1,-;",
        "<4>",
        "<4>[   12.345678] ",
        "[   12.345678] ",
        "[   12.345678][  T123] ",
        "[Fri Aug  9 13:32:56 2024] ",
        "kern  :warn  : [   12.345678] ",
        "kern  :warn  : 2025-01-21T04:41:44,283575+00:00 ",
        "2025-01-21T04:41:44,283575+00:00 ",
        "Aug 10 15:36:05 gpu-node-a kernel: ",
        "kwi 15 07:56:59 testowy kernel: [ 5.1] ",
        "11月 15 14:15:47 node kernel: ",
        "2026-07-21T15:13:33.339 node-d kernel: ",
        "kernel: ",
        "192.0.2.19: kern: warning: [2026-04-22T21:25:20.458998481Z]: ",
    ],
)
def test_log_prefixes(prefix: str) -> None:
    for line in (XID_79, "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up"):
        found = parse_line(prefix + line)
        assert found is not None
        assert found == parse_line(line)
        assert found.by_kernel


@pytest.mark.parametrize(
    "prefix",
    [
        "syslog:err   : 2025-05-27T04:18:56,089671+00:00 ",
        "user  :warn  : [   12.345678] ",
        "12,1227,437812449932,-;",
        "<13>",
        "192.0.2.19: user: warning: [2026-04-22T21:25:20.458998481Z]: ",
    ],
)
def test_a_prefix_that_names_another_facility_is_not_the_kernel_speaking(prefix: str) -> None:
    found = parse_line(prefix + XID_79)
    assert found is not None
    assert found.code == 79
    assert not found.by_kernel


@pytest.mark.parametrize(
    "smuggled",
    [
        "usb 1-1: Product: ",
        "[   12.345678] usb 1-1: Product: ",
        "usb 1-1: Product: kernel: ",
        "Aug 10 15:36:05 node kernel: usb 1-1: Product: kernel: ",
        "usb 1-1: Manufacturer: x: kern: err: [t]: ",
        "EXT4-fs (sda1): mounted filesystem ",
        "audit: type=1400 comm=",
        "x" * 400,
    ],
)
def test_words_inside_another_kernel_message_are_not_the_drivers(smuggled: str) -> None:
    assert parse_line(smuggled + XID_79) is None


def test_a_process_name_cannot_change_the_code() -> None:
    found = parse_line("NVRM: Xid (PCI:0000:1b:00): 13, pid=1, name=NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen")
    assert found is not None
    assert (found.code, found.pci) == (13, "0000:1b:00")


def test_function_names_with_numbers_are_no_xids() -> None:
    assert [found.code for found in findings(field_case("010"))] == [119, 119]


def test_three_lines_without_an_xid_name_the_gpu() -> None:
    [found] = findings(field_case("002"))
    assert (found.kind, found.pci) == (KernelKind.GPU_FALLEN_OFF_BUS, "0000:b3:00.0")
    together = "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed has\nNVRM: fallen off the bus"
    assert parse_line(together) == KernelFinding(
        KernelKind.GPU_FALLEN_OFF_BUS, pci="0000:b3:00.0", detail=together.removeprefix("NVRM: ")
    )


def test_an_unsupported_gpu_has_not_fallen_off_the_bus() -> None:
    joiner = MessageJoiner()
    assert joiner.parse("NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5)") is None
    assert joiner.parse("NVRM: installed in this system is not supported by the driver.") is None
    assert joiner.parse("NVRM: loading NVIDIA UNIX Open Kernel Module") is None
    later = joiner.parse("NVRM: fallen off the bus and is not responding to commands.")
    assert later is not None
    assert later.pci == ""


def test_a_gpu_that_does_not_initialise_is_known_by_its_address() -> None:
    found = findings(field_case("012"))
    assert {(each.kind, each.pci) for each in found} == {(KernelKind.GPU_INIT_FAILED, "0000:a1:00.0")}


def test_the_cause_that_a_line_names() -> None:
    assert [(each.code, each.caused_by) for each in findings(field_case("018"))] == [
        (45, 149),
        (45, 145),
        (45, 145),
        (45, 145),
        (45, 149),
    ]


def test_old_wordings() -> None:
    assert [each.code for each in findings(field_case("042"))] == [32, 31, 32, 69, 69, 43]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:c5:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 (0x04084507 0x000",
        "NVRM: Xid (PCI:0000:c5:00): 145, RLW",
        "NVRM: Xid (PCI:0000:c5:00): 145,",
        "NVRM: Xid (PCI:0000:c5:00): 145",
    ],
)
def test_a_cut_line_gives_what_can_be_read(line: str) -> None:
    found = parse_line(line)
    assert found is not None
    assert (found.code, found.pci) == (145, "0000:c5:00")


@given(st.sampled_from(XID_LINES + SXID_LINES), st.integers(0, 400), st.text(max_size=40))
def test_a_line_cut_and_garbled_anywhere_never_raises(line: str, at: int, noise: str) -> None:
    for text in (line[:at], line[at:], line[:at] + noise + line[at:], line[:at] + noise):
        found = parse_line(text)
        assert found is None or len(found.detail) <= MAX_TEXT


@given(st.binary(max_size=300))
@example(b"NVRM: Xid (PCI:\xff\xfe): 79")
def test_any_bytes_are_read(raw: bytes) -> None:
    parse_line("NVRM: Xid (" + raw.decode("utf-8", errors="replace"))
    parse_line(raw.decode("utf-8", errors="replace") + XID_79)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "filler", ["a", " ", "a ", "a: ", "[", "NVRM: ", "pid=", "name=", "'", ",", "(", "1", "SXid (", "kernel "]
)
def test_hostile_lines_take_no_longer_than_others(filler: str) -> None:
    """A pattern that backtracks would need hours for these; the test's time limit is the assertion."""
    long = filler * (2_000_000 // len(filler))
    for text in (
        long,
        long + XID_79,
        "NVRM: Xid (" + long,
        "NVRM: Xid (PCI:0000:1b:00): 79, " + long,
        "NVRM: Xid (PCI:0000:1b:00): 79, pid=" + long,
        "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=" + long,
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 1, " + long,
    ):
        for _ in range(20):
            parse_line(text)
    for size in range(0, 330):
        parse_line(long[:size] + XID_79)


def test_nothing_beyond_a_record_is_read() -> None:
    assert parse_line(" " * MAX_LINE + XID_79) is None


@given(st.data())
def test_a_scan_finds_what_reading_line_by_line_finds(data: st.DataObject) -> None:
    lines = data.draw(
        st.lists(
            st.one_of(
                st.sampled_from(XID_LINES + SXID_LINES + field_case("002") + field_case("012") + [""]),
                st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30),
            ),
            max_size=12,
        )
    )
    log = "\n".join(lines).encode() + data.draw(st.sampled_from([b"", b"\n"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=8)))
    chunks = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    hits = list(scan(chunks))
    assert [hit.finding for hit in hits] == findings(lines)
    for hit in hits:
        assert hit.offset == 0 or log[hit.offset - 1 : hit.offset] == b"\n"


def test_a_scan_reuses_its_buffer_and_bounds_its_memory() -> None:
    def pieces() -> object:
        buffer = bytearray(b"x" * 4096)
        for _ in range(1000):
            yield buffer
        buffer[:] = b"\n" + XID_79.encode() + b"\n"
        yield buffer

    [hit] = scan(pieces())  # type: ignore[arg-type]
    assert hit.offset == 4096 * 1000 + 1
    assert hit.finding == parse_line(XID_79)

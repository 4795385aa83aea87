"""``kintsugi check`` as a person and a script see it: its report and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.health_report import HealthReport, as_json, render
from domain.catalog import fault_class
from domain.faults import Fault, Scope, Severity
from domain.nodes import NodeRef
from domain.observations import Component, ComponentKind, Source
from tests.nvml.fake_driver import FakeDriver, build_library

AT = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.\n"
XID_31 = "NVRM: Xid (PCI:0000:1b:00): 31, pid=1234, name=python3, Ch 00000008, MMU Fault\n"


@dataclass
class Node:
    """A node whose kernel log is a file. Without a driver it has no GPU."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def log(self, text: str) -> str:
        path = self.folder / "kernel.log"
        path.write_text(text)
        return str(path)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KINTSUGI_")}
        return subprocess.run(
            [sys.executable, "-m", "agents.check_once", *arguments],
            env={**environment, "COLUMNS": "100", **self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def check(self, text: str, *arguments: str) -> tuple[int, dict[str, object]]:
        """Return exit status and JSON report of a look at this kernel log."""
        done = self.run("--json", "--kernel-log", self.log(text), *arguments)
        assert done.stderr == ""
        report: dict[str, object] = json.loads(done.stdout)
        return done.returncode, report


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library: Path, node: Node) -> FakeDriver:
    driver = FakeDriver(library, node.folder / "steering")
    node.environment = driver.environment
    return driver


def faults(report: dict[str, object]) -> list[tuple[object, object]]:
    found = report["faults"]
    assert isinstance(found, list)
    return [(fault["class"], fault["component"]["id"]) for fault in found]


@pytest.mark.parametrize(
    ("text", "status", "verdict", "classes"),
    [
        ("", 0, "healthy", []),
        ("usb 1-1: new device\n", 0, "healthy", []),
        (XID_79, 1, "faults", ["gpu.fallen_off_bus"]),
        (XID_31, 0, "healthy", ["application.memory_fault"]),
        ("NVRM: Xid (PCI:0000:1b:00): 9999, pid=1, something new\n", 1, "faults", ["gpu.unknown_xid"]),
        (f"<13>{XID_79}", 0, "healthy", ["gpu.fallen_off_bus"]),
    ],
)
def test_exit_status_follows_the_faults_that_count(
    node: Node, text: str, status: int, verdict: str, classes: list[str]
) -> None:
    code, report = node.check(text)
    assert (code, report["verdict"]) == (status, verdict)
    assert [name for name, _ in faults(report)] == classes


def test_drill_counts_what_a_process_wrote(node: Node) -> None:
    code, report = node.check(f"<13>{XID_79}", "--accept-injected")
    assert code == 1
    assert faults(report) == [("gpu.fallen_off_bus", "0000:1b:00")]


def test_report_for_a_person(node: Node) -> None:
    done = node.run("--kernel-log", node.log(XID_79))
    assert done.returncode == 1
    assert "no GPU on this machine" in done.stdout
    assert "gpu.fallen_off_bus" in done.stdout
    assert "gpu/0000:1b:00" in done.stdout
    assert fault_class("gpu.fallen_off_bus").title in done.stdout
    assert "Next: drain the node, then reboot it" in done.stdout
    assert "1 fault on this node." in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("path", "words"),
    [("/there/is/no/log", "No such file"), ("/dev/null", "no kernel log"), ("/", "Is a directory")],
)
def test_log_that_cannot_be_read_is_no_good_health(node: Node, path: str, words: str) -> None:
    done = node.run("--kernel-log", path)
    assert done.returncode == 2
    assert words in done.stdout
    assert "Healthy" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("variables", [{"KINTSUGI_AGENT_POOL": "a/b"}, {"KINTSUGI_CONFIG": "/there/is/no/file"}])
def test_settings_that_cannot_be_used(node: Node, variables: dict[str, str]) -> None:
    done = node.run(**variables)
    assert done.returncode == 2
    assert done.stdout == ""
    assert next(iter(variables)).split("_")[1].lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_unknown_option_is_a_usage_error(node: Node) -> None:
    assert node.run("--kernel-logs").returncode == 2


def test_help_shows_examples_and_statuses(node: Node) -> None:
    done = node.run("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert "0 healthy, 1 faults, 2 could not look" in done.stdout


def test_reader_that_goes_away_changes_no_status(node: Node) -> None:
    command = f"{sys.executable} -m agents.check_once --kernel-log {node.log(XID_79)}"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.processes
def test_status_is_right_every_time(node: Node) -> None:
    log = node.log(XID_79)
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: node.run("--kernel-log", log), range(50)))
    assert [run.returncode for run in runs] == [1] * 50
    assert {run.stdout.splitlines()[-1] for run in runs} == {"1 fault on this node."}


@pytest.mark.kmsg
def test_kernel_log_of_this_machine(node: Node) -> None:
    if os.geteuid() != 0 or not os.access("/dev/kmsg", os.R_OK | os.W_OK):
        pytest.skip("only root may write to the kernel log")
    with open("/dev/kmsg", "w", encoding="ascii") as kernel:
        kernel.write("<3>NVRM: Xid (PCI:00ab:cd:00): 79, pid=1, name=x, GPU has fallen off the bus.\n")
    report = json.loads(node.run("--json").stdout)
    (fault,) = [fault for fault in report["faults"] if fault["component"]["id"] == "00ab:cd:00"]
    assert (fault["class"], fault["trusted"]) == ("gpu.fallen_off_bus", False)


@pytest.mark.nvml
def test_healthy_gpus_are_listed(node: Node, driver: FakeDriver) -> None:
    done = node.run("--kernel-log", node.log(""))
    assert done.returncode == 0
    assert "NVIDIA H100 80GB HBM3" in done.stdout
    assert "NVLink 18/18" in done.stdout
    assert "Healthy." in done.stdout


@pytest.mark.nvml
@pytest.mark.parametrize(
    ("steering", "name", "status"),
    [
        ({"gpu1__remapped": "0,1,0,1"}, "gpu.row_remap_failure", 1),
        ({"gpu1__lost": 1}, "gpu.fallen_off_bus", 1),
        ({"gpu1__recovery_action": 1}, "gpu.reset_required", 1),
        ({"gpu1__reasons": "0x40"}, "thermal.slowdown", 1),  # a state that must last before an agent believes it
        ({"gpu1__ecc_volatile": 4}, "gpu.ecc_counter", 0),
    ],
)
def test_states_of_the_gpus(
    node: Node, driver: FakeDriver, steering: dict[str, str | int], name: str, status: int
) -> None:
    driver.set(**steering)
    code, report = node.check("")
    assert code == status
    assert [found for found, _ in faults(report)] == [name]


@pytest.mark.nvml
def test_driver_that_hangs_is_a_fault(node: Node, driver: FakeDriver) -> None:
    driver.set(hang="nvmlDeviceGetUUID")
    node.environment["KINTSUGI_AGENT_PROBE_DEADLINE_SECONDS"] = "1"
    # Settings are taken from the environment that the process gets.
    done = node.run("--json", "--kernel-log", node.log(""))
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert faults(report) == [("driver.hung", "")]
    assert "nvmlDeviceGetUUID of GPU 0" in report["blind_spots"][0]


def fault(name: str, severity: Severity, evidence: str = "seen", trusted: bool = True) -> Fault:
    return Fault(
        fault_class=name,
        node=NodeRef(cluster="c", pool="p", name="n"),
        component=Component(kind=ComponentKind.GPU, id="GPU-a"),
        severity=severity,
        scope=Scope.GPU,
        source=Source.KERNEL_LOG,
        boot_id="b",
        first_seen=AT,
        last_seen=AT,
        trusted=trusted,
        evidence=(evidence,),
    )


def report(*found: Fault, could_not_look: bool = False) -> HealthReport:
    return HealthReport(node="n", boot_id="b", taken_at=AT, faults=found, could_not_look=could_not_look)


@pytest.mark.parametrize(
    ("severity", "trusted", "could_not_look", "status"),
    [
        (Severity.FATAL, True, False, 1),
        (Severity.DEGRADED, True, False, 1),
        (Severity.UNKNOWN, True, False, 1),
        (Severity.FATAL, True, True, 1),
        (Severity.APPLICATION, True, False, 0),
        (Severity.INFO, True, False, 0),
        (Severity.FATAL, False, False, 0),
        (Severity.INFO, True, True, 2),
    ],
)
def test_status_table(severity: Severity, trusted: bool, could_not_look: bool, status: int) -> None:
    found = fault("gpu.fallen_off_bus", severity, trusted=trusted)
    assert report(found, could_not_look=could_not_look).exit_status == status


def test_evidence_cannot_steer_the_terminal() -> None:
    shown = render(report(fault("gpu.fallen_off_bus", Severity.FATAL, "a\x1b[2Jb\r\x07c")), colour=False, width=80)
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "\x07" not in shown


def test_colours_only_where_wanted() -> None:
    found = report(fault("gpu.fallen_off_bus", Severity.FATAL))
    assert "\x1b[31;1m" in render(found, colour=True, width=80)
    assert "\x1b" not in render(found, colour=False, width=80)


def test_many_faults_are_cut_in_the_table_and_whole_in_json() -> None:
    many = report(*(fault("gpu.fallen_off_bus", Severity.FATAL) for _ in range(30)))
    assert "… and 10 more" in render(many, colour=False, width=80)
    assert len(json.loads(as_json(many))["faults"]) == 30

"""What a pool does: which faults become repairs, which wait, which are only told."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.faults import Fault, Severity, Transition
from domain.policy import Policy
from domain.pool import NodeHealth, PoolState
from domain.pool_decisions import (
    Command,
    Decided,
    admit_by_person,
    close_breaker,
    hold_is_over,
    next_look,
    repair_ended,
    repair_gone,
    repair_started,
    take_in,
    time_passed,
)
from domain.pool_view import unfit_spares, view
from domain.repair import Outcome, PastRung, RepairEnded, RepairResult
from domain.reports import NodeEvent, NodeEventKind
from domain.workloads import MovedWork, Workload
from tests.domain.builders import at, event, fault, identity, node, policy, rungs

NAMES = tuple(f"gpu-{i}" for i in range(8))


def seen(name: str, seconds: float = 0, boot: str = "boot-1") -> NodeEvent:
    return NodeEvent(kind=NodeEventKind.SEEN, node=node(name), at=at(seconds), identity=identity(name, boot=boot))


def lost(name: str, seconds: float = 0) -> NodeEvent:
    return NodeEvent(kind=NodeEventKind.LOST, node=node(name), at=at(seconds))


def told(seen_fault: Fault, transition: Transition = Transition.OPENED, sequence: int = 0) -> NodeEvent:
    reported = event(seen_fault, transition, sequence)
    return NodeEvent(kind=NodeEventKind.FAULT, node=seen_fault.node, at=seen_fault.last_seen, fault=reported)


class Pool:
    """A pool under test: what it decided, and the repairs that it believes to run."""

    def __init__(self, under: Policy | None = None, nodes: tuple[str, ...] = NAMES) -> None:
        self.policy = under or policy()
        self.state = PoolState(cluster="c1", pool="train")
        self.commands: list[Command] = []
        self.hear(*(seen(name) for name in nodes))

    def _take(self, decided: Decided) -> list[Command]:
        self.state = decided.state
        for command in decided.commands:
            if command.start is not None:
                self.state = repair_started(self.state, command.node, f"repair/c1/{command.node}/{command.number}")
        self.commands += decided.commands
        return list(decided.commands)

    def hear(self, *events: NodeEvent, seconds: float = 0) -> list[Command]:
        return self._take(take_in(self.state, events, self.policy, at(seconds)))

    def wait(self, seconds: float) -> list[Command]:
        return self._take(time_passed(self.state, self.policy, at(seconds)))

    def end(
        self, name: str, outcome: Outcome = Outcome.RETURNED, seconds: float = 100, **more: object
    ) -> list[Command]:
        record = self.state.nodes[name]
        handled = tuple(known.key for known in record.faults)
        result = RepairResult(outcome=outcome, detail="", handled=handled).model_copy(update=more)
        ended = RepairEnded(
            repair_id=record.repair_id, node=name, at=at(seconds), result=result, identity=record.identity
        )
        return self._take(repair_ended(self.state, ended, self.policy, at(seconds)))

    def started(self) -> list[str]:
        return [command.node for command in self.commands if command.start is not None]

    def notices(self) -> list[str]:
        return [command.tell.title for command in self.commands if command.tell is not None]

    def health(self, name: str) -> NodeHealth:
        return next(entry.health for entry in view(self.state, self.policy).nodes if entry.name == name)


def test_a_fatal_fault_starts_one_repair_and_its_repeats_go_to_it() -> None:
    pool = Pool()
    pool.hear(told(fault()))
    assert pool.started() == ["gpu-3"]
    more = pool.hear(
        told(fault(seconds=5), Transition.REPEATED), told(fault("gpu.ecc_uncorrectable", seconds=6)), seconds=6
    )
    assert pool.started() == ["gpu-3"]
    # The repetition is no news: a fault that repeats for days must not fill the repair's history.
    assert [command.repair_id for command in more] == ["repair/c1/gpu-3/1"]


def test_all_faults_of_one_report_on_one_node_are_one_incident() -> None:
    pool = Pool()
    pool.hear(told(fault()), told(fault("gpu.ecc_uncorrectable")), told(fault("nvlink.error")))
    starts = [command.start for command in pool.commands if command.start is not None]
    assert len(starts) == 1
    assert starts[0] is not None
    assert len(starts[0].incident.faults) == 3


@pytest.mark.parametrize("severity", [Severity.APPLICATION, Severity.INFO, Severity.UNKNOWN])
def test_what_is_not_the_nodes_fault_is_told_once_and_takes_no_node(severity: Severity) -> None:
    pool = Pool()
    seen_fault = fault(severity=severity)
    for second in range(5):
        pool.hear(told(seen_fault, Transition.REPEATED), seconds=second)
    assert pool.started() == []
    assert len(pool.notices()) == 1
    assert pool.health("gpu-3") is NodeHealth.HEALTHY


def test_what_a_process_wrote_is_told_and_takes_no_node() -> None:
    pool = Pool()
    pool.hear(told(fault(trusted=False)))
    assert pool.started() == []
    assert "process" in pool.notices()[0]


def test_a_sequence_that_was_taken_in_already_is_no_news() -> None:
    pool = Pool()
    pool.hear(told(fault("gpu.row_remap_pending"), sequence=4))
    before = pool.state
    assert pool.hear(told(fault("gpu.fallen_off_bus"), sequence=4)) == []
    assert pool.state == before


def test_news_of_an_earlier_boot_opens_nothing() -> None:
    pool = Pool()
    pool.hear(seen("gpu-3", boot="boot-2"))
    pool.hear(told(fault(boot="boot-1")))
    assert pool.started() == []


def test_a_new_boot_forgets_the_faults_of_the_old_one() -> None:
    pool = Pool(Policy())
    pool.hear(told(fault()))
    pool.end("gpu-3", Outcome.OBSERVED, seconds=1)
    assert pool.health("gpu-3") is NodeHealth.SUSPECT
    pool.hear(seen("gpu-3", boot="boot-2"))
    assert pool.health("gpu-3") is NodeHealth.HEALTHY


def test_the_budget_is_never_exceeded_and_the_worst_waiting_comes_first() -> None:
    pool = Pool(policy(pools={"*": {"budget": {"max_nodes": 1, "max_percent": 100}}}))
    pool.hear(told(fault(on="gpu-1")))
    pool.hear(told(fault("gpu.row_remap_pending", on="gpu-2")))
    pool.hear(told(fault(on="gpu-4", seconds=3)), seconds=3)
    assert pool.started() == ["gpu-1"]
    assert pool.health("gpu-2") is NodeHealth.WAITING
    pool.end("gpu-1")
    assert pool.started() == ["gpu-1", "gpu-4"]
    pool.end("gpu-4")
    assert pool.started() == ["gpu-1", "gpu-4", "gpu-2"]


def test_a_silent_node_counts_against_the_budget() -> None:
    pool = Pool(policy(pools={"*": {"budget": {"max_nodes": 1, "max_percent": 100}}}))
    pool.hear(lost("gpu-7"))
    pool.hear(told(fault()))
    assert pool.started() == []
    pool.hear(seen("gpu-7"))
    assert pool.started() == ["gpu-3"]


def test_a_persons_word_stands_above_the_budget() -> None:
    pool = Pool(policy(pools={"*": {"budget": {"max_nodes": 0}}}))
    pool.hear(told(fault()))
    assert pool.started() == []
    pool._take(admit_by_person(pool.state, "gpu-3", "ana", pool.policy, at(1)))
    assert pool.started() == ["gpu-3"]


def test_a_fault_that_clears_while_it_waits_starts_nothing() -> None:
    pool = Pool(policy(pools={"*": {"budget": {"max_nodes": 0}}}))
    pool.hear(told(fault()))
    pool.hear(told(fault(), Transition.CLEARED))
    assert pool.state.waiting == ()
    assert pool.health("gpu-3") is NodeHealth.HEALTHY


def test_many_nodes_with_the_same_fault_open_the_breaker_and_a_person_closes_it() -> None:
    under = policy(pools={"*": {"budget": {"max_nodes": 8, "max_percent": 100}, "breaker": {"nodes": 3}}})
    pool = Pool(under)
    for name in NAMES[:5]:
        pool.hear(told(fault(on=name)))
    assert pool.started() == ["gpu-0", "gpu-1"]
    assert sum("breaker is open" in title for title in pool.notices()) == 1
    pool._take(close_breaker(pool.state, "ana", under, at(5)))
    assert pool.started() == ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def test_an_open_breaker_does_not_stop_nodes_from_returning() -> None:
    under = policy(pools={"*": {"budget": {"max_nodes": 8, "max_percent": 100}, "breaker": {"nodes": 3}}})
    pool = Pool(under)
    for name in NAMES[:3]:
        pool.hear(told(fault(on=name)))
    pool.end("gpu-0")
    assert pool.health("gpu-0") is NodeHealth.HEALTHY


def test_different_faults_or_a_long_time_do_not_open_the_breaker() -> None:
    under = policy(
        pools={"*": {"budget": {"max_nodes": 8, "max_percent": 100}, "breaker": {"nodes": 3, "window": "60s"}}}
    )
    pool = Pool(under)
    for index, name in enumerate(NAMES[:5]):
        pool.hear(told(fault(on=name)), seconds=index * 61)
    assert not pool.state.breaker.open
    assert len(pool.started()) == 5


def test_silence_is_believed_only_after_the_grace_time() -> None:
    pool = Pool(policy(pools={"*": {"lost_grace": "60s"}}))
    pool.hear(lost("gpu-3", 10))
    assert next_look(pool.state, pool.policy, at(10)) == at(70)
    pool.wait(69)
    assert pool.started() == []
    pool.wait(70)
    assert pool.started() == ["gpu-3"]
    start = next(command.start for command in pool.commands if command.start is not None)
    assert start.incident.lead.fault_class == "node.unreachable"
    pool.wait(200)
    assert pool.started() == ["gpu-3"]


def test_a_node_that_turns_up_at_another_gateway_in_time_was_never_lost() -> None:
    pool = Pool(policy(pools={"*": {"lost_grace": "60s"}}))
    pool.hear(lost("gpu-3", 10))
    pool.hear(seen("gpu-3", 30))
    pool.wait(500)
    assert pool.started() == []


def test_a_late_word_of_silence_from_the_gateway_that_a_node_has_left_is_no_news() -> None:
    pool = Pool()
    pool.hear(seen("gpu-3", 30))
    pool.hear(lost("gpu-3", 10))
    assert pool.health("gpu-3") is NodeHealth.HEALTHY


def test_the_running_repair_hears_that_its_node_is_back() -> None:
    pool = Pool()
    pool.hear(told(fault()))
    commands = pool.hear(seen("gpu-3", boot="boot-2"))
    assert [(c.repair_id, c.forward_seen is not None) for c in commands] == [("repair/c1/gpu-3/1", True)]


def test_what_was_only_observed_is_not_observed_again_within_the_cool_down() -> None:
    pool = Pool(Policy())
    for second in range(0, 500, 100):
        pool.hear(told(fault(seconds=second), Transition.REPEATED), seconds=second)
        if pool.state.nodes["gpu-3"].repair_id:
            pool.end("gpu-3", Outcome.OBSERVED, seconds=second)
    assert pool.started() == ["gpu-3"]
    pool.hear(told(fault(seconds=700), Transition.REPEATED), seconds=700)
    assert pool.started() == ["gpu-3", "gpu-3"]


def test_a_repair_that_only_observes_uses_no_budget() -> None:
    pool = Pool(Policy())
    for name in NAMES[:4]:
        pool.hear(told(fault(on=name)))
    assert len(pool.started()) == 4
    assert view(pool.state, pool.policy).out == 0


def test_the_next_repair_of_a_node_knows_what_the_last_one_ran() -> None:
    pool = Pool()
    pool.hear(told(fault()))
    run = PastRung(
        component=str(fault().component), fault_class="gpu.fallen_off_bus", rung=rungs("reboot")[0], at=at(50)
    )
    pool.end("gpu-3", rungs=(run,))
    pool.hear(told(fault(seconds=3600)), seconds=3600)
    starts = [command.start for command in pool.commands if command.start is not None]
    assert starts[1] is not None
    assert starts[1].history == (run,)
    assert pool.commands[-1].number == 2


def test_the_end_of_another_repair_changes_nothing() -> None:
    pool = Pool()
    pool.hear(told(fault()))
    before = pool.state
    ended = RepairEnded(
        repair_id="repair/c1/gpu-3/77",
        node="gpu-3",
        at=at(1),
        result=RepairResult(outcome=Outcome.RETURNED, detail=""),
        identity=identity(),
    )
    assert repair_ended(before, ended, pool.policy, at(1)).state == before


def test_a_spare_that_a_repair_leased_and_did_not_use_goes_back() -> None:
    pool = Pool()
    pool.hear(told(fault()))
    pool.state = pool.state.model_copy(update={"leased": {"spare-1": "repair/c1/gpu-3/1", "spare-2": "other"}})
    commands = pool.end("gpu-3", Outcome.ABORTED)
    assert [command.return_spare for command in commands if command.return_spare] == ["spare-1"]
    assert pool.state.leased == {"spare-2": "other"}


def test_a_repair_that_is_gone_without_a_word_frees_its_place_and_its_faults_are_taken_up_again() -> None:
    pool = Pool(policy(pools={"*": {"budget": {"max_nodes": 1, "max_percent": 100}, "cool_down": "10m"}}))
    pool.hear(told(fault()))
    pool.hear(told(fault(on="gpu-5")))
    assert pool.started() == ["gpu-3"]
    asked = pool.wait(301)
    assert [command.repair_id for command in asked if command.forward_seen] == ["repair/c1/gpu-3/1"]
    pool._take(repair_ended(pool.state, repair_gone("gpu-3", pool.state.nodes["gpu-3"], at(302)), pool.policy, at(302)))
    # Its mark is still on the node, so the node is still out.
    assert pool.started() == ["gpu-3"]
    pool.wait(302 + 601)
    assert pool.started() == ["gpu-3", "gpu-3"]
    pool.end("gpu-3", seconds=1000)
    assert pool.started() == ["gpu-3", "gpu-3", "gpu-5"]


def test_a_fault_that_came_too_late_for_a_repair_starts_the_next_one() -> None:
    pool = Pool()
    pool.hear(told(fault()))
    pool.hear(told(fault("gpu.ecc_uncorrectable", seconds=90)), seconds=90)
    pool.end("gpu-3", handled=(fault().key,))
    assert pool.started() == ["gpu-3", "gpu-3"]
    last = pool.commands[-1].start
    assert last is not None
    assert [each.fault_class for each in last.incident.faults] == ["gpu.ecc_uncorrectable"]


def test_a_node_that_an_abort_left_to_a_person_is_left_to_that_person() -> None:
    pool = Pool(policy(pools={"*": {"budget": {"max_nodes": 1, "max_percent": 100}}}))
    pool.hear(told(fault()))
    pool.end("gpu-3", Outcome.ABORTED, held_by="ana")
    assert pool.health("gpu-3") is NodeHealth.HELD
    pool.hear(told(fault(seconds=5000), Transition.REPEATED), told(fault(on="gpu-5")), seconds=5000)
    pool.wait(9000)
    assert pool.started() == ["gpu-3"]
    assert "ana" in next(w.why for w in pool.state.waiting if w.incident.node.name == "gpu-3")
    pool._take(hold_is_over(pool.state, "gpu-3", pool.policy, at(9001)))
    assert len(pool.started()) == 2


def test_an_admit_for_a_node_that_does_not_wait_means_nothing_later() -> None:
    pool = Pool(policy(pools={"*": {"budget": {"max_nodes": 0}}}))
    pool._take(admit_by_person(pool.state, "gpu-3", "ana", pool.policy, at(1)))
    pool.hear(told(fault()))
    assert pool.started() == []
    pool._take(admit_by_person(pool.state, "gpu-3", "ana", pool.policy, at(2)))
    assert pool.started() == ["gpu-3"]


def test_a_used_spare_can_be_a_spare_again_and_a_sick_one_is_never_leased() -> None:
    pool = Pool(policy(pools={"*": {"budget": {"max_nodes": 8, "max_percent": 100}}}))
    pool.hear(told(fault()), told(fault("gpu.row_remap_pending", on="gpu-6")), lost("gpu-7"))
    pool.state = pool.state.model_copy(update={"leased": {"gpu-1": "repair/c1/gpu-3/1"}})
    assert {"gpu-3", "gpu-6", "gpu-7"} <= set(unfit_spares(pool.state, "repair/c1/gpu-9/1"))
    moved = MovedWork(workload=Workload(id="j"), spare="gpu-1")
    commands = pool.end("gpu-3", moved=(moved,))
    assert pool.state.leased == {}
    assert not [command for command in commands if command.return_spare]


EVENTS = st.one_of(
    st.tuples(
        st.just("fault"), st.sampled_from(NAMES), st.sampled_from(["gpu.fallen_off_bus", "gpu.ecc_uncorrectable"])
    ),
    st.tuples(
        st.just("clear"), st.sampled_from(NAMES), st.sampled_from(["gpu.fallen_off_bus", "gpu.ecc_uncorrectable"])
    ),
    st.tuples(st.just("lost"), st.sampled_from(NAMES), st.just("")),
    st.tuples(st.just("seen"), st.sampled_from(NAMES), st.sampled_from(["boot-1", "boot-2"])),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.sampled_from(list(Outcome))),
    st.tuples(st.just("wait"), st.sampled_from(NAMES), st.just("")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=40), st.integers(1, 4), st.integers(1, 100))
def test_whatever_happens_the_pool_stays_within_its_budget(
    happenings: list[tuple[str, str, str]], max_nodes: int, percent: int
) -> None:
    under = policy(pools={"*": {"budget": {"max_nodes": max_nodes, "max_percent": percent}, "breaker": {"nodes": 50}}})
    pool = Pool(under)
    allowed = view(pool.state, under).budget
    for second, (what, name, detail) in enumerate(happenings):
        seconds = second * 30.0
        started_before = len(pool.started())
        match what:
            case "fault" | "clear":
                boot = pool.state.nodes[name].identity.boot_id
                transition = Transition.OPENED if what == "fault" else Transition.CLEARED
                pool.hear(told(fault(detail, on=name, boot=boot, seconds=seconds), transition), seconds=seconds)
            case "lost":
                pool.hear(lost(name, seconds), seconds=seconds)
            case "seen":
                pool.hear(seen(name, seconds, boot=detail), seconds=seconds)
            case "end" if pool.state.nodes[name].repair_id:
                pool.end(name, Outcome(detail), seconds=seconds)
            case _:
                pool.wait(seconds)
        acting = [n for n, record in pool.state.nodes.items() if record.out]
        assert len(acting) <= allowed
        if len(pool.started()) > started_before:
            assert len(set(acting)) == len(acting)
        _one_repair_per_node(pool, at(seconds))


def _one_repair_per_node(pool: Pool, now: datetime) -> None:
    running = [record.repair_id for record in pool.state.nodes.values() if record.repair_id]
    assert len(running) == len(set(running)), now
    for entry in pool.state.waiting:
        assert not pool.state.nodes[entry.incident.node.name].repair_id


def at_gateway(said: NodeEvent, gateway: str) -> NodeEvent:
    return said.model_copy(update={"gateway": gateway})


@pytest.mark.parametrize(
    ("saw_it", "misses_it", "seconds", "believed"),
    [
        ("gw-a", "gw-a", 20, True),
        ("gw-b", "gw-a", 20, False),
        ("", "gw-a", 20, True),
        ("gw-a", "", 20, True),
        ("gw-a", "gw-a", 5, False),
        ("", "", 5, False),
    ],
)
def test_only_the_gateway_that_saw_a_node_last_can_miss_it(
    saw_it: str, misses_it: str, seconds: float, believed: bool
) -> None:
    pool = Pool()
    pool.hear(at_gateway(seen("gpu-3", 10), saw_it))
    pool.hear(at_gateway(lost("gpu-3", seconds), misses_it))
    assert (pool.health("gpu-3") is NodeHealth.LOST) is believed


def test_a_node_is_shown_with_the_gateway_that_saw_it_last() -> None:
    pool = Pool()
    pool.hear(at_gateway(seen("gpu-3", 10), "gw-a"), at_gateway(seen("gpu-4", 10), "gw-a"))
    pool.hear(at_gateway(seen("gpu-3", 20), "gw-b"))
    shown = {entry.name: entry.gateway for entry in view(pool.state, pool.policy).nodes}
    assert (shown["gpu-3"], shown["gpu-4"], shown["gpu-5"]) == ("gw-b", "gw-a", "")


def test_a_late_word_from_a_gateway_that_a_node_has_left_brings_it_neither_back_there_nor_to_its_old_boot() -> None:
    pool = Pool()
    pool.hear(at_gateway(seen("gpu-3", 20, boot="boot-2"), "gw-b"))
    before = pool.state
    pool.hear(at_gateway(seen("gpu-3", 10, boot="boot-1"), "gw-a"))
    assert pool.state == before
    pool.hear(at_gateway(lost("gpu-3", 30), "gw-b"))
    assert pool.health("gpu-3") is NodeHealth.LOST


def test_a_node_that_comes_back_at_another_gateway_is_not_lost_any_more() -> None:
    pool = Pool()
    pool.hear(at_gateway(seen("gpu-3", 10), "gw-a"), at_gateway(lost("gpu-3", 20), "gw-a"))
    pool.hear(at_gateway(seen("gpu-3", 30), "gw-b"))
    assert pool.health("gpu-3") is NodeHealth.HEALTHY
    pool.hear(at_gateway(lost("gpu-3", 40), "gw-b"))
    assert pool.health("gpu-3") is NodeHealth.LOST

"""The flood limit and the window of acknowledgements, over every order of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from domain.faults import Transition
from domain.nodes import NodeRef
from gateway.acks import AckWindow
from gateway.flood import FloodGate, Passed
from tests.gateway.agent_stub import fault_event

NODE = NodeRef(cluster="c1", pool="h100", name="gpu-0")
OPENED, REPEATED, CLEARED = Transition.OPENED, Transition.REPEATED, Transition.CLEARED

steps = st.lists(
    st.tuples(
        st.sampled_from([OPENED, REPEATED, REPEATED, REPEATED, CLEARED]),
        st.sampled_from(["a", "b", "c"]),
        st.floats(0, 0.4),
    ),
    max_size=80,
)


@given(steps, st.floats(0.5, 20))
def test_nothing_is_lost_transitions_keep_their_order_and_the_rate_holds(
    sent: list[tuple[Transition, str, float]], rate: float
) -> None:
    gate = FloodGate(rate, 0.0)
    window = AckWindow("s")
    out: list[Passed] = []
    now = 0.0
    for sequence, (transition, fault_class, pause) in enumerate(sent, start=1):
        now += pause
        while (passed := gate.release(now)) is not None:
            out.append(passed)
        first, passed = gate.offer(fault_event(NODE, "s", sequence, transition, fault_class), now)
        window.take(sequence, joins=first != sequence)
        if passed is not None:
            out.append(passed)
    while (wait := gate.wait_seconds(now)) is not None:
        now += wait
        passed = gate.release(now)
        assert passed is not None, "the time that it said was too short"
        out.append(passed)

    repeats = [p for p in out if p.event.transition is REPEATED]
    came = sum(transition is REPEATED for transition, _, _ in sent)
    assert len(repeats) + sum(p.suppressed for p in out) == came
    # Repeats never exceed the bucket; what transitions took is theirs on top.
    assert len(repeats) <= max(rate, 1.0) + rate * now + 1
    transitions = [p.event.sequence for p in out if p.event.transition is not REPEATED]
    assert transitions == [n for n, (transition, _, _) in enumerate(sent, 1) if transition is not REPEATED]

    for passed in out:
        assert window.acked < passed.first_sequence
        window.done(passed.first_sequence)
    assert window.acked == len(sent)
    assert len(window) == 0


def test_a_clear_takes_the_held_back_repeats_with_it() -> None:
    gate = FloodGate(1.0, 0.0)
    assert gate.offer(fault_event(NODE, "s", 1, OPENED), 0.0)[1] is not None
    assert gate.offer(fault_event(NODE, "s", 2, REPEATED), 0.0) == (2, None)
    assert gate.offer(fault_event(NODE, "s", 3, REPEATED), 0.0) == (2, None)
    first, passed = gate.offer(fault_event(NODE, "s", 4, CLEARED), 0.0)
    assert passed is not None
    assert (first, passed.first_sequence, passed.suppressed) == (2, 2, 2)
    assert gate.wait_seconds(0.0) is None


def test_a_released_repeat_is_the_latest_and_carries_no_sequence() -> None:
    gate = FloodGate(1.0, 0.0)
    gate.offer(fault_event(NODE, "s", 1, OPENED), 0.0)
    for sequence in (2, 3, 4):
        gate.offer(fault_event(NODE, "s", sequence, REPEATED), 0.0)
    assert gate.release(0.5) is None
    passed = gate.release(1.0)
    assert passed is not None
    assert (passed.event.sequence, passed.first_sequence, passed.suppressed) == (0, 2, 2)


@given(st.permutations(range(1, 12)))
def test_an_acknowledgement_never_covers_what_is_not_durable(order: list[int]) -> None:
    window = AckWindow("s")
    for sequence in range(1, 12):
        window.take(sequence)
    durable: set[int] = set()
    for sequence in order:
        window.done(sequence)
        durable.add(sequence)
        assert set(range(1, window.acked + 1)) <= durable
        assert window.acked + 1 not in durable


def test_a_window_outlives_its_stream() -> None:
    window = AckWindow("s")
    window.take(5)
    window.take(9)
    assert window.came_before(9)
    assert not window.came_before(10)
    assert window.acked == 4
    window.done(5)
    assert window.acked == 8

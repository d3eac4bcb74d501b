"""Random playbooks in random orders: every run ends, once, with nothing begun after a cancel or a failure."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl_common.core import route
from noetl_common.core.events import Envelope, Event
from noetl_common.core.routing import draft
from noetl_common.core.routing.draft import World
from noetl_common.core.shard import event_id
from tests.storms import Storm, outcome, random_playbook

LEAF = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: leaf, path: leaf}
workflow:
- step: start
  tool: {kind: python, code: 'x = 1'}
"""


def storm(seed: int, *, failures: float, cancels: float) -> Storm:
    source = random.Random(seed)
    inner = random_playbook(source, path="inner", children=["leaf"])
    outer = random_playbook(source, path="outer", children=["leaf", "inner"])
    return Storm(outer, inner, LEAF, seed=seed, failures=failures, cancels=cancels)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1_000_000))
@pytest.mark.parametrize("cancels", [0.0, 0.02])
@pytest.mark.parametrize("failures", [0.0, 0.1])
def test_any_playbook_in_any_order_ends_once(failures: float, cancels: float, seed: int):
    engine = storm(seed, failures=failures, cancels=cancels)
    engine.start("outer")
    engine.drive()
    engine.check_end()


ORDERS = 4


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1_000_000))
def test_what_a_run_comes_to_does_not_depend_on_the_order(seed: int):
    source = random.Random(seed)
    inner = random_playbook(source, path="inner", children=["leaf"], is_ordered=True)
    outer = random_playbook(source, path="outer", children=["leaf", "inner"], is_ordered=True)
    found = []
    for order in range(ORDERS):
        engine = Storm(outer, inner, LEAF, seed=order, writes=0.0)
        engine.start("outer")
        engine.drive()
        engine.check_end()
        found.append(outcome(engine))
    assert found[1:] == found[:1] * (ORDERS - 1)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(1, 12))
def test_a_decision_that_stops_for_its_size_is_gone_on_with(seed: int, consequences_max: int):
    engine = storm(seed, failures=0.05, cancels=0.01)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft, "CONSEQUENCES_MAX", consequences_max)
        engine.start("outer")
        engine.drive()
        engine.check_end()


def test_a_cycle_of_steps_that_need_no_worker_takes_several_decisions():
    text = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: spin, path: spin}
workflow:
- step: start
  loop: {in: '{{ [] }}', iterator: n}
  tool: {kind: noop}
  set: {ctx.turns: '{{ ctx.turns | default(0) + 1 }}'}
  next: {arcs: [{step: start, when: '{{ ctx.turns < 4000 }}'}]}
"""
    engine = Storm(text)
    execution_id = engine.start("spin")
    engine.drive()
    engine.check_end()
    assert engine.states[execution_id].visits == {"start": 4000}
    assert len([event for event in engine.log if event.is_input]) > 1


def test_a_retry_of_a_child_that_could_not_start_is_made():
    text = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: caller, path: caller}
workflow:
- step: start
  tool:
    kind: playbook
    path: nowhere
    spec: {policy: {rules: [{when: '{{ true }}', then: {do: retry, attempts: 3, delay: 1, backoff: fixed}}]}}
"""
    engine = Storm(text)
    engine.start("caller")
    engine.drive()
    engine.check_end()
    assert len(engine.events("child.started")) == 3


WAITS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: waits, path: waits}
workflow:
- step: start
  tool: {kind: python, code: 'x = 1'}
  next: {spec: {mode: inclusive}, arcs: [{step: calls}, {step: breaks}]}
- step: calls
  loop: {in: '{{ 2 }}', iterator: n, spec: {mode: parallel}}
  tool:
    kind: playbook
    path: nowhere
    spec: {policy: {rules: [{when: '{{ true }}', then: {do: retry, attempts: 3, delay: 600, backoff: fixed}}]}}
- step: breaks
  tool: {kind: python, code: 'x = 1'}
"""


@pytest.mark.parametrize("ends", ["FAILED", "CANCELLED"])
def test_a_run_that_failed_or_is_cancelled_does_not_wait_for_retries(ends: str):
    engine = Storm(WAITS)
    execution_id = engine.start("waits")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    engine.route_next()
    assert len(engine.timers) == 2
    engine.failures = 1.0
    if ends == "CANCELLED":
        engine.cancel(execution_id)
    else:
        engine.run_command(engine.commands.pop())
    while engine.inputs:
        engine.route_next()
    assert engine.states[execution_id].status == ends


CALLS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: calls, path: calls}
workflow:
- step: start
  tool: {kind: playbook, path: leaf}
"""


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_finalizing_a_run_cancels_its_children(status: str):
    engine = Storm(CALLS, LEAF)
    parent = engine.start("calls")
    engine.route_next()
    engine.route_next()
    envelope = Envelope(status="REQUESTED", context={"status": status})
    engine._input(Event(execution_id=parent, event_type="finalize.requested", result=envelope))
    while engine.inputs:
        engine.route_next()
    engine.check_end()
    assert sorted(state.status for state in engine.states.values()) == sorted([status, "CANCELLED"])


def test_an_input_that_cannot_be_routed_cancels_what_its_run_has_begun():
    engine = Storm(CALLS, LEAF)
    parent = engine.start("calls")
    engine.route_next()
    cause = Event(execution_id=parent, event_id=event_id(0, 99), event_type="finalize.requested")
    world = World(load=engine.load, playbooks={}, fresh_ids=iter(()))
    decision = route.fail(None, engine.states[parent], cause, world=world, message="no")
    assert decision.cancels_commands and decision.state.status == "FAILED"
    assert [event.event_type for event in decision.inputs] == ["cancel.requested"]


def test_a_command_that_its_worker_gave_up_unasked_fails_its_step():
    engine = Storm(LEAF)
    execution_id = engine.start("leaf")
    engine.route_next()
    command = engine.commands.pop()
    report = Event(
        execution_id=execution_id,
        event_type="command.cancelled",
        step=command.step,
        command_id=command.command_id,
        dedup_key=f"done:{command.command_id}",
    )
    engine._input(report)
    engine.drive()
    engine.check_end()
    assert engine.states[execution_id].status == "FAILED"

"""Runs under a concurrency limit: one waits until it is admitted, in order, and gives its place up at its end."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl_common.core.commands import TURN_S
from noetl_common.core.parse import parse
from noetl_common.errors import PlaybookError, TemplateFailed
from tests.engine import Engine, Failed

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"
LIMITED = (
    HEAD
    + """
metadata: {name: limited, path: limited}
executor: {spec: {concurrency: {key: "{{ tenant }}", limit: 2}}}
workload: {tenant: a, fails: false}
workflow:
- step: start
  tool: {kind: python, code: 'result = 1'}
"""
)
CALLER = (
    HEAD
    + """
metadata: {name: caller, path: caller}
executor: {spec: {concurrency: 1, priority: 7}}
workload: {again: true}
workflow:
- step: start
  when: "{{ again }}"
  tool: {kind: playbook, path: caller, input: {again: false}}
- step: last
  tool: {kind: noop}
"""
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1_000_000))
def test_never_more_than_the_limit_run_and_all_end_in_the_order_they_came(seed: int):
    source = random.Random(seed)

    def tool(command, context, engine):
        if source.random() < 0.2:
            raise Failed("now and then")

    engine = Engine(LIMITED, tool=tool, seed=seed)
    runs = {key: [engine.start("limited", tenant=key) for _ in range(6)] for key in "ab"}
    cancelled = source.sample([run for mine in runs.values() for run in mine], 3)
    for run in cancelled:
        engine.cancel(run)
    engine.drive()
    for mine in runs.values():
        going: set[int] = set()
        order = []
        for event in (event for event in engine.log if event.execution_id in mine):
            if event.event_type == "step.enter":
                going.add(event.execution_id)
                order.append(event.execution_id)
                assert len(going) <= 2
            elif event.event_type in ("playbook.completed", "playbook.failed", "playbook.cancelled"):
                going.discard(event.execution_id)
        assert order == [run for run in mine if run in order]
        assert {run for run in mine if run not in order} <= set(cancelled)
    assert all(engine.states[run].is_terminal for mine in runs.values() for run in mine)
    assert all(engine.replayed(run) == engine.states[run] for mine in runs.values() for run in mine)
    assert not any(engine.groups.values())


def test_a_run_that_waits_ends_when_it_is_cancelled_and_begins_nothing():
    engine = Engine(LIMITED)
    runs = [engine.start("limited") for _ in range(3)]
    for _ in range(6):
        if engine.inputs:
            engine.route_next()
    assert [engine.states[run].is_waiting for run in runs] == [False, False, True]
    engine.cancel(runs[2])
    engine.drive()
    assert [engine.states[run].status for run in runs] == ["COMPLETED", "COMPLETED", "CANCELLED"]
    assert len(engine.events("command.issued")) == 2


def test_a_child_of_the_same_group_runs_in_the_place_of_the_run_that_waits_for_it():
    engine = Engine(CALLER)
    state = engine.run("caller")
    assert state.status == "COMPLETED"
    assert len(engine.events("playbook.completed")) == 2


def test_a_key_that_is_null_refuses_the_start():
    engine = Engine(LIMITED.replace("{{ tenant }}", "{{ nobody }}"))
    with pytest.raises(TemplateFailed, match=r"executor.spec.concurrency.key: expected a text or a number, found null"):
        engine.start("limited")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("concurrency: {limit: 0}", "limit: expected a whole number from 1 to 1000, found 0"),
        ("concurrency: {key: a}", "limit: expected a whole number from 1 to 1000, found nothing"),
        ("concurrency: {key: [a], limit: 1}", "key: expected a text, or a template over the workload, found a list"),
        ("concurrency: many", "concurrency: expected a limit, or {key, limit}, found a text"),
        ("concurrency: {key: '{{ a', limit: 1}", "executor.spec.concurrency.key"),
        ("priority: high", "priority: expected a whole number from -100 to 100, found 'high'"),
        ("priority: 101", "priority: expected a whole number from -100 to 100, found 101"),
    ],
)
def test_a_limit_or_a_priority_that_makes_no_sense_is_refused_with_its_place(spec: str, message: str):
    text = HEAD + "metadata: {name: n, path: n}\nexecutor: {spec: {%s}}\nworkflow: [{step: s, tool: {kind: noop}}]\n"
    with pytest.raises(PlaybookError) as refused:
        parse(text % spec)
    [problem] = refused.value.problems
    assert message in problem["message"] or message in problem["where"]
    assert problem["where"].startswith("executor.spec.")


FANS_OUT = (
    HEAD
    + """
metadata: {name: fans, path: fans}
executor: {spec: {priority: 3}}
workflow:
- step: start
  loop: {in: "{{ range(50) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 20}}
  tool: {kind: python, code: 'result = 1'}
  next: {arcs: [{step: calls}]}
- step: calls
  spec: {priority: -5}
  loop: {in: "{{ range(5) | list }}", iterator: n, spec: {mode: parallel}}
  tool: [{one: {kind: noop}}, {two: {kind: playbook, path: leaf}}]
"""
)
LEAF = HEAD + "metadata: {name: leaf, path: leaf}\nworkflow: [{step: s, tool: {kind: python, code: 'result = 1'}}]\n"


def test_the_more_of_a_run_is_under_way_the_later_is_the_turn_of_its_next_command():
    engine = Engine(FANS_OUT, LEAF)
    engine.start("fans")
    engine.route_next()
    assert [command.turn_s for command in engine.commands] == [number * TURN_S for number in range(20)]
    engine.run_command(engine.commands.pop(0))
    engine.route_next()
    assert engine.commands[-1].turn_s == 19 * TURN_S  # the window is full again, but for this one


def test_the_commands_of_children_wait_behind_what_is_under_way_above_them():
    engine = Engine(FANS_OUT, LEAF)
    engine.start("fans")
    turns: dict[int, float] = {}

    def tool(command, context, engine):
        turns[command.execution_id] = max(turns.get(command.execution_id, 0.0), command.turn_s)

    engine.tool = tool
    engine.drive()
    children = sorted(turn for run, turn in turns.items() if run != 1000)
    assert len(children) == 5
    assert children[-1] > children[0] > 0


def test_a_step_says_how_urgent_it_is_else_the_start_else_the_playbook():
    found: dict[str, set[int]] = {}

    def tool(command, context, engine):
        found.setdefault(command.step, set()).add(command.priority)

    engine = Engine(FANS_OUT, LEAF, tool=tool)
    engine.run("fans")
    assert found == {"start": {3}, "calls": {-5}, "s": {0}}

"""Routing on the pure core: order, fan-in, loops, failures, cycles, children."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import Engine, Failed


def playbook(steps: str, *, path: str = "t", more: str = "") -> str:
    return (
        f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {path}, path: {path}}}\n{more}\nworkflow:\n{steps}"
    )


def step(
    name: str, *arcs: str, mode: str = "exclusive", extra: str = "", tool: str = "kind: python, code: 'x = 1'"
) -> str:
    text = f"- step: {name}\n  tool: {{{tool}}}\n{extra}"
    if arcs:
        text += f"  next:\n    spec: {{mode: {mode}}}\n    arcs:\n" + "".join(f"    - {{step: {a}}}\n" for a in arcs)
    return text


def test_steps_run_one_after_another_and_the_playbook_completes_once():
    engine = Engine(playbook(step("start", "b") + step("b", "c") + step("c")))
    state = engine.run("t")
    assert state.status == "COMPLETED"
    assert [e.step for e in engine.events("step.enter")] == ["start", "b", "c"]
    assert len(engine.events("playbook.completed")) == 1


def test_a_join_is_entered_once_after_both_branches():
    text = playbook(
        step("start", "a", "b", mode="inclusive")
        + step("a", "join")
        + step("b", "x")
        + step("x", "join")
        + step("join")
    )
    for seed in range(20):
        engine = Engine(text, seed=seed)
        assert engine.run("t").status == "COMPLETED"
        order = [(e.event_type, e.step) for e in engine.log]
        assert order.count(("step.enter", "join")) == 1
        assert order.index(("step.enter", "join")) > max(order.index(("step.exit", s)) for s in ("a", "x"))


def test_only_the_first_true_arc_of_an_exclusive_step_fires():
    steps = (
        step("start", "high, when: '{{ start.n > 10 }}'", "low, when: '{{ start.n <= 10 }}'")
        + step("high", "end")
        + step("low", "end")
        + step("end")
    )
    engine = Engine(playbook(steps), tool=lambda c, x, e: {"n": 3})
    engine.run("t")
    assert [e.step for e in engine.events("step.enter")] == ["start", "low", "end"]


def test_a_cycle_runs_until_its_guard_says_no():
    steps = (
        "- step: start\n  tool: {kind: noop}\n  set: {ctx.page: 0}\n  next: {arcs: [{step: fetch}]}\n"
        "- step: fetch\n  tool: {kind: noop}\n  set: {ctx.page: '{{ ctx.page + 1 }}'}\n"
        "  next:\n    arcs:\n    - {step: fetch, when: '{{ ctx.page < 5 }}'}\n    - {step: end}\n"
        "- step: end\n  tool: {kind: noop}\n"
    )
    engine = Engine(playbook(steps))
    state = engine.run("t")
    assert state.status == "COMPLETED"
    assert state.visits == {"start": 1, "fetch": 5, "end": 1}
    assert state.ctx["page"].v == 5


LOOP = (
    "- step: start\n  loop: {in: '{{ items }}', iterator: item, spec: {mode: MODE, max_in_flight: 7}}\n"
    "  tool: {kind: python, code: 'x = 1'}\n  next: {arcs: [{step: end, when: \"{{ event.name == 'loop.done' }}\"}]}\n"
    "- step: end\n  tool: {kind: noop}\n"
)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize("size", [0, 1, 7, 50])
def test_a_loop_runs_each_item_once_and_is_done_once(mode: str, size: int):
    engine = Engine(playbook(LOOP.replace("MODE", mode)), tool=lambda c, x, e: {"i": c.iter_index}, seed=size)
    state = engine.run("t", items=list(range(size)))
    assert state.status == "COMPLETED"
    indices = [e.iter_index for e in engine.events("command.issued", "start")]
    assert sorted(indices) == list(range(size))
    assert len(engine.events("loop.done")) == 1
    assert engine.result(state, "start")["results"] == [{"i": n} for n in range(size)]


def test_a_parallel_loop_never_has_more_in_flight_than_it_may():
    engine = Engine(playbook(LOOP.replace("MODE", "parallel")))
    engine.start("t", items=list(range(40)))
    most = 0
    while engine.inputs or engine.commands:
        if engine.inputs:
            engine.route_next()
        else:
            engine.run_command(engine.commands.pop())
        most = max(most, sum(c.step == "start" for c in engine.commands))
    assert most == 7


def test_a_large_item_goes_by_reference_and_a_small_one_inline():
    engine = Engine(playbook(LOOP.replace("MODE", "parallel")))
    engine.start("t", items=["x" * 2000, "y"])
    engine.route_next()
    large, small = (command.item for command in engine.commands)
    assert large is not None and small is not None
    assert large.ref is not None and large.index == 0 and small.v == "y"


@pytest.mark.parametrize("value", [None, True, 3.5])
def test_a_loop_over_nothing_iterable_fails_and_names_the_step(value: Any):
    engine = Engine(playbook(LOOP.replace("MODE", "sequential")))
    state = engine.run("t", items=value)
    assert state.status == "FAILED"
    assert state.failure is not None and "step 'start', loop.in" in state.failure["message"]


@pytest.mark.parametrize(("value", "size"), [(3, 3), ({"a": 1, "b": 2}, 2), ("[1,2,3]", 3), ("a, b\nc", 3)])
def test_numbers_objects_and_texts_are_collections_too(value: Any, size: int):
    engine = Engine(playbook(LOOP.replace("MODE", "parallel")))
    assert engine.run("t", items=value).status == "COMPLETED"
    assert len(engine.events("command.issued", "start")) == size


def test_a_failed_item_fails_the_loop_after_the_rest_has_drained():
    def tool(command: Any, context: Any, engine: Engine) -> Any:
        if command.iter_index == 3:
            raise Failed("no")
        return {}

    engine = Engine(playbook(LOOP.replace("MODE", "parallel")), tool=tool)
    state = engine.run("t", items=list(range(40)))
    assert state.status == "FAILED"
    issued = {e.command_id for e in engine.events("command.issued")}
    ended = {e.command_id for e in engine.log if e.event_type in ("command.completed", "command.failed")}
    assert issued == ended
    assert state.failure is not None and "item 3: no" in state.failure["message"]
    assert len(engine.events("loop.done")) == len(engine.events("playbook.failed")) == 1


def test_an_unhandled_failure_fails_the_run_and_an_unguarded_arc_does_not_fire():
    def tool(command: Any, context: Any, engine: Engine) -> Any:
        raise Failed("broken")

    engine = Engine(playbook(step("start", "end") + step("end")), tool=tool)
    state = engine.run("t")
    assert state.status == "FAILED" and state.failure == {"code": "TOOL", "message": "broken", "step": "start"}
    assert [e.step for e in engine.events("step.enter")] == ["start"]


def test_an_arc_that_tests_the_event_handles_a_failure():
    def tool(command: Any, context: Any, engine: Engine) -> Any:
        if command.step == "start":
            raise Failed("broken")
        return {}

    steps = step("start", "mend, when: \"{{ event.name == 'call.error' }}\"", "end") + step("mend") + step("end")
    engine = Engine(playbook(steps), tool=tool)
    state = engine.run("t")
    assert state.status == "COMPLETED"
    assert [e.step for e in engine.events("step.enter")] == ["start", "mend"]


def test_a_failing_branch_lets_the_other_drain_and_dispatches_nothing_more():
    def tool(command: Any, context: Any, engine: Engine) -> Any:
        if command.step == "a":
            raise Failed("broken")
        return {}

    steps = step("start", "a", "b", mode="inclusive") + step("a") + step("b", "c") + step("c")
    for seed in range(10):
        engine = Engine(playbook(steps), tool=tool, seed=seed)
        assert engine.run("t").status == "FAILED"
        entered = [e.step for e in engine.events("step.enter")]
        assert entered[:3] == ["start", "a", "b"]
        assert len(engine.events("playbook.failed")) == 1
        assert engine.log[-1].event_type == "playbook.failed"


def test_an_expression_that_raises_fails_the_step_and_is_named():
    engine = Engine(playbook(step("start", "end, when: '{{ 1 / 0 }}'") + step("end")))
    state = engine.run("t")
    assert state.status == "FAILED"
    assert (
        state.failure is not None and "1 / 0" in state.failure["message"] and "arc to 'end'" in state.failure["message"]
    )


def test_a_duplicate_or_late_report_changes_nothing():
    engine = Engine(playbook(LOOP.replace("MODE", "parallel")))
    engine.start("t", items=[1, 2, 3])
    engine.route_next()
    command = engine.commands.pop()
    engine.run_command(command, times=3)
    engine.drive()
    (loop_done,) = engine.events("loop.done")
    assert loop_done.context == {"size": 3, "done": 3, "failed": 0}


CHILD = playbook(
    "- step: start\n  tool: {kind: python, code: 'x'}\n",
    path="child",
    more="workload: {who: nobody, twice: '{{ who }}'}",
)


def test_a_child_runs_with_its_input_and_its_result_is_the_steps():
    def tool(command: Any, context: Any, engine: Engine) -> Any:
        return {"hello": context.workload.v.get("who")}

    steps = (
        "- step: start\n  tool: {kind: playbook, path: child, input: {who: '{{ name }}'}}\n"
        "  next: {arcs: [{step: end, when: \"{{ start.hello == 'Ada' }}\"}]}\n- step: end\n  tool: {kind: noop}\n"
    )
    engine = Engine(playbook(steps, more="workload: {name: Ada}"), CHILD, tool=tool)
    state = engine.run("t")
    assert state.status == "COMPLETED" and state.visits["end"] == 1
    assert len(engine.states) == 2 and all(s.status == "COMPLETED" for s in engine.states.values())


def test_a_loop_of_pipelines_with_a_child_keeps_items_and_labels_apart():
    def tool(command: Any, context: Any, engine: Engine) -> Any:
        if context.path == "child":
            return {"score": context.workload.v["n"] * 10}
        assert command.item is not None and command.item.prior is not None
        return {"saved": engine.payloads[command.item.prior.ref_id]["score"]["score"]}

    steps = (
        "- step: start\n  loop: {in: '{{ [1, 2, 3] }}', iterator: n, spec: {mode: MODE}}\n  tool:\n"
        "  - {name: score, kind: playbook, path: child, input: {n: '{{ n }}'}}\n"
        "  - {name: save, kind: python, code: 'x', input: {s: '{{ score.score }}'}}\n"
    )
    for mode in ("sequential", "parallel"):
        engine = Engine(playbook(steps.replace("MODE", mode)), CHILD, tool=tool)
        state = engine.run("t")
        assert state.status == "COMPLETED"
        results = engine.result(state, "start")["results"]
        assert [r["save"]["saved"] for r in results] == [10, 20, 30]


def test_a_childs_failure_is_the_tasks_and_a_rule_may_accept_it():
    def tool(command: Any, context: Any, engine: Engine) -> Any:
        raise Failed("child broke")

    call = "- step: start\n  tool: {kind: playbook, path: child RULES}\n"
    engine = Engine(playbook(call.replace("RULES", "")), CHILD, tool=tool)
    state = engine.run("t")
    assert state.status == "FAILED"
    assert state.failure is not None and "child broke" in state.failure["message"]

    rules = ", spec: {policy: {rules: [{else: {then: {do: continue}}}]}}"
    engine = Engine(playbook(call.replace("RULES", rules)), CHILD, tool=tool)
    assert engine.run("t").status == "COMPLETED"


def test_a_child_that_is_not_registered_fails_the_step_by_name():
    engine = Engine(playbook("- step: start\n  tool: {kind: playbook, path: nowhere}\n"))
    state = engine.run("t")
    assert state.failure is not None and "'nowhere' is not in the catalog" in state.failure["message"]


def test_a_loop_of_children_that_all_fail_to_start_ends():
    steps = (
        "- step: start\n  loop: {in: '{{ 3000 }}', iterator: n, spec: {mode: parallel}}\n"
        "  tool: {kind: playbook, path: nowhere, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}\n"
    )
    engine = Engine(playbook(steps))
    state = engine.run("t")
    assert state.status == "COMPLETED"
    assert len(engine.events("child.started")) == 3000 and len(engine.events("loop.done")) == 1


def test_a_cancel_stops_what_is_queued_and_reaches_the_children():
    steps = "- step: start\n  tool: {kind: playbook, path: child}\n"
    engine = Engine(playbook(steps), CHILD)
    parent = engine.start("t")
    for _ in range(2):
        engine.route_next()
    assert len(engine.commands) == 1
    engine.cancel(parent)
    engine.drive()
    assert {state.status for state in engine.states.values()} == {"CANCELLED"}
    assert len(engine.events("playbook.cancelled")) == 2


def test_what_set_writes_is_seen_by_later_steps_and_large_values_go_by_reference():
    steps = (
        "- step: start\n  tool: {kind: python, code: x}\n"
        "  set: {ctx.big: '{{ output.data.big }}', ctx.n: '{{ start.n }}'}\n"
        "  next: {arcs: [{step: end, when: '{{ (big | length) == 5000 and ctx.n == 1 }}'}]}\n"
        "- step: end\n  tool: {kind: noop}\n"
    )
    engine = Engine(playbook(steps), tool=lambda c, x, e: {"big": "x" * 5000, "n": 1})
    state = engine.run("t")
    assert state.visits.get("end") == 1
    assert state.ctx["big"].ref is not None and state.ctx["n"].v == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 30), st.sampled_from(["sequential", "parallel"]))
def test_the_fold_of_the_log_is_the_state_whatever_the_order(seed: int, size: int, mode: str):
    engine = Engine(playbook(LOOP.replace("MODE", mode)), seed=seed)
    state = engine.run("t", items=list(range(size)))
    assert msgspec.json.encode(engine.replayed(state.execution_id)) == msgspec.json.encode(state)
    ids = [e.event_id for e in sorted(engine.log, key=lambda e: e.event_id)]
    assert len(ids) == len(set(ids))


def test_a_step_without_a_result_has_the_result_null():
    steps = (
        "- step: start\n  tool: {kind: noop}\n  next: {arcs: [{step: end, when: '{{ start is none }}'}]}\n"
        "- step: end\n  tool: {kind: noop}\n"
    )
    engine = Engine(playbook(steps), tool=lambda command, context, engine: None)
    state = engine.run("t")
    assert state.visits.get("end") == 1 and state.results["start"].ref_id == 0


def test_variables_from_outside_are_folded_and_dispatch_nothing():
    steps = (
        "- step: start\n  tool: {kind: noop}\n  set: {ctx.gone: 1, ctx.kept: 2}\n  next: {arcs: [{step: middle}]}\n"
        "- step: middle\n  tool: {kind: noop}\n"
        "  next: {arcs: [{step: end, when: '{{ x == 7 and kept == 2 and gone is undefined }}'}]}\n"
        "- step: end\n  tool: {kind: noop}\n"
    )
    engine = Engine(playbook(steps))
    execution_id = engine.start("t")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    engine.route_next()
    before = len(engine.log)
    engine.write_variables(execution_id, {"unset": ["gone"], "set": {"x": {"v": 7}}})
    engine.route_next()
    assert [event.event_type for event in engine.log[before:]] == ["vars.set"]
    engine.drive()
    state = engine.states[execution_id]
    assert state.status == "COMPLETED" and state.visits.get("end") == 1
    assert msgspec.json.encode(engine.replayed(execution_id)) == msgspec.json.encode(state)


def test_taking_all_variables_away_leaves_what_is_set_in_the_same_input():
    steps = "- step: start\n  tool: {kind: noop}\n  set: {ctx.a: 1}\n  next: {arcs: [{step: end}]}\n" + (
        "- step: end\n  tool: {kind: noop}\n"
    )
    engine = Engine(playbook(steps))
    execution_id = engine.start("t")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    engine.route_next()
    engine.write_variables(execution_id, {"clear": True, "set": {"b": {"v": 2}}})
    engine.drive()
    assert {name: value.v for name, value in engine.states[execution_id].ctx.items()} == {"b": 2}

"""Loops on the pure core: what of them may fail, what runs again, and what the arcs are told."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from noetl_common.core.commands import Command, CommandContext
from tests.engine import Engine, Failed
from tests.unit.test_route import CHILD, playbook

END = "- step: end\n  tool: {kind: noop}\n"
PYTHON = "kind: python, code: 'x = 1'"


def loop_of(spec: str, *, arcs: str = "", source: str = "in: '{{ 6 }}'", tool: str = PYTHON) -> str:
    ways = f"  next: {{arcs: [{arcs}]}}\n" if arcs else ""
    return playbook(
        f"- step: start\n  loop: {{{source}, iterator: n, spec: {{{spec}}}}}\n  tool: {{{tool}}}\n{ways}{END}"
    )


def failing(*indices: int, times: int = 1_000) -> Any:
    """Return a tool that fails these items, each so many times."""
    tried: Counter[int] = Counter()

    def tool(command: Command, context: CommandContext, engine: Engine) -> Any:
        tried[command.iter_index] += 1
        if command.iter_index in indices and tried[command.iter_index] <= times:
            raise Failed(f"item {command.iter_index}")
        return {"i": command.iter_index}

    return tool


FANIN = (
    "{step: end, when: \"{{ fanin.status == 'STATUS' and fanin.done == DONE and fanin.failed == FAILED"
    " and fanin.total == 6 and event.name == 'NAME' }}\"}"
)


@pytest.mark.parametrize("mode", ["sequential", "parallel", "fanout"])
@pytest.mark.parametrize(
    ("failed", "may_fail", "status", "name"),
    [
        ((), 0, "complete", "loop.done"),
        ((5,), 1, "partial", "loop.done"),
        ((1, 4), 2, "partial", "loop.done"),
        ((0, 1, 2, 3, 4, 5), 6, "failed", "loop.done"),
        ((5,), 0, "partial", "call.error"),
        ((0, 1, 2, 3, 4, 5), 5, "failed", "call.error"),
    ],
)
def test_the_arcs_of_a_loop_know_how_its_items_ended(
    mode: str, failed: tuple[int, ...], may_fail: int, status: str, name: str
):
    figures = {"STATUS": status, "DONE": str(6 - len(failed)), "FAILED": str(len(failed)), "NAME": name}
    arcs = FANIN
    for word, value in figures.items():
        arcs = arcs.replace(word, value)
    engine = Engine(loop_of(f"mode: {mode}, max_failures: {may_fail}", arcs=arcs), tool=failing(*failed))
    state = engine.run("t")
    assert state.status == "COMPLETED" and state.visits.get("end") == 1
    (done,) = engine.events("loop.done")
    assert done.status == ("COMPLETED" if name == "loop.done" else "FAILED")
    stats = engine.result(state, "start")["stats"]
    assert stats == {"total": 6, "success": 6 - len(failed), "failed": len(failed)}


@pytest.mark.parametrize("arc", ["{step: end}", "{step: end, when: '{{ start.stats.failed > 0 }}'}"])
def test_a_loop_that_failed_is_not_carried_on_by_an_arc_that_does_not_ask(arc: str):
    state = Engine(loop_of("mode: fanout", arcs=arc), tool=failing(2)).run("t")
    assert state.status == "FAILED" and "end" not in state.visits
    assert state.failure is not None and "1 of 6 items failed; first, item 2: item 2" in state.failure["message"]


@pytest.mark.parametrize("seed", range(8))
def test_a_loop_names_the_first_item_that_failed_whichever_ended_first(seed: int):
    state = Engine(loop_of("mode: fanout"), tool=failing(2, 3, 5), seed=seed).run("t")
    assert state.failure is not None and "3 of 6 items failed; first, item 2: item 2" in state.failure["message"]


@pytest.mark.parametrize(("may_fail", "issued"), [(0, 2), (1, 3), ("'{{ 1 + 1 }}'", 4), (9, 6)])
def test_a_sequential_loop_goes_on_until_more_items_failed_than_may(may_fail: Any, issued: int):
    engine = Engine(loop_of(f"mode: sequential, max_failures: {may_fail}"), tool=failing(1, 2, 3))
    assert engine.run("t").status == ("COMPLETED" if issued == 6 else "FAILED")
    assert len(engine.events("command.issued")) == issued


@pytest.mark.parametrize(
    ("retries", "fails", "issued", "status"),
    [("", 2, 8, "COMPLETED"), ("", 3, 8, "FAILED"), ("0", 1, 6, "FAILED"), ("'{{ 3 }}'", 3, 9, "COMPLETED")],
)
def test_an_item_of_a_fan_out_runs_again_as_often_as_it_may(retries: str, fails: int, issued: int, status: str):
    more = f", fanout: {{max_shard_retries: {retries}}}" if retries else ""
    engine = Engine(loop_of(f"mode: fanout, max_in_flight: 2{more}"), tool=failing(3, times=fails))
    state = engine.run("t")
    assert state.status == status
    events = engine.events("command.issued")
    assert len(events) == len({event.command_id for event in events}) == issued
    assert [e.context.get("retry") for e in events if e.iter_index == 3] == [None, 1, 2, 3][: issued - 5]
    assert msgspec.json.encode(engine.replayed(state.execution_id)) == msgspec.json.encode(state)


def test_a_retry_waits_longer_each_time_and_the_other_items_do_not_wait_for_it():
    delays: list[float] = []
    inner = failing(0)

    def tool(command: Command, context: CommandContext, engine: Engine) -> Any:
        if command.iter_index == 0:
            delays.append(command.delay_s)
        return inner(command, context, engine)

    engine = Engine(loop_of("mode: fanout, max_in_flight: 2, fanout: {max_shard_retries: 4}"), tool=tool)
    assert engine.run("t").status == "FAILED"
    assert delays == pytest.approx([0, 0.1, 0.2, 0.4, 0.8])
    assert len([e for e in engine.events("command.completed") if e.step == "start"]) == 5


def test_an_item_whose_child_fails_is_run_again_from_its_first_task():
    tried: Counter[Any] = Counter()

    def tool(command: Command, context: CommandContext, engine: Engine) -> Any:
        if context.path == "child":
            n = context.workload.v["n"]
            tried[n] += 1
            if n == 1 and tried[n] < 3:
                raise Failed("child broke")
            return {"score": n}
        return {"ran": context.tasks[0].label}

    steps = (
        "- step: start\n  loop: {in: '{{ 3 }}', iterator: n, spec: {mode: fanout}}\n  tool:\n"
        "  - {name: first, kind: python, code: 'x'}\n"
        "  - {name: score, kind: playbook, path: child, input: {n: '{{ n }}'}}\n"
    )
    engine = Engine(playbook(steps), CHILD, tool=tool)
    state = engine.run("t")
    assert state.status == "COMPLETED" and tried == {0: 1, 1: 3, 2: 1}
    assert [result["score"] for result in engine.result(state, "start")["results"]] == [{"score": n} for n in range(3)]
    firsts = [event for event in engine.events("command.issued", "start") if event.iter_index == 1]
    assert [event.context.get("retry") for event in firsts] == [None, 1, 2]


def test_what_is_cancelled_is_not_tried_again():
    engine = Engine(loop_of("mode: fanout"), tool=failing())
    execution_id = engine.start("t")
    engine.route_next()
    engine.cancel(execution_id)
    engine.drive()
    assert engine.states[execution_id].status == "CANCELLED"
    assert len(engine.events("command.issued")) == 6


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("mode: parallel, max_in_flight: '{{ 0 }}'", "spec.max_in_flight"),
        ("mode: parallel, max_in_flight: '{{ 1.5 }}'", "spec.max_in_flight"),
        ("mode: sequential, max_failures: '{{ -1 }}'", "spec.max_failures"),
        ("mode: fanout, fanout: {max_shard_retries: '{{ 101 }}'}", "spec.fanout.max_shard_retries"),
        ("mode: fanout, max_failures: '{{ [] }}'", "spec.max_failures"),
    ],
)
def test_a_limit_out_of_range_fails_the_step_and_is_named(spec: str, what: str):
    state = Engine(loop_of(spec)).run("t")
    assert state.status == "FAILED" and state.failure is not None
    assert f"step 'start', loop.{what}" in state.failure["message"]
    assert "expected a whole number from" in state.failure["message"]

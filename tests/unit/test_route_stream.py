"""Streams on the pure core: each chunk of a step that runs is an item of its consumer."""

from typing import Any

import msgspec
import pytest

from noetl_common.core.commands import Command, CommandContext
from noetl_common.core.routing import stream
from noetl_common.core.state import ExecutionState
from tests.engine import Chunks, Engine, Failed
from tests.unit.test_route import CHILD, playbook, step

END = step("end", tool="kind: noop")
PARTIAL = "takes, on: call.partial"
PLAIN = playbook(step("start", PARTIAL, "end") + step("takes", "end") + END)


def streaming(*values: Any, then: Any = None, breaks: tuple[Any, ...] = ()) -> Any:
    """Return a tool whose `start` streams these chunks and whose consumers hand theirs back, `breaks` excepted."""

    def tool(command: Command, context: CommandContext, engine: Engine) -> Any:
        if command.step == "start":
            return Chunks(*values, then={"n": len(values)} if then is None else then)
        item = engine.item(command)
        if item in breaks:
            raise Failed(f"chunk {item}")
        return item

    return tool


def play(text: str, *, tool: Any, seed: int = 0, child: str = CHILD) -> tuple[Engine, ExecutionState]:
    engine = Engine(text, child, tool=tool, seed=seed)
    state = engine.run("t")
    assert msgspec.json.encode(engine.replayed(state.execution_id)) == msgspec.json.encode(state)
    return engine, state


def kinds(engine: Engine) -> list[tuple[str, str]]:
    return [(event.event_type, event.step) for event in engine.log]


@pytest.mark.parametrize(
    "arc",
    [
        "takes, on: call.partial",
        "takes, when: \"{{ event.name == 'call.partial' }}\"",
        "takes, when: \"'call.partial' == event['name'] and output.data >= 0\"",
        "takes, on: call.partial, when: '{{ chunk >= 0 }}'",
    ],
)
def test_each_chunk_is_an_item_of_its_consumer_in_the_order_of_the_chunks(arc: str):
    text = playbook(step("start", arc, "end") + step("takes", "end") + END)
    for seed in range(10):
        engine, state = play(text, tool=streaming(3, 1, 2), seed=seed)
        assert state.status == "COMPLETED" and state.visits == {"start": 1, "takes": 1, "end": 1}
        assert engine.result(state, "takes")["results"] == [3, 1, 2]
        assert engine.result(state, "start") == {"n": 3}
        order = kinds(engine)
        assert order.index(("step.enter", "end")) > order.index(("loop.done", "takes"))
        assert order.index(("step.exit", "start")) < order.index(("loop.done", "takes"))


def test_a_consumer_runs_while_its_producer_does():
    engine = Engine(PLAIN, tool=streaming(1, 2))
    execution_id = engine.start("t")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    engine.stream(engine.streaming[0])
    engine.route_next()
    (command,) = engine.commands
    assert (command.step, command.iter_index, engine.item(command)) == ("takes", 0, 1)
    assert engine.contexts[command.context_id].iterator == "chunk"
    assert engine.states[execution_id].active.keys() == {"start", "takes"}


def test_a_step_without_chunks_never_enters_its_consumer():
    engine, state = play(PLAIN, tool=streaming())
    assert state.status == "COMPLETED" and state.visits == {"start": 1, "end": 1}
    assert not engine.events("loop.started")


@pytest.mark.parametrize("mode", ["exclusive", "inclusive"])
def test_each_chunk_goes_where_its_condition_says(mode: str):
    arcs = (
        "odd, on: call.partial, when: '{{ output.data % 2 == 1 }}'",
        "large, on: call.partial, when: '{{ chunk > 2 }}'",
    )
    text = playbook(step("start", *arcs, "end", mode=mode) + step("odd", "end") + step("large", "end") + END)
    engine, state = play(text, tool=streaming(1, 2, 3, 4))
    assert engine.result(state, "odd")["results"] == [1, 3]
    assert engine.result(state, "large")["results"] == ([4] if mode == "exclusive" else [3, 4])
    assert state.visits == {"start": 1, "odd": 1, "large": 1, "end": 1}


@pytest.mark.parametrize(
    ("arcs", "status", "visits"),
    [
        (("end",), "FAILED", {"start": 1, "takes": 1}),
        (("end, when: \"{{ event.name == 'call.error' and fanin.failed == 1 }}\"",), "COMPLETED", None),
    ],
)
def test_a_chunk_that_fails_fails_its_consumer_when_the_producer_has_ended(arcs: Any, status: str, visits: Any):
    text = playbook(step("start", PARTIAL) + step("takes", *arcs) + END)
    for seed in range(10):
        engine, state = play(text, tool=streaming(1, 2, 3, breaks=(1,)), seed=seed)
        assert state.status == status and state.visits == (visits or {"start": 1, "takes": 1, "end": 1})
        assert len(engine.events("loop.done")) == 1
        if status == "FAILED":
            assert state.failure is not None and "step 'takes': 1 of" in state.failure["message"]


def test_no_further_chunk_is_begun_once_one_failed():
    engine = Engine(PLAIN, tool=streaming(1, 2, 3, breaks=(1,)))
    engine.start("t")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    for _ in range(3):
        engine.stream(engine.streaming[0])
        engine.route_next()
        for command in list(engine.commands):
            engine.commands.remove(command)
            engine.run_command(command)
            engine.route_next()
    engine.drive()
    assert len(engine.events("command.issued", "takes")) == 1


@pytest.mark.parametrize("handled", [False, True])
def test_a_producer_that_fails_closes_its_stream(handled: bool):
    arcs = (PARTIAL, "end, when: \"{{ event.name == 'call.error' }}\"") if handled else (PARTIAL,)
    text = playbook(step("start", *arcs) + step("takes") + END)
    for seed in range(10):
        engine, state = play(text, tool=streaming(1, 2, then=Failed("broken")), seed=seed)
        assert state.status == ("COMPLETED" if handled else "FAILED")
        assert state.visits == {"start": 1, "takes": 1, **({"end": 1} if handled else {})}
        assert len(engine.events("loop.done", "takes")) == 1


def test_a_chunk_of_a_run_that_stops_is_dropped():
    for stop in ("cancel", "fail"):
        text = playbook(
            step("start", "feeds", "other", mode="inclusive") + step("feeds", PARTIAL) + step("takes") + step("other")
        )

        def tool(command: Command, context: CommandContext, engine: Engine) -> Any:
            if command.step == "other":
                raise Failed("broken")
            return Chunks(1, 2, then=0) if command.step == "feeds" else engine.item(command)

        engine = Engine(text, tool=tool)
        execution_id = engine.start("t")
        engine.route_next()
        engine.run_command(engine.commands.pop())
        engine.route_next()
        feeds, other = sorted(engine.commands, key=lambda command: command.step)
        engine.commands.remove(feeds)
        engine.run_command(feeds)
        late = engine.chunk(feeds, 0, 1)
        if stop == "cancel":
            engine.cancel(execution_id)
        else:
            engine.commands.remove(other)
            engine.run_command(other)
        engine.route_next()
        engine._input(late)
        engine.drive()
        assert engine.states[execution_id].status == ("CANCELLED" if stop == "cancel" else "FAILED")
        assert not engine.events("step.enter", "takes")
        assert len(engine.events("playbook.cancelled")) + len(engine.events("playbook.failed")) == 1


def test_a_chunk_that_comes_twice_or_behind_its_command_changes_nothing():
    engine = Engine(PLAIN, tool=streaming(1))
    engine.start("t")
    engine.route_next()
    command = engine.commands.pop()
    engine.run_command(command)
    engine.stream(engine.streaming[0], times=3)
    engine.stream(engine.streaming[0])
    engine._input(engine.chunk(command, 7, "late"))
    engine.drive()
    state = next(iter(engine.states.values()))
    assert state.status == "COMPLETED" and engine.result(state, "takes")["results"] == [1]


AGAIN = playbook(
    step(
        "start",
        PARTIAL,
        "start, when: '{{ ctx.turns < 2 }}'",
        extra="  set: {ctx.turns: '{{ ctx.turns | default(0) + 1 }}'}\n",
    )
    + step("takes")
)


def test_a_producer_is_entered_again_only_when_its_chunks_have_been_worked_on():
    engine = Engine(AGAIN, tool=streaming(1))
    execution_id = engine.start("t")
    engine.route_next()
    for visit in (1, 2):
        (producer,) = engine.commands
        engine.commands.clear()
        engine.run_command(producer)
        for _ in range(2):
            engine.stream(engine.streaming[0])
            engine.route_next()
        assert engine.states[execution_id].visits == {"start": visit, "takes": visit}
        (consumer,) = engine.commands
        engine.commands.clear()
        engine.run_command(consumer)
        engine.route_next()
    engine.drive()
    state = engine.states[execution_id]
    assert state.status == "COMPLETED" and state.visits == {"start": 2, "takes": 2}
    assert [event.context["size"] for event in engine.events("loop.done")] == [1, 1]
    assert engine.result(state, "takes")["count"] == 1


def test_the_items_of_a_loop_stream_into_one_consumer_until_the_loop_is_left():
    steps = (
        "- step: start\n  loop: {in: '{{ [10, 20] }}', iterator: n, spec: {mode: parallel}}\n"
        "  tool: {kind: python, code: 'x = 1'}\n"
        "  next: {arcs: [{step: takes, on: call.partial}, {step: end}]}\n"
    )

    def tool(command: Command, context: CommandContext, engine: Engine) -> Any:
        item = engine.item(command)
        return Chunks(item + 1, item + 2, then=item) if command.step == "start" else item

    for seed in range(10):
        engine, state = play(playbook(steps + step("takes", "end") + END), tool=tool, seed=seed)
        assert state.status == "COMPLETED" and state.visits == {"start": 1, "takes": 1, "end": 1}
        assert sorted(engine.result(state, "takes")["results"]) == [11, 12, 21, 22]
        assert engine.result(state, "start")["results"] == [10, 20]


def test_a_consumer_may_stream_on_and_may_call_playbooks():
    def tool(command: Command, context: CommandContext, engine: Engine) -> Any:
        if context.path == "child":
            return {"twice": context.workload.v["n"] * 2}
        item = engine.item(command)
        if command.step == "start":
            return Chunks(1, 2, then=0)
        return Chunks(item, item + 10, then=0) if command.step == "takes" else item

    calls = "kind: playbook, path: child, input: {n: '{{ chunk + loop_index * 100 }}'}"
    text = playbook(
        step("start", PARTIAL) + step("takes", "calls, on: call.partial", "end") + step("calls", tool=calls) + END
    )
    for seed in range(10):
        engine, state = play(text, tool=tool, seed=seed)
        assert state.status == "COMPLETED" and state.visits == {"start": 1, "takes": 1, "calls": 1, "end": 1}
        found = [result["twice"] % 200 for result in engine.result(state, "calls")["results"]]
        assert sorted(found) == [2, 4, 22, 24]


def test_a_condition_on_a_chunk_that_cannot_be_evaluated_fails_the_run_and_is_named():
    engine, state = play(
        playbook(step("start", f"{PARTIAL}, when: '{{{{ 1 / chunk }}}}'") + step("takes")), tool=streaming(0, 1)
    )
    assert state.status == "FAILED" and not engine.events("step.enter", "takes")
    assert state.failure is not None and "1 / chunk" in state.failure["message"]
    assert "step 'start', arc to 'takes', when" in state.failure["message"]


def test_a_consumer_that_is_not_admitted_is_skipped():
    denied = "  spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}]}}}\n"
    engine, state = play(
        playbook(step("start", PARTIAL, "end") + step("takes", extra=denied) + END), tool=streaming(1, 2)
    )
    assert state.status == "COMPLETED" and state.visits == {"start": 1, "end": 1}
    assert engine.events("step.skipped", "takes")


def test_a_stream_holds_only_so_many_open_chunks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "STREAM_OPEN_MAX", 2)
    engine = Engine(PLAIN, tool=streaming(1, 2, 3))
    execution_id = engine.start("t")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    for _ in range(3):
        engine.stream(engine.streaming[0])
        engine.route_next()
    engine.drive()
    state = engine.states[execution_id]
    assert state.failure is not None and "expected at most 2 chunks of step 'start'" in state.failure["message"]


def test_what_a_consumer_sees_of_the_run_is_what_stood_when_its_stream_began():
    engine = Engine(PLAIN, tool=streaming(1, 2))
    engine.start("t")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    for _ in range(2):
        engine.stream(engine.streaming[0])
        engine.route_next()
    assert len({command.context_id for command in engine.commands}) == 1

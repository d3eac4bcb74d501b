"""Cursor loops on the pure core: claims, frames and rows, and when nothing is left."""

from typing import Any

import msgspec
import pytest

from noetl_common.core import fold_loops
from noetl_common.core.commands import Command, CommandContext
from noetl_common.core.routing import cursor
from noetl_common.core.state import LoopState
from tests.engine import Engine, Failed, is_claim
from tests.unit.test_route import CHILD, playbook
from tests.unit.test_route_loops import loop_of

CURSOR = "cursor: {auth: pg, claim: 'select {{ __frame_max_rows }}'}"


class Rows:
    """Over a table of many rows. `grows`: {row: how many more its body puts in}; `breaks`: rows, or the claim."""

    def __init__(self, count: int, *, grows: dict[int, int] | None = None, breaks: tuple[Any, ...] = ()) -> None:
        self.rows = [{"id": number} for number in range(count)]
        self.grows = grows or {}
        self.breaks = breaks
        self.taken: list[int] = []
        self.seen: list[Any] = []
        self.most_frames = self.most_rows = 0

    def __call__(self, command: Command, context: CommandContext, engine: Engine) -> Any:
        if command.step != "start":
            return {}
        loop = engine.states[command.execution_id].active["start"].loop
        assert loop is not None and loop.cursor is not None
        self.most_frames = max(self.most_frames, len(loop.cursor.frames) + len(loop.cursor.claims))
        self.most_rows = max(self.most_rows, *(frame.open for frame in loop.cursor.frames.values()), 0)
        if is_claim(context):
            if "claim" in self.breaks:
                raise Failed("no such table")
            taken = [self.rows.pop(0) for _ in range(min(context.frame["__frame_max_rows"], len(self.rows)))]
            self.taken.append(len(taken))
            return taken
        item = engine.item(command)
        self.seen.append(item)
        for row in item if isinstance(item, list) else [item]:
            if row["id"] in self.breaks:
                raise Failed(f"row {row['id']}")
            more = self.grows.pop(row["id"], 0)
            self.rows += [{"id": 100 + number} for number in range(more)]
        return item


@pytest.mark.parametrize("in_flight", [1, 2, 5])
@pytest.mark.parametrize("rows_max", [1, 3])
@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_cursor_loop_runs_each_row_once_within_its_limits(in_flight: int, rows_max: int, at_once: int, count: int):
    spec = f"max_in_flight: {in_flight}, frame: {{max_rows: {rows_max}, row_concurrency: {at_once}}}"
    fanin = "fanin.status == 'complete' and event.name == 'loop.done'"
    text = loop_of(spec, source=CURSOR, arcs=f'{{step: end, when: "{{{{ {fanin} and fanin.total == {count} }}}}"}}')
    for seed in range(3):
        tool = Rows(count)
        engine = Engine(text, tool=tool, seed=seed)
        state = engine.run("t")
        assert state.status == "COMPLETED" and state.visits.get("end") == 1
        result = engine.result(state, "start")
        assert sorted(row["id"] for row in result["results"]) == list(range(count))
        assert result["stats"] == {"total": count, "success": count, "failed": 0} and result["count"] == count
        assert tool.most_frames <= in_flight and tool.most_rows <= at_once
        assert tool.taken[-1] == 0 and max(tool.taken) <= rows_max
        assert msgspec.json.encode(engine.replayed(state.execution_id)) == msgspec.json.encode(state)


def test_work_that_the_bodies_put_in_is_found_however_many_frames_came_back_empty():
    for seed in range(20):
        tool = Rows(2, grows={0: 2, 100: 1, 1: 3})
        engine = Engine(loop_of("max_in_flight: 4", source=CURSOR), tool=tool, seed=seed)
        state = engine.run("t")
        assert state.status == "COMPLETED" and not tool.rows
        assert engine.result(state, "start")["count"] == len(tool.seen) == 8


def test_a_body_may_take_the_whole_frame_as_a_list():
    tool = Rows(5)
    engine = Engine(loop_of("frame: {max_rows: 2, process: frame}", source=CURSOR), tool=tool)
    state = engine.run("t")
    assert [[row["id"] for row in item] for item in tool.seen] == [[0, 1], [2, 3], [4]]
    assert engine.result(state, "start")["count"] == 3
    (first, *_rest) = engine.events("command.issued")
    assert first.context == {"claim": True} and first.iter_index == -1 and first.loop_epoch


def test_the_first_claim_is_one_and_each_that_brings_rows_makes_room_for_another():
    engine = Engine(loop_of("max_in_flight: 3", source=CURSOR), tool=Rows(9))
    engine.start("t")
    engine.route_next()
    assert [is_claim(engine.contexts[command.context_id]) for command in engine.commands] == [True]
    for frames in (1, 2, 3, 3):
        claims = [command for command in engine.commands if command.iter_index < 0]
        if claims:
            engine.commands.remove(claims[0])
            engine.run_command(claims[0])
            engine.route_next()
        assert sum(command.iter_index >= 0 for command in engine.commands) == frames
    assert all(command.iter_index >= 0 for command in engine.commands)


def test_the_rows_of_a_claim_go_by_its_reference_and_know_their_place():
    engine = Engine(loop_of("frame: {max_rows: 3, row_concurrency: 3}", source=CURSOR), tool=Rows(3))
    engine.start("t")
    engine.route_next()
    claim = engine.commands.pop()
    assert engine.contexts[claim.context_id].frame == {"__frame_max_rows": 3}
    engine.run_command(claim)
    engine.route_next()
    items = [command.item for command in engine.commands]
    assert [(item.index, item.total, item.whole) for item in items if item] == [
        (0, 3, False),
        (1, 3, False),
        (2, 3, False),
    ]
    assert len({item.ref.ref_id for item in items if item and item.ref}) == 1
    assert len({command.context_id for command in engine.commands}) == 1
    issued = engine.events("command.issued")[1:]
    assert [event.context for event in issued] == [{"frame": claim.command_id, "row": row} for row in range(3)]


@pytest.mark.parametrize("may_fail", [0, 1])
def test_a_row_that_fails_stops_the_claims_once_more_failed_than_may(may_fail: int):
    tool = Rows(6, breaks=(1,))
    engine = Engine(loop_of(f"max_failures: {may_fail}", source=CURSOR), tool=tool)
    state = engine.run("t")
    if may_fail:
        assert state.status == "COMPLETED" and engine.result(state, "start")["stats"]["failed"] == 1
    else:
        assert state.failure is not None and "1 of 2 items failed; first, item 1: row 1" in state.failure["message"]
        assert len(tool.rows) == 4
    assert len(engine.events("loop.done")) == 1


@pytest.mark.parametrize("handled", [False, True])
def test_a_claim_that_fails_fails_the_step(handled: bool):
    arcs = "{step: end, when: \"{{ event.name == 'call.error' and fanin.status == 'failed' }}\"}" if handled else ""
    spec = "max_in_flight: 3, max_failures: 100"
    engine = Engine(loop_of(spec, source=CURSOR, arcs=arcs), tool=Rows(3, breaks=("claim",)))
    state = engine.run("t")
    if handled:
        assert state.status == "COMPLETED" and state.visits["end"] == 1
    else:
        assert state.failure is not None
        assert state.failure["message"] == "step 'start', loop.cursor.claim: no such table"


def test_a_claim_that_fails_lets_the_rows_in_flight_end_and_begins_none():
    tool = Rows(9)
    engine = Engine(loop_of("max_in_flight: 2, frame: {max_rows: 3, row_concurrency: 2}", source=CURSOR), tool=tool)
    execution_id = engine.start("t")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    engine.route_next()
    (claim,) = [command for command in engine.commands if command.iter_index < 0]
    engine.commands.remove(claim)
    tool.breaks = ("claim",)
    engine.run_command(claim)
    engine.drive()
    assert engine.states[execution_id].status == "FAILED"
    assert [row["id"] for row in tool.seen] in ([0, 1], [1, 0])


def test_a_cursor_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cursor, "CURSOR_ROWS_MAX", 5)
    engine = Engine(loop_of("frame: {max_rows: 2}", source=CURSOR), tool=Rows(1_000))
    state = engine.run("t")
    assert state.failure is not None and "expected at most 5 rows in all, found 6" in state.failure["message"]
    assert msgspec.json.encode(engine.replayed(state.execution_id)) == msgspec.json.encode(state)


def test_a_cursor_loop_entered_again_claims_afresh():
    arcs = "{step: start, when: '{{ start.count > 0 }}'}, {step: end}"
    tool = Rows(3)
    taken: list[Any] = []

    def refilled(command: Command, context: CommandContext, engine: Engine) -> Any:
        result = tool(command, context, engine)
        if is_claim(context) and not result and len(taken) < 2:
            taken.append(1)
            tool.rows = []
        return result

    engine = Engine(loop_of("max_in_flight: 1", source=CURSOR, arcs=arcs), tool=refilled)
    state = engine.run("t")
    assert state.status == "COMPLETED" and state.visits == {"start": 2, "end": 1}
    epochs = {event.loop_epoch for event in engine.events("loop.started")}
    assert len(epochs) == len(engine.events("loop.done")) == 2
    assert engine.result(state, "start")["count"] == 0


def test_the_rows_of_a_cursor_may_call_playbooks_and_pipelines():
    def tool(command: Command, context: CommandContext, engine: Engine) -> Any:
        if context.path == "child":
            return {"score": context.workload.v["n"] * 10 + context.workload.v["at"]}
        if is_claim(context):
            return rows(command, context, engine)
        return {"ran": context.tasks[0].label}

    steps = (
        f"- step: start\n  loop: {{{CURSOR}, iterator: r, spec: {{max_in_flight: 2, frame: {{max_rows: 2}}}}}}\n"
        "  tool:\n"
        "  - {name: score, kind: playbook, path: child, input: {n: '{{ r.id }}', at: '{{ _index }}'}}\n"
        "  - {name: save, kind: python, code: 'x'}\n"
    )
    for seed in range(5):
        rows = Rows(4)
        engine = Engine(playbook(steps), CHILD, tool=tool, seed=seed)
        state = engine.run("t")
        assert state.status == "COMPLETED"
        found = sorted(result["score"]["score"] for result in engine.result(state, "start")["results"])
        assert found == [0, 11, 20, 31]
        assert msgspec.json.encode(engine.replayed(state.execution_id)) == msgspec.json.encode(state)


def test_a_cancelled_cursor_loop_ends_without_claiming_again():
    engine = Engine(loop_of("max_in_flight: 2", source=CURSOR), tool=Rows(9))
    execution_id = engine.start("t")
    engine.route_next()
    engine.run_command(engine.commands.pop())
    engine.route_next()
    engine.cancel(execution_id)
    before = len(engine.events("command.issued"))
    engine.drive()
    assert engine.states[execution_id].status == "CANCELLED"
    assert len(engine.events("command.issued")) == before


def test_a_report_of_a_claim_that_nobody_waits_for_changes_nothing():
    engine = Engine(loop_of("max_in_flight: 2", source=CURSOR), tool=Rows(4))
    execution_id = engine.start("t")
    engine.route_next()
    claim = engine.commands.pop()
    engine.run_command(claim, times=2)
    engine.route_next()
    state = engine.states[execution_id]
    loop = state.active["start"].loop
    assert loop is not None and loop.cursor is not None
    stale = engine._report(claim, "command.completed", None, key="another")
    assert not fold_loops.is_claim(loop, stale)
    engine._input(stale)
    before = msgspec.to_builtins(loop)
    engine.route_next()
    after = engine.states[execution_id].active["start"].loop
    assert msgspec.to_builtins(after) == before
    engine.drive()
    assert engine.states[execution_id].status == "COMPLETED"


def test_the_state_of_a_loop_does_not_grow_with_its_items():
    sizes: list[int] = []

    class Measured(Rows):
        def __call__(self, command: Command, context: CommandContext, engine: Engine) -> Any:
            loop = engine.states[command.execution_id].active["start"].loop
            assert isinstance(loop, LoopState)
            sizes.append(len(msgspec.json.encode(loop)))
            return super().__call__(command, context, engine)

    engine = Engine(loop_of("max_in_flight: 2, frame: {max_rows: 5}", source=CURSOR), tool=Measured(400))
    assert engine.run("t").status == "COMPLETED"
    assert max(sizes[50:]) < max(sizes[:50]) + 100

"""compute: what is routed is projected once, in order, by the owner alone; one bad event stops nobody else."""

import msgspec
import pytest

from noetl_common import metrics
from noetl_common.bus import MemoryBus
from noetl_common.clock import SystemClock
from noetl_common.core.events import Event
from noetl_common.core.fold import fold
from noetl_common.core.progress import Progress
from noetl_common.core.shard import event_id, last_id
from noetl_common.core.state import ExecutionState, Status
from noetl_common.db import Pool
from noetl_common.event_log import append, event_of
from noetl_common.leases import Leases
from services.compute import store
from services.compute.loops.project_shards import Projector, Runs, project_event, project_shards, project_shards_once
from services.compute.store import Move, Position, Run
from tests.histories import event, execute, make_execution, own, report, routed, rows, start

SHARD = 6
ROW = "SELECT status, current_step, progress, result, error, end_time, last_event_id FROM noetl.execution"
CHECKPOINT = "SELECT last_projected_event_id AS at, lag_ms FROM noetl.projection_checkpoint WHERE shard_id = %s"


async def projector_of(pool: Pool, *, batch: int = 500, cached: int = 100) -> Projector:
    leases = Leases(pool, role="compute", instance="c", lease_s=60.0, clock=SystemClock())
    await own(pool, role="compute", instance="c")
    await leases.renew_once()
    runs = Runs(cached)
    return Projector(pool=pool, bus=MemoryBus(), leases=leases, clock=SystemClock(), runs=runs, batch_events_max=batch)


async def drain(projector: Projector) -> int:
    total = 0
    while done := await project_shards_once(projector):
        total += done
    return total


async def a_loop(pool: Pool, items: int, *, shard_id: int = SHARD) -> int:
    """Write a whole run: one step that loops, and its end; return the execution."""
    id_ = await make_execution(pool, shard_id)
    issued = [
        event(id_, "command.issued", "each", loop_epoch=9, iter_index=index, command_id=index + 1)
        for index in range(items)
    ]
    size = {"size": items, "mode": "parallel", "max_in_flight": items}
    await routed(
        pool,
        shard_id,
        start(id_),
        event(id_, "step.enter", "each"),
        event(id_, "loop.started", "each", loop_epoch=9, context=size),
        *issued,
    )
    for index in range(items - 1):
        await routed(pool, shard_id, report(id_, index + 1, step="each", loop_epoch=9, iter_index=index))
    reference = {"execution_id": id_, "ref_id": 3, "kind": "result_ref"}
    await routed(
        pool,
        shard_id,
        report(id_, items, step="each", loop_epoch=9, iter_index=items - 1),
        event(id_, "loop.done", "each", loop_epoch=9, context={"done": items, "failed": 0, "size": items}),
        event(id_, "step.exit", "each", status="COMPLETED", context={"arcs": []}, reference=reference),
        event(id_, "playbook.completed", status="COMPLETED", reference=reference),
    )
    return id_


@pytest.mark.parametrize(("batch", "cached"), [(500, 100), (1, 100), (3, 1)])
async def test_a_run_is_projected_whatever_the_batches_and_the_cache(pool: Pool, batch: int, cached: int) -> None:
    ids = [await a_loop(pool, 3) for _ in range(2)]
    projector = await projector_of(pool, batch=batch, cached=cached)
    assert await drain(projector) == 2 * (1 + 5 + 3 + 3)
    found = await rows(pool, ROW + " ORDER BY execution_id")
    assert len(found) == len(ids)
    for row in found:
        assert (row["status"], row["current_step"], row["error"]) == ("COMPLETED", "each", None)
        step = row["progress"]["steps"]["each"]
        assert (step["status"], step["items"]) == (
            "completed",
            {"total": 3, "done": 3, "failed": 0, "in_flight": 0, "more": False},
        )
        assert row["progress"]["counts"]["commands_completed"] == 3
        assert row["result"]["ref_id"] == 3 and row["end_time"] is not None
    assert await rows(pool, CHECKPOINT, SHARD) == [{"at": last_id(SHARD, 8), "lag_ms": 0}]


async def test_the_stored_state_is_the_fold_of_the_log(pool: Pool) -> None:
    id_ = await a_loop(pool, 4)
    await drain(await projector_of(pool, batch=2, cached=1))
    (stored,) = await rows(pool, "SELECT state::text AS state FROM noetl.projection_state")
    state = ExecutionState(execution_id=id_)
    for row in await rows(pool, "SELECT * FROM noetl.event ORDER BY event_id"):
        state = fold(state, event_of(row))
    assert msgspec.json.decode(stored["state"], type=ExecutionState) == state


async def test_what_is_not_routed_yet_is_not_projected(pool: Pool) -> None:
    id_ = await make_execution(pool, SHARD)
    await routed(pool, SHARD, start(id_), event(id_, "step.enter", "one"))
    async with pool.connection() as conn, conn.transaction():
        await append(conn, SHARD, [report(id_, 1, step="one")])
    projector = await projector_of(pool)
    assert await drain(projector) == 2
    (checkpoint,) = await rows(pool, CHECKPOINT, SHARD)
    assert checkpoint["at"] == last_id(SHARD, 1)
    assert metrics.value("noetl_projection_lag_seconds", shard=SHARD) > 0, "an event waits"


async def test_an_owner_that_lost_its_shard_writes_nothing(pool: Pool) -> None:
    await a_loop(pool, 2)
    projector = await projector_of(pool)
    await execute(pool, "UPDATE noetl.projection_checkpoint SET lease_epoch = 2 WHERE shard_id = %s", SHARD)
    assert await project_shards_once(projector) == 0
    assert SHARD not in projector.leases.owned()
    assert await rows(pool, "SELECT status, last_event_id FROM noetl.execution") == [
        {"status": "RUNNING", "last_event_id": 0}
    ]
    assert await rows(pool, CHECKPOINT, SHARD) == [{"at": 0, "lag_ms": 0}]


async def test_a_paused_owner_cannot_overwrite_what_the_next_one_wrote(pool: Pool) -> None:
    await a_loop(pool, 2)
    paused, successor = await projector_of(pool, batch=4), await projector_of(pool)
    (position,) = await store.read_positions(pool, [SHARD])
    await drain(successor)
    before = await rows(pool, ROW)
    assert await project_shards(paused, [position], {SHARD: 1}) == 0
    assert await rows(pool, ROW) == before
    assert SHARD not in paused.leases.owned()


async def test_a_poison_event_parks_its_run_and_the_shard_goes_on(pool: Pool) -> None:
    bad = await make_execution(pool, SHARD)
    await routed(pool, SHARD, start(bad), event(bad, "step.enter", "one"), event(bad, "loop.started", "one"))
    good = await a_loop(pool, 2)
    await routed(pool, SHARD, report(bad, 1), event(bad, "playbook.failed", status="FAILED", error={"code": "X"}))
    projector = await projector_of(pool, batch=3)
    before = metrics.value("noetl_projection_errors_total", event_type="loop.started")
    await drain(projector)
    found = {
        row["execution_id"]: row
        for row in await rows(pool, "SELECT execution_id, status, progress, error FROM noetl.execution")
    }
    assert found[good]["status"] == "COMPLETED"
    assert (found[bad]["status"], found[bad]["error"]) == ("FAILED", {"code": "X"})
    assert found[bad]["progress"]["projection_error"]["event_id"] == event_id(SHARD, 1, 2)
    assert metrics.value("noetl_projection_errors_total", event_type="loop.started") == before + 1


@pytest.mark.parametrize(
    "broken",
    [
        "ALTER TABLE noetl.projection_state ADD CONSTRAINT no CHECK (execution_id <> {bad} OR state->>'path' IS NULL)"
        " NOT VALID",
        "ALTER TABLE noetl.execution ADD CONSTRAINT no CHECK (execution_id <> {bad} OR current_step IS NULL) NOT VALID",
        "UPDATE noetl.execution SET progress = jsonb_build_object('steps', 3) WHERE execution_id = {bad}",
        "UPDATE noetl.execution SET progress = '[]' WHERE execution_id = {bad}",
    ],
    ids=["its state is refused", "its row is refused", "its row has another shape", "its row is no object"],
)
async def test_a_run_that_cannot_be_read_or_saved_is_parked_and_holds_up_nobody(pool: Pool, broken: str) -> None:
    bad, good, elsewhere = await a_loop(pool, 2), await a_loop(pool, 2), await a_loop(pool, 2, shard_id=7)
    assert await project_shards_once(await projector_of(pool, batch=4)) == 4, "two events of each of two shards"
    await execute(pool, broken.format(bad=bad))
    await drain(await projector_of(pool, batch=7))
    shown = await rows(pool, "SELECT execution_id, status, progress FROM noetl.execution")
    found = {row["execution_id"]: row for row in shown}
    assert found[good]["status"] == found[elsewhere]["status"] == "COMPLETED"
    assert found[bad]["status"] == "COMPLETED" and "projection_error" in found[bad]["progress"]
    assert "projection_error" not in found[good]["progress"]
    assert await rows(pool, CHECKPOINT, SHARD) == [{"at": last_id(SHARD, 6), "lag_ms": 0}]


async def test_after_an_error_the_batch_is_done_again_from_the_database(pool: Pool) -> None:
    await a_loop(pool, 2)
    projector = await projector_of(pool, batch=4)
    assert await project_shards_once(projector) == 4
    async with pool.connection() as conn, conn.transaction():
        await conn.execute("LOCK TABLE noetl.projection_state")
        with pytest.raises(Exception, match="lock timeout"):
            await project_shards_once(projector)
    await drain(projector)
    (row,) = await rows(pool, ROW)
    assert row["progress"]["steps"]["each"]["items"] == {
        "total": 2,
        "done": 2,
        "failed": 0,
        "in_flight": 0,
        "more": False,
    }
    assert row["progress"]["counts"]["commands_completed"] == 2


async def test_many_shards_and_runs_are_projected_side_by_side(pool: Pool) -> None:
    ids: list[int] = []
    for shard_id in (1, SHARD, 15):
        ids += [await a_loop(pool, 2, shard_id=shard_id) for _ in range(3)]
    await drain(await projector_of(pool, cached=2))
    assert await rows(pool, "SELECT count(*) AS n FROM noetl.execution WHERE status = 'COMPLETED'") == [{"n": len(ids)}]


async def test_a_shard_that_was_lost_is_left_out_and_the_others_of_its_batch_go_on(pool: Pool) -> None:
    lost, kept = await a_loop(pool, 2), await a_loop(pool, 2, shard_id=7)
    projector = await projector_of(pool)
    await execute(pool, "UPDATE noetl.projection_checkpoint SET lease_epoch = 2 WHERE shard_id = %s", SHARD)
    before = metrics.value("noetl_fenced_writes_total", role="compute")
    assert await project_shards_once(projector) == 10, "the events of one run"
    assert SHARD not in projector.leases.owned() and 7 in projector.leases.owned()
    assert metrics.value("noetl_fenced_writes_total", role="compute") == before + 1
    shown = await rows(pool, "SELECT execution_id, status, last_event_id FROM noetl.execution")
    found = {row["execution_id"]: row for row in shown}
    assert found[kept]["status"] == "COMPLETED"
    assert (found[lost]["status"], found[lost]["last_event_id"]) == ("RUNNING", 0)
    assert [row["execution_id"] for row in await rows(pool, "SELECT execution_id FROM noetl.projection_state")] == [
        kept
    ]


async def test_shards_share_a_batch_and_a_full_share_is_gone_on_with_at_once(pool: Pool) -> None:
    long, short = await a_loop(pool, 20), await a_loop(pool, 2, shard_id=7)
    projector = await projector_of(pool, batch=24)
    assert await project_shards_once(projector) == 12 + 10
    assert projector.is_behind
    shown = await rows(pool, "SELECT execution_id, status FROM noetl.execution")
    assert {row["execution_id"]: row["status"] for row in shown} == {long: "RUNNING", short: "COMPLETED"}
    assert await project_shards_once(projector) == 24, "one shard has the batch for itself"
    assert projector.is_behind
    assert await project_shards_once(projector) == 46 - 12 - 24
    assert not projector.is_behind


async def test_all_shards_that_are_behind_cost_three_round_trips_together(pool: Pool) -> None:
    for shard_id in range(16):
        await a_loop(pool, 1, shard_id=shard_id)
    projector = await projector_of(pool)
    before = pool.get_stats()["requests_num"]
    assert await project_shards_once(projector) == 16 * 8
    assert pool.get_stats()["requests_num"] - before == 3, "where they are, their events, what came of them"


def test_the_cache_is_never_larger_than_it_may_be() -> None:
    runs = Runs(2)
    kept = {id_: _run(id_) for id_ in (1, 2, 3)}
    move = Move(shard_id=SHARD, epoch=1, old=0, new=last_id(SHARD, 5))
    runs.keep(move, kept.values())
    assert set(runs.take([1, 2, 3])) == {2, 3}
    assert runs.take([2]) == {}, "what is taken is given up"


def test_a_shards_runs_are_forgotten_together_and_those_that_ended_are_not_kept() -> None:
    runs = Runs(10)
    for shard_id, ids in ((SHARD, (1, 2)), (7, (3, 4))):
        move = Move(shard_id=shard_id, epoch=1, old=0, new=last_id(shard_id, 5))
        runs.keep(move, [_run(id_, shard_id=shard_id, status="FAILED" if id_ == 4 else "RUNNING") for id_ in ids])
    runs.align(Position(shard_id=SHARD, routed_seq=6, projected=last_id(SHARD, 5)), 1)
    runs.align(Position(shard_id=7, routed_seq=6, projected=last_id(7, 5)), 1)
    assert set(runs.take([1, 4])) == {1}
    runs.align(Position(shard_id=SHARD, routed_seq=6, projected=last_id(SHARD, 5)), 2)
    assert set(runs.take([1, 2, 3])) == {3}, "shard 6 has a new epoch"


def _run(id_: int, *, shard_id: int = SHARD, status: Status = "RUNNING") -> Run:
    state, progress = ExecutionState(execution_id=id_), Progress(status=status)
    return Run(state=state, progress=progress, last_event_id=last_id(shard_id, 5))


def test_an_event_already_seen_changes_nothing() -> None:
    run = Run(state=ExecutionState(execution_id=1), progress=Progress(), last_event_id=9)
    project_event(run, Event(execution_id=1, event_id=9, event_type="playbook.failed"))
    assert run.progress.status == "RUNNING"

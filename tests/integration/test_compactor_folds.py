"""Finished runs are folded into manifests that say what the log said; what lives stays."""

from pathlib import Path

import pytest

from noetl_common.core.trace import trace_digest
from noetl_common.db import Pool
from noetl_common.event_log import event_of
from services.compactor.loops.compact_executions import compact_executions_once, cut
from services.compactor.store import Candidate
from tests.compacting import compactor_on, fold_all, make_range, make_run
from tests.histories import execute, rows

MANIFEST = "SELECT * FROM noetl.manifest WHERE execution_id = %s"
FOLDED = "SELECT execution_id FROM noetl.manifest ORDER BY execution_id"


async def folded(pool: Pool) -> list[int]:
    return [row["execution_id"] for row in await rows(pool, FOLDED)]


async def test_a_manifest_counts_what_the_log_holds_and_has_its_digest(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    run_id = await make_run(pool, steps=4)
    events = await rows(pool, "SELECT * FROM noetl.event WHERE execution_id = %s ORDER BY event_id", run_id)
    await fold_all(await compactor_on(pool, tmp_path))
    (manifest,) = await rows(pool, MANIFEST, run_id)
    assert manifest["events"] == len(events)
    assert manifest["commands"] == manifest["results"] == manifest["chain_depth"] == 4
    assert manifest["last_event_id"] == events[-1]["event_id"] == manifest["terminal_event_id"]
    assert manifest["trace_digest"] == trace_digest([event_of(row) for row in events])
    assert manifest["counts"]["command.completed"] == 4
    assert manifest["workload"] == {"v": {}}
    (row,) = await rows(pool, "SELECT compacted_at FROM noetl.execution WHERE execution_id = %s", run_id)
    assert row["compacted_at"] == manifest["compacted_at"]


async def test_a_long_history_is_cut_into_parts_of_500_events(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    run_id = await make_run(pool, steps=260)
    await fold_all(await compactor_on(pool, tmp_path))
    query = "SELECT kind, step, part_no, count FROM noetl.manifest_part WHERE execution_id = %s AND kind = 'events'"
    parts = sorted((row["part_no"], row["count"]) for row in await rows(pool, query, run_id))
    (manifest,) = await rows(pool, MANIFEST, run_id)
    assert sum(count for _part_no, count in parts) == manifest["events"]
    assert [count for _part_no, count in parts[:-1]] == [500] * (len(parts) - 1)


@pytest.mark.parametrize(
    ("columns", "waits_for"),
    [({"status": "RUNNING"}, "live"), ({"ended_days_ago": 29.0}, "recent")],
)
async def test_what_lives_or_has_just_ended_stays(
    pool: Pool, tmp_path: Path, columns: dict[str, object], waits_for: str
) -> None:
    await make_range(pool)
    stays, goes = await make_run(pool, **columns), await make_run(pool)
    compactor = await compactor_on(pool, tmp_path)
    assert await compact_executions_once(compactor)
    assert compactor.stragglers() == {waits_for: 1}
    assert await folded(pool) == [goes]
    assert stays != goes


@pytest.mark.parametrize("whose", ["parent", "child", "grandparent"])
async def test_kin_of_a_live_run_stays(pool: Pool, tmp_path: Path, whose: str) -> None:
    await make_range(pool)
    live = {"status": "RUNNING"}
    parent = await make_run(pool, **(live if whose == "grandparent" else {}))
    middle = await make_run(pool, shard_id=6, parent=parent, **(live if whose == "parent" else {}))
    child = await make_run(pool, shard_id=7, parent=middle, **(live if whose == "child" else {}))
    await fold_all(await compactor_on(pool, tmp_path))
    assert await folded(pool) == []
    await execute(
        pool,
        "UPDATE noetl.execution SET status = 'COMPLETED', end_time = clock_timestamp() - interval '40 days'"
        " WHERE status = 'RUNNING'",
    )
    await fold_all(await compactor_on(pool, tmp_path))
    assert await folded(pool) == sorted([parent, middle, child])


async def test_what_is_not_routed_or_projected_or_still_queued_stays(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    unprojected, queued = await make_run(pool, shard_id=1), await make_run(pool, shard_id=2)
    await execute(pool, "UPDATE noetl.projection_checkpoint SET last_projected_event_id = 0 WHERE shard_id = 1")
    await execute(pool, "UPDATE noetl.command SET status = 'claimed' WHERE execution_id = %s", queued)
    compactor = await compactor_on(pool, tmp_path)
    assert await compact_executions_once(compactor)
    assert compactor.stragglers() == {"unsettled": 1, "commands": 1}
    assert await folded(pool) == [] and unprojected != queued


async def test_folding_twice_changes_nothing(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    await fold_all(await compactor_on(pool, tmp_path))
    before = await rows(pool, MANIFEST, run_id)
    await fold_all(await compactor_on(pool, tmp_path))
    assert await rows(pool, MANIFEST, run_id) == before


async def test_a_range_in_which_nothing_is_left_does_not_hold_up_the_next_one(pool: Pool, tmp_path: Path) -> None:
    for weeks in (2, 1, 0):
        await make_range(pool, weeks=weeks)
    first = await make_run(pool, weeks=2)
    await fold_all(await compactor_on(pool, tmp_path))
    last = await make_run(pool)
    await fold_all(await compactor_on(pool, tmp_path))
    assert await folded(pool) == [first, last]


async def test_a_compactor_that_lost_its_lease_writes_nothing(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    await make_run(pool, shard_id=5)
    compactor = await compactor_on(pool, tmp_path)
    await execute(pool, "UPDATE noetl.compaction_cursor SET lease_epoch = lease_epoch + 1")
    await compact_executions_once(compactor)
    assert 5 not in compactor.leases.owned()
    assert await folded(pool) == []


async def test_a_batch_is_cut_by_its_events_and_holds_one_run_at_least() -> None:
    found = [Candidate(execution_id=n, waits_for=None, events=10) for n in range(1, 6)]
    found.insert(1, Candidate(execution_id=0, waits_for="live", events=1000))
    looked_at, chosen = cut(found, 25)
    assert [one.execution_id for one in chosen] == [1, 2]
    assert len(looked_at) == 3
    assert [one.execution_id for one in cut(found, 1)[1]] == [1]

"""Ranges leave the log once all their runs are folded, are verified when nothing can write to them, and are dropped."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noetl_common.core.shard import shard_of
from noetl_common.db import Pool, transaction
from noetl_common.event_log import append
from services.compactor import store
from services.compactor.loops.drop_partitions import advance, begin, drop_partitions_once
from services.compactor.store import Range
from tests.compacting import compactor_on, drop_all, fold_all, make_range, make_run, project_all
from tests.histories import event, execute, insert, make_execution, rows
from tests.running import wait_until
from tests.servers import SHARD_COUNT

STATES = "SELECT low, state, repaired FROM noetl.compaction ORDER BY low"
TABLES = "SELECT relname FROM pg_class WHERE relname ~ %s AND relkind = 'r' ORDER BY 1"


async def states(pool: Pool) -> list[str]:
    return [row["state"] for row in await rows(pool, STATES)]


async def tables(pool: Pool, range_: Range) -> list[str]:
    return [row["relname"] for row in await rows(pool, TABLES, f"_{range_.suffix}$")]


async def until(pool: Pool, compactor: Any, state: str) -> None:
    """Take the one range step by step until it is in a state."""
    epoch = compactor.epoch_of_partitions()

    async def is_there() -> bool:
        if await states(pool) == [state]:
            return True
        for range_ in await store.find_ranges(compactor.pool, compactor.closed_before):
            await begin(compactor, range_, epoch)
        (leaving,) = await store.read_leaving(pool)
        if leaving.state != state:
            await advance(compactor, leaving, epoch)
        return False

    await wait_until(is_there, timeout_s=20, what=f"the state {state}")


async def test_a_folded_range_is_dropped_with_all_that_was_kept_of_its_runs(pool: Pool, tmp_path: Path) -> None:
    range_ = await make_range(pool)
    run_id = await make_run(pool)
    await execute(pool, "INSERT INTO noetl.projection_state VALUES (%s, 1, '{}')", run_id)
    await execute(pool, "INSERT INTO noetl.execution_state VALUES (%s, 5, 1, '{}')", run_id)
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    assert len(await tables(pool, range_)) == 4
    await drop_all(compactor)
    assert await states(pool) == ["dropped"]
    assert await tables(pool, range_) == []
    for table in ("event", "command", "result_ref", "projection_state", "execution_state"):
        query = f"SELECT 1 FROM noetl.{table} WHERE execution_id = %s"  # noqa: S608  # a name from the line above
        assert await rows(pool, query, run_id) == []
    assert await rows(pool, "SELECT status FROM noetl.execution") == [{"status": "COMPLETED"}]
    assert await drop_partitions_once(compactor) == 0


async def test_a_straggler_pins_its_range_and_is_named(pool: Pool, tmp_path: Path) -> None:
    first, second = await make_range(pool, weeks=1), await make_range(pool)
    live = await make_run(pool, weeks=1, status="RUNNING")
    await make_run(pool, weeks=1)
    await make_run(pool)
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    await drop_all(compactor)
    assert len(await tables(pool, first)) == 4 and await tables(pool, second) == []
    async with transaction(pool) as conn:
        found = await store.count_unfolded(conn, first)
    assert (found.unfolded, found.first) == (1, [live])


async def test_a_parent_that_is_not_folded_pins_its_childs_range(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool, weeks=1)
    second = await make_range(pool)
    parent = await make_run(pool, weeks=1)
    await make_run(pool, parent=parent)
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    # As if the parent's shard were compacted later than the child's.
    await execute(pool, "DELETE FROM noetl.manifest WHERE execution_id = %s", parent)
    await execute(pool, "UPDATE noetl.execution SET compacted_at = NULL WHERE execution_id = %s", parent)
    await drop_all(compactor)
    assert len(await tables(pool, second)) == 4


async def test_an_event_that_comes_late_is_folded_before_anything_is_dropped(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    run_id, other = await make_run(pool), await make_run(pool)
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    (before,) = await rows(pool, "SELECT * FROM noetl.manifest WHERE execution_id = %s", run_id)
    await until(pool, compactor, "sealed")
    late = event(run_id, "vars.set", event_id=before["last_event_id"] + 1)
    async with pool.connection() as conn:
        await insert(conn, shard_of(run_id, SHARD_COUNT), [late])
    await drop_all(compactor)
    (after,) = await rows(pool, "SELECT * FROM noetl.manifest WHERE execution_id = %s", run_id)
    assert (after["events"], after["last_event_id"]) == (before["events"] + 1, late.event_id)
    parts = await rows(
        pool, "SELECT count FROM noetl.manifest_part WHERE execution_id = %s AND kind = 'events'", run_id
    )
    assert sum(row["count"] for row in parts) == after["events"]
    assert [row["repaired"] for row in await rows(pool, STATES)] == [1]
    assert other != run_id and await states(pool) == ["dropped"]


async def test_nothing_can_be_written_to_a_range_between_its_verification_and_its_end(
    pool: Pool, tmp_path: Path
) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    await until(pool, compactor, "verified")
    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        async with pool.connection() as conn:
            await insert(conn, 5, [event(run_id, "vars.set", event_id=(5 << 55) + 77)])
    await drop_all(compactor)
    assert await states(pool) == ["dropped"]


async def test_an_input_for_a_folded_run_is_not_taken(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    await fold_all(await compactor_on(pool, tmp_path))
    async with transaction(pool) as conn:
        assert await append(conn, 5, [event(run_id, "vars.set")]) == [0]


async def test_a_range_waits_for_appends_that_began_before_it_was_sealed(pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    run_id = await make_run(pool)
    compactor = await compactor_on(pool, tmp_path)
    async with transaction(pool) as conn:
        # An append that has its snapshot from before the fold, and commits after the seal.
        await conn.execute("SELECT pg_current_xact_id()")
        await fold_all(compactor)
        await drop_all(compactor, patience_s=1.0)
        assert await states(pool) == ["sealed"]
    await execute(pool, "UPDATE noetl.shard_head SET seq = seq + 1 WHERE shard_id = 3")
    await drop_all(compactor)
    assert await states(pool) == ["sealed"]  # what was appended is not routed yet
    await execute(pool, "UPDATE noetl.shard_cursor SET seq = seq + 1 WHERE shard_id = 3")
    await drop_all(compactor)
    assert await states(pool) == ["sealed"]  # nor projected
    await project_all(pool)
    await drop_all(compactor)
    assert await states(pool) == ["dropped"] and run_id


async def test_a_run_that_appears_in_a_detached_range_takes_it_back(pool: Pool, tmp_path: Path) -> None:
    range_ = await make_range(pool)
    await make_run(pool)
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    await until(pool, compactor, "detached")
    newcomer = range_.low + 77
    await execute(
        pool,
        "INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version) VALUES (%s, 0, 7, 'p', 1)",
        newcomer,
    )
    assert await drop_partitions_once(compactor)
    standings = {table.standing for table in await store.find_tables(pool, range_.suffix)}
    assert standings == {"attached"} and await states(pool) == []
    await execute(pool, "DELETE FROM noetl.execution WHERE execution_id = %s", newcomer)
    await drop_all(compactor)
    assert await states(pool) == ["dropped"]


async def test_a_detach_that_was_interrupted_is_finished(pool: Pool, dsn: str, tmp_path: Path) -> None:
    range_ = await make_range(pool)
    await make_run(pool)
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    await until(pool, compactor, "detaching")
    with psycopg.connect(dsn) as reader:
        reader.execute("SELECT count(*) FROM noetl.event")
        (first, *_rest) = await store.find_tables(pool, range_.suffix)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await store.detach(pool, first, lock_timeout_ms=50, statement_timeout_s=5)
        standings = [table.standing for table in await store.find_tables(pool, range_.suffix)]
        assert standings == ["pending", "attached", "attached", "attached"]
    await drop_all(compactor)
    assert await states(pool) == ["dropped"] and await tables(pool, range_) == []


async def test_appends_go_on_while_a_range_is_dropped_behind_a_slow_reader(
    pool: Pool, dsn: str, tmp_path: Path
) -> None:
    range_ = await make_range(pool)
    await make_run(pool)
    now_run = await make_execution(pool, 9)
    compactor = await compactor_on(pool, tmp_path)
    await fold_all(compactor)
    stop = asyncio.Event()

    async def keep_appending() -> int:
        appended = 0
        while not stop.is_set():
            async with transaction(pool) as conn:
                # An append that waits longer for any lock fails, and the test with it.
                await conn.execute("SET LOCAL lock_timeout = '100ms'")
                await append(conn, 9, [event(now_run, "vars.set", dedup_key=f"test:{appended}")])
            appended += 1
            await asyncio.sleep(0.005)
        return appended

    appending = asyncio.create_task(keep_appending())
    with psycopg.connect(dsn) as reader:
        reader.execute("SELECT count(*) FROM noetl.event")
        dropping = asyncio.create_task(_drop_whole(pool, compactor))
        await asyncio.sleep(3.0)
        assert not dropping.done()
    await dropping
    stop.set()
    assert await appending > 100
    assert await tables(pool, range_) == []


async def _drop_whole(pool: Pool, compactor: Any) -> None:
    while await states(pool) != ["dropped"]:
        await drop_partitions_once(compactor)
        await project_all(pool)
        await execute(
            pool, "UPDATE noetl.shard_cursor c SET seq = h.seq FROM noetl.shard_head h WHERE h.shard_id = c.shard_id"
        )

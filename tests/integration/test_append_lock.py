"""What the shard's head lock is for: with it a reader sees every event, without it one is lost to it for ever."""

import asyncio
import time

import psycopg
import pytest

from noetl_common.core.events import Event
from noetl_common.core.shard import event_id
from noetl_common.db import Pool, pipelined, transaction
from noetl_common.event_log import append
from tests.histories import make_execution, report, rows
from tests.running import wait_until

SHARD = 3


@pytest.mark.parametrize(
    ("lock_head", "seen_by_the_reader"),
    [(True, ["done:1", "done:2"]), (False, ["done:1"])],
    ids=["with the lock every event is projected", "without the lock a reader skips one"],
)
async def test_two_appenders_and_a_reader_that_drains_beyond_its_cursor(
    pool: Pool, lock_head: bool, seen_by_the_reader: list[str]
) -> None:
    first, second = await make_execution(pool, SHARD), await make_execution(pool, SHARD)
    reader = Reader(pool)
    let_second_commit = asyncio.Event()

    async def append_second(given: Event) -> list[int]:
        async with pool.connection() as conn, conn.transaction():
            ids = await append(conn, SHARD, [given], lock_head=lock_head)
            await let_second_commit.wait()
            return ids

    async with pool.connection() as conn, conn.transaction():
        ids_first = await append(conn, SHARD, [report(first, 1)], lock_head=lock_head)
        appending = asyncio.create_task(append_second(report(second, 2)))
        # With the lock it waits to read the head; without, it has read the head already and waits to move it.
        await wait_until(lambda: _someone_waits_for_a_lock(pool), what="the second appender meets the first")
        assert await reader.drain() == []
    assert await reader.drain() == ["done:1"]
    let_second_commit.set()
    ids_second = await appending
    await reader.drain()

    assert reader.seen == seen_by_the_reader
    in_the_log = await rows(pool, "SELECT dedup_key FROM noetl.event WHERE shard_id = %s", SHARD)
    assert {row["dedup_key"] for row in in_the_log} == {"done:1", "done:2"}
    assert ids_first == [event_id(SHARD, 1)]
    assert ids_second == [event_id(SHARD, 2 if lock_head else 1)], "a number is given twice without the lock"


async def test_many_appenders_number_without_a_gap(pool: Pool) -> None:
    executions = [await make_execution(pool, SHARD) for _ in range(8)]

    async def append_some(execution_id: int) -> list[int]:
        ids: list[int] = []
        for number in range(5):
            async with pool.connection() as conn, conn.transaction():
                ids += await append(conn, SHARD, [report(execution_id, number), report(execution_id, number + 100)])
        return ids

    given = await asyncio.gather(*(append_some(id_) for id_ in executions))
    numbers = sorted(id_ for ids in given for id_ in ids)
    assert numbers == [event_id(SHARD, seq) for seq in range(1, 8 * 5 * 2 + 1)]


async def test_an_appender_that_stands_still_before_its_commit_is_cut_off_and_the_next_one_goes_on(pool: Pool) -> None:
    """From within a pipeline too, where only a Sync tells Postgres that the session idles."""
    frozen, other = await make_execution(pool, SHARD), await make_execution(pool, SHARD)
    with pytest.raises(psycopg.OperationalError):
        async with pipelined(pool) as conn:
            await conn.execute("SET LOCAL idle_in_transaction_session_timeout = 50")
            await append(conn, SHARD, [report(frozen, 1)])
            time.sleep(0.3)  # noqa: ASYNC251 - the whole process stands still, as under SIGSTOP
            async with transaction(pool) as next_conn:
                assert await append(next_conn, SHARD, [report(other, 2)]) == [event_id(SHARD, 1)]


class Reader:
    """Reads as a projection does: everything beyond its cursor, which then moves."""

    def __init__(self, pool: Pool) -> None:
        self.seen: list[str] = []
        self._pool = pool
        self._cursor = 0

    async def drain(self) -> list[str]:
        """Read once; return the keys of the events found."""
        query = "SELECT event_id, dedup_key FROM noetl.event WHERE shard_id = %s AND event_id > %s ORDER BY event_id"
        found = await rows(self._pool, query, SHARD, self._cursor)
        if found:
            self._cursor = found[-1]["event_id"]
        keys = [row["dedup_key"] for row in found]
        self.seen += keys
        return keys


async def _someone_waits_for_a_lock(pool: Pool) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await rows(pool, query))

"""Partitions stand ready before anyone needs them, and making one never stalls an append."""

import asyncio

import pytest

from noetl_common.clock import SystemClock
from noetl_common.cluster import initialise, read_cluster
from noetl_common.core.shard import partition_bounds
from noetl_common.db import Pool, migrate, open_pool
from noetl_common.errors import ConfigError, Unavailable
from noetl_common.partitions import PARENTS, count_ahead, create_ahead
from tests.histories import execute, make_execution, report, routed, rows
from tests.servers import PARTITION_WIDTH_HOURS, SHARD_COUNT

WIDTH_MS = PARTITION_WIDTH_HOURS * 3_600_000


async def test_missing_partitions_are_made_once(pool: Pool) -> None:
    later_ms = SystemClock().unix_ms() + 2 * WIDTH_MS
    async with pool.connection() as conn:
        assert await count_ahead(conn, later_ms, PARTITION_WIDTH_HOURS) == dict.fromkeys(PARENTS, 1)
        made = await create_ahead(conn, later_ms, PARTITION_WIDTH_HOURS)
        assert len(made) == 2 * len(PARENTS)
        assert await create_ahead(conn, later_ms, PARTITION_WIDTH_HOURS) == []
        assert await count_ahead(conn, later_ms, PARTITION_WIDTH_HOURS) == dict.fromkeys(PARENTS, 3)
        assert await count_ahead(conn, later_ms + 9 * WIDTH_MS, PARTITION_WIDTH_HOURS) == dict.fromkeys(PARENTS, -1)


async def test_a_partition_has_the_bounds_of_the_id_arithmetic_and_every_index(pool: Pool) -> None:
    low, high = partition_bounds(SystemClock().unix_ms(), PARTITION_WIDTH_HOURS)
    found = await rows(
        pool,
        "SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds,"
        " (SELECT count(*) FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indexrelid"
        "   WHERE i.indrelid = c.oid) AS indexes,"
        " (SELECT count(*) FROM pg_index i WHERE i.indrelid = p.oid) AS wanted, c.reloptions"
        " FROM pg_class c JOIN pg_inherits pi ON pi.inhrelid = c.oid JOIN pg_class p ON p.oid = pi.inhparent"
        " WHERE p.relkind = 'p' AND pg_get_expr(c.relpartbound, c.oid) LIKE %s",
        f"%('{low}')%('{high}')%",
    )
    assert len(found) == len(PARENTS)
    assert all(row["indexes"] == row["wanted"] for row in found)
    (command,) = [row for row in found if row["name"].startswith("command_2")]
    assert "fillfactor=70" in command["reloptions"]
    leftover = await rows(pool, "SELECT conname FROM pg_constraint WHERE conname LIKE %s", "%_bounds")
    assert leftover == [], "an insert is not checked twice"


async def test_a_slow_reader_neither_stalls_a_new_partition_nor_appends(pool: Pool) -> None:
    execution_id = await make_execution(pool, 0)
    later_ms = SystemClock().unix_ms() + 9 * WIDTH_MS
    async with pool.connection() as reader, reader.transaction():
        await reader.execute("SELECT count(*) FROM noetl.event")  # its transaction stays open
        async with asyncio.timeout(1.5), pool.connection() as conn:
            assert await create_ahead(conn, later_ms, PARTITION_WIDTH_HOURS, ahead=0)
            assert await routed(pool, 0, report(execution_id, 1)) == 1


async def test_two_makers_at_once_make_each_partition_once(pool: Pool) -> None:
    later_ms = SystemClock().unix_ms() + 20 * WIDTH_MS

    async def make() -> list[str]:
        async with pool.connection() as conn:
            return await create_ahead(conn, later_ms, PARTITION_WIDTH_HOURS)

    made = [name for names in await asyncio.gather(make(), make(), make()) for name in names]
    assert len(made) == len(set(made)) == 4 * len(PARENTS)


async def test_an_initialised_cluster_refuses_other_constants_and_names_both(pool: Pool) -> None:
    now_ms = SystemClock().unix_ms()
    async with pool.connection() as conn:
        with pytest.raises(ConfigError, match=r"NOETL_SHARD_COUNT: .* with 16, the configuration says 32"):
            await initialise(conn, shard_count=32, partition_width_hours=PARTITION_WIDTH_HOURS, now_ms=now_ms)
        with pytest.raises(ConfigError, match=r"NOETL_PARTITION_WIDTH_HOURS: .* with 168, the configuration says 24"):
            await initialise(conn, shard_count=SHARD_COUNT, partition_width_hours=24, now_ms=now_ms)
        with pytest.raises(ConfigError, match=r"NOETL_SHARD_COUNT: .*power of two"):
            await initialise(conn, shard_count=12, partition_width_hours=24, now_ms=now_ms)


async def test_initialising_twice_changes_nothing(pool: Pool) -> None:
    before = await read_cluster(pool)
    await execute(pool, "UPDATE noetl.shard_head SET seq = 5 WHERE shard_id = 1")
    async with pool.connection() as conn:
        await initialise(
            conn,
            shard_count=SHARD_COUNT,
            partition_width_hours=PARTITION_WIDTH_HOURS,
            now_ms=SystemClock().unix_ms(),
        )
    assert await read_cluster(pool) == before
    assert await rows(pool, "SELECT seq FROM noetl.shard_head WHERE shard_id = 1") == [{"seq": 5}]
    assert len(await rows(pool, "SELECT 1 FROM noetl.execution_shard")) == 3 * SHARD_COUNT + 1


async def test_a_database_without_a_cluster_is_not_available_yet(empty_dsn: str) -> None:
    async with open_pool(empty_dsn, size_max=1, name="test") as pool:
        async with pool.connection() as conn:
            await migrate(conn)
        with pytest.raises(Unavailable, match="not initialised"):
            await read_cluster(pool)

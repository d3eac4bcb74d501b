"""Pools, transactions, migrations against a real Postgres."""

import asyncio

import psycopg
import pytest
from psycopg.rows import dict_row

from noetl_common.db import (
    Conn,
    Pool,
    migrate,
    migration_names,
    open_pool,
    wait_until_migrated,
)
from noetl_common.errors import ConfigError, Unavailable


async def connect(dsn: str) -> Conn:
    return await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row, autocommit=True)


async def test_every_test_gets_a_migrated_cluster_with_sixteen_shards(pool: Pool) -> None:
    async with pool.connection() as conn:
        row = await (await conn.execute("SELECT shard_count FROM noetl.cluster")).fetchone()
        heads = await (await conn.execute("SELECT count(*) AS n FROM noetl.shard_head")).fetchone()
    assert row is not None and heads is not None
    assert (row["shard_count"], heads["n"]) == (16, 16)


async def test_migrating_twice_does_nothing_the_second_time(empty_dsn: str) -> None:
    async with await connect(empty_dsn) as conn:
        assert await migrate(conn) == migration_names()
        assert await migrate(conn) == []


async def test_of_two_that_migrate_at_once_one_does_it(empty_dsn: str) -> None:
    async with await connect(empty_dsn) as one, await connect(empty_dsn) as two:
        done = await asyncio.gather(migrate(one), migrate(two))
    assert sorted(done, key=len) == [[], migration_names()]


async def test_a_migration_this_release_does_not_know_is_refused(dsn: str) -> None:
    async with await connect(dsn) as conn:
        await conn.execute("INSERT INTO noetl.migration (name) VALUES ('9999_pre_future.sql')")
        with pytest.raises(ConfigError, match=r"9999_pre_future\.sql"):
            await migrate(conn)
        locks = await (
            await conn.execute(
                "SELECT 1 FROM pg_locks JOIN pg_database d ON d.oid = pg_locks.database"
                " WHERE locktype = 'advisory' AND d.datname = current_database()"
            )
        ).fetchall()
    assert locks == []


async def test_waiting_for_migrations_ends_when_they_are_applied(empty_dsn: str) -> None:
    async with open_pool(empty_dsn, size_max=2, name="test") as pool:
        with pytest.raises(Unavailable, match="0001_pre_schema"):
            await wait_until_migrated(pool, timeout_s=0.2)

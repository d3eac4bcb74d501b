"""The compactor as it is started: it gets its shards, folds and drops by itself, and hands over; disabled it rests."""

from pathlib import Path
from typing import Any

import httpx

from noetl_common.config import load
from noetl_common.db import Pool
from services.compactor.app import app
from services.compactor.config import Config
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from tests.compacting import make_range, make_run
from tests.histories import rows
from tests.running import start_role, wait_until
from tests.servers import SHARD_COUNT

OWNED = "SELECT count(*) AS n FROM noetl.execution_shard WHERE role = 'compactor' AND owner_instance IS NOT NULL"


def config(dsn: str, folder: Path, **settings: str) -> Config:
    environ = {"DATABASE_URL": dsn, "NOETL_STORE_DIR": str(folder), "NOETL_COMPACTOR_ENABLED": "true"}
    environ |= {"NOETL_COMPACTOR_INTERVAL_SEC": "0.05", "NOETL_COMPACTOR_SETTLE_SEC": "0"}
    return load(Config, environ | settings)


async def owned(pool: Pool) -> int:
    (row,) = await rows(pool, OWNED)
    return int(row["n"])


async def state_is(pool: Pool, state: str) -> bool:
    return [row["state"] for row in await rows(pool, "SELECT state FROM noetl.compaction")] == [state]


async def test_it_folds_and_drops_by_itself_and_gives_its_shards_back(dsn: str, pool: Pool, tmp_path: Path) -> None:
    range_ = await make_range(pool)
    for shard_id in range(4):
        await make_run(pool, shard_id=shard_id)
    async with start_role(meta_app, MetaConfig(database_url=dsn)):
        async with start_role(app, config(dsn, tmp_path)) as running:
            await wait_until(lambda: state_is(pool, "dropped"), timeout_s=30, what="the range is dropped")
            assert await owned(pool) == SHARD_COUNT
            async with httpx.AsyncClient(base_url=running.url) as client:
                assert (await client.get("/readyz")).status_code == 200
                text = (await client.get("/metrics")).text
        assert await owned(pool) == 0
    assert "noetl_compacted_executions_total" in text and f'partition="{range_.suffix}"' in text
    assert len(await rows(pool, "SELECT 1 FROM noetl.manifest")) == 4


async def test_two_compactors_share_the_shards_and_one_drops(dsn: str, pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    for shard_id in range(SHARD_COUNT):
        await make_run(pool, shard_id=shard_id, steps=1)
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn)),
        start_role(app, config(dsn, tmp_path)),
        start_role(app, config(dsn, tmp_path)),
    ):
        await wait_until(lambda: state_is(pool, "dropped"), timeout_s=40, what="the range is dropped")

        async def both_own() -> bool:
            query = "SELECT DISTINCT owner_instance FROM noetl.execution_shard WHERE role = 'compactor'"
            return len([row for row in await rows(pool, query) if row["owner_instance"]]) == 2

        await wait_until(both_own, timeout_s=15, what="each owns some shards")


async def test_disabled_it_answers_probes_and_takes_no_shard(dsn: str, pool: Pool, tmp_path: Path) -> None:
    await make_range(pool)
    await make_run(pool)
    settings: dict[str, Any] = {"NOETL_COMPACTOR_ENABLED": "false"}
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn)),
        start_role(app, config(dsn, tmp_path, **settings)) as running,
    ):
        assert [loop.name for loop in running.service.loops] == []
        async with httpx.AsyncClient(base_url=running.url) as client:
            assert (await client.get("/readyz")).status_code == 200
        assert await owned(pool) == 0 and await rows(pool, "SELECT 1 FROM noetl.manifest") == []

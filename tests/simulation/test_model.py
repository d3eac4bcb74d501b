"""The model of the database means what the SQL means."""

import pytest

from noetl_common.clock import SystemClock
from noetl_common.db import open_pool
from tests.servers import SHARD_COUNT
from tests.simulation.differential import differences, on_model, on_postgres


@pytest.mark.parametrize("seed", range(3))
async def test_the_model_and_postgres_do_the_same(dsn: str, seed: int) -> None:
    now_ms = SystemClock().unix_ms()
    async with open_pool(dsn, size_max=4, name="differential") as pool:
        said, tables = await on_postgres(pool, seed, shard_count=SHARD_COUNT, now_ms=now_ms)
    modelled, model_tables = on_model(seed, shard_count=SHARD_COUNT, now_ms=now_ms)
    for real, model in zip(said, modelled, strict=True):
        assert real == model
    assert differences(model_tables, tables) == []

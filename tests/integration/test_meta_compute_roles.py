"""meta and compute as they are started: a bare database becomes a cluster, shards find owners, events are projected."""

from contextlib import AsyncExitStack

from noetl_common.clock import SystemClock
from noetl_common.cluster import read_cluster
from noetl_common.db import Pool, open_pool
from noetl_common.leases import Leases
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from tests.histories import event, make_execution, routed, rows, start
from tests.running import start_role, wait_until
from tests.servers import SHARD_COUNT

OWNERS = "SELECT owner_instance AS owner, count(*) AS n FROM noetl.execution_shard WHERE role = %s GROUP BY 1"


async def owners(pool: Pool, role: str) -> dict[str | None, int]:
    return {row["owner"]: row["n"] for row in await rows(pool, OWNERS, role)}


async def test_an_empty_database_becomes_a_cluster_whose_shards_are_owned_at_once(empty_dsn: str) -> None:
    clock = SystemClock()
    async with (
        start_role(meta_app, MetaConfig(database_url=empty_dsn)),
        start_role(compute_app, ComputeConfig(database_url=empty_dsn)),
        open_pool(empty_dsn, size_max=2, name="test") as pool,
    ):
        assert (await read_cluster(pool)).shard_count == SHARD_COUNT
        ingest = Leases(pool, role="ingest", instance="i", lease_s=4.0, clock=clock)

        async def all_owned() -> bool:
            await ingest.renew_once()
            return len(ingest.owned()) == SHARD_COUNT and None not in await owners(pool, "compute")

        began_s = clock.monotonic_s()
        await wait_until(all_owned, timeout_s=5, what="every shard of both roles is owned")
        assert clock.monotonic_s() - began_s < 2.0


async def test_what_is_routed_is_projected_within_a_poll_without_any_bell(dsn: str, pool: Pool) -> None:
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn)),
        start_role(compute_app, ComputeConfig(database_url=dsn)),
    ):
        await wait_until(lambda: _all_owned(pool, 1), what="compute owns every shard")
        id_ = await make_execution(pool, 5)
        await routed(pool, 5, start(id_), event(id_, "playbook.completed", status="COMPLETED"))

        async def completed() -> bool:
            return await rows(pool, "SELECT status FROM noetl.execution") == [{"status": "COMPLETED"}]

        await wait_until(completed, timeout_s=5, what="the read model shows the end")
        await wait_until(
            lambda: rows(pool, "SELECT 1 FROM noetl.checkpoint WHERE shard_id = 5 AND projected_seq = 1"),
            timeout_s=5,
            what="a checkpoint says so",
        )


async def test_a_second_replica_gets_half_and_a_planned_stop_hands_all_over(dsn: str, pool: Pool) -> None:
    config = ComputeConfig(database_url=dsn)
    async with start_role(meta_app, MetaConfig(database_url=dsn)), start_role(compute_app, config):
        await wait_until(lambda: _all_owned(pool, 1), what="the first owns every shard")
        async with start_role(compute_app, config):
            await wait_until(lambda: _halves(pool), timeout_s=8, what="each owns half")
        await wait_until(lambda: _all_owned(pool, 1), timeout_s=3, what="the first owns every shard again")
    assert await owners(pool, "compute") == {None: SHARD_COUNT}


async def test_a_second_meta_takes_over_when_the_leader_stops(dsn: str, pool: Pool) -> None:
    leader = "SELECT owner_instance AS owner FROM noetl.execution_shard WHERE role = 'meta'"
    config = MetaConfig(database_url=dsn, lease_s=1.0)
    async with AsyncExitStack() as second:
        async with start_role(meta_app, config):
            await wait_until(lambda: _leads(pool), what="someone leads")
            (first,) = await rows(pool, leader)
            await second.enter_async_context(start_role(meta_app, config))
        await wait_until(lambda: _leads(pool), what="the second leads")
        assert await rows(pool, leader) != [first]
    assert await rows(pool, leader) == [{"owner": None}]


async def _leads(pool: Pool) -> bool:
    return bool(await rows(pool, "SELECT 1 FROM noetl.execution_shard WHERE role = 'meta' AND owner_instance <> ''"))


async def _all_owned(pool: Pool, instances: int) -> bool:
    found = await owners(pool, "compute")
    return None not in found and len(found) == instances


async def _halves(pool: Pool) -> bool:
    found = await owners(pool, "compute")
    return None not in found and sorted(found.values()) == [SHARD_COUNT // 2] * 2

"""Route the owned shards: one loop a shard, and one that looks after all of them."""

from collections.abc import Awaitable, Callable

from noetl_common.db import Pool, transaction
from noetl_common.leases import Leases
from noetl_common.loop import Loop
from services.ingest import decisions
from services.ingest.handover import Handover
from services.ingest.router import Router

WATCH_PAUSE_S = 0.5
SHARD_PAUSE_S = 5.0


async def route_shards_once(router: Router, shard_id: int) -> int:
    """Route one batch of one shard; return how many inputs."""
    return await router.route_once(shard_id)


async def watch_shards_once(pool: Pool, leases: Leases, handover: Handover) -> int:
    """Wake the owned shards that are behind, and fire their due timers: one statement when nothing is to be done.

    This is what makes every doorbell a hint: an append by another process is found here at the latest.
    """
    owned = leases.owned()
    if not owned:
        return 0
    behind, due = await decisions.find_shards_behind(pool, owned)
    for shard_id in due:
        async with transaction(pool) as conn:
            fired = await decisions.fire_timers(conn, shard_id)
        handover.offer(shard_id, fired)
    for shard_id in behind:
        handover.wake(shard_id)
    return 0  # what was found is other loops' work; look again after the pause


def router_loops(router: Router, *, shard_count: int, watch_pause_s: float = WATCH_PAUSE_S) -> list[Loop]:
    """Return the loops of routing: one a shard, woken by its bell, and the watcher."""

    def once(shard_id: int) -> Callable[[], Awaitable[int]]:
        return lambda: route_shards_once(router, shard_id)

    loops = [
        Loop(
            name="route_shards",
            once=once(shard_id),
            idle_pause_s=SHARD_PAUSE_S,
            wake=router.handover.bell(shard_id),
        )
        for shard_id in range(shard_count)
    ]
    watch = Loop(
        name="watch_shards",
        once=lambda: watch_shards_once(router.pool, router.leases, router.handover),
        idle_pause_s=watch_pause_s,
        wake=router.leases.changed,
    )
    return [*loops, watch]

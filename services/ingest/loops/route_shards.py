"""Route the owned shards: one loop a shard, and one that looks after all of them."""

from collections.abc import Awaitable, Callable

from noetl_common.db import Pool, transaction
from noetl_common.leases import Leases
from noetl_common.loop import Loop, poll_pause_s
from services.ingest import decisions
from services.ingest.handover import Handover
from services.ingest.router import Router
from services.ingest.store_shards import look_at_shards

WATCH_PAUSE_S = 0.25  # at first, where nothing rings
TIMER_PAUSE_MIN_S = 0.05
SHARD_PAUSE_S = 600.0  # the watcher looks for all shards at once, and wakes those that have something


async def route_shards_once(router: Router, shard_id: int) -> int:
    """Route one batch of one shard; return how many inputs."""
    with router.leases.at_work(shard_id):
        return await router.route_once(shard_id)


class Watcher:
    """Wakes the owned shards that are new or behind, and fires their due timers.

    This is what makes every doorbell a hint: an append by another process is found here at the latest. `is_rung` says
    whether bells of other processes can be heard.
    """

    def __init__(
        self, pool: Pool, leases: Leases, handover: Handover, *, is_rung: Callable[[], bool] = lambda: False
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._handover = handover
        self._is_rung = is_rung
        self._known: dict[int, int] = {}
        self._idle = 0
        self._next_due_s: float | None = None

    async def look_once(self) -> int:
        """Look at all owned shards: one statement when nothing is to be done; return how many had something."""
        owned = self._leases.owned()
        for shard_id, epoch in owned.items():
            if self._known.get(shard_id) != epoch:
                self._handover.wake(shard_id)  # also with nothing to route: a takeover is told at once
        self._known = owned
        if not owned:
            return 0
        seen = await look_at_shards(self._pool, owned)
        due = [shard.shard_id for shard in seen if shard.due_in_s is not None and shard.due_in_s <= 0]
        for shard_id in due:
            async with transaction(self._pool) as conn:
                fired = await decisions.fire_timers(conn, shard_id)
            self._handover.offer(shard_id, fired)
        behind = [shard.shard_id for shard in seen if shard.is_behind]
        for shard_id in behind:
            self._handover.wake(shard_id)
        self._next_due_s = min((shard.due_in_s for shard in seen if shard.due_in_s is not None), default=None)
        return len({*behind, *due})

    async def once(self) -> int:
        """Look; 0 in any case: what was found is other loops' work, so look again after the pause."""
        self._idle = 0 if await self.look_once() else self._idle + 1
        return 0

    def pause_s(self, _rounds: int) -> float:
        """Return how long to wait: until the next timer at most."""
        pause_s = poll_pause_s(max(1, self._idle), first_s=WATCH_PAUSE_S, is_rung=self._is_rung())
        return pause_s if self._next_due_s is None else min(pause_s, max(self._next_due_s, TIMER_PAUSE_MIN_S))


def router_loops(router: Router, *, shard_count: int, is_rung: Callable[[], bool] = lambda: False) -> list[Loop]:
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
    watcher = Watcher(router.pool, router.leases, router.handover, is_rung=is_rung)
    watch = Loop(name="watch_shards", once=watcher.once, idle_pause_s=watcher.pause_s, wake=router.leases.changed)
    return [*loops, watch]

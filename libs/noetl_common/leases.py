"""Leases: which shards this process owns in one role, and until when by its own clock.

Safety never rests on time: each write of an owner is fenced by the lease epoch. The leases only keep two owners
from working against each other for long. Meta assigns; an owner renews, and gives back what is over its quota.
"""

import asyncio
from typing import NamedTuple

from noetl_common import metrics
from noetl_common.bus import Bus
from noetl_common.clock import Clock
from noetl_common.core.assignment import surplus
from noetl_common.core.shard import hashed_id
from noetl_common.db import Pool, transaction
from noetl_common.log import get_logger
from noetl_common.loop import Loop
from noetl_common.sql import load_queries
from noetl_common.subjects import META_WAKE

log = get_logger(__name__)
SQL = load_queries("noetl_common")

MARGIN_S = 0.5  # an owner stops this long before its lease can have run out
UNOWNED_PAUSE_S = 0.1  # how often a process that owns nothing asks
RENEWALS_PER_LEASE = 4
SHED_SHARE = 8  # at most this part of all shards is given back in one renewal, but always up to 4


class Held(NamedTuple):
    """One owned shard. Units: `until_s` is on this process's monotonic clock."""

    epoch: int
    until_s: float


class Leases:
    """The shards one process owns in one role. With a bus, meta hears at once when there is something to assign."""

    def __init__(
        self,
        pool: Pool,
        *,
        role: str,
        instance: str,
        lease_s: float,
        clock: Clock,
        uri: str = "",
        bus: Bus | None = None,
    ) -> None:
        self.changed = asyncio.Event()  # set when the set of owned shards changes; whoever waits clears it
        self.registered = False  # true once this process stands among the living
        self._pool = pool
        self._bus = bus
        self._clock = clock
        self._lease_s = lease_s
        self._held: dict[int, Held] = {}
        self._gaining = False  # the last renewal brought shards: more may be on their way
        self._args = {
            "runtime_id": hashed_id("runtime", role, instance),
            "role": role,
            "instance": instance,
            "uri": uri,
            "lease_s": lease_s,
        }

    @property
    def pause_s(self) -> float:
        """Return how long to wait before the next renewal: short while shards are still being given to us."""
        settled = bool(self._held) and not self._gaining
        return self._lease_s / RENEWALS_PER_LEASE if settled else min(UNOWNED_PAUSE_S, self._lease_s / 4)

    def owned(self) -> dict[int, int]:
        """Return {shard: epoch} of the leases that cannot have run out yet, by this process's own clock."""
        now_s = self._clock.monotonic_s()
        return {shard_id: held.epoch for shard_id, held in sorted(self._held.items()) if now_s < held.until_s}

    async def renew_once(self) -> int:
        """Register, renew every lease, learn gained and lost shards; return how many were gained or lost.

        Errors: Unavailable or a psycopg error when the database does not answer; leases then run out by themselves.
        """
        start_s = self._clock.monotonic_s()  # before the statement: the lease cannot begin earlier than this
        async with transaction(self._pool) as conn:
            row = await (await conn.execute(SQL["renew_leases"], self._args)).fetchone()
        assert row is not None
        if not self.registered:
            self.registered = True
            await self._wake_meta()
        until_s = start_s + self._lease_s - MARGIN_S
        held = {shard_id: Held(epoch, until_s) for shard_id, epoch in row["shards"]}
        changes = self._take(held)
        if row["has_leader"]:  # without one nobody would take up what is given back
            changes += await self._shed(row["shard_count"], row["peers"])
        return changes

    def forget(self, shard_id: int) -> None:
        """Stop owning a shard after a fenced write; a renewal brings it back if it is still this process's."""
        if shard_id in self._held:
            self._take({other: held for other, held in self._held.items() if other != shard_id})

    async def release_all(self) -> None:
        """Give every shard back and leave the list of the living: the end of a planned stop."""
        self._take({})
        async with transaction(self._pool) as conn:
            await conn.execute(SQL["leave_role"], self._args)
        self.registered = False
        await self._wake_meta()

    def _take(self, held: dict[int, Held]) -> int:
        before = {shard_id: one.epoch for shard_id, one in self._held.items()}
        after = {shard_id: one.epoch for shard_id, one in held.items()}
        self._held = held
        role, instance = str(self._args["role"]), str(self._args["instance"])
        gained = sorted(shard_id for shard_id, epoch in after.items() if before.get(shard_id) != epoch)
        lost = sorted(set(before) - set(after))
        self._gaining = bool(gained)
        if gained:
            log.info("shards.acquired", shard_role=role, shards=gained)
            for shard_id in gained:
                metrics.gauge("noetl_shard_owner", 1, role=role, shard=shard_id, instance=instance)
        if lost:
            log.info("shards.lost", shard_role=role, shards=lost)
            for shard_id in lost:
                metrics.forget("noetl_shard_owner", role=role, shard=shard_id, instance=instance)
        if gained or lost:
            self.changed.set()
        return len(gained) + len(lost)

    async def _shed(self, shard_count: int, peers: dict[str, int]) -> int:
        me = str(self._args["instance"])
        at_once_max = max(4, shard_count // SHED_SHARE)
        shards = surplus(list(self._held), shard_count, me=me, peers=peers)[:at_once_max]
        if not shards:
            return 0
        kept = {shard_id: held for shard_id, held in self._held.items() if shard_id not in shards}
        self._take(kept)  # first stop, then give back
        async with transaction(self._pool) as conn:
            await conn.execute(SQL["release_shards"], {**self._args, "shards": shards})
        await self._wake_meta()
        return len(shards)

    async def _wake_meta(self) -> None:
        if self._bus is not None:
            await self._bus.publish(META_WAKE)


def renewal_loop(leases: Leases) -> Loop:
    """Return the loop that keeps `leases`: often while nothing is owned, else a few times a lease."""

    async def renew() -> int:
        await leases.renew_once()
        loop.idle_pause_s = leases.pause_s
        return 0

    loop = Loop(name="renew_leases", once=renew, idle_pause_s=UNOWNED_PAUSE_S)
    return loop

"""Leases: which shards this process owns in one role, and until when by its own clock.

Safety never rests on time: each write of an owner is fenced by the lease epoch. The leases only keep two owners
from working against each other for long. Meta assigns; an owner renews, and gives back what is over its quota.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from noetl_common import metrics
from noetl_common.bus import Bus
from noetl_common.clock import Clock
from noetl_common.core.assignment import Replica, Standing, shares, surplus
from noetl_common.db import Pool, single
from noetl_common.log import get_logger
from noetl_common.loop import Loop
from noetl_common.recovery import Recoveries
from noetl_common.session_lock import SessionLock, runtime_id_of
from noetl_common.sql import load_queries
from noetl_common.subjects import META_WAKE, leases_bell

log = get_logger(__name__)
SQL = load_queries("noetl_common")

MARGIN_S = 0.5  # an owner stops this long before its lease can have run out
EXPECTING_PAUSE_S = 0.1  # how often a process asks that lacks shards it should have
EXPECTING_S = 10.0  # for so long; then as often as the others, until something changes
SHEDDING_PAUSE_S = 0.5  # how often a process over its share gives some back
BATCH_WAIT_S = 0.5  # how long giving back waits for the transaction under way
RENEWALS_PER_LEASE = 4
SHED_SHARE = 8  # at most this part of all shards is given back in one renewal, but always up to 4


class Held(NamedTuple):
    """One owned shard. Units: `until_s` and `since_s` (when it was learned) are on this process's monotonic clock."""

    epoch: int
    until_s: float
    since_s: float


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
        lock: SessionLock | None = None,
    ) -> None:
        self.role = role
        self.changed = asyncio.Event()  # set when the set of owned shards changes; whoever waits clears it
        self.wake = asyncio.Event()  # set when a renewal may bring something new
        self.registered = False  # true once this process stands among the living
        self.recoveries = Recoveries(role, owned_for_s=self.owned_for_s)
        self._pool = pool
        self._bus = bus
        self._clock = clock
        self._lock = lock
        self._lease_s = lease_s
        self._held: dict[int, Held] = {}
        self._at_work: Counter[int] = Counter()
        self._batch_ended = asyncio.Event()
        self._lacking_since_s: float | None = None
        self._is_shedding = False
        self.instance = instance
        self._args: dict[str, Any] = {
            "runtime_id": runtime_id_of(role, instance),
            "role": role,
            "instance": instance,
            "uri": uri,
            "lease_s": lease_s,
        }

    def pause_s(self) -> float:
        """Return how long to wait before the next renewal: short while shards are on their way to us or from us."""
        settled_s = self._lease_s / RENEWALS_PER_LEASE
        if self._is_shedding:
            return min(SHEDDING_PAUSE_S, settled_s)
        lacking_since_s = self._lacking_since_s
        if lacking_since_s is not None and self._clock.monotonic_s() - lacking_since_s < EXPECTING_S:
            return min(EXPECTING_PAUSE_S, settled_s)
        return settled_s

    def owned(self) -> dict[int, int]:
        """Return {shard: epoch} of the leases that cannot have run out yet, by this process's own clock."""
        now_s = self._clock.monotonic_s()
        return {shard_id: held.epoch for shard_id, held in sorted(self._held.items()) if now_s < held.until_s}

    def epoch_of(self, shard_id: int) -> int | None:
        """Return the epoch of an owned shard, None of any other."""
        held = self._held.get(shard_id)
        return held.epoch if held is not None and self._clock.monotonic_s() < held.until_s else None

    def owned_for_s(self, shard_id: int) -> float:
        """Return for how long this process has known that it owns the shard; 0 when it does not."""
        held = self._held.get(shard_id)
        return 0.0 if held is None else self._clock.monotonic_s() - held.since_s

    @contextmanager
    def at_work(self, shard_id: int) -> Iterator[None]:
        """Mark a batch of the shard as under way: a planned hand-over waits for its end."""
        self._at_work[shard_id] += 1
        try:
            yield
        finally:
            self._at_work[shard_id] -= 1
            self._batch_ended.set()

    async def renew_once(self) -> int:
        """Register, renew every lease, learn gained and lost shards; return how many were gained or lost.

        Errors: Unavailable or a psycopg error when the database does not answer; leases then run out by themselves.
        """
        start_s = self._clock.monotonic_s()  # before the statement: the lease cannot begin earlier than this
        args = {**self._args, "holds_lock": self._lock is not None and self._lock.is_held}
        async with single(self._pool) as conn:
            row = await (await conn.execute(SQL["renew_leases"], args)).fetchone()
        assert row is not None
        if not self.registered:
            self.registered = True
            await self._listen()
            await self._wake_meta()
        until_s = start_s + self._lease_s - MARGIN_S
        changes = self._take(dict(row["shards"]), until_s)
        replicas = {instance: replica_of(*given) for instance, given in row["peers"].items()}
        replicas[self.instance] = replica_of(len(self._held), row["status"])
        lacks = len(self._held) < shares(row["shard_count"], replicas)[self.instance]
        if not lacks:
            self._lacking_since_s = None
        elif self._lacking_since_s is None or changes:
            self._lacking_since_s = start_s
        if row["has_leader"]:  # without one nobody would take up what is given back
            changes += await self._shed(row["shard_count"], replicas)
        return changes

    def forget(self, shard_id: int) -> None:
        """Stop owning a shard after a fenced write; a renewal brings it back if it is still this process's."""
        self._keep({other: held for other, held in self._held.items() if other != shard_id})

    async def release_all(self) -> None:
        """Give every shard back and leave the list of the living: the end of a planned stop."""
        self._keep({})
        async with single(self._pool) as conn:
            await conn.execute(SQL["leave_role"], self._args)
        self.registered = False
        await self._wake_meta()

    def _take(self, epochs: Mapping[int, int], until_s: float) -> int:
        """Hold these shards under these epochs; return how many were gained or lost."""
        now_s = self._clock.monotonic_s()
        held = {}
        for shard_id, epoch in epochs.items():
            before = self._held.get(shard_id)
            since_s = before.since_s if before is not None and before.epoch == epoch else now_s
            held[shard_id] = Held(epoch, until_s, since_s)
        return self._keep(held)

    def _keep(self, held: dict[int, Held]) -> int:
        before, self._held = self._held, held
        gained = sorted(s for s, one in held.items() if s not in before or before[s].epoch != one.epoch)
        lost = sorted(set(before) - set(held))
        if gained:
            log.info("shards.acquired", shard_role=self.role, shards=gained)
            for shard_id in gained:
                metrics.gauge("noetl_shard_owner", 1, role=self.role, shard=shard_id, instance=self.instance)
        if lost:
            log.info("shards.lost", shard_role=self.role, shards=lost)
            for shard_id in lost:
                metrics.forget("noetl_shard_owner", role=self.role, shard=shard_id, instance=self.instance)
        if gained or lost:
            self.changed.set()
        return len(gained) + len(lost)

    async def _shed(self, shard_count: int, replicas: Mapping[str, Replica]) -> int:
        """Give back some of what is over the share: first nothing new begins, then what is under way ends."""
        over = surplus(list(self._held), shard_count, me=self.instance, replicas=replicas)
        shards = over[: max(4, shard_count // SHED_SHARE)]
        self._is_shedding = len(over) > len(shards)
        if not shards:
            return 0
        self._keep({shard_id: held for shard_id, held in self._held.items() if shard_id not in shards})
        idle = await self._until_idle(shards)
        if idle:
            async with single(self._pool) as conn:
                await conn.execute(SQL["release_shards"], {**self._args, "shards": idle})
            await self._wake_meta()
        # One that is still at work comes back with the next renewal, and is given back then.
        return len(idle)

    async def _until_idle(self, shards: list[int]) -> list[int]:
        """Wait for the batches of these shards that are under way; return the shards of which none is any more."""
        try:
            async with asyncio.timeout(BATCH_WAIT_S):
                while any(self._at_work[shard_id] for shard_id in shards):
                    self._batch_ended.clear()
                    await self._batch_ended.wait()
        except TimeoutError:
            log.info("shards.still_at_work", shard_role=self.role, shards=[s for s in shards if self._at_work[s]])
        return [shard_id for shard_id in shards if not self._at_work[shard_id]]

    async def _listen(self) -> None:
        async def ring(_subject: str, _payload: bytes) -> None:
            self.wake.set()

        if self._bus is not None:
            await self._bus.subscribe(leases_bell(self.role), ring)

    async def _wake_meta(self) -> None:
        if self._bus is not None:
            await self._bus.publish(META_WAKE)


def replica_of(owned: int, status: str) -> Replica:
    """Return a replica as the plan sees it, from its row of `noetl.runtime`."""
    return Replica(owned, cast(Standing, status) if status in ("cordoned", "draining") else "ready")


def renewal_loop(leases: Leases) -> Loop:
    """Return the loop that keeps `leases`: a few times a lease, more often while shards are moving."""

    async def renew() -> int:
        await leases.renew_once()
        return 0

    return Loop(name="renew_leases", once=renew, idle_pause_s=lambda _rounds: leases.pause_s(), wake=leases.wake)

"""Lead, or stand by: one meta process at a time holds the leader's row. One statement sees all there is to do."""

from noetl_common import metrics
from noetl_common.clock import Clock
from noetl_common.cluster import LEADER_ROLE
from noetl_common.core import liveness
from noetl_common.db import Pool
from noetl_common.log import get_logger
from noetl_common.session_lock import SessionLock
from services.meta import store
from services.meta.store import Leader, Look

log = get_logger(__name__)
MARGIN_S = 0.5  # a leader stops this long before its lease can have run out
QUIET_PAUSE_S = 1.0
BUSY_PAUSE_S = 0.2  # while anything runs: a dead owner is found this soon
BID_PAUSE_S = 0.1  # while the leader is dead


class Leadership:
    """Whether this process leads, by its own clock, and what it saw last; each write is fenced by the epoch besides."""

    def __init__(self, *, instance: str, lease_s: float, clock: Clock, lock: SessionLock | None = None) -> None:
        self.instance = instance
        self.lease_s = lease_s
        self.clock = clock
        self.lock = lock
        self.seen: Look | None = None
        self.dead: set[str] = set()
        self.is_busy = False  # something ran at the last look
        self.cut_off: set[str] = set()  # the silent whose sessions were ended
        self._missing_since_s: dict[str, float] = {}
        self._epoch: int | None = None
        self._until_s = 0.0

    def leader(self) -> Leader | None:
        """Return the fence to write with, or None while another process leads."""
        if self._epoch is None or self.clock.monotonic_s() >= self._until_s:
            return None
        return Leader(self.instance, self._epoch)

    def learn(self, epoch: int | None, start_s: float) -> None:
        """Take the answer to a bid that was sent at `start_s` of the own clock."""
        if epoch != self._epoch:
            log.info("leader.changed", leads=epoch is not None, epoch=epoch)
        self._epoch = epoch
        self._until_s = start_s + self.lease_s - MARGIN_S
        metrics.gauge("noetl_leader", 0 if epoch is None else 1, instance=self.instance)

    def judge(self, seen: Look) -> None:
        """Take what was seen: who is dead by now, and whether anything runs."""
        now_s = self.clock.monotonic_s()
        missing = {process.instance for process in seen.processes if process.is_missing}
        self._missing_since_s = liveness.still_missing(self._missing_since_s, missing, now_s)
        dead = liveness.dead(self._missing_since_s, now_s=now_s, postgres_age_s=seen.postgres_age_s)
        if found := sorted(dead - self.dead):
            log.warning("processes.dead", instances=found)
        self.dead = dead
        self.is_busy = seen.has_claims or (self.seen is not None and self.seen.progress != seen.progress)
        self.seen = seen

    def pause_s(self) -> float:
        """Return how long to wait before the next look."""
        seen = self.seen
        if (
            seen is not None
            and self._epoch is None
            and any(process.role == LEADER_ROLE and process.instance in self.dead for process in seen.processes)
        ):
            return BID_PAUSE_S
        if self._missing_since_s:
            return liveness.LOOKS_APART_S
        return min(BUSY_PAUSE_S if self.is_busy else QUIET_PAUSE_S, self.lease_s / 4)


async def elect_leader_once(pool: Pool, leadership: Leadership) -> int:
    """Bid for the leadership once, and see what there is; return 1 when it was won just now."""
    led_before = leadership.leader() is not None
    start_s = leadership.clock.monotonic_s()
    seen = await store.look(
        pool,
        leadership.instance,
        lease_s=leadership.lease_s,
        # One whose leases are about to run out is given nothing: they would run out again at once.
        silent_s=leadership.lease_s - MARGIN_S,
        holds_lock=leadership.lock is not None and leadership.lock.is_held,
        dead=leadership.dead,
    )
    leadership.learn(seen.epoch, start_s)
    leadership.judge(seen)
    if leadership.leader() is not None:
        await _cut_off(pool, leadership, set(seen.silent))
    return int(seen.epoch is not None and not led_before)


async def _cut_off(pool: Pool, leadership: Leadership, silent: set[str]) -> None:
    """End the sessions of those that fell silent: one that is frozen may hold locks that its successors wait for."""
    fallen = silent - leadership.cut_off
    leadership.cut_off = silent
    if fallen and (ended := await store.cut_off(pool, fallen)):
        log.warning("processes.cut_off", instances=sorted(fallen), sessions=ended)


async def resign(pool: Pool, leadership: Leadership) -> None:
    """Give the leadership back at a planned stop, so that another process has it at once."""
    leadership.learn(None, leadership.clock.monotonic_s())
    await store.resign(pool, leadership.instance)

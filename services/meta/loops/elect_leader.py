"""Lead, or stand by: one meta process at a time holds the leader's row."""

from noetl_common import metrics
from noetl_common.clock import Clock
from noetl_common.db import Pool
from noetl_common.log import get_logger
from services.meta import store
from services.meta.store import Leader

log = get_logger(__name__)
MARGIN_S = 0.5  # a leader stops this long before its lease can have run out


class Leadership:
    """Whether this process leads, by its own clock; each write is fenced by the epoch besides."""

    def __init__(self, *, instance: str, lease_s: float, clock: Clock) -> None:
        self.instance = instance
        self.lease_s = lease_s
        self.clock = clock
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


async def elect_leader_once(pool: Pool, leadership: Leadership) -> int:
    """Bid for the leadership once; return 1 when it was won just now."""
    led_before = leadership.leader() is not None
    start_s = leadership.clock.monotonic_s()
    epoch = await store.lead(pool, leadership.instance, leadership.lease_s)
    leadership.learn(epoch, start_s)
    return int(epoch is not None and not led_before)


async def resign(pool: Pool, leadership: Leadership) -> None:
    """Give the leadership back at a planned stop, so that another process has it at once."""
    leadership.learn(None, leadership.clock.monotonic_s())
    await store.resign(pool, leadership.instance)

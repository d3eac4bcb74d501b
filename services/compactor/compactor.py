"""What the compactor's loops work with, and the arithmetic of its times."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec

from noetl_common.clock import Clock
from noetl_common.core.shard import EPOCH_MS
from noetl_common.core.values import Tier
from noetl_common.db import Pool
from noetl_common.leases import Leases
from noetl_common.store.results import ResultStore
from services.compactor.store import Range

CLOSED_AFTER_DAYS = 1 / 24  # clocks of machines that mint ids differ, by less than this
SHARD_OF_PARTITIONS = 0  # its owner takes partitions away and collects payloads


class Round(msgspec.Struct, kw_only=True):
    """One shard's way through one range: the last run looked at, and why runs were left in the log."""

    after: int = 0
    is_done: bool = False
    waiting: Counter[str] = msgspec.field(default_factory=Counter)


class Compactor(msgspec.Struct, kw_only=True):
    """What the loops share. Units: days and hours may be fractions."""

    pool: Pool
    store: ResultStore
    leases: Leases
    clock: Clock
    retention_days: float
    batch_events_max: int = 20_000
    settle_s: float = 60.0
    orphan_age_hours: float = 24.0
    rounds: dict[tuple[int, int], Round] = {}  # by (shard, low of a range)
    listed: dict[Tier, str | None] = {}  # the last payload listed of a tier in this round, None: all of it is

    @property
    def cutoff(self) -> datetime:
        """Return when a run must have ended to be folded now."""
        return self._now() - timedelta(days=self.retention_days)

    @property
    def orphan_cutoff(self) -> datetime:
        """Return when a run must have ended so that nothing of it can name a payload any more."""
        return self._now() - timedelta(hours=self.orphan_age_hours)

    @property
    def closed_before(self) -> int:
        """Return the execution id that everything closed stands below."""
        waits_ms = min(self.retention_days, CLOSED_AFTER_DAYS) * 86_400_000
        return max(0, self.clock.unix_ms() - int(waits_ms) - EPOCH_MS) << 22

    def epoch_of_partitions(self) -> int | None:
        """Return the lease epoch to take partitions away with, None while another process does."""
        return self.leases.owned().get(SHARD_OF_PARTITIONS)

    def round_of(self, shard_id: int, range_: Range) -> Round:
        """Return how far a shard's round through a range is."""
        return self.rounds.setdefault((shard_id, range_.low), Round())

    def stragglers(self) -> Counter[str]:
        """Return how many runs of closed ranges stay in the log in this round, by why."""
        return sum((one.waiting for one in self.rounds.values()), Counter())

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.unix_ms() / 1000, UTC)

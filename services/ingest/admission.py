"""Admission of starts: whether this process takes a new run now, so that those that go on are not crowded out.

Reports and claims finish work and starts make it. So starts are refused first, early and cheaply, with a word on when
to come back, while the queues that reports need still have room.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from noetl_common import metrics
from noetl_common.core.shard import shard_of
from noetl_common.errors import Overloaded
from noetl_common.ids import mint_execution_id

RETRY_AFTER_S = 2.0
IDS_DRAWN_MAX = 32


class Admission:
    """What stands against a start, as last measured.

    Shapes: `lags` {shard: inputs that no one has routed}; `due` {pool: commands whose turn has come and that no worker
    has claimed}, of pools where anything waits.
    """

    def __init__(
        self,
        *,
        shard_count: int,
        commands_due_max: int = 10_000,
        routing_lag_inputs_max: int = 2_000,
        starts_at_once_max: int = 2_000,
    ) -> None:
        self.commands_due_max = commands_due_max
        self.lags: dict[int, int] = {}
        self.due: dict[str, int] = {}
        self.is_asked = False  # by a start, since it was last measured
        self._shard_count = shard_count
        self._routing_lag_inputs_max = routing_lag_inputs_max
        self._starts_at_once_max = starts_at_once_max
        self._starts = 0

    @contextmanager
    def starting(self, count: int) -> Iterator[None]:
        """Count starts as under way while the block lasts. Errors: Overloaded when there are too many."""
        self.is_asked = True
        if self._starts and self._starts + count > self._starts_at_once_max:
            raise _refused(
                "starts", f"{self._starts} starts are under way here, at most {self._starts_at_once_max} may be"
            )
        self._starts += count
        try:
            yield
        finally:
            self._starts -= count

    def check_pools(self, pools: Iterable[str]) -> None:
        """Return if the pools that a playbook needs keep up with their commands. Errors: Overloaded."""
        for pool in pools:
            if self.due.get(pool, 0) >= self.commands_due_max:
                message = f"pool {pool!r}: {self.commands_due_max} commands or more are due and wait for a worker"
                raise _refused("commands", message)

    def draw_id(self) -> int:
        """Return a fresh execution id in a shard whose routing keeps up. Errors: Overloaded when none is found."""
        for _ in range(IDS_DRAWN_MAX):
            execution_id = mint_execution_id()
            if self.lags.get(shard_of(execution_id, self._shard_count), 0) < self._routing_lag_inputs_max:
                return execution_id
        message = f"routing is behind: {self._routing_lag_inputs_max} inputs or more wait in every shard that was tried"
        raise _refused("routing", message)


def _refused(reason: str, message: str) -> Overloaded:
    metrics.inc("noetl_starts_refused_total", 1, reason=reason)
    return Overloaded(message, retry_after_s=RETRY_AFTER_S)

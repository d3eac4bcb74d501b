"""What a shard's new owner works off first: the inputs that waited when it took over. Counted, timed, logged."""

from collections.abc import Callable

from noetl_common import metrics
from noetl_common.log import get_logger

log = get_logger(__name__)


class Recoveries:
    """The takeovers of one role in one process, each until what waited at its beginning is done."""

    def __init__(self, role: str, *, owned_for_s: Callable[[int], float]) -> None:
        self._role = role
        self._owned_for_s = owned_for_s
        self._epochs: dict[int, int] = {}  # the last takeover of each shard
        self._left: dict[int, int] = {}
        self._replayed: dict[int, int] = {}

    def begin(self, shard_id: int, *, epoch: int, waiting: int) -> None:
        """Note that a shard is taken over under an epoch with `waiting` inputs; a second call for it does nothing."""
        if self._epochs.get(shard_id) == epoch:
            return
        self._epochs[shard_id] = epoch
        self._left[shard_id] = self._replayed[shard_id] = waiting
        self.advance(shard_id, 0)

    def advance(self, shard_id: int, done: int) -> None:
        """Note that so many inputs of a shard were worked off; at the last that waited, say how long it took."""
        left = self._left.get(shard_id)
        if left is None:
            return
        if left > done:
            self._left[shard_id] = left - done
            return
        del self._left[shard_id]
        replayed, role, seconds = self._replayed.pop(shard_id), self._role, self._owned_for_s(shard_id)
        metrics.gauge("noetl_recovery_replayed_events", replayed, role=role, shard=shard_id)
        metrics.gauge("noetl_replay_window_seconds", seconds, role=role, shard=shard_id)
        log.info(
            "shard.recovered",
            shard_role=role,
            shard_id=shard_id,
            epoch=self._epochs[shard_id],
            replayed_events=replayed,
            seconds=round(seconds, 4),
        )

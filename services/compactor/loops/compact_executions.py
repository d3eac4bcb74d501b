"""Fold finished runs into manifests, shard by shard; one fenced transaction a batch, and the manifest's row last."""

from collections.abc import Sequence

from noetl_common import metrics
from noetl_common.errors import Fenced
from noetl_common.log import get_logger
from services.compactor import store
from services.compactor.compactor import Compactor
from services.compactor.store import Candidate, Range

log = get_logger(__name__)
BATCH_EXECUTIONS_MAX = 500


async def compact_executions_once(compactor: Compactor) -> int:
    """Look at one batch of each owned shard; return how much was looked at, 0 at the end of a round.

    A range in which a shard has nothing left counts as well: the shard's next range is another call's.
    """
    ranges = await store.find_ranges(compactor.pool, compactor.closed_before)
    looked_at = 0
    for shard_id, epoch in compactor.leases.owned().items():
        range_ = next((one for one in ranges if not compactor.round_of(shard_id, one).is_done), None)
        if range_ is None:
            continue
        try:
            with compactor.leases.at_work(shard_id):
                looked_at += 1 + await compact_shard(compactor, range_, shard_id=shard_id, epoch=epoch)
        except Fenced as fenced:
            compactor.leases.forget(shard_id)
            metrics.inc("noetl_fenced_writes_total", 1, role="compactor")
            log.warning("shard.fenced", shard_id=shard_id, error=fenced)
    if not looked_at:
        _publish(compactor)
        compactor.rounds.clear()
    return looked_at


async def compact_shard(compactor: Compactor, range_: Range, *, shard_id: int, epoch: int) -> int:
    """Fold one batch of a shard in a range; return how many runs were looked at.

    Errors: Fenced when the shard has another owner by now: nothing was written.
    """
    started_s = compactor.clock.monotonic_s()
    round_ = compactor.round_of(shard_id, range_)
    # 1. gather
    found = await store.choose(
        compactor.pool,
        range_,
        shard_id=shard_id,
        after=round_.after,
        cutoff=compactor.cutoff,
        limit=BATCH_EXECUTIONS_MAX,
    )
    # 2. decide
    looked_at, chosen = cut(found, compactor.batch_events_max)
    # 3. apply
    if chosen:
        async with store.one_moment(compactor.pool) as conn:
            if not await store.hold_fence(conn, shard_id=shard_id, epoch=epoch):
                raise Fenced(shard_id, epoch)
            await store.fold(conn, range_.suffix, [one.execution_id for one in chosen])
        events = sum(one.events for one in chosen)
        seconds = max(compactor.clock.monotonic_s() - started_s, 1e-6)
        metrics.inc("noetl_compacted_executions_total", len(chosen))
        metrics.inc("noetl_compacted_events_total", events)
        metrics.gauge("noetl_compactor_events_per_second", events / seconds, shard=shard_id)
        metrics.observe("noetl_compactor_batch_seconds", seconds)
    round_.is_done = len(looked_at) == len(found) < BATCH_EXECUTIONS_MAX
    round_.after = looked_at[-1].execution_id if looked_at else round_.after
    round_.waiting.update(one.waits_for for one in looked_at if one.waits_for is not None)
    return len(looked_at)


def cut(found: Sequence[Candidate], events_max: int) -> tuple[Sequence[Candidate], list[Candidate]]:
    """Return (those looked at, those of them to fold): up to `events_max` events, but one run at least."""
    chosen: list[Candidate] = []
    room = events_max
    for place, one in enumerate(found):
        if one.waits_for is not None:
            continue
        if chosen and one.events > room:
            return found[:place], chosen
        chosen.append(one)
        room -= one.events
    return found, chosen


def _publish(compactor: Compactor) -> None:
    metrics.clear("noetl_compactor_stragglers")
    for reason, count in compactor.stragglers().items():
        metrics.gauge("noetl_compactor_stragglers", count, reason=reason)

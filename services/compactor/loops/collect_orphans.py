"""Collect payloads that nothing names: seen unnamed in two passes, the first one long enough ago, and only of runs that
cannot name them any more."""

from noetl_common import metrics
from noetl_common.core.shard import minted_at_ms
from noetl_common.core.values import Tier
from noetl_common.errors import Unavailable
from noetl_common.log import get_logger
from noetl_common.store.keys import execution_in
from services.compactor import store
from services.compactor.compactor import Compactor

log = get_logger(__name__)
PAGE_PAYLOADS = 1_000
PAGE_EXPIRED = 1_000
PREFIX = "exec/"


async def collect_orphans_once(compactor: Compactor) -> int:
    """Look at one page of payloads of each tier if this process may; return how many were looked at."""
    if compactor.epoch_of_partitions() is None:
        return 0
    looked_at = await _drop_expired(compactor)
    for tier in compactor.store.tier_names():
        after = compactor.listed.get(tier, "")
        if after is None:
            continue
        try:
            uris = await compactor.store.list_uris(tier, PREFIX, after=after, limit=PAGE_PAYLOADS)
        except Unavailable as error:
            log.warning("orphans.tier_away", tier=tier, error=error)
            compactor.listed[tier] = None
            continue
        compactor.listed[tier] = uris[-1] if len(uris) == PAGE_PAYLOADS else None
        looked_at += len(uris)
        await collect_page(compactor, tier, uris)
    if not looked_at or not any(compactor.listed.values()):
        compactor.listed.clear()
        return 0
    return looked_at


async def collect_page(compactor: Compactor, tier: Tier, uris: list[str]) -> int:
    """Delete those of some payloads whose time is over, and note those that nothing names; return how many went."""
    if not uris:
        return 0
    # 1. gather
    owners = {uri: execution_in(uri) for uri in uris}
    ids = {id_ for id_ in owners.values() if id_ is not None}
    cutoff = compactor.orphan_cutoff
    named = await store.name_payloads(compactor.pool, uris)
    live = await store.judge_executions(compactor.pool, ids, cutoff)
    # 2. decide: one whose run has no row (yet) is judged by when its id was minted
    cutoff_ms = cutoff.timestamp() * 1000
    unnamed = [
        uri
        for uri, id_ in owners.items()
        if uri not in named and id_ is not None and id_ not in live and minted_at_ms(id_) < cutoff_ms
    ]
    # 3. apply: the mark is older than the age, so that whoever stored it has had that long to name it
    doomed = await store.mark_orphans(compactor.pool, unnamed, age_s=compactor.orphan_age_hours * 3600)
    for uri in doomed:
        await compactor.store.delete(uri, is_copied=True)
    await store.clear_orphans(compactor.pool, [*doomed, *named])
    if doomed:
        metrics.inc("noetl_orphans_deleted_total", len(doomed), tier=tier)
        log.info("orphans.deleted", tier=tier, count=len(doomed), first=doomed[:5])
    return len(doomed)


async def _drop_expired(compactor: Compactor) -> int:
    """Forget kept results whose time is over; their payloads are collected like all that nothing names."""
    expired = await store.read_expired(compactor.pool, PAGE_EXPIRED)
    if expired:
        await store.drop_kept(compactor.pool, expired)
        metrics.inc("noetl_kept_results_expired_total", len(expired))
    return len(expired)

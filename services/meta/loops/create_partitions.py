"""Keep partitions of the log's tables ready for the time to come."""

from noetl_common import metrics
from noetl_common.db import Pool
from noetl_common.log import get_logger
from services.meta import store
from services.meta.loops.elect_leader import Leadership

log = get_logger(__name__)
AHEAD_MIN = 2  # fewer than this needs someone


async def create_partitions_once(pool: Pool, leadership: Leadership, *, width_hours: int, ahead: int) -> int:
    """Make the missing partitions if this process leads; return how many were made."""
    if leadership.leader() is None:
        return 0
    now_ms = leadership.clock.unix_ms()
    made, counts = await store.make_partitions(pool, now_ms=now_ms, width_hours=width_hours, ahead=ahead)
    for table, count in counts.items():
        metrics.gauge("noetl_partitions_ahead", count, table=table)
    if made:
        log.info("partitions.created", names=made)
    if min(counts.values()) < AHEAD_MIN:
        log.error("partitions.too_few_ahead", expected=AHEAD_MIN, found=counts)
    return len(made)

"""Measure the queues: what waits and what is on lease, by pool. What a scaler of workers looks at."""

from noetl_common import metrics
from noetl_common.db import Pool
from services.meta import store
from services.meta.loops.elect_leader import Leadership


async def measure_queues_once(pool: Pool, leadership: Leadership) -> int:
    """Publish the length of each pool's queue if this process leads; 0, so that the loop waits for its next turn."""
    if leadership.leader() is None:
        return 0
    queues = await store.measure_queues(pool)
    # A pool whose queue ran dry has no row: its last figure must not stay.
    metrics.clear("noetl_commands_pending")
    metrics.clear("noetl_commands_inflight")
    for queue in queues:
        metrics.gauge("noetl_commands_pending", queue.pending, pool=queue.pool)
        metrics.gauge("noetl_commands_inflight", queue.inflight, pool=queue.pool)
    return 0

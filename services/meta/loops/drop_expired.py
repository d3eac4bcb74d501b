"""Drop what is kept for a time only: rows of dead processes, old checkpoints."""

from noetl_common import metrics
from noetl_common.db import Pool
from services.meta import store
from services.meta.loops.elect_leader import Leadership

RUNTIME_DEAD_S = 600.0
BATCH_CHECKPOINTS_MAX = 2000  # of one shard


async def drop_expired_once(pool: Pool, leadership: Leadership, *, keep_hours: int) -> int:
    """Drop one batch if this process leads; return how many rows."""
    if leadership.leader() is None:
        return 0
    dropped, depth = await store.drop_expired(
        pool, runtime_dead_s=RUNTIME_DEAD_S, keep_hours=keep_hours, limit=BATCH_CHECKPOINTS_MAX
    )
    metrics.gauge("noetl_dlq_depth", depth, kind="command")
    return dropped

"""Record each shard's progress: one row a shard and tick, only when something advanced."""

from noetl_common import metrics
from noetl_common.db import Pool
from services.meta import store
from services.meta.loops.elect_leader import Leadership


async def write_checkpoints_once(pool: Pool, leadership: Leadership) -> int:
    """Write the checkpoints due if this process leads; return how many."""
    leader = leadership.leader()
    if leader is None:
        return 0
    advanced = await store.write_checkpoints(pool, leader)
    for shard_id, age_s in (await store.read_checkpoint_ages(pool)).items():
        metrics.gauge("noetl_checkpoint_age_seconds", age_s, shard=shard_id)
    return len(advanced)

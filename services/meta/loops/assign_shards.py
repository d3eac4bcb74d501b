"""Give shards that nobody holds to the processes alive, one shard a transaction, each with its next epoch."""

from noetl_common import metrics
from noetl_common.cluster import OPTIONAL_ROLES, SHARDED_ROLES
from noetl_common.core.assignment import plan
from noetl_common.db import Pool
from noetl_common.log import get_logger
from services.meta import store
from services.meta.loops.elect_leader import Leadership

log = get_logger(__name__)
ASSIGNMENTS_MAX = 128  # of one role in one tick


async def assign_shards_once(pool: Pool, leadership: Leadership) -> int:
    """Assign unheld shards if this process leads; return how many were assigned."""
    leader = leadership.leader()
    if leader is None:
        return 0
    # 1. gather
    shards, alive = await store.read_assignment(pool, leadership.lease_s)
    assigned = 0
    for role in SHARDED_ROLES:
        # 2. decide
        mine = {shard.shard_id: shard for shard in shards if shard.role == role}
        holders = {shard_id: shard.holder for shard_id, shard in mine.items() if shard.holder is not None}
        wanted = plan(mine, holders, alive[role])
        # 3. apply
        given: dict[int, str] = {}
        for shard_id, owner in list(wanted.items())[:ASSIGNMENTS_MAX]:
            if await store.assign(pool, leader, mine[shard_id], owner=owner, lease_s=leadership.lease_s):
                given[shard_id] = owner
                if mine[shard_id].epoch:
                    metrics.observe("noetl_shard_handover_seconds", mine[shard_id].unheld_s, role=role)
        is_wanted = role not in OPTIONAL_ROLES or bool(alive[role])
        unowned = len(mine) - len(holders) - len(given) if is_wanted else 0
        metrics.gauge("noetl_shards_unowned", unowned, role=role)
        if given:
            log.info("shards.assigned", shard_role=role, shards=given)
        assigned += len(given)
    return assigned

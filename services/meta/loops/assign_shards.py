"""Give shards that nobody holds to the processes alive, one shard a transaction, each with its next epoch."""

from collections.abc import Collection

from noetl_common import metrics
from noetl_common.bus import Bus
from noetl_common.cluster import OPTIONAL_ROLES, SHARDED_ROLES
from noetl_common.core.assignment import Replica, plan
from noetl_common.db import Pool
from noetl_common.leases import replica_of
from noetl_common.log import get_logger
from noetl_common.subjects import leases_bell
from services.meta import store
from services.meta.loops.elect_leader import Leadership
from services.meta.store import Look, Shard

log = get_logger(__name__)
ASSIGNMENTS_MAX = 128  # of one role in one tick
RUNG_EVERY = 8  # so many are given before the new owners are told: none waits for all


async def assign_shards_once(pool: Pool, leadership: Leadership, bus: Bus | None = None) -> int:
    """Assign what the last look saw unheld, if this process leads; return how many were assigned."""
    # 1. gather: the look that the election has just made
    seen, assigned = leadership.seen, 0
    if seen is None or leadership.leader() is None:
        return 0
    for role in SHARDED_ROLES:
        # 2. decide
        free, total, replicas = _situation(seen, role, leadership.dead)
        wanted = plan(free, total, replicas)
        # 3. apply
        given: dict[int, str] = {}
        for shard_id, owner in list(wanted.items())[:ASSIGNMENTS_MAX]:
            leader = leadership.leader()
            if leader is not None and await store.assign(
                pool, leader, free[shard_id], owner=owner, lease_s=leadership.lease_s, dead=leadership.dead
            ):
                given[shard_id] = owner
                _measure(free[shard_id], leadership.dead)
                if bus is not None and len(given) % RUNG_EVERY == 0:
                    await bus.publish(leases_bell(role))
        is_wanted = role not in OPTIONAL_ROLES or bool(replicas)
        metrics.gauge("noetl_shards_unowned", len(free) - len(given) if is_wanted else 0, role=role)
        if given:
            log.info("shards.assigned", shard_role=role, shards=given)
            if bus is not None:
                await bus.publish(leases_bell(role))
        assigned += len(given)
    return assigned


def _situation(seen: Look, role: str, dead: Collection[str]) -> tuple[dict[int, Shard], int, dict[str, Replica]]:
    """Return a role's shards without a living owner, how many shards it has, and who may get some."""
    free = {
        shard.shard_id: shard
        for shard in seen.free
        if shard.role == role and (shard.holder is None or shard.holder in dead)
    }
    held = {one.holder: one.shards for one in seen.holdings if one.role == role}
    replicas = {
        process.instance: replica_of(held.get(process.instance, 0), process.status)
        for process in seen.processes
        # One whose lock is missing is given nothing, before it is known to be dead.
        if process.role == role and not process.is_missing
    }
    return free, sum(held.values()), replicas


def _measure(shard: Shard, dead: Collection[str]) -> None:
    if not shard.epoch:
        cause = "first"
    elif shard.owner is None:
        cause = "released"
    else:
        cause = "dead" if shard.owner in dead else "expired"
    metrics.inc("noetl_shard_assignments_total", 1, role=shard.role, cause=cause)
    if shard.epoch and shard.unheld_s >= 0:
        metrics.observe("noetl_shard_handover_seconds", shard.unheld_s, role=shard.role)

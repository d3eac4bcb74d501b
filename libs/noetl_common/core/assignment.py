"""Who should own which shard: a sticky quota plan. Release, never theft: what a live owner holds is not touched."""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

# ready: has its share; cordoned: keeps what it has and gets nothing new; draining: what it has goes to others.
Standing = Literal["ready", "cordoned", "draining"]


class Replica(NamedTuple):
    """One living process of a role: how many shards it owns, and what an operator wants with it."""

    owned: int
    standing: Standing = "ready"


def quotas(shard_count: int, owned: Mapping[str, int]) -> dict[str, int]:
    """Return how many shards each live instance may own, given how many it owns now.

    Quotas differ by at most one and add up to `shard_count`; the larger ones go to those who own most already, so
    that the fewest shards move.
    """
    if not owned:
        return {}
    share, rest = divmod(shard_count, len(owned))
    ranked = sorted(owned, key=lambda instance: (-owned[instance], instance))
    return {instance: share + (place < rest) for place, instance in enumerate(ranked)}


def shares(shard_count: int, replicas: Mapping[str, Replica]) -> dict[str, int]:
    """Return how many shards each live instance should own: quotas for the ready ones, as the others' standing says.

    While nobody is ready nothing moves, and what has no owner goes to whoever is alive: no operator means to stop
    every run.
    """
    owned = {instance: replica.owned for instance, replica in replicas.items()}
    ready = {instance: owned[instance] for instance, replica in replicas.items() if replica.standing == "ready"}
    if not ready:
        return {instance: max(owned[instance], quota) for instance, quota in quotas(shard_count, owned).items()}
    kept = {instance: owned[instance] for instance, replica in replicas.items() if replica.standing == "cordoned"}
    return {**dict.fromkeys(replicas, 0), **kept, **quotas(max(0, shard_count - sum(kept.values())), ready)}


def plan(free: Collection[int], shard_count: int, replicas: Mapping[str, Replica]) -> dict[int, str]:
    """Return {shard: instance} for the shards nobody holds, so that no instance gets more than its share."""
    room = {instance: share - replicas[instance].owned for instance, share in shares(shard_count, replicas).items()}
    assigned: dict[int, str] = {}
    for shard in sorted(free):
        instance = max(sorted(room), key=room.__getitem__, default=None)
        if instance is None or room[instance] <= 0:
            break
        assigned[shard] = instance
        room[instance] -= 1
    return assigned


def surplus(mine: Collection[int], shard_count: int, *, me: str, replicas: Mapping[str, Replica]) -> list[int]:
    """Return the shards that `me` should release: what it owns over its share, the highest numbers first.

    `replicas` names every live instance, `me` too.
    """
    share = shares(shard_count, {**replicas, me: replicas[me]._replace(owned=len(mine))})[me]
    return sorted(mine, reverse=True)[: max(0, len(mine) - share)]

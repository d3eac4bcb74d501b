"""Who should own which shard: a sticky quota plan. Release, never theft: what a live owner holds is not touched."""

from collections.abc import Collection, Mapping


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


def plan(shards: Collection[int], owners: Mapping[int, str], live: Collection[str]) -> dict[int, str]:
    """Return {shard: instance} for the shards nobody holds, so that no instance gets more than its quota.

    Shapes: `owners` names only holders whose lease has not run out; `live` the instances that may get shards.
    """
    counts = dict.fromkeys(live, 0)
    for owner in owners.values():
        if owner in counts:
            counts[owner] += 1
    room = {instance: quota - counts[instance] for instance, quota in quotas(len(shards), counts).items()}
    assigned: dict[int, str] = {}
    for shard in sorted(set(shards) - set(owners)):
        instance = max(sorted(room), key=room.__getitem__, default=None)
        if instance is None:
            break
        assigned[shard] = instance
        room[instance] -= 1
    return assigned


def surplus(mine: Collection[int], shard_count: int, *, me: str, peers: Mapping[str, int]) -> list[int]:
    """Return the shards that `me` should release: what it owns over its quota, the highest numbers first."""
    quota = quotas(shard_count, {**peers, me: len(mine)})[me]
    return sorted(mine, reverse=True)[: max(0, len(mine) - quota)]

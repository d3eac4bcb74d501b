"""The assignment plan: balanced, sticky, and never theft."""

from hypothesis import given
from hypothesis import strategies as st

from noetl_common.core.assignment import plan, quotas, surplus

INSTANCES = ["a", "b", "c", "d", "e"]


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[int], dict[int, str], set[str]]:
    """Shards, who holds them (living or not), who lives."""
    shards = list(range(draw(st.sampled_from([1, 2, 4, 16, 64]))))
    holder = st.sampled_from([*INSTANCES, "dead", ""])
    owners = {shard: draw(holder) for shard in shards}
    live = draw(st.sets(st.sampled_from(INSTANCES)))
    return shards, {shard: owner for shard, owner in owners.items() if owner}, live


@given(situations())
def test_a_held_shard_is_never_taken(situation: tuple[list[int], dict[int, str], set[str]]) -> None:
    shards, owners, live = situation
    assert not set(plan(shards, owners, live)) & set(owners)


@given(situations())
def test_every_free_shard_gets_a_living_owner(situation: tuple[list[int], dict[int, str], set[str]]) -> None:
    shards, owners, live = situation
    assigned = plan(shards, owners, live)
    assert set(assigned.values()) <= live
    assert set(assigned) == (set(shards) - set(owners) if live else set())


@given(situations())
def test_nobody_is_given_more_than_the_quota(situation: tuple[list[int], dict[int, str], set[str]]) -> None:
    shards, owners, live = situation
    assigned = plan(shards, owners, live)
    for instance in set(assigned.values()):
        count = sum(owner == instance for owner in {**owners, **assigned}.values())
        assert count <= -(-len(shards) // len(live))


@given(st.integers(1, 256), st.dictionaries(st.sampled_from(INSTANCES), st.integers(0, 64), min_size=1))
def test_quotas_add_up_and_differ_by_at_most_one(shard_count: int, owned: dict[str, int]) -> None:
    found = quotas(shard_count, owned)
    assert sum(found.values()) == shard_count
    assert max(found.values()) - min(found.values()) <= 1


@given(situations())
def test_shedding_and_assigning_end_balanced_with_the_fewest_moves(
    situation: tuple[list[int], dict[int, str], set[str]],
) -> None:
    shards, owners, live = situation
    if not live:
        return
    owners = {shard: owner for shard, owner in owners.items() if owner in live}
    mine = {instance: [s for s, owner in owners.items() if owner == instance] for instance in live}
    ideal = quotas(len(shards), {instance: len(owned) for instance, owned in mine.items()})
    moves_min = sum(max(0, ideal[instance] - len(owned)) for instance, owned in mine.items())
    shed = {
        shard
        for me, owned in mine.items()
        for shard in surplus(
            owned, len(shards), me=me, peers={peer: len(theirs) for peer, theirs in mine.items() if peer != me}
        )
    }
    kept = {shard: owner for shard, owner in owners.items() if shard not in shed}
    assigned = plan(shards, kept, live)
    counts = [sum(owner == instance for owner in {**kept, **assigned}.values()) for instance in live]
    assert max(counts) - min(counts) <= 1
    assert len(assigned) == moves_min


def test_a_newcomer_gets_its_share_and_the_rest_stays() -> None:
    assert surplus(range(16), 16, me="a", peers={"b": 0}) == [15, 14, 13, 12, 11, 10, 9, 8]
    kept = dict.fromkeys(range(8), "a")
    assert plan(range(16), kept, {"a", "b"}) == dict.fromkeys(range(8, 16), "b")


def test_without_anyone_alive_nothing_is_assigned() -> None:
    assert plan(range(4), {}, set()) == {}
    assert quotas(4, {}) == {}

"""The assignment plan: balanced, sticky, and never theft; and who counts as dead."""

from hypothesis import given
from hypothesis import strategies as st

from noetl_common.core import liveness
from noetl_common.core.assignment import Replica, Standing, plan, quotas, shares, surplus

INSTANCES = ["a", "b", "c", "d", "e"]
STANDINGS: list[Standing] = ["ready", "cordoned", "draining"]


class Situation:
    """Shards, who holds them (living or not), who lives and how they stand."""

    def __init__(self, count: int, owners: dict[int, str], standings: dict[str, Standing]) -> None:
        self.count = count
        self.owners = owners
        self.standings = standings

    def replicas(self) -> dict[str, Replica]:
        held = list(self.owners.values())
        return {instance: Replica(held.count(instance), standing) for instance, standing in self.standings.items()}

    def free(self) -> list[int]:
        return sorted(set(range(self.count)) - set(self.owners))

    def shed(self) -> int:
        """Every living owner releases what is over its share; return how many that were."""
        replicas = self.replicas()
        over = [
            shard
            for me in replicas
            for shard in surplus(
                [s for s, owner in self.owners.items() if owner == me], self.count, me=me, replicas=replicas
            )
        ]
        for shard in over:
            del self.owners[shard]
        return len(over)

    def assign(self) -> dict[int, str]:
        given = plan(self.free(), self.count, self.replicas())
        self.owners |= given
        return given


@st.composite
def situations(draw: st.DrawFn, *, only_ready: bool = False) -> Situation:
    count = draw(st.sampled_from([1, 2, 4, 16, 64]))
    holder = st.sampled_from([*INSTANCES, "dead", ""])
    owners = {shard: draw(holder) for shard in range(count)}
    standing = st.just("ready") if only_ready else st.sampled_from(STANDINGS)
    living: dict[str, Standing] = draw(st.dictionaries(st.sampled_from(INSTANCES), standing, min_size=1))
    return Situation(count, {shard: owner for shard, owner in owners.items() if owner}, living)


@given(situations())
def test_a_held_shard_is_never_taken(situation: Situation) -> None:
    before = set(situation.owners)
    assert not set(situation.assign()) & before


@given(situations())
def test_every_free_shard_gets_a_living_owner(situation: Situation) -> None:
    free = situation.free()
    given_ = situation.assign()
    assert sorted(given_) == free and set(given_.values()) <= set(situation.standings)


@given(situations())
def test_nobody_is_given_more_than_its_share(situation: Situation) -> None:
    share = shares(situation.count, situation.replicas())
    for instance in set(situation.assign().values()):
        assert situation.replicas()[instance].owned <= share[instance]


@given(situations())
def test_a_cordoned_or_draining_replica_gets_nothing_while_another_is_ready(situation: Situation) -> None:
    given_ = situation.assign()
    if "ready" in situation.standings.values():
        assert {situation.standings[instance] for instance in given_.values()} <= {"ready"}


@given(situations())
def test_a_draining_replica_ends_empty_and_a_cordoned_one_keeps_what_it_has(situation: Situation) -> None:
    if "ready" not in situation.standings.values():
        return
    before = situation.replicas()
    situation.shed()
    situation.assign()
    for instance, replica in situation.replicas().items():
        if replica.standing == "draining":
            assert replica.owned == 0
        if replica.standing == "cordoned":
            assert replica.owned == before[instance].owned


@given(situations())
def test_while_nobody_is_ready_nothing_moves(situation: Situation) -> None:
    if "ready" not in situation.standings.values():
        assert situation.shed() == 0


@given(situations())
def test_a_second_round_moves_nothing(situation: Situation) -> None:
    situation.owners = {shard: owner for shard, owner in situation.owners.items() if owner in situation.standings}
    situation.shed()
    situation.assign()
    assert situation.shed() == 0 and situation.assign() == {}


@given(st.integers(1, 256), st.dictionaries(st.sampled_from(INSTANCES), st.integers(0, 64), min_size=1))
def test_quotas_add_up_and_differ_by_at_most_one(shard_count: int, owned: dict[str, int]) -> None:
    found = quotas(shard_count, owned)
    assert sum(found.values()) == shard_count
    assert max(found.values()) - min(found.values()) <= 1


@given(situations(only_ready=True))
def test_shedding_and_assigning_end_balanced_with_the_fewest_moves(situation: Situation) -> None:
    situation.owners = {shard: owner for shard, owner in situation.owners.items() if owner in situation.standings}
    owned = {instance: replica.owned for instance, replica in situation.replicas().items()}
    ideal = quotas(situation.count, owned)
    moves_min = sum(max(0, ideal[instance] - count) for instance, count in owned.items())
    situation.shed()
    assert len(situation.assign()) == moves_min
    counts = [replica.owned for replica in situation.replicas().values()]
    assert max(counts) - min(counts) <= 1


def test_a_newcomer_gets_its_share_and_the_rest_stays() -> None:
    replicas = {"a": Replica(16), "b": Replica(0)}
    assert surplus(range(16), 16, me="a", replicas=replicas) == [15, 14, 13, 12, 11, 10, 9, 8]
    assert plan(range(8, 16), 16, {"a": Replica(8), "b": Replica(0)}) == dict.fromkeys(range(8, 16), "b")


def test_without_anyone_alive_nothing_is_assigned() -> None:
    assert plan(range(4), 4, {}) == {}
    assert quotas(4, {}) == {}


def look(since_s: dict[str, float], missing: set[str], now_s: float, *, postgres_age_s: float = 60.0) -> set[str]:
    """Look once; `since_s` is what the looks before remember."""
    found = liveness.still_missing(since_s, missing, now_s)
    since_s.clear()
    since_s |= found
    return liveness.dead(since_s, now_s=now_s, postgres_age_s=postgres_age_s)


def test_one_look_kills_nobody_and_two_apart_do() -> None:
    since_s: dict[str, float] = {}
    assert look(since_s, {"a"}, 10.0) == set()
    assert look(since_s, {"a"}, 10.2) == set()
    assert look(since_s, {"a"}, 10.3) == {"a"}


def test_a_lock_that_was_back_in_between_counts_anew() -> None:
    since_s: dict[str, float] = {}
    look(since_s, {"a"}, 10.0)
    look(since_s, set(), 10.2)
    assert look(since_s, {"a"}, 10.4) == set()


def test_nobody_is_dead_because_postgres_was_started_again() -> None:
    since_s: dict[str, float] = {}
    assert look(since_s, {"a", "b"}, 10.0, postgres_age_s=0.5) == set()
    assert look(since_s, {"a", "b"}, 19.0, postgres_age_s=9.5) == set()
    assert look(since_s, {"b"}, 20.0, postgres_age_s=10.5) == {"b"}

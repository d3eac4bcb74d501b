"""Leases: learned from the database, trusted only by the own clock, given back when over quota."""

import asyncio

from noetl_common.clock import SystemClock
from noetl_common.db import Pool
from noetl_common.leases import EXPECTING_PAUSE_S, EXPECTING_S, MARGIN_S, Leases
from tests.histories import execute, own, rows
from tests.running import wait_until
from tests.servers import SHARD_COUNT

FREE = "SELECT shard_id FROM noetl.execution_shard WHERE role = 'ingest' AND owner_instance IS NULL"


class HandClock(SystemClock):
    """A clock whose monotonic time stands until a test moves it."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def monotonic_s(self) -> float:
        return self.at_s


def leases_of(pool: Pool, instance: str, *, clock: HandClock | None = None, lease_s: float = 4.0) -> Leases:
    return Leases(pool, role="ingest", instance=instance, lease_s=lease_s, clock=clock or HandClock())


async def test_a_renewal_learns_what_was_assigned_and_what_was_taken(pool: Pool) -> None:
    leases = leases_of(pool, "a")
    assert await leases.renew_once() == 0 and leases.owned() == {}
    await own(pool, role="ingest", instance="a")
    assert await leases.renew_once() == SHARD_COUNT
    assert leases.owned() == dict.fromkeys(range(SHARD_COUNT), 1)
    assert leases.changed.is_set()
    await execute(
        pool, "UPDATE noetl.execution_shard SET owner_instance = 'b', epoch = 2 WHERE role = 'ingest' AND shard_id = 3"
    )
    leases.changed.clear()
    assert await leases.renew_once() == 1
    assert 3 not in leases.owned() and leases.changed.is_set()


async def test_a_new_epoch_of_the_same_owner_is_a_change(pool: Pool) -> None:
    leases = leases_of(pool, "a")
    await own(pool, role="ingest", instance="a")
    await leases.renew_once()
    await execute(pool, "UPDATE noetl.execution_shard SET epoch = 7 WHERE role = 'ingest' AND shard_id = 3")
    assert await leases.renew_once() == 1
    assert leases.owned()[3] == 7


async def test_an_owner_stops_by_its_own_clock_before_the_lease_can_have_run_out(pool: Pool) -> None:
    clock = HandClock()
    leases = leases_of(pool, "a", clock=clock)
    await own(pool, role="ingest", instance="a")
    await leases.renew_once()
    clock.at_s += 4.0 - MARGIN_S - 0.01
    assert len(leases.owned()) == SHARD_COUNT
    clock.at_s += 0.02
    assert leases.owned() == {}


async def test_a_renewal_moves_the_lease_by_the_clock_of_the_database(pool: Pool) -> None:
    leases = leases_of(pool, "a", lease_s=40.0)
    await own(pool, role="ingest", instance="a", lease_s=1.0)
    await leases.renew_once()
    query = "SELECT count(*) AS n FROM noetl.execution_shard WHERE leased_until > clock_timestamp() + '30 s'::interval"
    assert await rows(pool, query) == [{"n": SHARD_COUNT}]


async def test_a_forgotten_shard_comes_back_with_the_next_renewal(pool: Pool) -> None:
    leases = leases_of(pool, "a")
    await own(pool, role="ingest", instance="a")
    await leases.renew_once()
    leases.forget(5)
    assert 5 not in leases.owned()
    await leases.renew_once()
    assert leases.owned()[5] == 1


async def test_an_owner_over_its_quota_gives_shards_back_a_few_at_a_time(pool: Pool) -> None:
    old, new = leases_of(pool, "old"), leases_of(pool, "new")
    await own(pool, role="ingest", instance="old")
    await own(pool, role="meta", instance="leader")
    await old.renew_once()
    await new.renew_once()
    counts = []
    for _ in range(4):
        await old.renew_once()
        counts.append(len(old.owned()))
    assert counts == [12, 8, 8, 8]
    free = await rows(pool, "SELECT 1 FROM noetl.execution_shard WHERE role = 'ingest' AND owner_instance IS NULL")
    assert len(free) == 8


async def test_nothing_is_given_back_while_nobody_assigns(pool: Pool) -> None:
    old, new = leases_of(pool, "old"), leases_of(pool, "new")
    await own(pool, role="ingest", instance="old")
    await old.renew_once()
    await new.renew_once()
    await old.renew_once()
    assert len(old.owned()) == SHARD_COUNT


async def test_a_dead_peer_does_not_count(pool: Pool) -> None:
    old, dead = leases_of(pool, "old"), leases_of(pool, "dead")
    await own(pool, role="ingest", instance="old")
    await own(pool, role="meta", instance="leader")
    await dead.renew_once()
    await execute(pool, "UPDATE noetl.runtime SET heartbeat = heartbeat - '5 s'::interval WHERE name = 'dead'")
    await old.renew_once()
    assert len(old.owned()) == SHARD_COUNT


async def test_a_process_that_lacks_shards_asks_often_but_not_for_ever(pool: Pool) -> None:
    clock = HandClock()
    leases = leases_of(pool, "a", clock=clock)
    await leases.renew_once()
    assert leases.pause_s() == EXPECTING_PAUSE_S
    clock.at_s += EXPECTING_S
    assert leases.pause_s() == 1.0
    await own(pool, role="ingest", instance="a")
    await leases.renew_once()
    assert leases.pause_s() == 1.0


async def test_a_draining_owner_gives_everything_to_the_others_and_a_cordoned_one_nothing(pool: Pool) -> None:
    old, new = leases_of(pool, "old"), leases_of(pool, "new")
    await own(pool, role="ingest", instance="old")
    await own(pool, role="meta", instance="leader")
    await old.renew_once()
    await new.renew_once()
    await execute(pool, "UPDATE noetl.runtime SET status = 'cordoned' WHERE name = 'old'")
    await old.renew_once()
    assert len(old.owned()) == SHARD_COUNT
    await execute(pool, "UPDATE noetl.runtime SET status = 'draining' WHERE name = 'old'")
    for left in (12, 8, 4, 0):
        await old.renew_once()
        assert len(old.owned()) == left


async def test_a_planned_hand_over_waits_for_the_batch_under_way_and_begins_no_other(pool: Pool) -> None:
    old, new = leases_of(pool, "old"), leases_of(pool, "new")
    await own(pool, role="ingest", instance="old")
    await own(pool, role="meta", instance="leader")
    await old.renew_once()
    await new.renew_once()
    with old.at_work(15):
        shedding = asyncio.create_task(old.renew_once())
        await wait_until(lambda: 15 not in old.owned(), what="nothing new begins")
        assert await rows(pool, FREE) == []
    assert await shedding == 4
    assert len(await rows(pool, FREE)) == 4


async def test_a_shard_whose_batch_does_not_end_is_given_back_later(pool: Pool) -> None:
    old, new = leases_of(pool, "old"), leases_of(pool, "new")
    await own(pool, role="ingest", instance="old")
    await own(pool, role="meta", instance="leader")
    await old.renew_once()
    await new.renew_once()
    with old.at_work(15):
        assert await old.renew_once() == 3
        assert 15 not in [row["shard_id"] for row in await rows(pool, FREE)]
    await old.renew_once()
    assert 15 in [row["shard_id"] for row in await rows(pool, FREE)]


async def test_a_planned_stop_leaves_every_shard_free_and_no_trace(pool: Pool) -> None:
    leases = leases_of(pool, "a")
    await own(pool, role="ingest", instance="a")
    await leases.renew_once()
    await leases.release_all()
    assert leases.owned() == {}
    assert await rows(pool, "SELECT 1 FROM noetl.execution_shard WHERE owner_instance = 'a'") == []
    assert await rows(pool, "SELECT 1 FROM noetl.runtime WHERE name = 'a'") == []

"""meta: one leader, who assigns shards with their fence, records progress and takes back what lost workers held."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from noetl_common import metrics
from noetl_common.clock import SystemClock
from noetl_common.core import liveness
from noetl_common.core.shard import last_id
from noetl_common.db import Pool
from noetl_common.leases import Leases
from noetl_common.session_lock import runtime_id_of, session_lock, session_name
from services.meta.loops.assign_shards import assign_shards_once
from services.meta.loops.create_partitions import create_partitions_once
from services.meta.loops.drop_expired import drop_expired_once
from services.meta.loops.elect_leader import BID_PAUSE_S, Leadership, elect_leader_once, resign
from services.meta.loops.write_checkpoints import write_checkpoints_once
from tests.histories import execute, make_execution, report, routed, rows
from tests.running import wait_until
from tests.servers import PARTITION_WIDTH_HOURS, SHARD_COUNT


def candidate(instance: str, *, lease_s: float = 4.0) -> Leadership:
    return Leadership(instance=instance, lease_s=lease_s, clock=SystemClock())


async def elected(pool: Pool, instance: str = "m") -> Leadership:
    leadership = candidate(instance)
    assert await elect_leader_once(pool, leadership) == 1
    return leadership


def leases_of(pool: Pool, role: str, instance: str) -> Leases:
    return Leases(pool, role=role, instance=instance, lease_s=4.0, clock=SystemClock())


async def tick(pool: Pool, leadership: Leadership) -> int:
    """Look, and assign what was seen; return how many shards."""
    await elect_leader_once(pool, leadership)
    return await assign_shards_once(pool, leadership)


async def test_one_of_two_leads_until_it_resigns(pool: Pool) -> None:
    first, second = await elected(pool, "first"), candidate("second")
    await elect_leader_once(pool, second)
    assert first.leader() == ("first", 1) and second.leader() is None
    await resign(pool, first)
    await elect_leader_once(pool, second)
    assert first.leader() is None and second.leader() == ("second", 2)


async def test_a_leader_that_shows_no_sign_of_life_is_replaced_and_fenced(pool: Pool) -> None:
    first, second = await elected(pool, "first"), candidate("second")
    await execute(
        pool,
        "UPDATE noetl.execution_shard SET leased_until = clock_timestamp() - '1 ms'::interval WHERE role = 'meta'",
    )
    assert await elect_leader_once(pool, second) == 1
    await leases_of(pool, "ingest", "a").renew_once()
    assert first.leader() is not None, "by its own clock it still leads"
    await elect_leader_once(pool, second)
    first.seen = second.seen
    assert await assign_shards_once(pool, first) == 0
    assert await write_checkpoints_once(pool, first) == 0
    assert await assign_shards_once(pool, second) == SHARD_COUNT


async def test_an_assignment_moves_the_epoch_into_the_fence(pool: Pool) -> None:
    leadership = await elected(pool)
    ingest, compute = leases_of(pool, "ingest", "i"), leases_of(pool, "compute", "c")
    await ingest.renew_once()
    await compute.renew_once()
    assert await tick(pool, leadership) == 2 * SHARD_COUNT
    assert await tick(pool, leadership) == 0
    for leases in (ingest, compute):
        await leases.renew_once()
        assert leases.owned() == dict.fromkeys(range(SHARD_COUNT), 1)
    assert await rows(pool, "SELECT DISTINCT lease_epoch FROM noetl.shard_cursor") == [{"lease_epoch": 1}]
    assert await rows(pool, "SELECT DISTINCT lease_epoch FROM noetl.projection_checkpoint") == [{"lease_epoch": 1}]
    assert metrics.value("noetl_shards_unowned", role="ingest") == 0


async def test_shards_of_the_dead_go_to_the_living_with_the_next_epoch(pool: Pool) -> None:
    leadership = await elected(pool)
    dead, living = leases_of(pool, "ingest", "dead"), leases_of(pool, "ingest", "living")
    await dead.renew_once()
    await tick(pool, leadership)
    await living.renew_once()
    assert await tick(pool, leadership) == 0, "a living owner is not robbed"
    await execute(
        pool,
        "UPDATE noetl.execution_shard SET leased_until = clock_timestamp() - '1 ms'::interval WHERE role = 'ingest'",
    )
    await execute(pool, "UPDATE noetl.runtime SET heartbeat = heartbeat - '5 s'::interval WHERE name = 'dead'")
    assert await tick(pool, leadership) == SHARD_COUNT
    await living.renew_once()
    assert living.owned() == dict.fromkeys(range(SHARD_COUNT), 2)
    await dead.renew_once()
    assert dead.owned() == {}


async def test_a_newcomer_has_its_share_after_a_few_rounds(pool: Pool) -> None:
    leadership = await elected(pool)
    three = [leases_of(pool, "ingest", name) for name in "abc"]
    await three[0].renew_once()
    await tick(pool, leadership)
    for _ in range(5):
        for leases in three:
            await leases.renew_once()
        await tick(pool, leadership)
    for leases in three:
        await leases.renew_once()
    assert sorted(len(leases.owned()) for leases in three) == [5, 5, 6]


@asynccontextmanager
async def alive(dsn: str, pool: Pool, role: str, instance: str) -> AsyncIterator[Leases]:
    """A process that holds its session lock and says so; the lock is gone at the end, and nothing else."""
    async with session_lock(dsn, role=role, instance=instance, is_wanted=True) as lock:
        assert lock is not None
        await wait_until(lambda: lock.is_held, what="the session lock")
        leases = Leases(pool, role=role, instance=instance, lease_s=4.0, clock=SystemClock(), lock=lock)
        await leases.renew_once()
        yield leases


async def test_a_process_whose_session_lock_is_gone_is_dead_at_the_second_look(
    dsn: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "POSTGRES_AGE_MIN_S", 0.0)
    leadership = await elected(pool)
    living = leases_of(pool, "ingest", "living")
    async with alive(dsn, pool, "ingest", "killed") as killed:
        assert await tick(pool, leadership) == SHARD_COUNT
        await killed.renew_once()
        await living.renew_once()
    assert await tick(pool, leadership) == 0, "one look is not enough"
    assert leadership.pause_s() == liveness.LOOKS_APART_S
    await asyncio.sleep(liveness.LOOKS_APART_S)
    assert await tick(pool, leadership) == SHARD_COUNT
    await living.renew_once()
    assert living.owned() == dict.fromkeys(range(SHARD_COUNT), 2), "its lease of 4 s has not run out"
    assert metrics.value("noetl_shard_assignments_total", role="ingest", cause="dead") >= SHARD_COUNT


async def test_a_missing_lock_means_nothing_just_after_postgres_started(
    dsn: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "POSTGRES_AGE_MIN_S", 1e9)
    leadership = await elected(pool)
    async with alive(dsn, pool, "ingest", "cut-off"):
        await tick(pool, leadership)
    await leases_of(pool, "ingest", "living").renew_once()
    for _ in range(2):
        assert await tick(pool, leadership) == 0
        await asyncio.sleep(liveness.LOOKS_APART_S)


async def test_a_process_without_a_session_lock_is_never_taken_for_dead(pool: Pool) -> None:
    leadership = await elected(pool)
    await leases_of(pool, "ingest", "unlocked").renew_once()
    assert await tick(pool, leadership) == SHARD_COUNT
    await leases_of(pool, "ingest", "other").renew_once()
    for _ in range(2):
        assert await tick(pool, leadership) == 0
        await asyncio.sleep(liveness.LOOKS_APART_S)


async def test_a_leader_whose_session_lock_is_gone_is_replaced_before_its_lease_runs_out(
    dsn: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "POSTGRES_AGE_MIN_S", 0.0)
    second = candidate("second")
    async with session_lock(dsn, role="meta", instance="first", is_wanted=True) as lock:
        assert lock is not None
        await wait_until(lambda: lock.is_held, what="the session lock")
        first = Leadership(instance="first", lease_s=60.0, clock=SystemClock(), lock=lock)
        assert await elect_leader_once(pool, first) == 1
        assert await elect_leader_once(pool, second) == 0
    await elect_leader_once(pool, second)
    await asyncio.sleep(liveness.LOOKS_APART_S)
    await elect_leader_once(pool, second)
    assert second.dead == {"first"} and second.pause_s() == BID_PAUSE_S
    assert await elect_leader_once(pool, second) == 1


async def test_a_session_lock_that_was_cut_is_held_again_before_anyone_looks_twice(dsn: str, pool: Pool) -> None:
    async with session_lock(dsn, role="ingest", instance="a", is_wanted=True) as lock:
        assert lock is not None
        await wait_until(lambda: lock.is_held, what="the session lock")
        holders = (
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND ((classid::bigint << 32) | objid::bigint) = %s"
        )
        key = runtime_id_of("ingest", "a")
        (before,) = await rows(pool, holders, key)
        began_s = asyncio.get_running_loop().time()
        await rows(pool, "SELECT pg_terminate_backend(%s)", before["pid"])

        async def is_back() -> bool:
            found = await rows(pool, holders, key)
            return bool(found) and found != [before]

        await wait_until(is_back, what="a new session with the lock")
        assert asyncio.get_running_loop().time() - began_s < liveness.LOOKS_APART_S + 0.7
        await wait_until(lambda: lock.is_held, what="the process knows")


async def test_a_shard_whose_old_owner_hangs_in_a_transaction_waits_and_the_others_do_not(pool: Pool) -> None:
    leadership = await elected(pool)
    await leases_of(pool, "ingest", "a").renew_once()
    async with pool.connection() as frozen, frozen.transaction():
        await frozen.execute("SELECT FROM noetl.shard_cursor WHERE shard_id = 3 FOR UPDATE")
        assert await tick(pool, leadership) == SHARD_COUNT - 1
    assert await tick(pool, leadership) == 1


async def test_the_sessions_of_a_frozen_owner_are_ended_with_its_lease(dsn: str, pool: Pool) -> None:
    leadership = await elected(pool)
    await leases_of(pool, "ingest", "frozen").renew_once()
    assert await tick(pool, leadership) == SHARD_COUNT
    name = session_name("ingest-background", role="ingest", instance="frozen")
    frozen = await psycopg.AsyncConnection.connect(dsn, application_name=name)
    with pytest.raises(psycopg.OperationalError, match="connection"):
        async with frozen, frozen.pipeline() as pipeline:
            await frozen.execute("SELECT FROM noetl.shard_cursor WHERE shard_id = 3 FOR UPDATE")
            await pipeline.sync()
            await frozen.execute("SELECT 1")  # and no sync: to Postgres it is at work, not idle
            leased_until = "UPDATE noetl.execution_shard SET leased_until = clock_timestamp() - '1 ms'::interval"
            await execute(pool, f"{leased_until} WHERE role = 'ingest'")
            await execute(
                pool, "UPDATE noetl.runtime SET heartbeat = heartbeat - '5 s'::interval WHERE kind = 'ingest'"
            )
            await leases_of(pool, "ingest", "living").renew_once()
            assert await tick(pool, leadership) == SHARD_COUNT, "its transaction held up nothing"
            assert leadership.cut_off == {"frozen"}


async def test_a_checkpoint_is_written_only_when_a_shard_advanced(pool: Pool) -> None:
    leadership = await elected(pool)
    assert await write_checkpoints_once(pool, leadership) == 0
    execution_id = await make_execution(pool, 2)
    await routed(pool, 2, report(execution_id, 1))
    assert await write_checkpoints_once(pool, leadership) == 1
    assert await write_checkpoints_once(pool, leadership) == 0
    await execute(
        pool, "UPDATE noetl.projection_checkpoint SET last_projected_event_id = %s WHERE shard_id = 2", last_id(2, 1)
    )
    assert await write_checkpoints_once(pool, leadership) == 1
    found = await rows(
        pool, "SELECT shard_id, routed_seq, projected_seq, head_seq FROM noetl.checkpoint ORDER BY checkpoint_id"
    )
    assert [tuple(row.values()) for row in found] == [(2, 1, 0, 1), (2, 1, 1, 1)]


async def test_old_checkpoints_and_dead_processes_are_dropped(pool: Pool) -> None:
    leadership = await elected(pool)
    await execute(
        pool,
        "INSERT INTO noetl.checkpoint (shard_id, epoch, routed_seq, projected_seq, head_seq, committed_at)"
        " SELECT 1, 1, n, n, n, clock_timestamp() - make_interval(hours => 26 - n) FROM generate_series(1, 4) n",
    )
    await leases_of(pool, "ingest", "gone").renew_once()
    await execute(pool, "UPDATE noetl.runtime SET heartbeat = heartbeat - '11 min'::interval WHERE name = 'gone'")
    assert await drop_expired_once(pool, leadership, keep_hours=24) == 1 + 2
    assert await rows(pool, "SELECT name FROM noetl.runtime") == [{"name": "m"}]


async def test_only_the_leader_makes_partitions_and_shows_how_many_are_ahead(pool: Pool) -> None:
    assert await create_partitions_once(pool, candidate("x"), width_hours=PARTITION_WIDTH_HOURS, ahead=4) == 0
    leadership = await elected(pool)
    assert await create_partitions_once(pool, leadership, width_hours=PARTITION_WIDTH_HOURS, ahead=4) == 4
    assert metrics.value("noetl_partitions_ahead", table="event") == 4


@pytest.mark.parametrize("bidders", [5])
async def test_of_many_bidders_at_once_exactly_one_leads(pool: Pool, bidders: int) -> None:
    candidates = [candidate(f"m{number}") for number in range(bidders)]
    won = await asyncio.gather(*(elect_leader_once(pool, one) for one in candidates))
    assert sum(won) == 1
    assert sum(one.leader() is not None for one in candidates) == 1

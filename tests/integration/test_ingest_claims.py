"""The queue: who gets which command, leases, held claims."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl_common.bus import MemoryBus
from noetl_common.core.commands import TURN_S
from noetl_common.db import Pool, open_pool, transaction
from noetl_common.subjects import commands_bell
from noetl_common.wire import Claim, Heartbeat
from services.ingest.bells import PoolBells
from services.ingest.claims import Claims
from services.ingest.starts import Asked
from services.ingest.store import SQL
from tests.ingesting import Recorder, appender_on, issue, report_of, rows_of, started
from tests.routing import Bench, register_text
from tests.running import wait_until


@pytest.fixture
def bells() -> PoolBells:
    return PoolBells()


@pytest.fixture
def claims(pool: Pool, bells: PoolBells) -> Claims:
    return Claims(pool, bells, lease_s=15)


async def test_no_command_is_claimed_twice(pool: Pool, claims: Claims) -> None:
    await issue(pool, await started(appender_on(pool, Recorder())), count=200)
    answers = await asyncio.gather(*(claims.claim(Claim(worker_id=f"w{i}", max=25)) for i in range(8)))
    got = [one.command_id for answer in answers for one in answer.commands]
    while more := (await claims.claim(Claim(worker_id="w", max=25))).commands:
        got += [one.command_id for one in more]
    assert len(got) == len(set(got)) == 200


async def test_urgent_commands_come_first(pool: Pool, claims: Claims) -> None:
    execution_id = await started(appender_on(pool, Recorder()))
    await issue(pool, execution_id, step="late")
    await issue(pool, execution_id, step="urgent", priority=5, ord_from=10)
    answer = await claims.claim(Claim(worker_id="w", max=2))
    assert [one.step for one in answer.commands] == ["urgent", "late"]
    assert [one.attempt for one in answer.commands] == [1, 1]


async def test_a_command_that_cost_a_lease_is_claimed_alone(pool: Pool, claims: Claims) -> None:
    execution_id = await started(appender_on(pool, Recorder()))
    await issue(pool, execution_id, step="first")
    await issue(pool, execution_id, step="suspect", crash_count=1, ord_from=10)
    await issue(pool, execution_id, step="third", ord_from=20)
    first = await claims.claim(Claim(worker_id="w", max=10))
    second = await claims.claim(Claim(worker_id="w", max=10))
    assert [one.step for one in first.commands] == ["first", "third"]
    assert [one.step for one in second.commands] == ["suspect"]


async def test_only_waiting_commands_of_the_pool_are_claimed(pool: Pool, claims: Claims) -> None:
    execution_id = await started(appender_on(pool, Recorder()))
    await issue(pool, execution_id, step="other", pool_name="gpu")
    [delayed] = await issue(pool, execution_id, step="delayed", ord_from=10)
    [cancelled] = await issue(pool, execution_id, step="cancelled", ord_from=20)
    async with pool.connection() as conn:
        await conn.execute(
            "UPDATE noetl.command SET available_at = clock_timestamp() + interval '1 h' WHERE command_id = %s",
            [delayed],
        )
        await conn.execute("UPDATE noetl.command SET status = 'cancelled' WHERE command_id = %s", [cancelled])
    assert (await claims.claim(Claim(worker_id="w", max=10))).commands == []
    assert len((await claims.claim(Claim(worker_id="w", pool="gpu", max=10))).commands) == 1


async def test_a_held_claim_ends_at_the_bell_and_asks_nothing_meanwhile(
    pool: Pool, claims: Claims, bells: PoolBells
) -> None:
    bus = MemoryBus()
    await bus.subscribe("noetl.commands.*", bells.on_message)
    execution_id = await started(appender_on(pool, Recorder()))
    waiting = asyncio.create_task(claims.claim(Claim(worker_id="w", pool="a.b", max=5, wait_s=5)))
    await wait_until(lambda: bells.waiting("a.b"), what="a held claim")
    await issue(pool, execution_id, pool_name="a.b")
    assert not waiting.done()
    await bus.publish(commands_bell("a.b"))
    async with asyncio.timeout(2):
        assert len((await waiting).commands) == 1
    await bus.close()


async def test_a_ring_between_looking_and_waiting_is_not_lost(bells: PoolBells) -> None:
    mark = bells.mark("p")
    bells.ring("p")
    assert await bells.wait("p", 5, since=mark)
    assert not await bells.wait("p", 0.01)


async def test_a_heartbeat_renews_and_tells_what_is_cancelled_or_lost(pool: Pool, claims: Claims) -> None:
    appender = appender_on(pool, Recorder())
    await issue(pool, await started(appender), count=4)
    kept, cancelled, lost, done = (await claims.claim(Claim(worker_id="w", max=4))).commands
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.command SET lease_until = clock_timestamp()")
        await conn.execute(
            "UPDATE noetl.command SET cancel_requested = true WHERE command_id = %s", [cancelled.command_id]
        )
        await conn.execute("UPDATE noetl.command SET claim_token = 1 WHERE command_id = %s", [lost.command_id])
    await appender.report("w", [report_of(done)])
    leases = [(one.execution_id, one.command_id, one.claim_token) for one in (kept, cancelled, lost, done)]
    beat = Heartbeat(worker_id="w", leases=[*leases, (1, 2, 3)], active=4, capacity=8)
    answer = await claims.heartbeat(beat)
    assert answer.cancelled == [cancelled.command_id]
    assert sorted(answer.lost) == sorted([lost.command_id, done.command_id, 2])
    rows = await rows_of(pool, "SELECT command_id FROM noetl.command WHERE lease_until > clock_timestamp()")
    assert {row["command_id"] for row in rows} == {kept.command_id, cancelled.command_id}
    [worker] = await rows_of(pool, "SELECT active, capacity FROM noetl.runtime WHERE kind = 'worker_pool'")
    assert worker == {"active": 4, "capacity": 8}


async def test_a_lease_row_that_someone_holds_is_neither_lost_nor_renewed(pool: Pool, claims: Claims) -> None:
    await issue(pool, await started(appender_on(pool, Recorder())))
    [command] = (await claims.claim(Claim(worker_id="w", max=1))).commands
    beat = Heartbeat(worker_id="w", leases=[(command.execution_id, command.command_id, command.claim_token)])
    async with pool.connection() as conn, conn.transaction():
        await conn.execute("SELECT 1 FROM noetl.command FOR UPDATE")
        answer = await claims.heartbeat(beat)
    assert (answer.cancelled, answer.lost) == ([], [])


async def test_nothing_is_leased_to_a_client_that_went_away(pool: Pool, claims: Claims, bells: PoolBells) -> None:
    execution_id = await started(appender_on(pool, Recorder()))

    async def is_gone() -> bool:
        return True

    waiting = asyncio.create_task(claims.claim(Claim(worker_id="w", max=5, wait_s=5), is_gone=is_gone))
    await wait_until(lambda: bells.waiting("default"), what="a held claim")
    await issue(pool, execution_id)
    bells.ring("default")
    assert (await waiting).commands == []
    assert (await rows_of(pool, "SELECT status FROM noetl.command")) == [{"status": "pending"}]


async def test_a_run_of_one_step_is_claimed_before_the_window_of_a_loop(pool: Pool, tmp_path: Path) -> None:
    bench = Bench(pool, tmp_path)
    await register_text(pool, LOOP)
    await register_text(pool, ONE_STEP)
    began_s = time.monotonic()
    loop = await bench.start("tests/loop")
    await bench.route()
    alone = await bench.start("tests/one")
    await bench.route()
    waited_s = time.monotonic() - began_s
    claimed = await bench.claim(256)
    place = [one.execution_id for one in claimed].index(alone)
    assert place * TURN_S <= waited_s  # only what had waited that long already comes before it
    others = [one for one in claimed if one.execution_id == loop]
    assert [one.iter_index for one in others] == list(range(255))  # a loop's own items keep their order


async def test_two_loops_share_the_workers_evenly(pool: Pool, tmp_path: Path) -> None:
    bench = Bench(pool, tmp_path)
    await register_text(pool, LOOP)
    loops = [await bench.start("tests/loop") for _ in range(2)]
    await bench.route()
    claimed = [one.execution_id for _ in range(4) for one in await bench.claim(100)]
    shares = [claimed.count(loop) for loop in loops]
    assert sum(shares) == 400 and min(shares) > 150


async def test_a_priority_goes_before_every_turn(pool: Pool, tmp_path: Path) -> None:
    bench = Bench(pool, tmp_path)
    await register_text(pool, LOOP)
    await register_text(pool, ONE_STEP)
    later = await bench.start("tests/one")
    asked = Asked(path="tests/loop", priority=1)
    urgent = (await bench.starter.start(asked)).execution_id
    await bench.route()
    assert {one.execution_id for one in await bench.claim(256)} == {urgent}
    while claimed := await bench.claim(256):
        last = claimed[-1].execution_id
    assert last == later


async def test_a_claim_reads_no_more_than_it_takes_however_much_waits(dsn: str, pool: Pool) -> None:
    execution_id = await started(appender_on(pool, Recorder()))
    async with pool.connection() as conn:
        await conn.execute(
            "INSERT INTO noetl.command (execution_id, command_id, shard_id, step, turn_at, context_id, issued_event_id)"
            " SELECT %s, n, 0, 's', now() + n %% 1000 * interval '5 ms', 1, n FROM generate_series(1, 20000) n",
            [execution_id],
        )
        await conn.execute("ANALYZE noetl.command")
    args = {"pool": "default", "worker_id": "w", "max": 256, "lease_s": 15.0}
    async with open_pool(dsn, size_max=1, name="test", only_lookups=True) as claiming, transaction(claiming) as conn:
        rows = await (
            await conn.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + SQL["claim_commands"].encode(), args)
        ).fetchall()
    [found] = rows[0]["QUERY PLAN"]
    scans = [node for node in _nodes(found["Plan"]) if node.get("Index Name", "").endswith("turn_idx")
             or "turn" in node.get("Index Name", "") or "available_at" in node.get("Index Name", "")]  # fmt: skip
    read = [node for node in scans if node["Actual Rows"]]
    assert [(node["Node Type"], node["Actual Rows"]) for node in read] == [("Index Scan", 256)]
    assert not any(node["Node Type"] == "Sort" and node["Actual Rows"] > 256 for node in _nodes(found["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: loop, path: tests/loop}
workflow:
- step: start
  loop: {in: 1000, iterator: n, spec: {mode: parallel, max_in_flight: 500}}
  tool: {kind: python, code: 'result = 1'}
"""
ONE_STEP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: one, path: tests/one}
workflow: [{step: start, tool: {kind: python, code: 'result = 1'}}]
"""

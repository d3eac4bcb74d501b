"""Concurrency groups on the real database: joined with the start, admitted in order across shards, nothing lost."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import shard_of
from noetl_common.db import Pool
from services.ingest import admission, decisions, groups, store_executions
from services.ingest.append import Appender
from services.ingest.handover import Handover
from tests.builders import an_execution_id
from tests.ingesting import rows_of
from tests.routing import Bench, register_text
from tests.servers import SHARD_COUNT

LIMITED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: limited, path: tests/limited}
executor: {spec: {concurrency: {key: "{{ tenant }}", limit: 2}}}
workload: {tenant: a}
workflow:
- step: start
  tool: {kind: noop}
"""
PARENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: tests/parent}
workflow:
- step: start
  loop: {in: "{{ range(6) | list }}", iterator: n, spec: {mode: parallel}}
  tool: {kind: playbook, path: tests/limited}
"""
ALONE = LIMITED.replace("tests/limited", "tests/alone").replace('{key: "{{ tenant }}", limit: 2}', "1")
CALLER = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: caller, path: tests/caller}
workflow:
- step: start
  tool: {kind: noop}
  next: {arcs: [{step: call}]}
- step: call
  tool: {kind: playbook, path: tests/alone}
"""


@pytest.fixture
async def bench(pool: Pool, tmp_path: Path) -> Bench:
    await register_text(pool, LIMITED)
    await register_text(pool, PARENT)
    return Bench(pool, tmp_path)


async def history(pool: Pool) -> list[dict[str, Any]]:
    """Return when each run went on and when it ended, in the order in which that was committed."""
    return await rows_of(
        pool,
        "SELECT execution_id, event_type, created_at FROM noetl.event WHERE event_type IN ('playbook.admitted',"
        " 'playbook.completed', 'playbook.failed', 'playbook.cancelled') ORDER BY created_at",
    )


async def never_more_than(limit: int, pool: Pool, runs: list[int]) -> list[int]:
    """Return the runs that were admitted, as they stand in the line; never were more than the limit going on at a time.

    None overtook another: only those that one decision admits together have no order.
    """
    going: set[int] = set()
    order = []
    for row in await history(pool):
        if row["execution_id"] not in runs:
            continue
        if row["event_type"] == "playbook.admitted":
            going.add(row["execution_id"])
            order.append(row["execution_id"])
        else:
            going.discard(row["execution_id"])
        assert len(going) <= limit
    line = [run for run in runs if run in order]
    for place, run in enumerate(line):
        assert all(order.index(run) < order.index(later) for later in line[place + limit :])
    return line


async def statuses(pool: Pool, runs: list[int]) -> set[str]:
    rows = await rows_of(
        pool, "SELECT state ->> 'status' AS status FROM noetl.execution_state WHERE execution_id = ANY(%s)", runs
    )
    assert len(rows) == len(runs)
    return {row["status"] for row in rows}


async def test_runs_beyond_the_limit_wait_in_line_and_go_on_in_their_order(pool: Pool, bench: Bench) -> None:
    runs = {key: [await bench.start("tests/limited", tenant=key) for _ in range(6)] for key in "ab"}
    await bench.route()
    assert len({shard_of(run, SHARD_COUNT) for run in runs["a"]}) > 1
    waiting = [await groups.read_waiting(pool, run) for run in runs["a"]]
    assert [one and (one["key"], one["limit"], one["place"]) for one in waiting] == [
        None,
        None,
        ("a", 2, 1),
        ("a", 2, 2),
        ("a", 2, 3),
        ("a", 2, 4),
    ]
    assert len(await bench.claim()) == 4
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.command SET status = 'pending', claim_token = NULL WHERE status = 'claimed'")
    await bench.drive()
    for mine in runs.values():
        assert await never_more_than(2, pool, mine) == mine
        assert await statuses(pool, mine) == {"COMPLETED"}
    assert await rows_of(pool, "SELECT 1 FROM noetl.concurrency") == []


async def test_children_wait_for_places_too(pool: Pool, bench: Bench) -> None:
    parent = await bench.run("tests/parent")
    begun = await rows_of(
        pool,
        "SELECT (result #>> '{context,child_id}')::bigint AS child FROM noetl.event WHERE execution_id = %s"
        " AND event_type = 'child.started' ORDER BY event_id",
        parent,
    )
    children = [row["child"] for row in begun]
    assert len(children) == 6 and await never_more_than(2, pool, children) == children
    assert await statuses(pool, [parent]) == {"COMPLETED"}


async def test_a_run_that_waits_is_cancelled_and_leaves_the_line(pool: Pool, bench: Bench) -> None:
    runs = [await bench.start("tests/limited") for _ in range(5)]
    await bench.route()
    envelope = Envelope(status="REQUESTED", context={"reason": "no more wanted"})
    for run in (runs[0], runs[3]):  # one that goes on, one that waits
        event = Event(execution_id=run, event_type="cancel.requested", status="REQUESTED", result=envelope)
        await bench.appender.append([event])
    await bench.drive()
    assert await statuses(pool, [runs[0], runs[3]]) == {"CANCELLED"}
    rest = [run for run in runs if run != runs[3]]
    assert await never_more_than(2, pool, runs) == rest
    assert await statuses(pool, rest[1:]) == {"COMPLETED"}


async def test_a_run_that_waits_is_not_taken_for_a_stalled_one(pool: Pool, bench: Bench) -> None:
    runs = [await bench.start("tests/limited") for _ in range(4)]
    await bench.route()
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.event SET created_at = created_at - interval '1 hour'")
        await conn.execute("UPDATE noetl.execution SET start_time = start_time - interval '1 hour',"
                           " updated_at = updated_at - interval '1 hour'")  # fmt: skip
    assert await store_executions.list_stalled(pool, minutes=5) == runs[:2]


class Cut(Exception):
    """The process ends here."""


@pytest.mark.parametrize("seed", range(3))
async def test_ingest_killed_at_any_point_loses_no_place_and_admits_none_too_many(
    pool: Pool, bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    source = random.Random(seed)
    admit = groups.admit

    async def cut_or_admit(conn: Any, found: Any) -> list[Event]:
        if source.random() < 0.2:
            raise Cut
        events = await admit(conn, found)
        if source.random() < 0.2:
            raise Cut
        return events

    monkeypatch.setattr(decisions.groups, "admit", cut_or_admit)
    runs = []
    for _ in range(12):
        runs.append(await bench.start("tests/limited"))
        if source.random() < 0.3:
            reborn(bench)
    quiet = 0
    while quiet < 2:
        moved = 0
        for shard_id in source.sample(range(SHARD_COUNT), SHARD_COUNT):
            try:
                moved += await bench.router.route_once(shard_id)
            except Cut:
                moved += 1
                reborn(bench)
        commands = await bench.claim(3)
        await bench.complete(commands)
        quiet = 0 if moved or commands else quiet + 1
    assert await never_more_than(2, pool, runs) == runs
    assert await statuses(pool, runs) == {"COMPLETED"}


def reborn(bench: Bench) -> None:
    """Forget what a process remembers, as one that is started again."""
    bench.handover = bench.router.handover = Handover(bench.payloads)
    bench.router._shards.clear()
    bench.appender = bench.starter._appender = Appender(
        bench.pool, shard_count=SHARD_COUNT, handover=bench.handover, leases=bench.leases, bus=bench.bus
    )


async def test_shards_that_decide_at_the_same_time_admit_no_more_than_the_limit(pool: Pool, bench: Bench) -> None:
    await asyncio.gather(*(bench.start("tests/limited") for _ in range(30)))
    line = await rows_of(pool, "SELECT execution_id FROM noetl.concurrency ORDER BY ticket")
    runs = [row["execution_id"] for row in line]
    while True:
        routed = sum(await asyncio.gather(*(bench.router.route_once(shard_id) for shard_id in range(SHARD_COUNT))))
        commands = await bench.claim()
        await bench.complete(commands)
        if not routed and not commands:
            break
    assert len(runs) == 30 and await never_more_than(2, pool, runs) == runs
    assert await statuses(pool, runs) == {"COMPLETED"}


async def test_a_child_that_gets_its_place_as_it_is_made_starts_before_it_is_admitted(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_text(pool, ALONE)
    await register_text(pool, CALLER)
    bench = Bench(pool, tmp_path)
    monkeypatch.setattr(admission, "mint_execution_id", lambda: an_execution_id(3))
    runs = [await bench.start("tests/alone"), await bench.start("tests/caller")]
    await bench.route()
    # One batch of their shard: the caller makes a child behind the run that goes on, and that run ends.
    commands = sorted(await bench.claim(), key=lambda command: command.execution_id == runs[0])
    await bench.complete(commands)
    await bench.drive()
    assert await statuses(pool, runs) == {"COMPLETED"}
    [child] = await rows_of(pool, "SELECT execution_id FROM noetl.execution WHERE parent_execution_id = %s", runs[1])
    events = await rows_of(
        pool, "SELECT event_type FROM noetl.event WHERE execution_id = %s ORDER BY event_id", child["execution_id"]
    )
    assert [row["event_type"] for row in events][:2] == ["playbook.started", "playbook.admitted"]
    assert await rows_of(pool, "SELECT FROM noetl.concurrency") == []

"""Routing on a real Postgres: the fenced transaction, takeover, poison, children, cancel."""

from pathlib import Path
from typing import Any

import pytest

from noetl_common.core import route
from noetl_common.core.events import Envelope, Event
from noetl_common.core.routing.draft import World
from noetl_common.core.shard import hashed_id, seq_in, shard_of
from noetl_common.db import Pool
from noetl_common.errors import Fenced, Unavailable
from services.ingest import decisions
from services.ingest.decisions import Batch
from tests.routing import Bench, register_text
from tests.servers import SHARD_COUNT

LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: loop, path: tests/loop}
workflow:
- step: start
  loop: {in: "{{ items }}", iterator: n, spec: {mode: parallel, max_in_flight: 50}}
  tool: {kind: noop}
  next: {arcs: [{step: end}]}
- step: end
  tool: {kind: noop}
"""


@pytest.fixture
async def bench(pool: Pool, tmp_path: Path) -> Bench:
    await register_text(pool, LOOP)
    return Bench(pool, tmp_path)


async def rows(pool: Pool, text: str, *args: Any) -> list[dict[str, Any]]:
    async with pool.connection() as conn:
        return await (await conn.execute(text, args)).fetchall()


async def kinds(pool: Pool, execution_id: int) -> list[str]:
    text = "SELECT event_type FROM noetl.event WHERE execution_id = %s ORDER BY event_id"
    return [row["event_type"] for row in await rows(pool, text, execution_id)]


async def test_a_loop_of_120_items_is_issued_in_windows_and_done_once(pool: Pool, bench: Bench):
    execution_id = await bench.run("tests/loop", items=120)
    found = await kinds(pool, execution_id)
    assert found.count("command.issued") == found.count("command.completed") == 121
    assert found.count("loop.done") == found.count("playbook.completed") == 1
    assert found[-1] == "playbook.completed"


async def test_the_stored_state_is_the_fold_of_the_log(pool: Pool, bench: Bench):
    execution_id = await bench.start("tests/loop", items=120)
    await bench.route()
    await bench.complete(await bench.claim(20))
    await bench.route()
    stored = (await decisions.read_states(pool, [execution_id]))[execution_id]
    fresh = Bench(pool, Path("unused"))
    assert stored.active["start"].loop is not None
    assert stored.active["start"].loop.done == 20
    # A router without any memory goes on from the stored state.
    await fresh.drive()
    found = await kinds(pool, execution_id)
    assert found.count("playbook.completed") == 1 and found.count("command.completed") == 121


async def test_another_owner_takes_over_in_the_middle_and_nothing_happens_twice(
    pool: Pool, bench: Bench, tmp_path: Path
):
    execution_id = await bench.start("tests/loop", items=120)
    shard_id = shard_of(execution_id, SHARD_COUNT)
    await bench.route()
    await bench.complete(await bench.claim(30))
    await rows_none(pool, "UPDATE noetl.shard_cursor SET lease_epoch = 1 WHERE shard_id = %s", shard_id)
    other = Bench(pool, tmp_path, epoch=1)
    assert await bench.router.route_once(shard_id) == 0  # fenced: it gives the shard up
    assert shard_id not in bench.leases.owned()
    for number in range(SHARD_COUNT):
        other.leases.epochs[number] = 1 if number == shard_id else 0
    await other.drive()
    found = await kinds(pool, execution_id)
    assert found.count("command.completed") == 121 and found.count("playbook.completed") == 1


async def rows_none(pool: Pool, text: str, *args: Any) -> None:
    async with pool.connection() as conn:
        await conn.execute(text, args)


@pytest.mark.parametrize("fenced", [True, False], ids=["as built", "mutant: no epoch and seq in the cursor's guard"])
async def test_a_paused_owner_that_wakes_up_writes_nothing(pool: Pool, bench: Bench, tmp_path: Path, fenced: bool):
    """The mutant shows what the guard is for: the paused owner's stale state overwrites the new owner's."""
    execution_id = await bench.start("tests/loop", items=10)
    shard_id = shard_of(execution_id, SHARD_COUNT)
    await bench.route()
    commands = await bench.claim()
    await bench.complete(commands[:1])
    stale = await decide_next(bench, shard_id)  # the owner has decided the first item's report, and is paused here

    await rows_none(pool, "UPDATE noetl.shard_cursor SET lease_epoch = 1 WHERE shard_id = %s", shard_id)
    other = Bench(pool, tmp_path)
    other.leases.epochs[shard_id] = 1
    await other.complete(commands[1:5])
    await other.route()
    before = await cursor_and_done(pool, execution_id, shard_id)
    assert before[1] == 5

    if fenced:
        with pytest.raises(Fenced):
            await decisions.apply(pool, stale, shard_count=SHARD_COUNT)
        assert await cursor_and_done(pool, execution_id, shard_id) == before
    else:
        await decisions.apply(pool, stale, shard_count=SHARD_COUNT, fenced=False)
        assert await cursor_and_done(pool, execution_id, shard_id) == (before[0] - 4, 1), "the mutant loses 4 items"


async def decide_next(bench: Bench, shard_id: int) -> Batch:
    """Decide the shard's next input and return the batch, unwritten."""
    seq, _waiting = await decisions.read_cursor(bench.pool, shard_id, epoch=bench.leases.epochs[shard_id])
    (event,) = await decisions.read_inputs(bench.pool, shard_id, after_seq=seq, limit=1)
    state = (await decisions.read_states(bench.pool, [event.execution_id]))[event.execution_id]
    playbook = await bench.router._playbook(state.catalog_id)
    world = World(load=bench.payloads.load, playbooks={}, fresh_ids=iter(()))
    decision = route.decide(playbook, state, event, world=world)
    return Batch(
        shard_id=shard_id,
        epoch=bench.leases.epochs[shard_id],
        old_seq=seq,
        new_seq=seq_in(event.event_id),
        decisions=[decision],
    )


async def cursor_and_done(pool: Pool, execution_id: int, shard_id: int) -> tuple[int, int]:
    state = (await decisions.read_states(pool, [execution_id]))[execution_id]
    (row,) = await rows(pool, "SELECT seq FROM noetl.shard_cursor WHERE shard_id = %s", shard_id)
    entry = state.active["start"]
    assert entry.loop is not None
    return row["seq"], entry.loop.done


PARENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: tests/parent}
workflow:
- step: start
  loop: {in: "{{ 8 }}", iterator: n, spec: {mode: parallel}}
  tool: {kind: playbook, path: tests/loop, input: {items: "{{ n }}"}}
  next: {arcs: [{step: end}]}
- step: end
  tool: {kind: noop}
"""


async def test_children_run_in_their_own_shards_and_wake_their_parent(pool: Pool, bench: Bench):
    await register_text(pool, PARENT)
    execution_id = await bench.run("tests/parent")
    found = await kinds(pool, execution_id)
    assert found.count("child.started") == found.count("child.ended") == 8
    assert found[-1] == "playbook.completed"
    children = await rows(pool, "SELECT * FROM noetl.execution WHERE parent_execution_id = %s", execution_id)
    assert len(children) == 8
    assert len({child["shard_id"] for child in children}) > 1


async def test_a_cancel_reaches_commands_and_children(pool: Pool, bench: Bench):
    await register_text(pool, PARENT)
    execution_id = await bench.start("tests/parent")
    await bench.route()
    held = await bench.claim(3)
    envelope = Envelope(status="REQUESTED", context={"reason": "enough"})
    await bench.appender.append([Event(execution_id=execution_id, event_type="cancel.requested", result=envelope)])
    await bench.route()
    assert "playbook.cancelled" not in await kinds(pool, execution_id)  # three commands are still out
    await bench.complete(held, event_type="command.cancelled", result=Envelope(status="CANCELLED"))
    await bench.route()
    statuses = await rows(pool, "SELECT DISTINCT event_type FROM noetl.event WHERE dedup_key = 'end'")
    assert "playbook.cancelled" in {row["event_type"] for row in statuses}
    assert (await kinds(pool, execution_id))[-1] == "playbook.cancelled"
    assert await bench.claim() == []


async def test_an_input_that_cannot_be_routed_fails_its_run_and_not_its_shard(pool: Pool, bench: Bench):
    good = [await bench.start("tests/loop", items=2) for _ in range(20)]
    bad = await bench.start("tests/loop", items=2)
    await rows_none(pool, "UPDATE noetl.event SET catalog_id = 1 WHERE execution_id = %s", bad)
    bench.handover.forget(shard_of(bad, SHARD_COUNT))
    await bench.drive()
    assert (await kinds(pool, bad))[1:] == ["routing.failed", "playbook.failed"]
    for execution_id in good:
        assert (await kinds(pool, execution_id))[-1] == "playbook.completed"


async def test_what_postgres_refuses_is_found_by_halving_and_fails_one_run(pool: Pool, bench: Bench):
    timed = LOOP.replace("tests/loop", "tests/timed").replace("workflow:", "executor: {spec: {timeout: 60}}\nworkflow:")
    await register_text(pool, timed)
    bad = await bench.start("tests/timed", items=2)
    shard_id = shard_of(bad, SHARD_COUNT)
    good: list[int] = []
    while sum(shard_of(execution_id, SHARD_COUNT) == shard_id for execution_id in good) < 3:
        good.append(await bench.start("tests/loop", items=2))
    # The timer that the bad run's start would set stands already: its decision is refused, whenever it is tried.
    (event,) = await rows(pool, "SELECT event_id FROM noetl.event WHERE execution_id = %s", bad)
    timer_id = hashed_id(event["event_id"], "timeout")
    await rows_none(
        pool,
        "INSERT INTO noetl.timer (execution_id, timer_id, shard_id, due_at, kind, cause_event_id)"
        " VALUES (%s, %s, %s, 'infinity', 'test', 1)",
        bad,
        timer_id,
        shard_id,
    )
    refused = 0
    for _ in range(10):
        try:
            await bench.router.route_once(shard_id)
        except Unavailable:
            refused += 1
    assert refused > 0
    await bench.drive()
    assert (await kinds(pool, bad))[1:] == ["routing.failed", "playbook.failed"]
    for execution_id in good:
        assert (await kinds(pool, execution_id))[-1] == "playbook.completed"

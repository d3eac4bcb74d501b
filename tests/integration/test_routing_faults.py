"""Routing under faults, on a real Postgres: zombies, refused rows, partitions not yet made, timers of ended runs."""

import time
from pathlib import Path
from typing import Any

import pytest

from noetl_common.core.events import Envelope, Event
from noetl_common.core.scope import NeedPayload
from noetl_common.core.shard import shard_of
from noetl_common.core.values import Ref, reference_of
from noetl_common.db import Pool, round_trip
from noetl_common.errors import Fenced, Unavailable
from noetl_common.loop import is_expected
from services.ingest import decisions, router
from tests.ingesting import ref_of, result_row
from tests.integration.test_routing import LOOP, cursor_and_done, decide_next, kinds, rows, rows_none
from tests.routing import Bench, register_text
from tests.servers import SHARD_COUNT


@pytest.fixture
async def bench(pool: Pool, tmp_path: Path) -> Bench:
    await register_text(pool, LOOP)
    return Bench(pool, tmp_path)


async def test_a_paused_owner_whose_rows_another_wrote_meanwhile_is_fenced(pool: Pool, bench: Bench, tmp_path: Path):
    """The new owner drew the same consequences, so the zombie's rows collide: still it must learn that it is fenced."""
    execution_id = await bench.start("tests/loop", items=60)
    shard_id = shard_of(execution_id, SHARD_COUNT)
    await bench.route()
    await bench.complete((await bench.claim())[:1])
    stale = await decide_next(bench, shard_id)
    assert stale.decisions[0].commands, "the first report issues the next item"

    await rows_none(pool, "UPDATE noetl.shard_cursor SET lease_epoch = 1 WHERE shard_id = %s", shard_id)
    other = Bench(pool, tmp_path)
    other.leases.epochs[shard_id] = 1
    await other.route()
    before = await cursor_and_done(pool, execution_id, shard_id)
    with pytest.raises(Fenced):
        await decisions.apply(pool, stale, shard_count=SHARD_COUNT)
    assert await cursor_and_done(pool, execution_id, shard_id) == before


async def test_a_router_that_wakes_up_behind_its_successor_gives_the_shard_up(pool: Pool, bench: Bench, tmp_path: Path):
    execution_id = await bench.start("tests/loop", items=60)
    shard_id = shard_of(execution_id, SHARD_COUNT)
    await bench.route()
    await bench.complete((await bench.claim())[:1])
    await rows_none(pool, "UPDATE noetl.shard_cursor SET lease_epoch = 1 WHERE shard_id = %s", shard_id)
    other = Bench(pool, tmp_path)
    other.leases.epochs[shard_id] = 1
    await other.route()
    # It still has everything at hand: the cursor it read, the state, the report handed over in memory.
    assert await bench.router.route_once(shard_id) == 0
    assert shard_id not in bench.leases.owned()
    assert "routing.failed" not in await kinds(pool, execution_id)


async def test_no_timer_of_an_ended_run_is_left(pool: Pool, bench: Bench):
    timed = LOOP.replace("tests/loop", "tests/timed").replace("workflow:", "executor: {spec: {timeout: 60}}\nworkflow:")
    await register_text(pool, timed)
    execution_id = await bench.run("tests/timed", items=2)
    assert (await kinds(pool, execution_id))[-1] == "playbook.completed"
    assert await rows(pool, "SELECT * FROM noetl.timer") == []


PARENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: tests/parent}
workflow:
- step: start
  tool: {kind: playbook, path: tests/loop, input: {items: 2}}
"""


async def test_a_child_whose_partition_is_not_made_yet_waits_for_it(
    pool: Pool, bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    await register_text(pool, PARENT)
    execution_id = await bench.start("tests/parent")
    shard_id = shard_of(execution_id, SHARD_COUNT)
    monkeypatch.setattr("services.ingest.router.mint_execution_id", lambda: 1 << 60)
    with pytest.raises(Exception) as raised:
        await bench.router.route_once(shard_id)
    assert is_expected(raised.value), raised.value
    monkeypatch.undo()
    await bench.drive()
    assert (await kinds(pool, execution_id))[-1] == "playbook.completed"


async def test_a_row_that_breaks_any_constraint_fails_its_run_and_not_the_process(pool: Pool, bench: Bench):
    execution_id = await bench.start("tests/loop", items=2)
    shard_id = shard_of(execution_id, SHARD_COUNT)
    await rows_none(pool, "ALTER TABLE noetl.command ALTER COLUMN lease_until SET NOT NULL")
    for _ in range(10):
        await route_as_a_loop_does(bench, shard_id)
    assert (await kinds(pool, execution_id))[1:] == ["routing.failed", "playbook.failed"]


async def route_as_a_loop_does(bench: Bench, shard_id: int) -> Any:
    try:
        return await bench.router.route_once(shard_id)
    except Exception as error:
        if not is_expected(error):
            raise
        return None


async def test_an_owner_that_stood_still_in_its_transaction_goes_on_when_it_wakes_up(
    pool: Pool, bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """A frozen process loses its transaction after 3 s, so that it does not block its takeover: no reason to end."""
    execution_id = await bench.start("tests/loop", items=2)
    shard_id = shard_of(execution_id, SHARD_COUNT)
    append = decisions.event_log.append

    async def frozen(conn: Any, *args: Any) -> list[int]:
        await conn.execute("SET LOCAL idle_in_transaction_session_timeout = 50")
        await round_trip(conn)
        monkeypatch.undo()
        time.sleep(0.3)  # noqa: ASYNC251 - the whole process stands still, as under SIGSTOP
        return await append(conn, *args)

    await bench.route()
    await bench.appender.append([cancel_of(execution_id)])
    monkeypatch.setattr(decisions.event_log, "append", frozen)
    with pytest.raises(Exception) as raised:
        await bench.router.route_once(shard_id)
    assert is_expected(raised.value), raised.value
    await bench.drive()
    assert (await kinds(pool, execution_id))[-1] == "playbook.cancelled"


def cancel_of(execution_id: int) -> Event:
    envelope = Envelope(status="REQUESTED", context={"reason": "test"})
    return Event(execution_id=execution_id, event_type="cancel.requested", result=envelope)


@pytest.mark.parametrize("number", [1.7976931348623157e308, 1e300, -1e-300])
async def test_numbers_that_jsonb_writes_out_go_by_reference(pool: Pool, bench: Bench, number: float):
    """Few characters as JSON, kilobytes as jsonb, which writes a number with an exponent out."""
    execution_id = await bench.run("tests/loop", items=[[number] * 60, [number]])
    found = await kinds(pool, execution_id)
    assert found[-1] == "playbook.completed" and found.count("command.completed") == 3


ASKS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: asks, path: tests/asks}
workflow:
- step: start
  tool: {kind: noop}
  next: {arcs: [{step: end, when: "{{ start.deep.n == 1 }}"}]}
- {step: end, tool: {kind: noop}}
"""


async def two_on_a_shard(bench: Bench) -> tuple[int, int]:
    """Start runs until two stand on one shard; return them."""
    seen: dict[int, int] = {}
    while True:
        execution_id = await bench.start("tests/asks")
        shard_id = shard_of(execution_id, SHARD_COUNT)
        if shard_id in seen:
            return seen[shard_id], execution_id
        seen[shard_id] = execution_id


STARTS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: starts, path: tests/starts}
workflow:
- step: start
  tool: {kind: playbook, path: tests/loop, input: {items: 1}, async: true}
"""


async def test_a_payload_that_cannot_be_read_yet_holds_up_nothing_that_came_before(
    pool: Pool, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await register_text(pool, ASKS)
    other = Bench(pool, tmp_path / "other")  # its reports do not come with their payloads at hand
    first, second = await two_on_a_shard(other)
    shard_id = shard_of(first, SHARD_COUNT)
    await bench.route()
    commands = {command.execution_id: command for command in await bench.claim()}
    rows_of_runs = {run: result_row(run, {"deep": {"n": 1}}, step="start") for run in (first, second)}
    for run, row in rows_of_runs.items():
        envelope = Envelope(status="COMPLETED", reference=reference_of(ref_of(row)))
        await other.complete([commands[run]], result=envelope, results=[row])
    read = router.read_payloads

    async def away(*args: Any, needs: Any, **more: Any) -> None:
        if any(ref.execution_id == second for ref, _key in needs):
            raise TimeoutError
        await read(*args, needs=needs, **more)

    monkeypatch.setattr(router, "read_payloads", away)
    bench.handover.wake(shard_id)  # as the bell of the other does, or the watcher
    assert await bench.router.route_once(shard_id) == 1
    assert (await kinds(pool, first)).count("step.enter") == 2
    with pytest.raises(Unavailable, match="cannot be read yet"):
        await bench.router.route_once(shard_id)
    assert len(bench.router._load_failures) == 1
    monkeypatch.undo()
    await bench.drive()
    assert (await kinds(pool, first))[-1] == (await kinds(pool, second))[-1] == "playbook.completed"
    assert bench.router._load_failures == {}, "what could be read in the end is no failure"


@pytest.mark.parametrize("fate", ["doubted", "fenced", "lost"])
async def test_what_a_decision_made_that_came_to_nothing_is_not_at_hand(
    pool: Pool, bench: Bench, monkeypatch: pytest.MonkeyPatch, fate: str
):
    """Decided again, perhaps by another router, the same name may hold another value: a child has another id."""
    await register_text(pool, STARTS)
    execution_id = await bench.start("tests/starts")
    shard_id = shard_of(execution_id, SHARD_COUNT)
    made: list[Ref] = []

    async def fails(pool: Pool, batch: Any, **more: Any) -> None:
        made.extend(payload.ref for decision in batch.decisions for payload in decision.payloads)
        assert [bench.payloads.load(ref, None) for ref in made], "at hand for the inputs behind it in the batch"
        raise Fenced(shard_id, 0) if fate == "fenced" else Unavailable("cut off")

    monkeypatch.setattr(decisions, "apply", fails)
    if fate == "fenced":
        assert await bench.router.route_once(shard_id) == 0
    else:
        with pytest.raises(Unavailable):
            await bench.router.route_once(shard_id)
    if fate == "lost":
        bench.leases.forget(shard_id)
        assert await bench.router.route_once(shard_id) == 0
    assert made
    for ref in made:
        with pytest.raises(NeedPayload):
            bench.payloads.load(ref, None)
    monkeypatch.undo()
    bench.leases.epochs[shard_id] = 0
    await bench.drive()
    assert (await kinds(pool, execution_id))[-1] == "playbook.completed"

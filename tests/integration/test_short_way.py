"""The short way on a real Postgres: one commit from a report to the commands that follow it, or the long way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from noetl_common import metrics
from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import shard_of
from noetl_common.core.values import reference_of
from noetl_common.db import Pool, transaction
from noetl_common.errors import Unavailable
from noetl_common.event_log import append
from noetl_common.wire import Claim, Claimed, encode
from services.ingest import at_once
from services.ingest.decisions import Batch
from services.ingest.store_claims import read_contexts
from tests.ingesting import ref_of, report_of, result_row
from tests.routing import Bench, register_text
from tests.servers import SHARD_COUNT

CHAIN = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: chain, path: tests/chain}
workflow:
- {step: first, tool: {kind: python, code: "result = {'n': 1}"}, next: second}
- {step: second, tool: {kind: python, code: "result = first", args: {first: "{{ first }}"}}, next: third}
- {step: third, tool: {kind: noop}}
"""

LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: loop, path: tests/loop}
workflow:
- {step: start, loop: {in: 5, iterator: n, spec: {mode: parallel}}, tool: {kind: noop}}
"""


@pytest.fixture
async def bench(pool: Pool, tmp_path: Path) -> Bench:
    await register_text(pool, CHAIN)
    bench = Bench(pool, tmp_path, at_once=True)
    # The first run reads the playbook, the long way; from then on every shard is at rest.
    await bench.run("tests/chain")
    return bench


async def rows(pool: Pool, text: str, *args: Any) -> list[dict[str, Any]]:
    async with pool.connection() as conn:
        return await (await conn.execute(text, args)).fetchall()


async def events_of(pool: Pool, execution_id: int) -> list[str]:
    text = "SELECT event_type FROM noetl.event WHERE execution_id = %s ORDER BY event_id"
    return [row["event_type"] for row in await rows(pool, text, execution_id)]


async def commands_of(pool: Pool, execution_id: int) -> list[tuple[str, str, str | None]]:
    text = "SELECT step, status, worker_id FROM noetl.command WHERE execution_id = %s ORDER BY issued_event_id"
    return [(row["step"], row["status"], row["worker_id"]) for row in await rows(pool, text, execution_id)]


async def append_elsewhere(pool: Pool, execution_id: int) -> None:
    """Append an input as a process would that does not route the shard."""
    event = Event(
        execution_id=execution_id,
        event_type="vars.set",
        status="SET",
        result=Envelope(status="SET", context={"name": "x", "value": {"v": 1}}),
        dedup_key="elsewhere",
    )
    async with transaction(pool) as conn:
        assert await append(conn, shard_of(execution_id, SHARD_COUNT), [event]) != [0]


def holding(bench: Bench, worker_id: str = "w", *, wait_s: float = 4.0) -> asyncio.Task[Claimed]:
    return asyncio.create_task(bench.claims.claim(Claim(worker_id=worker_id, max=10, wait_s=wait_s)))


async def until_held(bench: Bench, count: int = 1) -> None:
    async with asyncio.timeout(5):
        while len(bench.claims.waiting._waiting.get("default", ())) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_start_is_routed_in_the_commit_that_appends_it(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    assert await events_of(pool, execution_id) == ["playbook.started", "step.enter", "command.issued"]
    assert await commands_of(pool, execution_id) == [("first", "pending", None)]
    assert await bench.route() == 0


async def test_what_follows_a_report_is_leased_to_a_worker_that_waits(pool: Pool, bench: Bench) -> None:
    held = holding(bench)
    await until_held(bench)
    execution_id = await bench.start("tests/chain")
    for step in ("first", "second", "third"):
        claimed = await held
        [command] = claimed.commands
        assert (command.step, command.attempt, list(claimed.contexts)) == (step, 1, [command.context_id])
        assert await commands_of(pool, execution_id) == [*done_before(step), (step, "claimed", "w")]
        held = holding(bench)
        await until_held(bench)
        answers = await bench.complete([command])
        assert [outcome for _event_id, outcome in answers] == ["accepted"]
    held.cancel()
    assert (await events_of(pool, execution_id))[-1] == "playbook.completed"
    assert await bench.route() == 0


def done_before(step: str) -> list[tuple[str, str, str | None]]:
    steps = ("first", "second", "third")
    return [(name, "completed", "w") for name in steps[: steps.index(step)]]


async def test_a_result_comes_along_with_the_command_that_names_it(pool: Pool, bench: Bench) -> None:
    held = holding(bench)
    await until_held(bench)
    await bench.start("tests/chain")
    [command] = (await held).commands
    held = holding(bench)
    await until_held(bench)
    row = result_row(command.execution_id, {"n": 1}, step="first")
    await bench.complete(
        [command], results=[row], result=Envelope(status="success", reference=reference_of(ref_of(row)))
    )
    second = await held
    named = {ref.ref_id for context in second.contexts.values() for ref in context.results.values()}
    assert {row.ref_id for row in second.results} == named and len(named) == 1


async def test_what_a_worker_is_given_is_as_the_database_has_it(pool: Pool, bench: Bench) -> None:
    await register_text(pool, CHAIN.replace("{{ first }}", "{{ first }}, zeta: 1, a: 2").replace("/chain", "/ordered"))
    await bench.run("tests/ordered")
    held = holding(bench)
    await until_held(bench)
    execution_id = await bench.start("tests/ordered")
    given = await held
    [(_execution_id, context_id, stored)] = await read_contexts(pool, [(execution_id, given.commands[0].context_id)])
    assert encode(given.contexts[context_id]) == encode(stored)
    [found] = (await bench.claims.held("w")).commands
    assert encode(given.commands[0]) == encode(found)


async def test_runs_are_counted_whichever_way_they_go(pool: Pool, bench: Bench) -> None:
    def counted() -> tuple[float, float, float]:
        return (
            metrics.value("noetl_short_way_total", outcome="committed"),
            metrics.value("noetl_executions_ended_total", status="completed"),
            metrics.value("noetl_route_consequences_total", event_type="command.issued"),
        )

    before = counted()
    await bench.run("tests/chain")
    assert [after - former for after, former in zip(counted(), before, strict=True)] == [4, 1, 3]


async def test_two_workers_that_wait_share_what_is_issued(pool: Pool, bench: Bench) -> None:
    first, second = holding(bench, "a"), holding(bench, "b")
    await until_held(bench, 2)
    await asyncio.gather(*(bench.start("tests/chain") for _ in range(4)))
    claimed = [await first, await second]
    assert all(one.commands for one in claimed)


async def test_an_input_that_another_process_appended_sends_the_next_the_long_way(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    await append_elsewhere(pool, execution_id)
    [(event_id, outcome)] = await bench.complete([command])
    assert event_id and outcome == "accepted"
    assert (await events_of(pool, execution_id))[-2:] == ["vars.set", "command.completed"]  # appended, not yet routed
    await bench.drive()
    assert (await events_of(pool, execution_id))[-1] == "playbook.completed"


async def test_a_shard_that_was_taken_over_gets_nothing_of_its_former_owner(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    shard_id = shard_of(execution_id, SHARD_COUNT)
    await rows(
        pool, "UPDATE noetl.shard_cursor SET lease_epoch = 7 WHERE shard_id = %s RETURNING lease_epoch", shard_id
    )
    [(_event_id, outcome)] = await bench.complete([command])
    assert outcome == "accepted"  # whoever takes it, the log has it
    assert (await events_of(pool, execution_id))[-1] == "command.completed"
    assert await bench.router.route_once(shard_id) == 0 and shard_id not in bench.leases.epochs


@pytest.mark.parametrize("changed", ["claim_token", "worker"])
async def test_a_report_of_a_lost_claim_changes_nothing(pool: Pool, bench: Bench, changed: str) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    text = "UPDATE noetl.command SET claim_token = claim_token + 1000 WHERE execution_id = %s RETURNING command_id"
    if changed == "worker":
        text = "UPDATE noetl.command SET status = 'pending', claim_token = NULL WHERE execution_id = %s RETURNING step"
    await rows(pool, text, execution_id)
    [(event_id, outcome)] = await bench.complete([command])
    assert (event_id, outcome) == (0, "fenced")
    assert (await events_of(pool, execution_id))[-1] == "command.issued"


async def test_a_report_sent_twice_is_taken_once(pool: Pool, bench: Bench) -> None:
    await bench.start("tests/chain")
    [command] = await bench.claim()
    [(event_id, first)] = await bench.complete([command])
    [(again, second)] = await bench.complete([command])
    assert (first, second) == ("accepted", "duplicate") and event_id == again


async def test_a_row_that_is_locked_is_not_waited_for(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    shard_id = shard_of(execution_id, SHARD_COUNT)
    async with transaction(pool) as conn:
        await conn.execute("SELECT FROM noetl.shard_head WHERE shard_id = %s FOR UPDATE", [shard_id])
        reporting = asyncio.create_task(bench.complete([command]))
        await asyncio.sleep(0.3)
        assert not reporting.done()  # the long way waits for the head, the short way did not take it
    [(event_id, outcome)] = await reporting
    assert event_id and outcome == "accepted"
    await bench.drive()
    assert (await events_of(pool, execution_id)).count("playbook.completed") == 1


async def test_a_report_that_the_log_refuses_ends_its_command_the_long_way(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    report = report_of(command, result=Envelope(status="COMPLETED", context={"much": "x" * 9_000}))
    [(event_id, outcome)] = await bench.appender.report("w", [report])
    assert event_id and outcome == "accepted"
    await bench.drive()
    assert (await events_of(pool, execution_id))[-1] == "playbook.failed"


async def test_runs_that_go_both_ways_at_once_all_end_once(pool: Pool, bench: Bench) -> None:
    async def work() -> None:
        while True:
            claimed = await bench.claims.claim(Claim(worker_id="w", max=5, wait_s=0.05))
            await bench.complete(claimed.commands)

    async def route() -> None:
        while True:
            await bench.route()
            await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(work()), asyncio.create_task(work()), asyncio.create_task(route())]
    ids = await asyncio.gather(*(bench.start("tests/chain") for _ in range(40)))
    await asyncio.gather(*(append_elsewhere(pool, execution_id) for execution_id in ids))
    async with asyncio.timeout(30):
        while True:
            text = "SELECT FROM noetl.event WHERE event_type = 'playbook.completed' AND execution_id = ANY(%s)"
            if len(await rows(pool, text, list(ids))) == len(ids):
                break
            await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for execution_id in ids:
        found = await events_of(pool, execution_id)
        assert found.count("command.issued") == found.count("command.completed") == 3, found


def chunk_of(command: Any, chunk: int) -> Any:
    return report_of(command, event_type="call.partial", status="PARTIAL", task="first", chunk=chunk)


async def test_chunks_go_along_with_the_report_that_ends_their_command(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    before = metrics.value("noetl_short_way_total", outcome="committed")
    answers = await bench.appender.report("w", [chunk_of(command, 0), chunk_of(command, 1)])
    assert [outcome for _event_id, outcome in answers] == ["accepted"] * 2
    assert await commands_of(pool, execution_id) == [("first", "claimed", "w")]
    answers = await bench.appender.report("w", [chunk_of(command, 2), report_of(command)])
    assert [outcome for _event_id, outcome in answers] == ["accepted"] * 2
    assert await commands_of(pool, execution_id) == [("first", "completed", "w"), ("second", "pending", None)]
    assert metrics.value("noetl_short_way_total", outcome="committed") - before == 4
    assert (await events_of(pool, execution_id)).count("call.partial") == 3


async def test_a_chunk_behind_the_end_of_its_command_is_fenced(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    answers = await bench.appender.report("w", [report_of(command), chunk_of(command, 0)])
    assert [outcome for _event_id, outcome in answers] == ["accepted", "fenced"]
    await bench.drive()
    assert "call.partial" not in await events_of(pool, execution_id)


async def test_a_chunk_of_a_lost_claim_does_not_hide_behind_one_of_the_current(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    zombie = chunk_of(command, 0)
    text = "UPDATE noetl.command SET claim_token = claim_token + 1000 WHERE execution_id = %s RETURNING claim_token"
    [row] = await rows(pool, text, execution_id)
    current = chunk_of(command, 1)
    current.claim_token = row["claim_token"]
    answers = await bench.appender.report("w", [zombie, current])
    assert [outcome for _event_id, outcome in answers] == ["fenced", "accepted"]


async def test_a_renewal_of_leases_holds_a_report_up_but_does_not_send_it_the_long_way(
    pool: Pool, bench: Bench
) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    before = metrics.value("noetl_short_way_total", outcome="committed")
    async with transaction(pool) as conn:
        text = "UPDATE noetl.command SET lease_until = clock_timestamp() + interval '1 min' WHERE execution_id = %s"
        await conn.execute(text, [execution_id])
        reporting = asyncio.create_task(bench.complete([command]))
        await asyncio.sleep(0.02)
        assert not reporting.done()
    [(_event_id, outcome)] = await reporting
    assert outcome == "accepted" and metrics.value("noetl_short_way_total", outcome="committed") == before + 1
    assert await commands_of(pool, execution_id) == [("first", "completed", "w"), ("second", "pending", None)]


async def crowd_under_way(bench: Bench, command: Any) -> asyncio.Task[Any]:
    """Return the reports of more chunks than the short way takes, as soon as the long way has begun with them."""
    chunks = [chunk_of(command, chunk) for chunk in range(at_once.INPUTS_MAX + 1)]
    shard_id = shard_of(command.execution_id, SHARD_COUNT)
    reporting = asyncio.create_task(bench.appender.report("w", chunks))
    while shard_id not in bench.appender._flushers or bench.appender._queues[shard_id]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return reporting


async def test_a_shard_that_went_the_long_way_comes_back_to_the_short_one(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    before = metrics.value("noetl_short_way_total", outcome="committed")
    crowd = await crowd_under_way(bench, command)
    assert not crowd.done()
    await bench.complete([command])  # comes while they are committed; they are routed before it
    assert metrics.value("noetl_short_way_total", outcome="committed") == before + 1
    assert await commands_of(pool, execution_id) == [("first", "completed", "w"), ("second", "pending", None)]
    assert {outcome for _event_id, outcome in await crowd} == {"accepted"}


@pytest.mark.parametrize("error", [Unavailable("the store is away"), AssertionError("a bug")])
async def test_what_cannot_be_routed_is_not_tried_with_each_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await bench.start("tests/chain")
    [command] = await bench.claim()
    tried = 0

    async def fail(_shard_id: int) -> int:
        nonlocal tried
        tried += 1
        raise error

    monkeypatch.setattr(bench.router, "route_once", fail)
    for batch in range(3):
        crowd = await crowd_under_way(bench, command)
        chunk = chunk_of(command, 1000 + batch)
        [(_event_id, outcome)] = await bench.appender.report("w", [chunk])
        assert outcome == "accepted"
        await crowd
    assert tried == 1


async def test_starts_of_large_loops_are_not_committed_together(
    pool: Pool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_text(pool, LOOP)
    await bench.run("tests/loop")
    monkeypatch.setattr(at_once, "COMMANDS_MAX", 7)
    sizes: list[tuple[int, int]] = []
    committed = at_once.AtOnce._committed

    async def counted(short_way: at_once.AtOnce, batches: list[Batch], parts: Any) -> Any:
        sizes.extend((len(one.decisions), sum(len(d.commands) for d in one.decisions)) for one in batches)
        return await committed(short_way, batches, parts)

    monkeypatch.setattr(at_once.AtOnce, "_committed", counted)
    ids = await asyncio.gather(*(bench.start("tests/loop") for _ in range(40)))
    await bench.route()
    found = await rows(pool, "SELECT step FROM noetl.command WHERE execution_id = ANY(%s)", list(ids))
    assert len(found) == 5 * len(ids)
    assert sizes and all(inputs == 1 or commands <= 7 for inputs, commands in sizes)


async def test_a_shard_that_is_always_found_changed_is_left_to_the_long_way_for_a_second(bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    short_way = bench.appender._short_way
    assert isinstance(short_way, at_once.AtOnce)
    shard_id = shard_of(execution_id, SHARD_COUNT)
    batch = Batch(shard_id=shard_id, epoch=0, old_seq=0, new_seq=0, decisions=[])
    for _ in range(2_000):
        short_way._withdraw([batch])
    left_s = short_way._resting_until_s[shard_id] - asyncio.get_running_loop().time()
    assert 0.9 < left_s <= 1.0


async def test_chunks_that_a_second_attempt_repeats_do_not_hold_up_other_shards(pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/chain")
    [command] = await bench.claim()
    await bench.appender.report("w", [chunk_of(command, 0)])
    text = "UPDATE noetl.command SET attempt = 2, claim_token = claim_token + 1000 WHERE execution_id = %s RETURNING *"
    [row] = await rows(pool, text, execution_id)
    failed = metrics.value("noetl_short_way_total", outcome="failed")
    again = chunk_of(command, 0)
    again.attempt, again.claim_token = 2, row["claim_token"]
    [(_event_id, outcome)] = await bench.appender.report("w", [again])
    assert outcome == "duplicate" and metrics.value("noetl_short_way_total", outcome="failed") == failed

"""The append path: group commit, claims as fences, refused envelopes."""

import asyncio

import msgspec

from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import seq_in, shard_of
from noetl_common.db import Pool
from noetl_common.ids import mint_execution_id
from noetl_common.wire import ClaimedCommand
from services.ingest import store_claims
from tests.ingesting import Recorder, appender_on, issue, report_of, result_row, rows_of, start_of, started
from tests.servers import SHARD_COUNT


async def claim(pool: Pool, *, max_: int = 100, worker_id: str = "w1") -> list[ClaimedCommand]:
    return await store_claims.claim_commands(pool, pool_name="default", worker_id=worker_id, max_=max_, lease_s=15)


async def test_a_start_writes_its_execution_and_its_first_input_together(pool: Pool) -> None:
    recorder = Recorder()
    execution_id = mint_execution_id()
    event_id = await appender_on(pool, recorder).start(start_of(execution_id))
    [row] = await rows_of(pool, "SELECT * FROM noetl.execution WHERE execution_id = %s", execution_id)
    [event] = await rows_of(pool, "SELECT * FROM noetl.event WHERE execution_id = %s", execution_id)
    assert row["status"] == "RUNNING"
    assert (event["event_id"], event["catalog_id"], event["status"]) == (event_id, 7, "STARTED")
    assert recorder.offered[0][1][0].event_id == event_id


async def test_a_taken_execution_id_is_not_started_twice(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    execution_id = await started(appender)
    assert await appender.start(start_of(execution_id)) == 0
    assert len(await rows_of(pool, "SELECT 1 FROM noetl.event")) == 1


async def test_a_report_is_accepted_once_and_told_the_same_id_again(pool: Pool) -> None:
    recorder = Recorder()
    appender = appender_on(pool, recorder)
    execution_id = await started(appender)
    await issue(pool, execution_id)
    [command] = await claim(pool)
    row = result_row(execution_id, {"x": 1})
    report = report_of(command, results=[row])
    [(event_id, outcome)] = await appender.report("w1", [report])
    assert outcome == "accepted"
    assert await appender.report("w1", [report]) == [(event_id, "duplicate")]
    [event] = await rows_of(pool, "SELECT * FROM noetl.event WHERE event_type = 'command.completed'")
    assert (event["event_id"], event["status"], event["dedup_key"]) == (
        event_id,
        "COMPLETED",
        f"done:{command.command_id}",
    )
    assert event["result"] == {"status": "COMPLETED"}
    [stored] = await rows_of(pool, "SELECT * FROM noetl.result_ref")
    assert bytes(stored["inline_payload"]) == b'{"x":1}'
    assert [rows for _shard, _events, rows in recorder.offered] == [[], [row]]


async def test_the_same_report_twice_in_one_batch_counts_once(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    await issue(pool, await started(appender))
    [command] = await claim(pool)
    answers = await appender.report("w1", [report_of(command), report_of(command)])
    assert [outcome for _id, outcome in answers] == ["accepted", "duplicate"]
    assert answers[0][0] == answers[1][0]


async def test_a_report_with_another_token_is_fenced_and_changes_nothing(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    await issue(pool, await started(appender))
    [command] = await claim(pool)
    stale = report_of(command, claim_token=command.claim_token + 1000)
    assert await appender.report("w1", [stale]) == [(0, "fenced")]
    [row] = await rows_of(pool, "SELECT status FROM noetl.command")
    assert row["status"] == "claimed"
    assert not await rows_of(pool, "SELECT 1 FROM noetl.event WHERE event_type = 'command.completed'")


async def test_a_report_without_token_is_fenced_by_worker_and_attempt(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    await issue(pool, await started(appender))
    [command] = await claim(pool, worker_id="w1")
    other = report_of(command, claim_token=0)
    assert await appender.report("w2", [other]) == [(0, "fenced")]
    late = report_of(command, claim_token=0, attempt=9)
    assert await appender.report("w1", [late]) == [(0, "fenced")]
    [(_id, outcome)] = await appender.report("w1", [report_of(command, claim_token=0, attempt=0)])
    assert outcome == "accepted"


async def test_a_report_of_an_unknown_command_is_unknown(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    await issue(pool, await started(appender))
    [command] = await claim(pool)
    assert await appender.report("w1", [report_of(command, command_id=1)]) == [(0, "unknown")]


async def test_a_report_takes_its_place_from_the_command(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    await issue(pool, await started(appender), count=2, step="real")
    [first, _second] = await claim(pool)
    await appender.report("w1", [report_of(first, step="lie", iter_index=77, loop_epoch=78)])
    [event] = await rows_of(pool, "SELECT * FROM noetl.event WHERE event_type = 'command.completed'")
    assert (event["step"], event["iter_index"], event["loop_epoch"]) == ("real", first.iter_index, 9)


async def test_one_refused_envelope_does_not_hold_up_its_batch(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    await issue(pool, await started(appender), count=20)
    commands = await claim(pool)
    assert len(commands) == 20
    bad = {3: Envelope(status="ok", context={"rows": [1]}), 11: Envelope(status="ok", context={"x": "y" * 9000})}
    reports = [report_of(one, result=bad.get(i, Envelope(status="ok"))) for i, one in enumerate(commands)]
    answers = await appender.report("w1", reports)
    assert [outcome for _id, outcome in answers] == ["accepted"] * 20
    failed = await rows_of(pool, "SELECT * FROM noetl.event WHERE event_type = 'command.failed' ORDER BY event_id")
    assert [one["command_id"] for one in failed] == [commands[3].command_id, commands[11].command_id]
    assert failed[0]["result"]["error"]["code"] == "ENVELOPE_REJECTED"
    done = await rows_of(pool, "SELECT 1 FROM noetl.event WHERE event_type = 'command.completed'")
    assert len(done) == 18
    statuses = await rows_of(pool, "SELECT status, count(*) AS n FROM noetl.command GROUP BY status ORDER BY status")
    assert [(one["status"], one["n"]) for one in statuses] == [("completed", 18), ("failed", 2)]


async def test_a_null_character_in_a_report_ends_its_command(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    await issue(pool, await started(appender))
    [command] = await claim(pool)
    report = report_of(command, result=Envelope(status="ok", context={"x": "a\x00b"}))
    [(_id, outcome)] = await appender.report("w1", [report])
    assert outcome == "accepted"
    [row] = await rows_of(pool, "SELECT status FROM noetl.command")
    assert row["status"] == "failed"


async def test_concurrent_appends_leave_no_gap(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    execution_ids = [mint_execution_id() for _ in range(120)]
    event_ids = await asyncio.gather(*(appender.start(start_of(one)) for one in execution_ids))
    seqs: dict[int, list[int]] = {}
    for execution_id, event_id in zip(execution_ids, event_ids, strict=True):
        seqs.setdefault(shard_of(execution_id, SHARD_COUNT), []).append(seq_in(event_id))
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in seqs.values())


async def test_inputs_of_a_shard_owned_elsewhere_ring_its_bell(pool: Pool) -> None:
    recorder = Recorder(owns=False)
    execution_id = await started(appender_on(pool, recorder))
    assert recorder.rung == [f"noetl.shards.{shard_of(execution_id, SHARD_COUNT)}"]
    assert not recorder.offered


async def test_an_input_of_an_unknown_execution_is_not_taken(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    envelope = Envelope(status="REQUESTED", context={"reason": "x"})
    event = Event(execution_id=mint_execution_id(), event_type="cancel.requested", status="REQUESTED", result=envelope)
    assert await appender.append([event]) == [0]


async def test_an_append_survives_the_loss_of_its_connections(pool: Pool) -> None:
    recorder = Recorder()
    appender = appender_on(pool, recorder)
    await issue(pool, await started(appender))
    [command] = await claim(pool)
    async with pool.connection() as conn:
        await conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    [(event_id, outcome)] = await appender.report("w1", [report_of(command)])
    assert event_id and outcome == "accepted"


async def test_a_result_keeps_its_bytes(pool: Pool) -> None:
    appender = appender_on(pool, Recorder())
    execution_id = await started(appender)
    await issue(pool, execution_id)
    [command] = await claim(pool)
    text = '{ "ä": "\\u0000 ☃", "n": 1.0 }'.encode()
    row = result_row(execution_id, {})
    row.inline, row.bytes = msgspec.Raw(text), len(text)
    await appender.report("w1", [report_of(command, results=[row])])
    [found] = await store_claims.read_results(pool, [(execution_id, row.ref_id)])
    assert found.inline is not None and bytes(found.inline) == text

"""Chunks on the append path, and what an attempt notes down: both fenced by the claim, both told once."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.core.values import reference_of
from noetl_common.db import Pool
from noetl_common.errors import Conflict, Invalid
from noetl_common.secrets import generate_key
from noetl_common.wire import DETAILS_BYTES_MAX, Claim, ClaimedCommand, Details, Report, ReportBatch, encode
from services.ingest.app import app as ingest_app
from services.ingest.bells import PoolBells
from services.ingest.claims import Claims
from services.ingest.config import Config as IngestConfig
from services.ingest.foreign import ForeignBatch, ForeignEvent, convert
from tests.builders import disk_store
from tests.ingesting import Recorder, appender_on, issue, ref_of, report_of, result_row, rows_of, started
from tests.running import start_role

EVENTS = "SELECT * FROM noetl.event WHERE event_type LIKE 'c%%' AND event_type <> 'command.issued' ORDER BY event_id"


@pytest.fixture
def claims(pool: Pool) -> Claims:
    return Claims(pool, PoolBells(), lease_s=15)


async def claimed(pool: Pool, claims: Claims, *, count: int = 1) -> list[ClaimedCommand]:
    execution_id = await started(appender_on(pool, Recorder()))
    await issue(pool, execution_id, count=count)
    return (await claims.claim(Claim(worker_id="w1", max=count))).commands


async def again(pool: Pool, claims: Claims, command: ClaimedCommand) -> ClaimedCommand:
    """Give the command to another claim, as the reaper does after a lease ran out."""
    await rows_of(
        pool,
        "UPDATE noetl.command SET status = 'pending', crash_count = 1 WHERE command_id = %s RETURNING 1",
        command.command_id,
    )
    return (await claims.claim(Claim(worker_id="w2"))).commands[0]


def chunk_of(command: ClaimedCommand, number: int, value: Any = None, **changes: Any) -> Report:
    label = f"load.chunk.{number}"
    row = result_row(command.execution_id, [number, value], task_label=label)
    report = report_of(command, event_type="call.partial", task="load", chunk=number, results=[row], **changes)
    report.result.reference = reference_of(ref_of(row))
    return report


async def test_a_chunk_is_an_input_and_its_command_goes_on(pool: Pool, claims: Claims) -> None:
    [command] = await claimed(pool, claims)
    recorder = Recorder()
    appender = appender_on(pool, recorder)
    [(event_id, outcome)] = await appender.report("w1", [chunk_of(command, 0)])
    assert (outcome, event_id > 0) == ("accepted", True)
    [event] = await rows_of(pool, EVENTS)
    assert (event["event_type"], event["status"], event["event_id"] & 32767) == ("call.partial", "PARTIAL", 0)
    assert event["dedup_key"] == f"partial:{command.command_id}:load:0"
    assert event["result"]["context"] == {"task": "load", "chunk": 0}
    assert event["result"]["reference"]["kind"] == "result_ref"
    [row] = await rows_of(pool, "SELECT * FROM noetl.command")
    assert (row["status"], row["claim_token"]) == ("claimed", command.claim_token)
    [stored] = await rows_of(pool, "SELECT * FROM noetl.result_ref")
    assert (stored["task_label"], bytes(stored["inline_payload"])) == ("load.chunk.0", b"[0,null]")
    assert [events[0].event_type for _shard, events, _rows in recorder.offered] == ["call.partial"]


async def test_a_chunk_sent_again_is_a_duplicate_whoever_runs_the_command_now(pool: Pool, claims: Claims) -> None:
    [command] = await claimed(pool, claims)
    appender = appender_on(pool, Recorder())
    [first] = await appender.report("w1", [chunk_of(command, 0)])
    assert await appender.report("w1", [chunk_of(command, 0)]) == [(first[0], "duplicate")]
    newer = await again(pool, claims, command)
    answers = await appender.report("w2", [chunk_of(newer, 0), chunk_of(newer, 1)])
    assert [outcome for _id, outcome in answers] == ["duplicate", "accepted"]
    assert answers[0][0] == first[0]
    assert len(await rows_of(pool, EVENTS)) == 2


async def test_a_chunk_of_a_lost_claim_is_fenced_and_leaves_nothing(pool: Pool, claims: Claims) -> None:
    [command] = await claimed(pool, claims)
    appender = appender_on(pool, Recorder())
    await again(pool, claims, command)
    assert await appender.report("w1", [chunk_of(command, 0)]) == [(0, "fenced")]
    assert await appender.report("w1", [chunk_of(command, 0, command_id=1)]) == [(0, "unknown")]
    assert await rows_of(pool, EVENTS) == []
    assert await rows_of(pool, "SELECT 1 FROM noetl.result_ref") == []


async def test_chunks_and_ends_of_several_commands_keep_their_order_in_one_batch(pool: Pool, claims: Claims) -> None:
    first, second = await claimed(pool, claims, count=2)
    batch = [
        chunk_of(first, 0),
        chunk_of(second, 0),
        chunk_of(first, 1),
        report_of(first),
        chunk_of(first, 2),
        chunk_of(second, 1),
        report_of(first),
    ]
    answers = await appender_on(pool, Recorder()).report("w1", batch)
    expected = ["accepted", "accepted", "accepted", "accepted", "fenced", "accepted", "duplicate"]
    assert [outcome for _id, outcome in answers] == expected
    taken = [event_id for event_id, outcome in answers if outcome == "accepted"]
    assert taken == sorted(taken)
    states = {row["command_id"]: row["status"] for row in await rows_of(pool, "SELECT * FROM noetl.command")}
    assert states == {first.command_id: "completed", second.command_id: "claimed"}


async def test_a_chunk_that_the_log_refuses_ends_nothing(pool: Pool, claims: Claims) -> None:
    [command] = await claimed(pool, claims)
    appender = appender_on(pool, Recorder())
    refused = chunk_of(command, 0)
    refused.result.error = {"message": "x" * 9000}
    with pytest.raises(Invalid):
        await appender.report("w1", [refused])
    [row] = await rows_of(pool, "SELECT status FROM noetl.command")
    assert row["status"] == "claimed"
    assert [outcome for _id, outcome in await appender.report("w1", [chunk_of(command, 0)])] == ["accepted"]


async def test_the_next_attempt_gets_what_the_one_before_noted_down(pool: Pool, claims: Claims) -> None:
    [command] = await claimed(pool, claims)
    assert command.details is None
    for noted in ({"xid": "1"}, {"xid": "77", "rows": 2}):
        row = result_row(command.execution_id, [noted], task_label="claim.rows")
        details = Details(
            worker_id="w1",
            execution_id=command.execution_id,
            claim_token=command.claim_token,
            details=noted,
            results=[row],
        )
        await claims.note_details(command.command_id, details)
    assert [held.details for held in (await claims.held("w1")).commands] == [{"xid": "77", "rows": 2}]
    newer = await again(pool, claims, command)
    assert newer.details == {"xid": "77", "rows": 2}
    assert len(await rows_of(pool, "SELECT 1 FROM noetl.result_ref")) == 2
    with pytest.raises(Conflict) as lost:
        await claims.note_details(command.command_id, details)
    assert lost.value.code == "claim_lost"
    [kept] = await rows_of(pool, "SELECT details FROM noetl.command")
    assert kept["details"] == {"xid": "77", "rows": 2}


@pytest.mark.parametrize(
    "noted", [{"x": "x" * DETAILS_BYTES_MAX}, {"x": "a\0b"}, {"x": [1] * (DETAILS_BYTES_MAX // 2 - 10)}]
)
async def test_details_that_do_not_fit_are_refused(pool: Pool, claims: Claims, noted: dict[str, Any]) -> None:
    [command] = await claimed(pool, claims)
    details = Details(worker_id="w1", execution_id=command.execution_id, claim_token=command.claim_token, details=noted)
    with pytest.raises(Invalid):
        await claims.note_details(command.command_id, details)


async def test_the_api_takes_chunks_and_details_and_says_what_is_wrong_with_them(
    pool: Pool, dsn: str, nats_url: str, claims: Claims, tmp_path: Path
) -> None:
    config = IngestConfig(
        database_url=dsn, nats_url=nats_url, port=0, encryption_key=generate_key(), store_dir=str(tmp_path)
    )
    [command] = await claimed(pool, claims)
    url = f"/api/commands/{command.command_id}/details"
    good = {"worker_id": "w1", "execution_id": command.execution_id, "details": {"xid": "5"}}
    async with start_role(ingest_app, config) as server, httpx.AsyncClient(base_url=server.url) as client:

        async def post(path: str, body: Any) -> tuple[int, dict[str, Any]]:
            sent = await client.post(path, content=encode(body))
            return sent.status_code, sent.json()

        async def chunk(**changes: Any) -> tuple[int, dict[str, Any]]:
            report = chunk_of(command, 0)
            for name, value in changes.items():
                setattr(report, name, value)
            return await post("/api/events/batch", ReportBatch(worker_id="w1", events=[report]))

        assert (await chunk())[1]["outcomes"] == ["accepted"]
        assert (await chunk())[1]["outcomes"] == ["duplicate"]
        for changes, place in (({"chunk": -1}, "chunk"), ({"chunk": 10_000}, "chunk"), ({"task": ""}, "task")):
            status, problem = await chunk(**changes)
            assert (status, problem["pointer"]) == (422, f"/events/0/{place}")
        assert await post(url, {**good, "claim_token": command.claim_token}) == (200, {"status": "noted"})
        status, problem = await post(url, {**good, "claim_token": command.claim_token + 1})
        assert (status, problem["code"]) == (409, "claim_lost")
        events = (await client.get(f"/api/executions/{command.execution_id}/events?event_type=call_partial")).json()
        assert "events" in events


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"payload": {"command_id": 7, "chunk_index": 3, "rows": [1], "has_more": True}}, (7, 3, b'{"rows":[1]}')),
        ({"meta": {"command_id": "7", "chunk_index": "0"}, "payload": {"result": [2]}}, (7, 0, b"[2]")),
        ({"payload": {"chunk_index": 3, "rows": [1]}}, None),
        ({"payload": {"command_id": 7, "rows": [1]}}, None),
    ],
)
async def test_a_foreign_chunk_counts_when_it_says_whose_and_which_it_is(
    tmp_path: Path, said: dict[str, Any], expected: Any
) -> None:
    event = ForeignEvent(name="call.partial", execution_id=5, step="s", attempt=1, **said)
    converted = await convert(ForeignBatch(events=[event], worker_id="w"), disk_store(tmp_path))
    found = [
        (report.command_id, report.chunk, bytes(report.results[0].inline or b""))
        for report in converted.reports
        if report.event_type == "call.partial" and report.task == "s"
    ]
    assert found == ([expected] if expected else [])


async def test_a_foreign_chunk_is_fenced_as_the_end_of_its_command_is(pool: Pool, claims: Claims) -> None:
    [command] = await claimed(pool, claims)
    appender = appender_on(pool, Recorder())
    assert await appender.report("w2", [chunk_of(command, 0, claim_token=0)]) == [(0, "fenced")]
    [(_id, outcome)] = await appender.report("w1", [chunk_of(command, 0, claim_token=0)])
    assert outcome == "accepted"

"""The HTTP API of ingest, driven as an ASGI application on a real database."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from noetl_common.core.events import Envelope
from noetl_common.core.shard import event_id, shard_of
from noetl_common.db import Pool
from noetl_common.secrets import Vault, generate_key, load_key
from noetl_common.wire import Claimed, encode
from services.ingest.asgi import build_asgi
from services.ingest.auth import Guard
from services.ingest.bells import PoolBells
from services.ingest.claims import Claims
from services.ingest.endpoints import Api
from services.ingest.routes import ENDPOINTS
from services.ingest.starts import Starter
from services.ingest.store import insert_results
from tests.builders import disk_store
from tests.ingesting import PLAYBOOK, Recorder, appender_on, issue, ref_of, report_of, result_row, rows_of
from tests.servers import SHARD_COUNT


@pytest.fixture
def api(pool: Pool, tmp_path: Path) -> Api:
    appender = appender_on(pool, Recorder())
    store = disk_store(tmp_path)
    return Api(
        pool=pool,
        appender=appender,
        claims=Claims(pool, PoolBells(), lease_s=15),
        starter=Starter(pool, appender, shard_count=SHARD_COUNT, store=store),
        store=store,
        vault=Vault(load_key(generate_key())),
        guard=Guard(None),
        shard_count=SHARD_COUNT,
    )


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_asgi(api))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as opened:
        yield opened


async def registered(client: httpx.AsyncClient, text: str = PLAYBOOK) -> dict[str, Any]:
    answer = await client.post("/api/catalog/register", json={"content": text, "resource_type": "Playbook"})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def executed(client: httpx.AsyncClient, **body: Any) -> int:
    await registered(client)
    answer = await client.post("/api/execute", json={"path": "tests/hello", **body})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["execution_id"])


async def route(pool: Pool, execution_id: int) -> None:
    """Move the cursor to the head, as a router that drew nothing."""
    async with pool.connection() as conn:
        await conn.execute(
            "UPDATE noetl.shard_cursor c SET seq = h.seq FROM noetl.shard_head h"
            " WHERE h.shard_id = c.shard_id AND c.shard_id = %s",
            [shard_of(execution_id, SHARD_COUNT)],
        )


def is_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = dict(answer.json())
    assert body["status"] == status and body["error"] and body["detail"] and body["code"]
    return body


async def test_a_document_gets_one_version_more_only_when_it_changed(client: httpx.AsyncClient) -> None:
    first = await registered(client)
    again = await registered(client, base64.b64encode(PLAYBOOK.encode()).decode())
    changed = await registered(client, PLAYBOOK + "\n# changed\n")
    assert (first["path"], first["version"], first["kind"]) == ("tests/hello", 1, "Playbook")
    assert (again["version"], again["catalog_id"]) == (1, first["catalog_id"])
    assert changed["version"] == 2
    resource = await client.post("/api/catalog/resource", json={"path": "tests/hello", "version": "1"})
    assert resource.json()["content"] == PLAYBOOK
    listed = await client.get("/api/catalog/list/Playbook")
    assert [one["version"] for one in listed.json()["entries"]] == [2, 1]


async def test_a_malformed_document_is_refused_with_line_and_column(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/catalog/register", json={"content": "metadata: {name: x\nworkflow: [\n"})
    [problem, *_rest] = is_problem(answer, 422)["problems"]
    assert problem["line"] > 0


async def test_a_start_is_found_right_after(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client, payload={"who": "me"})
    status = (await client.get(f"/api/executions/{execution_id}/status")).json()
    assert (status["status"], status["completed"], status["failed"], status["is_cancelled"]) == (
        "RUNNING",
        False,
        False,
        False,
    )
    detail = (await client.get(f"/api/executions/{execution_id}")).json()
    assert detail["workload"] == {"greeting": "hi", "who": "me"}
    assert (await client.get("/api/executions?status=running")).json()[0]["execution_id"] == str(execution_id)


async def test_a_repeated_idempotency_key_starts_nothing(client: httpx.AsyncClient, pool: Pool) -> None:
    await registered(client)
    headers = {"Idempotency-Key": "k1"}
    answers = [await client.post("/api/execute", json={"path": "tests/hello"}, headers=headers) for _ in range(3)]
    assert [one.json()["status"] for one in answers] == ["started", "duplicate", "duplicate"]
    assert len({one.json()["execution_id"] for one in answers}) == 1
    assert len(await rows_of(pool, "SELECT 1 FROM noetl.execution")) == 1


@pytest.mark.parametrize("size_bytes", [600, 20_000])
async def test_a_large_workload_becomes_a_reference(client: httpx.AsyncClient, size_bytes: int) -> None:
    execution_id = await executed(client, payload={"blob": "x" * size_bytes})
    detail = (await client.get(f"/api/executions/{execution_id}")).json()
    reference = detail["workload_ref"]
    assert reference.get("tier", "db") == ("db" if size_bytes < 8000 else "disk")
    uri = f"noetl://execution/{execution_id}/result/{reference['label']}/{reference['ref_id']}"
    payload = await client.get("/api/result/resolve", params={"ref": uri})
    assert payload.json() == {"greeting": "hi", "blob": "x" * size_bytes}


async def test_only_routed_events_are_shown(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    url = f"/api/executions/{execution_id}/events"
    assert (await client.get(url)).json()["events"] == []
    await route(pool, execution_id)
    [event] = (await client.get(url)).json()["events"]
    assert (event["event_type"], event["status"]) == ("playbook.started", "STARTED")
    by_alias = (await client.get(url, params={"event_type": "execution_started"})).json()
    assert by_alias["pagination"]["total_events"] == 1
    after = (await client.get(url, params={"since_event_id": event["event_id"]})).json()
    assert after["events"] == []


async def test_a_claim_is_shown_as_a_derived_event(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    await issue(pool, execution_id)
    await route(pool, execution_id)
    await client.post("/api/commands/claim", json={"worker_id": "w1", "max": 1})
    events = (await client.get(f"/api/executions/{execution_id}/events")).json()["events"]
    assert [one["event_type"] for one in events] == ["playbook.started", "command.issued", "command.claimed"]
    assert events[2]["worker_id"] == "w1" and events[2]["meta"]["derived"]
    claims = (await client.get(f"/api/executions/{execution_id}/events?event_type=command.claimed")).json()["events"]
    assert [one["event_type"] for one in claims] == ["command.claimed"]


async def test_claims_bring_contexts_and_small_results_once(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    row = result_row(execution_id, {"x": [1, 2]}, step="before")
    await issue(pool, execution_id, count=3, results={"before": ref_of(row)})
    async with pool.connection() as conn:
        await insert_results(conn, [row])
    answer = await client.post("/api/commands/claim", json={"worker_id": "w1", "max": 2})
    claimed = msgspec.json.decode(answer.content, type=Claimed)
    assert len(claimed.commands) == 2 and len(claimed.contexts) == 1 and len(claimed.results) == 1
    assert claimed.results[0].inline is not None and bytes(claimed.results[0].inline) == b'{"x":[1,2]}'
    again = msgspec.json.decode((await client.get("/api/workers/w1/claims")).content, type=Claimed)
    assert again.commands == claimed.commands


async def test_a_worker_claims_reports_and_traces(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    await issue(pool, execution_id)
    answer = await client.post("/api/commands/claim", json={"worker_id": "w1", "max": 5})
    [command] = msgspec.json.decode(answer.content, type=Claimed).commands
    row = result_row(execution_id, {"x": 1})
    report = report_of(command, results=[row])
    body = encode({"worker_id": "w1", "events": [report]})
    first = (await client.post("/api/events/batch", content=body)).json()
    second = (await client.post("/api/events/batch", content=body)).json()
    assert first["outcomes"] == ["accepted"] and second["outcomes"] == ["duplicate"]
    assert first["event_ids"] == second["event_ids"]
    chain = (await client.get(f"/api/executions/{execution_id}/trace/s")).json()
    assert chain["source"] == "events" and chain["chain"][0]["ref_id"] == str(row.ref_id)
    read = await client.post("/api/results/read", json={"execution_id": execution_id, "refs": [row.ref_id, 1]})
    assert [one["inline"] for one in read.json()["rows"]] == [{"x": 1}]


async def test_the_results_of_a_loop_come_in_index_order(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    await issue(pool, execution_id, count=7)
    answer = await client.post("/api/commands/claim", json={"worker_id": "w1", "max": 7})
    commands = msgspec.json.decode(answer.content, type=Claimed).commands
    reports = [
        report_of(one, results=[result_row(execution_id, one.iter_index, loop_epoch=9, iter_index=one.iter_index)])
        for one in reversed(commands)
    ]
    await client.post("/api/events/batch", content=encode({"worker_id": "w1", "events": reports}))
    url = f"/api/results/loop?execution_id={execution_id}&loop_epoch=9&limit=5"
    page = (await client.get(url)).json()
    assert ([one["inline"] for one in page["results"]], page["next_after"]) == ([0, 1, 2, 3, 4], 4)
    rest = (await client.get(f"{url}&after=4")).json()
    assert ([one["inline"] for one in rest["results"]], rest["next_after"]) == ([5, 6], None)


async def test_a_finished_command_cannot_be_claimed(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    await issue(pool, execution_id)
    issued = event_id(shard_of(execution_id, SHARD_COUNT), 1, 1)
    url = f"/api/commands/{issued}"
    claimed = (await client.post(f"{url}/claim", json={"worker_id": "w1"})).json()
    assert claimed["execution_id"] == execution_id and claimed["meta"]["attempt"] == 1
    assert claimed["context"]["tool_config"]["kind"] == "noop"
    busy = await client.post(f"{url}/claim", json={"worker_id": "w2"})
    assert is_problem(busy, 409)["detail"]["code"] == "active_claim" and int(busy.headers["retry-after"]) > 0
    event = {
        "execution_id": str(execution_id),
        "name": "command.completed",
        "step": "s",
        "worker_id": "w1",
        "payload": {"command_id": str(claimed["meta"]["command_id"]), "result": {"a": 1}},
    }
    reported = (await client.post("/api/events", json=event)).json()
    assert reported["outcome"] == "accepted" and reported["event_id"] > 0
    over = await client.post(f"{url}/claim", json={"worker_id": "w2"})
    assert is_problem(over, 409)["detail"]["code"] == "already_terminal"
    is_problem(await client.post("/api/commands/12345/claim", json={"worker_id": "w2"}), 404)


async def test_a_public_worker_reports_in_its_own_shape(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    [command_id] = await issue(pool, execution_id)
    await client.post("/api/commands/claim", json={"worker_id": "w1", "max": 1})
    meta = {"command_id": str(command_id), "attempt": 1}
    batch = {
        "execution_id": str(execution_id),
        "worker_id": "w1",
        "events": [
            {"step": "s", "name": "command.started", "payload": {}, "meta": meta},
            {"step": "s", "name": "call.done", "payload": {"response": {"rows": [1, 2]}}, "meta": meta},
            {"step": "s", "name": "step.exit", "payload": {}, "meta": meta},
            {"step": "s", "name": "command.completed", "payload": {"command_id": str(command_id)}, "meta": meta},
        ],
    }
    answer = await client.post("/api/events/batch", json=batch)
    assert answer.status_code == 202
    assert answer.json()["outcomes"] == ["accepted"] * 4
    stored = await rows_of(pool, "SELECT event_type, result FROM noetl.event WHERE event_type LIKE 'command.c%%'")
    [event] = stored
    resolved = await client.get("/api/result/resolve", params={"ref": event["result"]["reference"]["ref"]})
    assert resolved.json() == {"rows": [1, 2]}


async def test_bad_input_gets_a_clear_answer_and_changes_nothing(client: httpx.AsyncClient, pool: Pool) -> None:
    is_problem(await client.post("/api/execute", json={"path": "nowhere"}), 404)
    is_problem(await client.post("/api/execute", json={}), 422)
    assert is_problem(await client.post("/api/execute", json={"path": 5}), 422)["pointer"] == "/path"
    is_problem(await client.post("/api/execute", content=b"{"), 422)
    is_problem(await client.post("/api/execute", content=b'{"payload":' + b"[" * 70 + b"]" * 70 + b"}"), 413)
    is_problem(await client.post("/api/events/batch", content=b" " * (4 * 1024 * 1024 + 1)), 413)
    is_problem(await client.get("/api/executions/123/status"), 404)
    is_problem(await client.get("/api/executions/abc"), 404)
    is_problem(await client.get("/api/executions?page_size=10000"), 422)
    is_problem(await client.get("/nowhere"), 404)
    is_problem(await client.put("/api/execute"), 405)
    wrong = {"worker_id": "w", "events": [{"execution_id": 1, "event_type": "x", "claim_token": 1}]}
    assert is_problem(await client.post("/api/events/batch", json=wrong), 422)["pointer"].startswith("/events/0")
    many = {"worker_id": "w", "events": [{"name": "call.done"}] * 257}
    is_problem(await client.post("/api/events/batch", json=many), 422)
    assert not await rows_of(pool, "SELECT 1 FROM noetl.execution")


async def test_a_payload_that_is_not_what_it_claims_is_refused(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    await issue(pool, execution_id)
    answer = await client.post("/api/commands/claim", json={"worker_id": "w1"})
    [command] = msgspec.json.decode(answer.content, type=Claimed).commands
    bad = [
        result_row(execution_id, {"x": 1}, bytes=3),
        result_row(execution_id + 1, {"x": 1}),
        result_row(execution_id, {"x": 1}, inline=None),
        result_row(execution_id, "y" * 9000),
    ]
    for row in bad:
        body = encode({"worker_id": "w1", "events": [report_of(command, results=[row], result=Envelope(status="ok"))]})
        assert "/events/0/results/0" in is_problem(await client.post("/api/events/batch", content=body), 422)["pointer"]
    [stored] = await rows_of(pool, "SELECT status FROM noetl.command")
    assert stored["status"] == "claimed"


async def test_cancelling_is_recorded_and_refused_after_the_end(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    url = f"/api/executions/{execution_id}"
    answer = await client.post(f"{url}/cancel", json={"reason": "enough"})
    assert answer.json()["cancelled_executions"] == [str(execution_id)]
    [event] = await rows_of(pool, "SELECT result FROM noetl.event WHERE event_type = 'cancel.requested'")
    assert event["result"]["context"] == {"reason": "enough"}
    assert (await client.post(f"{url}/finalize", json={"status": "failed", "error": "x"})).status_code == 200
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.execution SET status = 'COMPLETED'")
    assert is_problem(await client.post(f"{url}/cancel"), 409)["code"] == "already_completed"
    assert (await client.get(f"{url}/cancellation-check")).json()["completed"]
    is_problem(await client.post("/api/executions/5/cancel"), 404)


async def test_credentials_are_sealed_and_never_listed(client: httpx.AsyncClient, pool: Pool) -> None:
    body = {"name": "pg", "type": "postgres", "data": {"password": "s3cret"}, "tags": ["a"]}
    created = (await client.post("/api/credentials", json=body)).json()
    assert "data" not in created
    assert "s3cret" not in (await client.get("/api/credentials")).text
    [row] = await rows_of(pool, "SELECT * FROM noetl.credential")
    assert b"s3cret" not in bytes(row["data_encrypted"])
    shown = await client.get("/api/credentials/pg?include_data=true")
    assert shown.json()["data"] == {"password": "s3cret"}
    assert (await client.get(f"/api/credentials/{created['id']}")).json()["name"] == "pg"
    assert (await client.delete("/api/credentials/pg")).json()["status"] == "deleted"
    is_problem(await client.get("/api/credentials/pg"), 404)


async def test_workers_come_live_and_leave(client: httpx.AsyncClient) -> None:
    body = {"name": "w1", "component_type": "worker_pool", "runtime": "python", "capacity": 4, "labels": {"pool": "p"}}
    assert (await client.post("/api/worker/pool/register", json=body)).json()["status"] == "ok"
    beat = {"worker_id": "w1", "leases": [], "active": 3, "capacity": 4}
    assert (await client.post("/api/commands/heartbeat", json=beat)).json() == {"cancelled": [], "lost": []}
    [item] = (await client.get("/api/workers")).json()["items"]
    assert (item["worker_id"], item["pool"], item["active_tasks"], item["available_slots"]) == ("w1", "p", 3, 1)
    assert (await client.post("/api/worker/pool/heartbeat", json={"name": "w9"})).json()["status"] == "unknown"
    assert (await client.get("/api/worker/pools?runtime=python")).json()["count"] == 1
    left = await client.request("DELETE", "/api/worker/pool/deregister", json={"name": "w1"})
    assert left.json()["status"] == "ok"
    assert (await client.get("/api/workers")).json()["items"] == []


async def test_the_openapi_document_lists_every_route_once(client: httpx.AsyncClient) -> None:
    described = (await client.get("/openapi.json")).json()
    operations = [op["operationId"] for path in described["paths"].values() for op in path.values()]
    assert len(operations) == len(ENDPOINTS) == len(set(operations))


async def test_tokens_are_asked_for_and_their_scopes_count(api: Api) -> None:
    api.guard = Guard(
        {"reader-token-0123456": ["read"], "worker-token-0123456": ["worker"], "admin-token-01234567": ["admin"]}
    )
    transport = httpx.ASGITransport(build_asgi(api))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as client:
        assert (await client.get("/api/health")).status_code == 200
        is_problem(await client.get("/api/executions"), 401)
        reader = {"Authorization": "Bearer reader-token-0123456"}
        assert (await client.get("/api/executions", headers=reader)).status_code == 200
        is_problem(await client.post("/api/commands/claim", json={"worker_id": "w"}, headers=reader), 403)
        is_problem(await client.get("/api/credentials/x?include_data=true", headers=reader), 403)
        worker = {"Authorization": "Bearer worker-token-0123456"}
        assert (await client.post("/api/commands/claim", json={"worker_id": "w"}, headers=worker)).status_code == 200
        admin = {"Authorization": "Bearer admin-token-01234567"}
        assert (await client.get("/api/credentials", headers=admin)).status_code == 200


async def test_a_status_tells_steps_in_both_public_shapes(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await executed(client)
    steps = {
        "a": {"status": "completed"},
        "b": {"status": "running", "items": {"total": 9, "done": 3, "failed": 1}},
    }
    async with pool.connection() as conn:
        text = encode({"steps": steps, "counts": {}}).decode()
        await conn.execute("UPDATE noetl.execution SET progress = %s, current_step = 'b'", [text])
        await conn.execute("UPDATE noetl.projection_checkpoint SET last_projected_event_id = 9000000000000000000")
    status = (await client.get(f"/api/executions/{execution_id}/status?wait_for=5")).json()
    assert status["completed_steps"] == ["a"] and status["current_step"] == "b"
    assert status["progress"]["completed_steps"] == 1 and status["progress"]["total_steps"] == 2
    [entry] = (await client.get("/api/executions")).json()
    assert entry["progress"] == 50

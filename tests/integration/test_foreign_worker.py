"""A worker of the public runtime, its whole life on the real server: both spellings, one command at a time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common import bus as buses
from noetl_common.db import Pool
from noetl_common.secrets import generate_key
from noetl_common.subjects import commands_bell
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from tests.ingesting import rows_of
from tests.running import start_role, wait_until

TWO_STEPS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: two, path: tests/two}
workload: {who: world}
workflow:
  - step: start
    tool: {kind: python, input: {who: "{{ workload.who }}"}, code: "result = {'text': 'hi ' + who}"}
    next: {arcs: [{step: then, when: "{{ start.text == 'hi world' }}"}]}
  - step: then
    tool: {kind: http, url: "http://example.org/{{ start.text }}"}
"""

ITEMS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: items, path: tests/two}
workflow:
  - step: start
    loop: {in: [5, 6], iterator: n}
    tool: {kind: python, code: "result = {'found': n}"}
    next: then
  - {step: then, tool: {kind: python, input: {found: "{{ start.results }}"}, code: result = found}}
"""

# What a public worker says before it begins; nothing of it is stored.
SIGNS = ("command.started", "step.enter")


@pytest.fixture
async def client(dsn: str, nats_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    ingest = IngestConfig(
        database_url=dsn, nats_url=nats_url, port=0, encryption_key=generate_key(), store_dir=str(tmp_path)
    )
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn)),
        start_role(compute_app, ComputeConfig(database_url=dsn)),
        start_role(ingest_app, ingest) as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as opened,
    ):
        yield opened


async def started(client: httpx.AsyncClient, document: str = TWO_STEPS) -> str:
    assert (await client.post("/api/catalog/register", json={"content": document})).status_code == 200
    answer = (await client.post("/api/execute", json={"path": "tests/two"})).json()
    assert answer["status"] == "started" and isinstance(answer["execution_id"], str)
    assert isinstance(answer["commands_generated"], int)
    return str(answer["execution_id"])


async def issued(client: httpx.AsyncClient, execution_id: str, step: str, *, number: int = 0) -> str:
    """Return the id of the event that issued a command of the step, once it is there."""

    async def look() -> list[str]:
        url = f"/api/executions/{execution_id}/events?event_type=command_issued"
        events = (await client.get(url)).json()["events"]
        return [event["event_id"] for event in events if event["step"] == step][number : number + 1]

    [event_id] = await wait_until(look, what=f"a command of {step}")
    return str(event_id)


async def claim(client: httpx.AsyncClient, event_id: str, worker_id: str = "w1") -> dict[str, Any]:
    answer = await client.post(f"/api/commands/{event_id}/claim", json={"worker_id": worker_id, "locality": {"a": 1}})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def about(command: dict[str, Any]) -> dict[str, Any]:
    """Return the meta that a public worker sends with each event: what it was given with the claim."""
    return {**command["meta"], "command_id": str(command["meta"]["command_id"])}


async def ended(client: httpx.AsyncClient, execution_id: str) -> dict[str, Any]:
    async def status() -> dict[str, Any] | None:
        found = (await client.get(f"/api/executions/{execution_id}/status")).json()
        return found if found["status"] != "RUNNING" else None

    return dict(await wait_until(status, what="the end of the run"))


async def resolved(client: httpx.AsyncClient, reference: dict[str, Any]) -> Any:
    return (await client.get("/api/result/resolve", params={"ref": reference["ref"]})).json()


async def leave(client: httpx.AsyncClient, name: str) -> None:
    for method in ("POST", "DELETE"):  # each of the public servers takes one of them
        left = await client.request(method, "/api/worker/pool/deregister", json={"name": name})
        assert left.json()["status"] == "ok"
    assert (await client.get("/api/worker/pools")).json()["count"] == 0


async def test_a_public_worker_lives_its_whole_life_and_completes_a_run(
    client: httpx.AsyncClient, nats_url: str
) -> None:
    worker = {"name": "w1", "component_type": "worker_pool", "runtime": {"kind": "rust", "worker_public_key": "k"}}
    registered = (await client.post("/api/worker/pool/register", json=worker)).json()
    assert registered["status"] == "ok" and isinstance(registered["runtime_id"], str)
    rung = asyncio.Event()

    async def ring(_subject: str, _payload: bytes) -> None:
        rung.set()

    bus = await buses.connect(nats_url, name="foreign")
    try:
        await bus.subscribe(commands_bell("default"), ring)
        execution_id = await started(client)
        await asyncio.wait_for(rung.wait(), 10)
    finally:
        await bus.close()
    event_id = await issued(client, execution_id, "start")

    seen = (await client.get(f"/api/commands/{event_id}")).json()
    command = await claim(client, event_id)
    assert seen["execution_id"] == command["execution_id"] == int(execution_id)
    assert (command["node_name"], command["action"], command["meta"]["attempt"]) == ("start", "python", 1)
    assert command["context"]["tool_config"]["code"] and command["context"]["render_context"]["workload"]["who"]
    assert isinstance(command["meta"]["command_id"], int)

    head = {"execution_id": execution_id, "worker_id": "w1"}
    first = [{"step": "start", "name": name, "payload": {}, "meta": about(command)} for name in SIGNS]
    taken = await client.post("/api/events/batch", json={**head, "events": first})
    assert taken.status_code == 202 and taken.json()["event_ids"] == [0, 0]
    beat = {**head, "name": "command.heartbeat", "step": "start", "meta": about(command)}
    assert (await client.post("/api/events", json=beat)).json()["status"] == "ok"
    last = [
        {"step": "start", "name": "call.done", "payload": {"response": {"text": "hi world"}}, "meta": about(command)},
        {"step": "start", "name": "step.exit", "payload": {"result": {}}, "meta": about(command)},
        {"step": "start", "name": "command.completed", "payload": {"worker_id": "w1"}, "meta": about(command)},
    ]
    body = {**head, "catalog_id": None, "events": last}
    reported = await client.post("/api/events/batch", json=body, headers={"Idempotency-Key": "b1"})
    assert reported.status_code == 202, reported.text
    answer = reported.json()
    assert (answer["status"], answer["duplicate"], answer["idempotency_key"]) == ("accepted", False, "b1")
    assert {"request_id", "event_ids", "commands_generated", "queue_depth"} <= answer.keys()
    again = (await client.post("/api/events/batch", json=body, headers={"Idempotency-Key": "b1"})).json()
    assert again["event_ids"] == answer["event_ids"] and again["outcomes"][-1] == "duplicate"

    # The other spelling: integers, event_type, context, one event a request.
    command = await claim(client, await issued(client, execution_id, "then"))
    assert command["context"]["render_context"]["start"] == {"text": "hi world"}
    event = {"execution_id": int(execution_id), "step": "then", "worker_id": "w1", "created_at": "2026-01-01T00:00:00Z"}
    mine = {"command_id": command["meta"]["command_id"], "worker_id": "w1"}
    done = {**event, "event_id": 5, "event_type": "call.done", "context": {**mine, "call_index": 0, "result": [1, 2]}}
    assert (await client.post("/api/events", json=done)).json()["outcome"] == "accepted"
    end = {**event, "event_id": 6, "event_type": "command.completed", "status": "success", "context": mine}
    told = (await client.post("/api/events", json=end)).json()
    assert told["outcome"] == "accepted" and isinstance(told["event_id"], int)
    assert (await client.post("/api/events", json=end)).json()["event_id"] == told["event_id"]

    status = await ended(client, execution_id)
    assert status["status"] == "COMPLETED" and status["completed_steps"] == ["start", "then"]
    assert await resolved(client, status["result"]) == [1, 2]
    await leave(client, "w1")


@pytest.mark.parametrize("is_sent_ahead", [False, True])
async def test_items_of_a_loop_that_a_public_worker_runs_are_its_results(
    client: httpx.AsyncClient, is_sent_ahead: bool
) -> None:
    execution_id = await started(client, ITEMS)
    for item in (5, 6):
        command = await claim(client, await issued(client, execution_id, "start", number=item - 5))
        head = {"execution_id": execution_id, "worker_id": "w1", "step": "start", "meta": about(command)}
        called = {**head, "name": "call.done", "payload": {"result": {"found": item}}}
        done = {**head, "name": "command.completed", "payload": {} if is_sent_ahead else {"result": {"found": item}}}
        for event in [called, done] if is_sent_ahead else [done]:
            assert (await client.post("/api/events", json=event)).json()["outcome"] == "accepted"
    command = await claim(client, await issued(client, execution_id, "then"))
    reference = command["context"]["render_context"]["start"]["reference"]
    assert (await resolved(client, {"ref": reference}))["results"] == [{"found": 5}, {"found": 6}]


async def test_a_heartbeat_event_renews_the_lease_of_who_holds_it_only(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await started(client)
    command = await claim(client, await issued(client, execution_id, "start"))

    async def lease_s() -> float:
        query = "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 AS s FROM noetl.command"
        [row] = await rows_of(pool, query)
        return float(row["s"])

    assert await lease_s() > 60  # a public worker beats every 15 s, or never
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.command SET lease_until = clock_timestamp() + interval '20 s'")
    for worker_id, renewed in (("w2", False), ("w1", True)):
        beat = {"execution_id": execution_id, "name": "command.heartbeat", "worker_id": worker_id}
        answer = await client.post("/api/events", json={**beat, "meta": about(command)})
        assert answer.status_code == 200
        assert (await lease_s() > 60) is renewed


async def test_a_failed_call_fails_the_run_with_its_message(client: httpx.AsyncClient) -> None:
    execution_id = await started(client)
    command = await claim(client, await issued(client, execution_id, "start"))
    failed = {"name": "command.failed", "step": "start", "meta": about(command), "worker_id": "w1"}
    error = {"execution_id": execution_id, "error": "no\x00such luck", **failed}
    assert (await client.post("/api/events", json=error)).json()["outcome"] == "accepted"
    status = await ended(client, execution_id)
    assert status["status"] == "FAILED" and status["failed"] and not status["completed"]
    assert "such luck" in status["error"]["message"]

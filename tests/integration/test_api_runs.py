"""Runs started again, cleaned up, paged by key; batches asked for after they were answered."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.db import Pool
from services.ingest.asgi import build_asgi
from services.ingest.store_state import read_state
from tests.ingesting import api_on, rows_of
from tests.routing import Bench, register_text

STEPS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: runs, path: tests/runs}
workload: {region: north, n: 1}
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
  tool: {kind: playbook, path: tests/runs}
"""
OLD = "UPDATE noetl.execution SET start_time = now() - interval '1 hour', updated_at = now() - interval '1 hour'"
QUIET = "UPDATE noetl.event SET created_at = now() - interval '1 hour'"


@pytest.fixture
async def bench(pool: Pool, tmp_path: Path) -> Bench:
    await register_text(pool, STEPS)
    await register_text(pool, PARENT)
    return Bench(pool, tmp_path)


@pytest.fixture
async def client(pool: Pool, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_asgi(api_on(pool, tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as opened:
        yield opened


async def execute(pool: Pool, *texts: str) -> None:
    async with pool.connection() as conn:
        for text in texts:
            await conn.execute(text.encode())


async def cleaned(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/api/executions/cleanup", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("size", [10, 20_000], ids=["inline", "by reference"])
async def test_a_rerun_starts_the_same_version_with_the_workload_changed(
    client: httpx.AsyncClient, pool: Pool, bench: Bench, size: int
) -> None:
    first = await bench.run("tests/runs", text="x" * size, n=5)
    await register_text(pool, STEPS + "# a newer version\n")
    answer = await client.post(f"/api/executions/{first}/rerun", json={"workload": {"n": 7}})
    told = answer.json()
    assert answer.status_code == 200 and (told["version"], told["status"]) == (1, "started"), answer.text
    assert told["rerun_of"] == str(first) != told["execution_id"]
    await bench.drive()
    second = int(told["execution_id"])
    state = await read_state(pool, second)
    assert state is not None and state.status == "COMPLETED"
    body = {"template": "{{ [region, n, text | length] }}", "execution_id": second}
    assert (await client.post("/api/context/render", json=body)).json()["rendered"] == ["north", 7, size]


async def test_a_rerun_with_a_key_used_before_starts_nothing(client: httpx.AsyncClient, bench: Bench) -> None:
    first = await bench.run("tests/runs")
    headers = {"Idempotency-Key": "again"}
    [one, two] = [(await client.post(f"/api/executions/{first}/rerun", headers=headers)).json() for _ in range(2)]
    assert (one["status"], two["status"]) == ("started", "duplicate")
    assert one["execution_id"] == two["execution_id"]


async def test_a_child_is_run_again_as_a_run_of_its_own(client: httpx.AsyncClient, pool: Pool, bench: Bench) -> None:
    parent = await bench.run("tests/parent")
    [child] = await rows_of(pool, "SELECT execution_id FROM noetl.execution WHERE parent_execution_id = %s", parent)
    told = (await client.post(f"/api/executions/{child['execution_id']}/rerun")).json()
    [row] = await rows_of(
        pool, "SELECT path, parent_execution_id FROM noetl.execution WHERE execution_id = %s", int(told["execution_id"])
    )
    assert row == {"path": "tests/runs", "parent_execution_id": None}


async def test_a_rerun_of_nothing_or_of_an_archived_playbook_is_refused(
    client: httpx.AsyncClient, bench: Bench
) -> None:
    assert (await client.post("/api/executions/5/rerun")).status_code == 404
    first = await bench.run("tests/runs")
    await client.post("/api/catalog/archive", json={"path": "tests/runs"})
    answer = await client.post(f"/api/executions/{first}/rerun")
    assert answer.status_code == 404 and "archived" in answer.json()["error"]


async def test_a_cleanup_cancels_what_stands_still_and_nothing_else(
    client: httpx.AsyncClient, pool: Pool, bench: Bench
) -> None:
    stalled = await bench.start("tests/runs")
    held = await bench.start("tests/runs")
    await bench.route()
    for command in await bench.claim():
        if command.execution_id == stalled:  # its worker is gone for good
            await rows_of(
                pool,
                "UPDATE noetl.command SET lease_until = now() WHERE execution_id = %s RETURNING command_id",
                stalled,
            )
    await execute(pool, OLD, QUIET)
    fresh = await bench.start("tests/runs")
    listed = await cleaned(client, older_than_minutes=30, dry_run=True)
    assert (listed["execution_ids"], listed["cancelled_count"]) == ([str(stalled)], 0)
    assert (await cleaned(client, older_than_minutes=90))["execution_ids"] == []
    done = await cleaned(client, older_than_minutes=30)
    assert (done["execution_ids"], done["cancelled_count"]) == ([str(stalled)], 1)
    await bench.route()
    cancelling = {
        execution_id: state.cancelling is not None
        for execution_id in (stalled, held, fresh)
        if (state := await read_state(pool, execution_id)) is not None
    }
    assert cancelling == {stalled: True, held: False, fresh: False}


async def test_a_parent_does_not_stand_still_while_its_child_moves(
    client: httpx.AsyncClient, pool: Pool, bench: Bench
) -> None:
    await bench.start("tests/parent")
    await bench.route()
    assert await bench.claim()
    await execute(pool, OLD, QUIET)
    assert (await cleaned(client))["execution_ids"] == []
    await execute(pool, "UPDATE noetl.command SET lease_until = now()")
    assert len((await cleaned(client))["execution_ids"]) == 2


async def test_a_cleanup_of_less_than_a_minute_is_refused(client: httpx.AsyncClient) -> None:
    for minutes in (0, -1, 1 << 40):
        answer = await client.post("/api/executions/cleanup", json={"older_than_minutes": minutes})
        assert answer.status_code == 422 and answer.json()["pointer"] == "/older_than_minutes"


async def test_pages_by_cursor_show_each_run_once_while_others_start(client: httpx.AsyncClient, bench: Bench) -> None:
    first = [await bench.start("tests/runs") for _ in range(5)]
    seen: list[str] = []
    cursor = None
    for _page in range(3):
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        answer = await client.get("/api/executions", params=query)
        seen += [row["execution_id"] for row in answer.json()]
        cursor = answer.headers.get("x-next-cursor")
        await bench.start("tests/runs")
    assert seen == [str(execution_id) for execution_id in sorted(first, reverse=True)] and cursor is None
    assert (await client.get("/api/executions?cursor=abc")).status_code == 422


async def test_an_accepted_batch_is_completed_and_an_unknown_one_is_not_found(
    client: httpx.AsyncClient, bench: Bench
) -> None:
    execution_id = await bench.start("tests/runs")
    await bench.route()
    [command] = await bench.claim()
    event = {
        "step": "start",
        "name": "command.completed",
        "payload": {"command_id": command.command_id, "result": {"a": 1}},
        "meta": {"command_id": command.command_id},
    }
    batch = {"execution_id": str(execution_id), "worker_id": "w", "events": [event]}
    accepted = await client.post("/api/events/batch", json=batch, headers={"Idempotency-Key": "k"})
    told = accepted.json()
    assert accepted.status_code == 202 and told["idempotency_key"] == "k", accepted.text
    status = (await client.get(f"/api/events/batch/{told['request_id']}/status")).json()
    assert (status["state"], status["execution_id"]) == ("completed", str(execution_id))
    for unknown in ("k", "12345", str(1 << 62)):
        assert (await client.get(f"/api/events/batch/{unknown}/status")).status_code == 404


async def test_a_cancel_reaches_children_that_a_run_went_on_without(
    client: httpx.AsyncClient, bench: Bench, pool: Pool
) -> None:
    text = PARENT.replace("tests/parent", "tests/careless").replace("tests/runs}", "tests/parent, async: true}")
    await register_text(pool, text + "  next: {arcs: [{step: later}]}\n- {step: later, tool: {kind: noop}}\n")
    execution_id = await bench.start("tests/careless")
    await bench.route()
    answer = await client.post(f"/api/executions/{execution_id}/cancel", json={"reason": "enough"})
    await bench.route()
    runs = await rows_of(pool, "SELECT execution_id FROM noetl.execution ORDER BY execution_id")
    family = [row["execution_id"] for row in runs]
    assert len(family) == 3 and answer.json()["cancelled_executions"] == [str(member) for member in family]
    ended = await rows_of(pool, "SELECT execution_id FROM noetl.event WHERE event_type = 'playbook.cancelled'")
    assert sorted(row["execution_id"] for row in ended) == family


async def test_a_child_that_a_run_went_on_without_outlives_its_end(bench: Bench, pool: Pool) -> None:
    await register_text(pool, PARENT.replace("tests/parent", "tests/careless").replace("runs}", "runs, async: true}"))
    execution_id = await bench.start("tests/careless")
    await bench.route()
    ended = await rows_of(pool, "SELECT execution_id FROM noetl.event WHERE event_type = 'playbook.completed'")
    assert [row["execution_id"] for row in ended] == [execution_id]
    await bench.drive()
    ended = await rows_of(pool, "SELECT execution_id FROM noetl.event WHERE event_type = 'playbook.completed'")
    assert len(ended) == 2

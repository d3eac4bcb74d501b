"""Results by name over HTTP: put, read, list, count, delete, and the older address of it all."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.core.events import Envelope
from noetl_common.core.values import reference_of
from noetl_common.db import Pool
from services.ingest.asgi import build_asgi
from tests.ingesting import api_on, ref_of, result_row, rows_of
from tests.integration.test_api_fuzz import LEAF, PUT, VALUES, fault_of, mutations
from tests.routing import Bench, register_text

STEPS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: stored, path: tests/stored}
workflow:
- step: start
  tool: {kind: noop}
  next: {arcs: [{step: each}]}
- step: each
  loop: {in: [1, 2], iterator: n, spec: {mode: parallel, max_in_flight: 5}}
  tool: {kind: noop}
"""
PARENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: tests/parent}
workflow:
- step: start
  tool: {kind: playbook, path: tests/stored}
  next: {arcs: [{step: end}]}
- step: end
  tool: {kind: noop}
"""


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


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


async def project(pool: Pool) -> None:
    """Say in the read model that every run has ended, as compute would."""
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.execution SET status = 'COMPLETED'")


async def put(client: httpx.AsyncClient, execution_id: int, **body: Any) -> dict[str, Any]:
    answer = await client.put(f"/api/result/{execution_id}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def complete_with(bench: Bench, payload: Any) -> None:
    """Complete every waiting command with this payload as its result."""
    for command in await bench.claim():
        fields = {"loop_epoch": command.loop_epoch, "iter_index": command.iter_index}
        row = result_row(command.execution_id, payload, step=command.step, **fields)
        row.ref_id += max(command.iter_index, 0)
        envelope = Envelope(status="success", reference=reference_of(ref_of(row)))
        await bench.complete([command], result=envelope, results=[row])
    await bench.route()


@pytest.mark.parametrize("size", [10, 100_000], ids=["in its row", "in a tier"])
async def test_what_is_put_is_read_by_name_and_by_reference(client: httpx.AsyncClient, bench: Bench, size: int) -> None:
    execution_id = await bench.start("tests/stored")
    payload = {"text": "x" * size, "n": 1}
    told = await put(client, execution_id, name="report", data=payload, scope="workflow", store="kv")
    assert told["ref"] == f"noetl://execution/{execution_id}/result/report/{told['ref_id']}"
    assert (told["scope"], told["store"], told["expires_at"]) == ("workflow", "db" if size < 100 else "disk", None)
    assert await put(client, execution_id, name="report", data=payload, scope="workflow") == told
    found = (await client.get(f"/api/result/{execution_id}/report")).json()
    assert (found["data"], found["ref"], found["sha256"]) == (payload, told["ref"], told["sha256"])
    assert found["truncated"] is False
    for address in ("/api/result/resolve", "/api/temp/resolve"):
        assert (await client.get(address, params={"ref": told["ref"]})).json() == payload


async def test_the_last_one_put_under_a_name_is_read(client: httpx.AsyncClient, bench: Bench) -> None:
    execution_id = await bench.start("tests/stored")
    for data in (1, 2, 1):
        await put(client, execution_id, name="n", data=data, source_step="somewhere")
        assert (await client.get(f"/api/result/{execution_id}/n")).json()["data"] == data
    assert (await client.get(f"/api/result/{execution_id}/somewhere")).status_code == 404


async def test_a_result_is_gone_when_its_time_is_over(client: httpx.AsyncClient, pool: Pool, bench: Bench) -> None:
    execution_id = await bench.start("tests/stored")
    told = await put(client, execution_id, name="n", data=1, ttl="30m")
    left = datetime.fromisoformat(told["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=29) < left <= timedelta(minutes=30)
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.result_ref SET expires_at = now() - interval '1 s'")
    assert (await client.get(f"/api/result/{execution_id}/n")).status_code == 404
    assert (await client.get(f"/api/result/{execution_id}/list")).json()["count"] == 0


async def test_a_steps_result_is_read_by_its_name_and_a_loops_whole(client: httpx.AsyncClient, bench: Bench) -> None:
    execution_id = await bench.start("tests/stored")
    await bench.route()
    await complete_with(bench, {"first": True})
    found = (await client.get(f"/api/result/{execution_id}/start")).json()
    assert (found["data"], found["shape"]) == ({"first": True}, "plain")
    await complete_with(bench, {"item": True})
    looped = (await client.get(f"/api/result/{execution_id}/each")).json()
    assert looped["shape"] == "loop" and looped["data"]["count"] == 2
    assert looped["data"]["results"] == [{"item": True}, {"item": True}]


async def test_a_step_named_list_does_not_hide_the_list(client: httpx.AsyncClient, bench: Bench) -> None:
    execution_id = await bench.start("tests/stored")
    for name in ("list", "a", "b"):
        await put(client, execution_id, name=name, data=name)
    pages: list[str] = []
    cursor: str | None = "0"
    while cursor is not None:
        page = (await client.get(f"/api/temp/{execution_id}/list", params={"limit": 2, "cursor": cursor})).json()
        pages += [one["name"] for one in page["results"]]
        cursor = page["next_cursor"]
    assert sorted(pages) == ["a", "b", "list"]
    stats = (await client.get("/api/result/stats", params={"execution_id": execution_id})).json()
    assert (stats["count"], stats["by_store"]["db"]["count"], stats["estimated"]) == (3, 3, False)
    assert (await client.get("/api/temp/stats")).json()["estimated"] is True


async def test_results_are_deleted_with_their_payloads_once_nobody_reads_them(
    client: httpx.AsyncClient, pool: Pool, bench: Bench, tmp_path: Path
) -> None:
    execution_id = await bench.start("tests/stored", big="w" * 20_000)
    big = "x" * 20_000
    await put(client, execution_id, name="one", data=big, source_step="s")
    await put(client, execution_id, name="two", data=big, source_step="s")
    await put(client, execution_id, name="other", data={"a": big})
    await client.post(f"/api/vars/{execution_id}", json={"kept": big})
    assert (await client.delete(f"/api/result/{execution_id}")).json()["code"] == "still_running"
    await bench.drive()
    await project(pool)
    before = files(tmp_path)
    one = (await client.delete(f"/api/result/{execution_id}/step/one")).json()
    assert (one["deleted"], one["deleted_count"]) == (True, 1)
    assert files(tmp_path) == before  # `two` has the same payload
    assert (await client.get(f"/api/result/{execution_id}/two")).json()["data"] == big
    rest = (await client.delete(f"/api/result/{execution_id}")).json()
    assert rest["deleted"] and (await client.get(f"/api/result/{execution_id}/other")).status_code == 404
    assert len(before) - len(files(tmp_path)) == 2
    assert (await client.get(f"/api/vars/{execution_id}/kept")).json()["value"] == big
    assert (await client.post(f"/api/executions/{execution_id}/rerun")).status_code == 200
    again = (await client.delete(f"/api/result/{execution_id}")).json()
    assert (again["deleted"], again["deleted_count"]) == (False, 0)


async def test_the_result_of_a_step_that_was_deleted_is_not_found(
    client: httpx.AsyncClient, pool: Pool, bench: Bench
) -> None:
    execution_id = await bench.start("tests/stored")
    await bench.route()
    await complete_with(bench, {"first": True})
    await bench.drive()
    await project(pool)
    assert (await client.delete(f"/api/result/{execution_id}/step/start")).json()["deleted_count"] == 1
    answer = await client.get(f"/api/result/{execution_id}/start")
    assert answer.status_code == 404 and "was deleted" in answer.json()["error"]
    assert (await client.get(f"/api/result/{execution_id}/each")).status_code == 200


async def test_a_childs_results_stay_while_its_parent_may_read_them(
    client: httpx.AsyncClient, pool: Pool, bench: Bench
) -> None:
    parent = await bench.start("tests/parent")
    await bench.route()
    for _round in range(2):
        await bench.complete(await bench.claim())
        await bench.route()
    [child] = await rows_of(
        pool,
        "UPDATE noetl.execution SET status = 'COMPLETED' WHERE parent_execution_id = %s RETURNING execution_id",
        parent,
    )
    answer = await client.delete(f"/api/result/{child['execution_id']}")
    assert answer.status_code == 409 and str(parent) in answer.json()["error"]
    await bench.drive()
    await project(pool)
    assert (await client.delete(f"/api/result/{child['execution_id']}")).status_code == 200


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "", "data": 1}, "/name"),
        ({"name": "a/b", "data": 1}, "/name"),
        ({"name": "ctx.x", "data": 1}, "/name"),
        ({"name": "n", "data": 1, "source_step": "a\x00"}, "/source_step"),
        ({"name": "n", "data": 1, "ttl": "soon"}, "/ttl"),
        ({"name": "n", "data": 1, "ttl": "9999d"}, "/ttl"),
        ({"name": "n", "data": 1, "scope": "galaxy"}, "/scope"),
    ],
)
async def test_what_cannot_be_stored_is_refused(
    client: httpx.AsyncClient, bench: Bench, body: dict[str, Any], pointer: str
) -> None:
    execution_id = await bench.start("tests/stored")
    answer = await client.put(f"/api/result/{execution_id}", json=body)
    assert answer.status_code == 422 and answer.json()["pointer"] == pointer, answer.text


async def test_nothing_of_an_unknown_run_is_found(client: httpx.AsyncClient) -> None:
    assert (await client.put("/api/result/5", json={"name": "n", "data": 1})).status_code == 404
    for method, path in (("GET", "5/list"), ("GET", "5/n"), ("DELETE", "5"), ("DELETE", "5/step/n")):
        assert (await client.request(method, f"/api/result/{path}")).status_code == 404


async def test_no_payload_put_into_a_run_is_an_internal_error(client: httpx.AsyncClient, bench: Bench) -> None:
    execution_id = await bench.start("tests/stored")
    faults = []
    for changed in mutations(PUT):
        for value in VALUES:
            body = json.dumps(changed).replace(f'"{LEAF}"', value)
            fault = fault_of(await client.put(f"/api/result/{execution_id}", content=body.encode()))
            faults += [f"{body[:200]}: {fault}"] if fault else []
    page = await client.get(f"/api/result/{execution_id}/list", params={"limit": 1000})
    assert page.status_code == 200 and not faults, "\n".join(faults)
    for one in page.json()["results"]:
        assert (await client.get(f"/api/result/{execution_id}/{one['name']}")).status_code in (200, 404)

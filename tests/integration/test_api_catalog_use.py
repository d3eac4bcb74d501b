"""Documents out of use and back, and the schema of a workload."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.db import Pool
from services.ingest.asgi import build_asgi
from services.ingest.routes.catalog_use import schema_of
from tests.ingesting import PLAYBOOK, api_on

NAMED = {"path": "tests/hello"}


@pytest.fixture
async def client(pool: Pool, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_asgi(api_on(pool, tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as opened:
        yield opened


async def register(client: httpx.AsyncClient, text: str = PLAYBOOK) -> dict[str, Any]:
    answer = await client.post("/api/catalog/register", json={"content": text})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def listed(client: httpx.AsyncClient, **body: Any) -> list[int]:
    answer = await client.post("/api/catalog/list", json=body)
    return sorted(entry["version"] for entry in answer.json()["entries"])


@pytest.mark.parametrize("verb", ["archive", "delete"])
async def test_an_archived_document_is_neither_listed_nor_started_until_it_is_restored(
    client: httpx.AsyncClient, verb: str
) -> None:
    catalog_id = (await register(client))["catalog_id"]
    await register(client, PLAYBOOK + "# second\n")
    archived = (await client.post(f"/api/catalog/{verb}", json=NAMED)).json()
    assert (archived["status"], archived["versions"]) == ("archived", [1, 2])
    assert await listed(client) == [] and await listed(client, include_archived=True) == [1, 2]
    everything = (await client.get("/api/catalog/list/Playbook", params={"include_archived": "true"})).json()
    assert all(entry["archived_at"] for entry in everything["entries"])
    for wish in (NAMED, {**NAMED, "version": 1}, {"catalog_id": int(catalog_id)}):
        refused = await client.post("/api/execute", json=wish)
        assert refused.status_code == 404, wish
    assert "archived" in (await client.post("/api/execute", json={"catalog_id": int(catalog_id)})).json()["error"]
    restored = (await client.post("/api/catalog/restore", json=NAMED)).json()
    assert (restored["status"], restored["versions"]) == ("restored", [1, 2])
    assert (await client.post("/api/execute", json=NAMED)).json()["version"] == 2


async def test_one_version_is_archived_and_the_one_before_is_the_newest(client: httpx.AsyncClient) -> None:
    await register(client)
    await register(client, PLAYBOOK + "# second\n")
    archived = (await client.post("/api/catalog/archive", json={**NAMED, "version": 2})).json()
    again = (await client.post("/api/catalog/archive", json={**NAMED, "version": "2"})).json()
    assert (archived["versions"], again["versions"]) == ([2], [])
    assert (await client.post("/api/execute", json=NAMED)).json()["version"] == 1
    assert (await register(client, PLAYBOOK + "# second\n"))["version"] == 3


async def test_an_unknown_document_is_neither_archived_nor_described(client: httpx.AsyncClient) -> None:
    for verb in ("archive", "delete", "restore"):
        assert (await client.post(f"/api/catalog/{verb}", json={"path": "no/such"})).status_code == 404
        assert (await client.post(f"/api/catalog/{verb}", json={"path": ""})).status_code == 422
    assert (await client.get("/api/catalog/no/such/ui_schema")).status_code == 404


async def test_the_schema_of_a_workload_has_its_types_and_defaults(client: httpx.AsyncClient) -> None:
    workload = (
        "workload: {region: north, count: 3, share: 0.5, sent: true, later: null, when: '{{ job.id }}',"
        " rows: [1, 2], mixed: [1, a], db: {host: h}}"
    )
    await register(client, PLAYBOOK.replace("workload: {greeting: hi}", workload))
    body = (await client.get("/api/catalog/tests/hello/ui_schema", params={"version": "latest"})).json()
    assert (body["path"], body["version"], body["schema"]["type"]) == ("tests/hello", 1, "object")
    assert body["schema"]["properties"] == {
        "region": {"type": "string", "default": "north"},
        "count": {"type": "integer", "default": 3},
        "share": {"type": "number", "default": 0.5},
        "sent": {"type": "boolean", "default": True},
        "later": {"default": None},
        "when": {"default": "{{ job.id }}"},
        "rows": {"type": "array", "items": {"type": "integer"}, "default": [1, 2]},
        "mixed": {"type": "array", "items": {}, "default": [1, "a"]},
        "db": {
            "type": "object",
            "properties": {"host": {"type": "string", "default": "h"}},
            "additionalProperties": True,
        },
    }
    assert (await client.get("/api/catalog/tests/hello/ui_schema?version=x")).status_code == 422


def test_a_workload_of_many_levels_ends_the_schema_and_not_the_server() -> None:
    value: Any = 1
    for _level in range(200):
        value = {"a": value}
    assert schema_of(value)["type"] == "object"

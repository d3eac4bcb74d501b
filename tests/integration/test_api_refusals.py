"""What the API refuses, and how: documents, keys used twice, callers without a scope, a server that stops."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from noetl_common.db import Pool
from services.ingest.asgi import build_asgi
from services.ingest.auth import Guard, Permission
from services.ingest.endpoints import Api
from services.ingest.routes import ENDPOINTS
from tests.ingesting import PLAYBOOK, api_on, rows_of

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x, path: tests/x}\nworkflow:\n"
SCOPES: tuple[Permission, ...] = ("read", "write", "worker")


@pytest.fixture
def api(pool: Pool, tmp_path: Path) -> Api:
    return api_on(pool, tmp_path)


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(build_asgi(api)), base_url="http://ingest") as opened:
        yield opened


async def register(client: httpx.AsyncClient, text: str) -> httpx.Response:
    return await client.post("/api/catalog/register", json={"content": text})


@pytest.mark.parametrize(
    ("document", "line", "column", "said", "hint"),
    [
        (HEAD + "  - step: [a\n    tool: x: y\n", 6, 9, "expected valid YAML", ""),
        (HEAD + "  - step: a\n    tool: {kind: pyton}\n", 6, 12, "pyton", "did you mean 'python'?"),
        (HEAD + "  - step: alpha\n    next: {arcs: [{step: alpa}]}\n", 6, 20, "alpa", "did you mean 'alpha'?"),
        (HEAD + "  - step: a\n  - step: a\n", 6, 5, "found 'a' again", ""),
        (HEAD + "  - step: a\n    tool: {kind: http, url: 'x{{ b + }}'}\n", 6, 24, "x{{ b + }}", ""),
        ("- 1\n", 1, 1, "expected a playbook (a mapping), found a list", ""),
    ],
)
async def test_a_wrong_document_is_refused_with_its_place_and_what_was_meant(
    client: httpx.AsyncClient, pool: Pool, *, document: str, line: int, column: int, said: str, hint: str
) -> None:
    answer = await register(client, document)
    assert answer.status_code == 422 and answer.json()["code"] == "PLAYBOOK_INVALID"
    told = [
        problem
        for problem in answer.json()["problems"]
        if problem["severity"] == "error" and said in problem["message"] and hint in problem.get("hint", "")
    ]
    assert [(problem["line"], problem["column"]) for problem in told] == [(line, column)], answer.json()["problems"]
    assert not await rows_of(pool, "SELECT 1 FROM noetl.catalog")


async def test_an_unknown_key_is_a_warning_with_what_was_meant(client: httpx.AsyncClient) -> None:
    answer = await register(client, HEAD + "  - step: a\n    tol: {kind: noop}\n")
    [warning, *_rest] = answer.json()["warnings"]
    assert answer.status_code == 200 and warning["hint"] == "did you mean 'tool'?"


async def test_a_key_used_again_with_another_wish_is_refused(client: httpx.AsyncClient, pool: Pool) -> None:
    await register(client, PLAYBOOK)
    headers = {"Idempotency-Key": "k1"}
    wish = {"path": "tests/hello", "payload": {"a": 1, "b": 2}}
    first = (await client.post("/api/execute", json=wish, headers=headers)).json()
    await register(client, PLAYBOOK + "# a newer version\n")
    turned = {"payload": {"b": 2, "a": 1}, "path": "tests/hello"}
    again = (await client.post("/api/execute", json=turned, headers=headers)).json()
    assert (again["execution_id"], again["status"], again["version"]) == (first["execution_id"], "duplicate", 1)
    for other in ({**wish, "payload": {"a": 2}}, {**wish, "version": 1}):
        answer = await client.post("/api/execute", json=other, headers=headers)
        assert answer.status_code == 422 and "Idempotency-Key" in answer.json()["error"]
    assert len(await rows_of(pool, "SELECT 1 FROM noetl.execution")) == 1


async def test_every_route_but_health_asks_for_one_of_its_scopes(api: Api) -> None:
    tokens: dict[str, list[Permission]] = {f"{scope}-token-0123456789": [scope] for scope in SCOPES}
    api.guard = Guard(tokens)
    transport = httpx.ASGITransport(build_asgi(api))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as client:
        for endpoint in ENDPOINTS:
            path = endpoint.path.replace("{", "").replace("}", "")
            is_open = path in ("/", "/health", "/api/health")
            assert bool(endpoint.scopes) is not is_open, path
            answer = await client.request(endpoint.method, path)
            assert (answer.status_code == 401) is not is_open, f"{endpoint.method} {path}"
            if not is_open:
                assert answer.headers["www-authenticate"] == "Bearer" and answer.json()["code"] == "UNAUTHORIZED"
            for scope in SCOPES if not is_open else ():
                headers = {"Authorization": f"Bearer {scope}-token-0123456789"}
                answer = await client.request(endpoint.method, path, headers=headers)
                assert (answer.status_code == 403) is (scope not in endpoint.scopes), (
                    f"{endpoint.method} {path} {scope}"
                )


async def test_a_server_that_stops_says_when_to_come_back(api: Api, client: httpx.AsyncClient) -> None:
    await register(client, PLAYBOOK)
    await api.appender.close()
    answer = await client.post("/api/execute", json={"path": "tests/hello"})
    assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
    assert answer.json()["code"] == "UNAVAILABLE"


async def test_a_head_request_is_answered_like_a_get(client: httpx.AsyncClient) -> None:
    answer = await client.head("/api/executions")
    assert answer.status_code == 200 and int(answer.headers["content-length"]) == 2


async def test_the_openapi_document_holds_together(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json")
    document = answer.json()
    assert document["openapi"].startswith("3.1") and document["info"]["title"] and document["info"]["version"]
    for reference in re.findall(rb'"\$ref":"#/([^"]+)"', msgspec.json.encode(document)):
        found: Any = document
        for part in reference.decode().split("/"):
            found = found[part]
        assert found
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path)), path
            assert operation["responses"]["200"]["description"] and operation["responses"]["default"], (method, path)
            assert all(
                scheme in document["components"]["securitySchemes"] for one in operation["security"] for scheme in one
            )

"""Requests that nobody should send: each is refused with a status, a pointer, what was expected and what was found."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from noetl_common.db import Pool
from noetl_common.wire import BATCH_EVENTS_MAX, BODY_BYTES_MAX
from services.ingest.asgi import build_asgi
from services.ingest.auth import Guard
from services.ingest.starts import WORKLOAD_BYTES_MAX
from tests.broken.cases import Case, cases, lacking, name_of
from tests.ingesting import PLAYBOOK, api_on

REPORT = {
    "execution_id": 1,
    "event_type": "command.completed",
    "command_id": 1,
    "claim_token": 1,
    "step": "s",
    "attempt": 1,
    "status": "COMPLETED",
    "result": {"status": "COMPLETED"},
}
RESULT = {"execution_id": 1, "ref_id": 1, "step": "s", "bytes": 1, "sha256": "0" * 64, "inline": 1}
TOO_MUCH: dict[str, Any] = {
    "@large": "x" * (WORKLOAD_BYTES_MAX + 1),
    "@huge": {"path": "x" * BODY_BYTES_MAX},
    "@many": [REPORT] * (BATCH_EVENTS_MAX + 1),
}


class Told(msgspec.Struct):
    """What the API answered: `body` the problem document."""

    status: int
    body: dict[str, Any]


class Server:
    """The API with a playbook, an archived one and a run in it; behind a guard where a case asks for one."""

    def __init__(self, open_client: httpx.AsyncClient, guarded: httpx.AsyncClient) -> None:
        self._open = open_client
        self._guarded = guarded
        self.run = ""

    async def fill(self) -> None:
        """Put in what the cases look for."""
        for path in ("tests/hello", "tests/old"):
            text = PLAYBOOK.replace("tests/hello", path)
            assert (await self._open.post("/api/catalog/register", json={"content": text})).status_code == 200
        assert (await self._open.post("/api/catalog/archive", json={"path": "tests/old"})).status_code == 200
        self.run = (await self._open.post("/api/execute", json={"path": "tests/hello"})).json()["execution_id"]

    async def ask(self, case: Case) -> Told:
        """Send a case's request."""
        method, _, target = case["request"].partition(" ")
        content = case["text"].encode() if "text" in case else b""
        if "body" in case:
            content = msgspec.json.encode(_filled(case["body"], case.get("result")))
        client = self._guarded if case.get("guarded") else self._open
        answer = await client.request(
            method, target.replace("@run", self.run), content=content, headers=case.get("headers", {})
        )
        return Told(answer.status_code, answer.json())


def _filled(value: Any, result: dict[str, Any] | None) -> Any:
    """Return a body with its marks replaced by what they stand for."""
    if value == "@report":
        return {**REPORT, "results": [{**RESULT, **(result or {})}]}
    if isinstance(value, str):
        return TOO_MUCH.get(value, value)
    if isinstance(value, dict):
        return {key: _filled(part, result) for key, part in value.items()}
    return [_filled(part, result) for part in value] if isinstance(value, list) else value


@pytest.fixture
async def server(pool: Pool, tmp_path: Path) -> AsyncIterator[Server]:
    api = api_on(pool, tmp_path)
    guarded = api_on(pool, tmp_path)
    guarded.guard = Guard({"reading-token-0123456789": ["read"]})
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(build_asgi(api)), base_url="http://ingest") as opened,
        httpx.AsyncClient(transport=httpx.ASGITransport(build_asgi(guarded)), base_url="http://ingest") as closed,
    ):
        found = Server(opened, closed)
        await found.fill()
        yield found


async def test_a_broken_request_is_refused_with_pointer_expected_and_found(server: Server) -> None:
    faults = []
    for case in cases("requests"):
        told = await server.ask(case)
        problems = told.body.get("problems") or [told.body]
        case = {**case, **{part: case[part].replace("@run", server.run) for part in ("expected", "found")}}
        messages = [str(problem.get("message", told.body.get("error"))) for problem in problems]
        is_told = any(not lacking(case, message) for message in messages)
        as_said = (told.status, told.body.get("pointer", "")) == (case["status"], case.get("pointer", ""))
        if not is_told or not as_said:
            faults.append(f"{name_of(case)}: {told}")
    assert not faults, "\n".join(faults)

"""The mcp tool against a server on loopback that answers as JSON or as a stream of events."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.process import Service
from services.worker.tools import Call, http, mcp
from tests.running import start_service

TOOLS = [{"name": "add"}, {"name": "fail"}]
asked: list[str] = []


def result_of(message: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return {"result": {"protocolVersion": "2025-03-26", "serverInfo": {"name": "stub", "version": "1"}}}
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        first = not params.get("cursor")
        return {"result": {"tools": TOOLS[:1], "nextCursor": "2"} if first else {"tools": TOOLS[1:]}}
    if params["name"] == "add":
        total = sum(params["arguments"].values())
        return {"result": {"content": [{"type": "text", "text": str(total)}], "structuredContent": {"sum": total}}}
    if params["name"] == "fail":
        return {"result": {"content": [{"type": "text", "text": "no such city"}], "isError": True}}
    return {"error": {"code": -32602, "message": f"unknown tool {params['name']}"}}


async def serve(request: Request) -> Response:
    if request.method == "DELETE":
        asked.append(f"DELETE {request.headers.get('mcp-session-id')}")
        return Response(status_code=204)
    message = json.loads(await request.body())
    asked.append(f"{message['method']} {request.headers.get('mcp-session-id', '-')}")
    if "id" not in message:
        return Response(status_code=202)
    answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **result_of(message)})
    headers = {"Mcp-Session-Id": "s-1"} if message["method"] == "initialize" else {}
    if request.url.path == "/events":
        noise = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress"})
        body = f"event: message\ndata: {noise}\n\nevent: message\ndata: {answer}\n\n"
        return Response(body, media_type="text/event-stream", headers=headers)
    return Response(answer, media_type="application/json", headers=headers)


async def nonsense(request: Request) -> Response:
    return PlainTextResponse("hello")


async def closed(request: Request) -> Response:
    return PlainTextResponse("no", status_code=401)


ROUTES = [
    Route("/json", serve, methods=["POST", "DELETE"]),
    Route("/events", serve, methods=["POST", "DELETE"]),
    Route("/nonsense", nonsense, methods=["POST"]),
    Route("/closed", closed, methods=["POST"]),
]


@pytest.fixture
async def server() -> AsyncIterator[str]:
    asked.clear()
    service = Service(name="stub", asgi=Starlette(routes=ROUTES), host="127.0.0.1", port=0)
    async with start_service(service) as running:
        yield running.url
        await http.close()


async def no_credential(alias: str) -> dict[str, Any]:
    raise AssertionError(alias)


async def call(**config: Any) -> Outcome:
    scope = Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={})
    return await mcp.run(
        Call(
            kind="mcp",
            label="ask",
            step="ask",
            execution_id=7,
            scope=scope,
            credential=no_credential,
            config=config,
            timeout_s=10.0,
        )
    )


@pytest.mark.parametrize("place", ["json", "events"])
async def test_a_tool_is_called_in_a_session_that_is_closed_again(server: str, place: str) -> None:
    outcome = await call(endpoint=f"{server}/{place}", method="tools/call", tool="add", arguments={"a": 2, "b": 3})
    assert outcome.ok and outcome.data["structuredContent"] == {"sum": 5}
    assert asked == ["initialize -", "notifications/initialized s-1", "tools/call s-1", "DELETE s-1"]


async def test_all_pages_of_the_tools_are_listed(server: str) -> None:
    assert (await call(server=f"{server}/json", method="tools/list")).data == {"tools": TOOLS}


async def test_a_healthy_server_says_who_it_is(server: str) -> None:
    outcome = await call(endpoint=f"{server}/json", method="health")
    assert outcome.data == {"status": "ok", "server": {"name": "stub", "version": "1"}}


async def test_a_result_with_is_error_is_an_error_that_keeps_its_data(server: str) -> None:
    outcome = await call(endpoint=f"{server}/json", tool="fail")
    assert not outcome.ok and outcome.error is not None and outcome.data["isError"] is True
    assert outcome.error["kind"] == "tool" and "no such city" in outcome.error["message"]


@pytest.mark.parametrize(
    ("place", "fields", "kind", "says"),
    [
        ("json", {"tool": "nope"}, "rpc", "unknown tool nope"),
        ("nonsense", {"tool": "add"}, "protocol", "expected a JSON-RPC answer"),
        ("closed", {"tool": "add"}, "auth", "401"),
        ("json", {"method": "prompts/list"}, "config", "method: expected one of"),
        ("json", {"method": "tools/call"}, "config", "tool: expected the name"),
        ("json", {"tool": "add", "arguments": [1]}, "config", "arguments: expected a mapping, found list"),
    ],
)
async def test_what_goes_wrong_is_told_apart(
    server: str, place: str, fields: dict[str, Any], kind: str, says: str
) -> None:
    outcome = await call(endpoint=f"{server}/{place}", **fields)
    assert outcome.error is not None and outcome.error["kind"] == kind and says in outcome.error["message"]


async def test_a_server_is_needed() -> None:
    outcome = await call(tool="add")
    assert outcome.error is not None and "endpoint: expected the URL" in outcome.error["message"]

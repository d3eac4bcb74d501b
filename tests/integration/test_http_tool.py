"""The http tool against a real server on loopback: what is sent, what comes back, what is refused."""

import asyncio
import base64
import ipaddress
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.errors import NotFound
from noetl_common.process import Service
from services.worker.tools import Call, egress, http
from services.worker.tools.egress import refusal
from tests.running import start_service

CREDENTIALS: dict[str, dict[str, Any]] = {
    "robot": {"type": "bearer", "data": {"token": "t0ken-s3cret"}},
    "person": {"type": "basic", "data": {"username": "ann", "password": "pass-s3cret"}},
    "shop": {"type": "api_key", "data": {"key": "key-s3cret", "header": "X-Shop-Key"}},
    "query": {"type": "api_key", "data": {"key": "query s3cret", "name": "api_key", "in": "query"}},
    "odd": {"type": "postgres", "data": {}},
}
ALL_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


async def echo(request: Request) -> Response:
    body = (await request.body()).decode()
    return JSONResponse(
        {"method": request.method, "headers": dict(request.headers), "query": dict(request.query_params), "body": body},
        headers={"Set-Cookie": "session=abc"},
    )


async def status(request: Request) -> Response:
    headers = {"Retry-After": "7"} if request.path_params["code"] in (429, 503) else {}
    return JSONResponse({"why": "because"}, status_code=request.path_params["code"], headers=headers)


async def slow(request: Request) -> Response:
    await asyncio.sleep(30)
    return Response()


async def drop(request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        yield b"some"

    return StreamingResponse(parts(), headers={"Content-Length": "1000"})


async def huge(request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(70):
            yield b"x" * 1024 * 1024

    return StreamingResponse(parts())


async def redirect(request: Request) -> Response:
    return RedirectResponse(request.query_params["to"], status_code=int(request.query_params.get("code", 302)))


async def give(request: Request) -> Response:
    kinds: dict[str, Response] = {
        "text": PlainTextResponse("hé"),
        "json": Response('{"a": [1, 2.5, "é"]}', media_type="application/json"),
        "unmarked": Response("[1, 2]", media_type="text/plain"),
        "broken": Response("{nope", media_type="application/json"),
        "bytes": Response(b"\x89PNG\xff\x00", media_type="image/png"),
        "empty": Response(status_code=204),
        "number": PlainTextResponse("12"),
    }
    return kinds[request.path_params["what"]]


ROUTES = [
    Route("/echo", echo, methods=ALL_METHODS),
    Route("/status/{code:int}", status, methods=ALL_METHODS),
    Route("/slow", slow),
    Route("/drop", drop),
    Route("/huge", huge),
    Route("/redirect", redirect, methods=ALL_METHODS),
    Route("/give/{what}", give),
]


@pytest.fixture
async def server() -> AsyncIterator[str]:
    service = Service(name="stub", asgi=Starlette(routes=ROUTES), host="127.0.0.1", port=0)
    async with start_service(service) as running:
        yield running.url
        await http.close()


async def call(idempotency_key: str = "key-1", timeout_s: float = 20.0, **config: Any) -> Outcome:
    async def credential(alias: str) -> dict[str, Any]:
        if alias not in CREDENTIALS:
            raise NotFound(f"no credential {alias!r}")
        return CREDENTIALS[alias]

    return await http.run(
        Call(
            kind="http",
            label="fetch",
            step="fetch",
            execution_id=7,
            scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
            credential=credential,
            config=config,
            idempotency_key=idempotency_key,
            timeout_s=timeout_s,
        )
    )


async def echoed(server: str, **config: Any) -> dict[str, Any]:
    outcome = await call(url=f"{server}/echo", **config)
    assert outcome.ok, outcome.error
    body: dict[str, Any] = outcome.data["data"]
    return body


async def test_the_answer_comes_back_as_data(server: str) -> None:
    outcome = await call(endpoint=f"{server}/give/json")
    assert outcome.ok and outcome.data["data"] == outcome.data["body"] == {"a": [1, 2.5, "é"]}
    assert outcome.data["status_code"] == outcome.http["status"] == 200
    assert outcome.data["headers"]["content-type"] == "application/json"
    assert outcome.data["url"] == f"{server}/give/json" and outcome.data["elapsed"] >= 0


@pytest.mark.parametrize(
    ("what", "response_type", "data"),
    [
        ("text", "auto", "hé"),
        ("unmarked", "auto", [1, 2]),
        ("broken", "auto", "{nope"),
        ("bytes", "auto", base64.b64encode(b"\x89PNG\xff\x00").decode()),
        ("empty", "auto", ""),
        ("number", "auto", "12"),
        ("number", "json", 12),
        ("json", "text", '{"a": [1, 2.5, "é"]}'),
        ("text", "binary", base64.b64encode("hé".encode()).decode()),
    ],
)
async def test_a_body_becomes_json_text_or_base64(server: str, what: str, response_type: str, data: Any) -> None:
    outcome = await call(url=f"{server}/give/{what}", response_type=response_type)
    assert outcome.ok and outcome.data["data"] == data


async def test_json_that_was_demanded_and_did_not_come_is_a_parse_error(server: str) -> None:
    outcome = await call(url=f"{server}/give/broken", response_type="json")
    assert outcome.error is not None and outcome.error["kind"] == "parse" and not outcome.error["retryable"]


async def test_params_and_headers_are_made_texts(server: str) -> None:
    seen = await echoed(
        f"{server}",
        params={"n": 1, "yes": True, "none": None, "list": [1, "a"], "text": "a b&c"},
        headers={"X-N": 5, "X-No": None, "X-Flag": False},
    )
    assert seen["query"] == {"n": "1", "yes": "true", "list": '[1,"a"]', "text": "a b&c"}
    assert seen["headers"]["x-n"] == "5" and seen["headers"]["x-flag"] == "false" and "x-no" not in seen["headers"]


async def test_params_are_added_to_those_of_the_url(server: str) -> None:
    outcome = await call(url=f"{server}/echo?a=1", params={"b": 2})
    assert outcome.data["data"]["query"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("fields", "body", "content_type"),
    [
        ({"json": {"a": 1}, "payload": {"b": 2}, "body": "x"}, '{"a":1}', "application/json"),
        ({"payload": [1], "data": {"b": 2}}, "[1]", "application/json"),
        ({"data": {"b": "x y"}, "body": "z"}, '{"b":"x y"}', "application/json"),
        ({"data": {"b": "x y", "n": 1}, "headers": {"content-type": "application/x-www-form-urlencoded"}}, "b=x+y&n=1",
         "application/x-www-form-urlencoded"),
        ({"data": "raw"}, "raw", ""),
        ({"body": "raw"}, "raw", ""),
        ({"body": {"a": 1}}, '{"a":1}', "application/json"),
        ({"form": {"a": "b", "none": None}}, "a=b", "application/x-www-form-urlencoded"),
        ({"json": "text"}, '"text"', "application/json"),
        ({"json": {"a": 1}, "headers": {"Content-Type": "text/x+json"}}, '{"a":1}', "text/x+json"),
        ({}, "", ""),
    ],
)  # fmt: skip
async def test_the_body_is_taken_from_the_first_field_given(
    server: str, fields: dict[str, Any], body: str, content_type: str
) -> None:
    seen = await echoed(server, method="post", **fields)
    assert seen["method"] == "POST" and seen["body"] == body
    assert seen["headers"].get("content-type", "") == content_type


async def test_every_write_carries_the_idempotency_key(server: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        seen = await echoed(server, method=method)
        assert seen["headers"]["idempotency-key"] == seen["headers"]["x-noetl-idempotency-key"] == "key-1"
    seen = await echoed(server)
    assert seen["headers"]["x-noetl-idempotency-key"] == "key-1" and "idempotency-key" not in seen["headers"]
    seen = await echoed(server, method="POST", headers={"idempotency-key": "mine"})
    assert seen["headers"]["idempotency-key"] == "mine"


@pytest.mark.parametrize(
    ("code", "kind", "retryable", "retry_after"),
    [
        (400, "client_error", False, None),
        (401, "auth", False, None),
        (403, "auth", False, None),
        (404, "not_found", False, None),
        (422, "client_error", False, None),
        (429, "rate_limit", True, 7.0),
        (500, "server_error", True, None),
        (503, "server_error", True, 7.0),
    ],
)
async def test_a_status_beyond_2xx_is_a_classified_error_with_data(
    server: str, code: int, kind: str, retryable: bool, retry_after: float | None
) -> None:
    outcome = await call(url=f"{server}/status/{code}")
    assert outcome.status == "error" and outcome.error is not None
    assert outcome.data["data"] == {"why": "because"} and outcome.data["status_code"] == code
    error = outcome.error
    assert (error["kind"], error["retryable"], error.get("retry_after")) == (kind, retryable, retry_after)
    assert error["status"] == error["http_status"] == outcome.http["status"] == code
    assert error["code"] == f"HTTP_{code}" and f"answered {code}" in error["message"] and "because" in error["message"]


async def failure(**config: Any) -> dict[str, Any]:
    outcome = await call(**config)
    assert outcome.status == "error" and outcome.error is not None
    return outcome.error


async def test_an_answer_that_does_not_come_is_a_timeout(server: str) -> None:
    error = await failure(url=f"{server}/slow", timeout="0.2")
    assert (error["kind"], error["retryable"]) == ("timeout", True)


async def test_nobody_listening_is_a_connection_error(free_port: Callable[[], int]) -> None:
    error = await failure(url=f"http://127.0.0.1:{free_port()}/")
    assert (error["kind"], error["retryable"]) == ("connection", True)
    await http.close()


async def test_a_name_that_does_not_resolve_is_a_connection_error() -> None:
    error = await failure(url="http://nowhere.invalid/")
    assert (error["kind"], error["retryable"]) == ("connection", True) and "nowhere.invalid" in error["message"]
    await http.close()


async def test_a_connection_cut_in_the_body_is_a_connection_error(server: str) -> None:
    error = await failure(url=f"{server}/drop", timeout=5)
    assert (error["kind"], error["retryable"]) == ("connection", True)


async def test_an_answer_over_the_limit_is_refused(server: str) -> None:
    error = await failure(url=f"{server}/huge")
    assert error["code"] == "HTTP_BODY_TOO_LARGE" and not error["retryable"]


async def test_redirects_are_followed_unless_told_not_to(server: str) -> None:
    outcome = await call(url=f"{server}/redirect", params={"to": "/give/json"})
    assert outcome.ok and outcome.data["url"] == f"{server}/give/json"
    outcome = await call(url=f"{server}/redirect", params={"to": "/give/json"}, follow_redirects=False)
    assert outcome.status == "error" and outcome.data["status_code"] == 302
    error = await failure(url=f"{server}/redirect?to=%2Fredirect%3Fto%3Dx", params={"to": f"{server}/redirect?to=/x"})
    assert error["http_status"] == 404
    loop = f"{server}/redirect?to="
    error = await failure(url=loop)
    assert "redirects" in error["message"] and not error["retryable"]


async def test_credentials_authorize_and_do_not_follow_to_another_origin(server: str) -> None:
    seen = await echoed(server, auth="robot")
    assert seen["headers"]["authorization"] == "Bearer t0ken-s3cret"
    seen = await echoed(server, auth={"type": "basic", "credential": "person"})
    assert base64.b64decode(seen["headers"]["authorization"].removeprefix("Basic ")) == b"ann:pass-s3cret"
    assert (await echoed(server, auth="shop"))["headers"]["x-shop-key"] == "key-s3cret"
    assert (await echoed(server, credential="query"))["query"] == {"api_key": "query s3cret"}
    other = server.replace("127.0.0.1", "localhost")
    outcome = await call(url=f"{server}/redirect", params={"to": f"{other}/echo"}, auth="shop")
    assert outcome.ok and "x-shop-key" not in outcome.data["data"]["headers"]


async def test_cookies_of_one_call_never_reach_another(server: str) -> None:
    await echoed(server)
    assert "cookie" not in (await echoed(server))["headers"]


@pytest.mark.parametrize("alias", ["robot", "person", "shop", "query"])
async def test_no_secret_shows_in_an_error(server: str, free_port: Callable[[], int], alias: str) -> None:
    for url in (f"{server}/status/500", f"{server}/slow", f"http://127.0.0.1:{free_port()}/"):
        error = await failure(url=url, auth=alias, timeout=0.2)
        assert "s3cret" not in str(error)
    outcome = await call(url=f"{server}/status/500", auth=alias)
    assert "s3cret" not in outcome.data["url"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "url: expected a text (or `endpoint` with one), found nothing"),
        ({"url": "ftp://x/"}, "expected http"),
        ({"url": "http://"}, "a host"),
        ({"url": "http://x/", "headers": [1]}, "headers: expected a mapping"),
        ({"url": "http://x/", "timeout": "soon"}, "timeout: expected seconds"),
        ({"url": "http://x/", "verify_ssl": "maybe"}, "verify_ssl: expected true or false"),
        ({"url": "http://x/", "auth": "nobody"}, "nobody"),
        ({"url": "http://x/", "auth": "odd"}, "expected a credential of type bearer"),
        ({"url": "http://x/", "response_type": "xml"}, "response_type: expected json"),
    ],
)
async def test_a_wrong_field_is_named(config: dict[str, Any], message: str) -> None:
    error = await failure(**config)
    assert error["kind"] == "config" and message in error["message"]


async def test_a_header_that_is_not_http_is_refused_without_quoting_it(server: str) -> None:
    error = await failure(url=f"{server}/echo", headers={"X-Key": "s3cret\r\nEvil: 1"})
    assert error["kind"] == "config" and "s3cret" not in str(error)


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "2852039166", "0xA9FEA9FE", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[fe80::1]"],
)
async def test_metadata_and_link_local_addresses_are_refused(host: str) -> None:
    error = await failure(url=f"http://{host}/latest/meta-data/")
    assert (error["kind"], error["code"], error["retryable"]) == ("blocked", "ADDRESS_REFUSED", False)
    await http.close()


async def test_a_redirect_to_a_refused_address_is_refused(server: str) -> None:
    error = await failure(url=f"{server}/redirect", params={"to": "http://169.254.169.254/latest/"})
    assert error["code"] == "ADDRESS_REFUSED"


@pytest.mark.parametrize(
    ("address", "allowed", "refused"),
    [
        ("127.0.0.1", "", False),
        ("10.1.2.3", "", False),
        ("::1", "", False),
        ("93.184.216.34", "", False),
        ("169.254.1.1", "", True),
        ("169.254.1.1", "169.254.1.0/24", False),
        ("169.254.2.1", "169.254.1.0/24", True),
        ("2002:a9fe:a9fe::1", "", True),
        ("fd00:ec2::254", "", True),
        ("fd00:ec2::254", "fd00:ec2::254", False),
    ],
)
def test_the_allow_list_opens_what_is_refused(address: str, allowed: str, refused: bool) -> None:
    assert bool(refusal(ipaddress.ip_address(address), {allowed} if allowed else ())) is refused


@pytest.mark.parametrize("opened", ["127.0.0.1", "127.0.0.0/24, other.example"])
async def test_the_operator_opens_addresses_by_the_environment(
    server: str, monkeypatch: pytest.MonkeyPatch, opened: str
) -> None:
    monkeypatch.setattr(egress, "REFUSED", (ipaddress.ip_network("127.0.0.0/8"),))
    assert (await failure(url=f"{server}/echo"))["code"] == "ADDRESS_REFUSED"
    await http.close()
    monkeypatch.setenv("NOETL_HTTP_ALLOW_HOSTS", opened)
    await echoed(server)

"""The HTTP server under every role: what it refuses, how long it waits, whom it notices going, how it ends."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from noetl_common import http_server
from noetl_common.http_server import HEAD_BYTES_MAX
from noetl_common.process import Service
from services.worker.api import KEEP_ALIVE_S
from tests.running import Running, start_service, wait_until

LINE = b"POST /echo HTTP/1.1\r\nHost: here\r\n"


class Seen:
    """What the application noticed."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.gone = asyncio.Event()
        self.paths: list[str] = []


def application(seen: Seen) -> Starlette:
    async def echo(request: Request) -> Response:
        seen.paths.append(request.url.path)
        return Response(await request.body(), headers={"x-length": request.headers.get("content-length", "")})

    async def hold(request: Request) -> Response:
        seen.entered.set()
        try:
            await request.body()
            await wait_until(request.is_disconnected)
        except ClientDisconnect:
            pass
        seen.gone.set()
        return PlainTextResponse("nobody reads this")

    routes = [Route("/echo", echo, methods=["GET", "POST"]), Route("/hold", hold, methods=["GET", "POST"])]
    return Starlette(routes=routes)


@asynccontextmanager
async def serving(seen: Seen | None = None) -> AsyncIterator[Running]:
    async with start_service(Service(name="ingest", asgi=application(seen or Seen()))) as running:
        yield running


@asynccontextmanager
async def connect(running: Running) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    url = httpx.URL(running.url)
    assert url.port is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.close()


async def exchange(running: Running, *pieces: bytes) -> bytes:
    """Send piece by piece; return all that comes until the server closes the connection."""
    async with connect(running) as (reader, writer):
        answering = asyncio.create_task(reader.read())
        for piece in pieces:
            if answering.done():
                break
            writer.write(piece)
            await asyncio.sleep(0.001)
        return await answering


async def one_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return head, await reader.readexactly(length)


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /echo\r\n\r\n",
        b"GET /echo HTTP/9.9\r\nHost: here\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /echo HTTP/1.1\r\n\r\n",
        b"GET /echo HTTP/1.1\r\nHost: here\r\nHost: there\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: here\r\n\r\n",
        LINE + b"Content-Length: -1\r\n\r\n",
        LINE + b"Content-Length: many\r\n\r\n",
        LINE + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        LINE + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        LINE + b"Transfer-Encoding: identity, chunked, x\r\n\r\n0\r\n\r\n",
        LINE + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        LINE + b"Bad Name: 1\r\n\r\n",
        LINE + b"Bad: \x00\r\n\r\n",
        b"CONNECT there:443 HTTP/1.1\r\nHost: there\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused_and_the_connection_closed(sent: bytes) -> None:
    seen = Seen()
    async with serving(seen) as running:
        assert (await exchange(running, sent)).startswith(b"HTTP/1.1 400 "), sent
    assert "/hold" not in seen.paths


@pytest.mark.parametrize("pieces", [1, 40])
@pytest.mark.parametrize(
    "head",
    [
        LINE + b"X: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n",
        LINE + b"".join(b"X-%d: abcdefgh\r\n" % n for n in range(HEAD_BYTES_MAX // 8)) + b"\r\n",
        b"GET /" + b"a" * HEAD_BYTES_MAX + b" HTTP/1.1\r\nHost: here\r\n\r\n",
    ],
)
async def test_a_head_over_its_limit_is_refused_however_it_is_cut(head: bytes, pieces: int) -> None:
    size = len(head) // pieces + 1
    async with serving() as running:
        answer = await exchange(running, *(head[start : start + size] for start in range(0, len(head), size)))
        assert answer.startswith(b"HTTP/1.1 431 "), answer[:100]


async def test_a_head_below_its_limit_and_a_body_beyond_are_taken_in_one_piece() -> None:
    body = b"b" * (3 * HEAD_BYTES_MAX)
    head = LINE + b"X: " + b"a" * (HEAD_BYTES_MAX - 200) + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with serving() as running, connect(running) as (reader, writer):
        for _ in range(2):
            writer.write(head + body)
            assert (await one_answer(reader))[1] == body


@pytest.mark.parametrize("begun", [b"1;x=", b"0\r\nX: ", b"0\r\nX: 1\r\n"])
async def test_extensions_and_trailers_of_chunks_have_the_limit_of_heads(begun: bytes) -> None:
    more = b"X: abcdefgh\r\n" if begun.endswith(b"\n") else b"abcdefgh"
    head = LINE + b"Transfer-Encoding: chunked\r\n\r\n" + begun
    async with serving() as running:
        answer = await exchange(running, head, *[more * 50] * (HEAD_BYTES_MAX // 200))
        assert answer.startswith(b"HTTP/1.1 431 "), answer[:100]


async def test_requests_sent_ahead_are_answered_in_their_order() -> None:
    async with serving() as running, connect(running) as (reader, writer):
        writer.write(b"".join(LINE + b"Content-Length: 1\r\n\r\n%d" % n for n in range(5)))
        assert [(await one_answer(reader))[1] for _ in range(5)] == [b"%d" % n for n in range(5)]
        writer.write(LINE + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert (await one_answer(reader))[1] == b"abcde"
        writer.write(b"GET /echo HTTP/1.0\r\n\r\n")
        head, _body = await one_answer(reader)
        assert b"connection: close" in head.lower() and b"\r\ndate: " in head and b"server:" not in head.lower()
        assert await reader.read() == b""


async def test_a_body_that_waits_to_be_asked_for_is_asked_for() -> None:
    async with serving() as running, connect(running) as (reader, writer):
        writer.write(LINE + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        assert (await one_answer(reader))[1] == b"ab"


@pytest.mark.parametrize("sent", [b"", b"GET /echo HTTP/1.1\r\nHo", LINE])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_server, "HEAD_MAX_S", 0.2)
    monkeypatch.setattr(http_server, "TICK_S", 0.05)
    async with serving() as running:
        assert await exchange(running, sent) == b""


async def test_a_head_that_begins_after_an_answer_must_end_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TICK_S", 0.05)
    async with serving() as running, connect(running) as (reader, writer):
        writer.write(LINE + b"Content-Length: 1\r\n\r\nx")
        await one_answer(reader)
        monkeypatch.setattr(http_server, "HEAD_MAX_S", 0.2)
        writer.write(b"G")
        assert await reader.read() == b""


async def test_an_answer_is_not_made_faster_than_its_client_reads_it() -> None:
    made = 0

    async def pour(_request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            nonlocal made
            for _ in range(64):
                made += 1
                yield bytes(1 << 20)

        return StreamingResponse(parts())

    service = Service(name="ingest", asgi=Starlette(routes=[Route("/pour", pour)]))
    async with start_service(service) as running, connect(running) as (reader, writer):
        writer.transport.pause_reading()
        writer.write(b"GET /pour HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        await wait_until(lambda: made)
        before = -1
        while before != made:
            before = made
            await asyncio.sleep(0.2)
        assert made < 48
        writer.transport.resume_reading()
        assert len(await reader.read()) > 64 << 20


def test_a_server_keeps_connections_longer_than_its_clients_do() -> None:
    assert 2 * max(KEEP_ALIVE_S, httpx.Limits().keepalive_expiry or 0.0) < http_server.KEEP_ALIVE_S
    assert http_server.HEAD_MAX_S >= http_server.KEEP_ALIVE_S


@pytest.mark.parametrize("body", [b"Content-Length: 0\r\n\r\n", b"Content-Length: 9\r\n\r\nhalf"])
async def test_a_client_that_goes_while_its_request_is_held_is_noticed(body: bytes) -> None:
    seen = Seen()
    async with serving(seen) as running:
        async with connect(running) as (_reader, writer):
            writer.write(b"POST /hold HTTP/1.1\r\nHost: here\r\n" + body)
            await seen.entered.wait()
        async with asyncio.timeout(10):
            await seen.gone.wait()


async def test_the_server_takes_no_signals() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with serving():
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_at_the_stop_an_idle_connection_is_closed_and_an_answer_under_way_is_given() -> None:
    release = asyncio.Event()
    entered = asyncio.Event()

    async def slow(_request: Request) -> Response:
        entered.set()
        await release.wait()
        return PlainTextResponse("done")

    service = Service(name="ingest", asgi=Starlette(routes=[Route("/slow", slow)]))
    async with (
        start_service(service) as running,
        connect(running) as (idle, _writer),
        connect(running) as (busy, busy_writer),
    ):
        busy_writer.write(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n")
        await entered.wait()
        running.stop.set()
        assert await idle.read() == b""
        release.set()
        head, body = await one_answer(busy)
        assert body == b"done" and b"connection: close" in head.lower()
        await wait_until(running.task.done)

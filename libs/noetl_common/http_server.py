"""The HTTP server of a role: uvicorn's protocol over httptools, in a loop that turns already.

Not uvicorn's `Server`: it takes the process's signals, and wakes ten times a second to see whether it must end.
"""

import asyncio
import socket
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

BACKLOG = 1024
# Longer than any client of ours keeps a connection: the one that closes must not be the one that is written to.
KEEP_ALIVE_S = 15
HEAD_MAX_S = 15.0  # for the head of a request, from the answer to the one before
HEAD_BYTES_MAX = 16 * 1024  # 431 beyond it
JOINED_BYTES_MAX = 64 * 1024  # of an answer, before the connection is asked whether it takes more
TICK_S = 1.0
CLOSING_POLL_S = 0.01


async def serve_http(app: ASGIApp, listening: socket.socket, closing: asyncio.Event) -> None:
    """Answer requests with `app` until `closing`; return once those under way are answered.

    The socket is closed in any case; when this is cancelled, so are the connections that are left.
    """
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # what clients send wrong is answered, and no line of the log
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        workers=1,
    )
    config.load()
    state = ServerState()
    connections = cast(set[_Connection], state.connections)  # no other kind is made
    make = partial(_Connection, config, state, {})
    server = await asyncio.get_running_loop().create_server(make, sock=listening, backlog=BACKLOG)
    try:
        while not closing.is_set():
            state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            for connection in list(connections):
                connection.close_if_late()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await closing.wait()
        server.close()
        while connections or state.tasks:
            for connection in list(connections):
                connection.shutdown()
            await asyncio.sleep(CLOSING_POLL_S)
    finally:
        server.close()
        for connection in list(connections):
            connection.transport.abort()


class _Connection(HttpToolsProtocol):
    """One connection, with the limits that uvicorn leaves to a proxy: the size of a head, and the time it may take."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._waiting_since_s: float | None = self.loop.time()
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        joined = _JoinedWrites(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, joined))

    def close_if_late(self) -> None:
        """Close if the head of the next request has not come in time."""
        if self._waiting_since_s is not None and self.loop.time() - self._waiting_since_s > HEAD_MAX_S:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        # So much without the end of a head or a byte of a body; a body's chunks have extensions and trailers, too.
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        # What is raised here the parser makes a malformed request of.
        if self._head_bytes > HEAD_BYTES_MAX:
            _check_size(self.url, self.headers)  # what was counted may have a part of the body in it
        if [name for name, _value in self.headers].count(b"host") != 1 and self.parser.get_http_version() != "1.0":
            raise ValueError("expected one Host, as HTTP/1.1 has it")
        self._waiting_since_s = None
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        # What was sent ahead has its head already, and is begun now.
        self._waiting_since_s = None if self.pipeline else self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes <= HEAD_BYTES_MAX:
            super().send_400_response(msg)
            return
        self.transport.write(STATUS_LINE[431] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


class _JoinedWrites:
    """A transport that sends what is written in one turn of the loop at once.

    The head and the body of an answer are written one after the other: it saves a system call, and a wake-up of the
    client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self._send)
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > JOINED_BYTES_MAX:
            self._send()  # the transport says then whether to wait

    def close(self) -> None:
        self._send()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _send(self) -> None:
        if self._pending and not self._transport.is_closing():
            self._transport.write(b"".join(self._pending))
        self._pending.clear()
        self._pending_bytes = 0


def _check_size(url: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    if len(url) + sum(len(name) + len(value) + 4 for name, value in headers) > HEAD_BYTES_MAX:
        raise ValueError("expected a smaller head")

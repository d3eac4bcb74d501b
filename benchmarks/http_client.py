"""A client that costs little: JSON over one kept connection, so that what is measured is the server."""

import asyncio
import time
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from noetl_common.errors import Unavailable

LENGTH = b"content-length:"


class Connection:
    """One keep-alive connection to a server on loopback; one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "Connection":
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        if self._writer is not None:
            self._writer.close()

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return the status and the body of an answer. Errors: Unavailable when the server closed the connection."""
        assert self._reader is not None and self._writer is not None, "used in a `with` block"
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        try:
            answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
            length = answer.partition(LENGTH)[2].partition(b"\r\n")[0]
            return int(answer[9:12]), await self._reader.readexactly(int(length or 0))
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise Unavailable(f"{self._host}:{self._port}: expected an answer, found a closed connection") from exc

    async def post(self, path: str, given: Any) -> Any:
        """Return the answer to a POST. Errors: Unavailable when it is refused."""
        status, body = await self.send("POST", path, msgspec.json.encode(given))
        if status >= 300:
            raise Unavailable(f"POST {path}: expected an answer below 300, found {status}: {body[:200]!r}")
        return msgspec.json.decode(body)


async def sleep_until(moment_s: float) -> None:
    """Return at a moment of time.perf_counter(), at once when it is over."""
    await asyncio.sleep(max(moment_s - time.perf_counter(), 0.0))

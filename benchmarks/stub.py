"""A server that answers every request with the same small record, at little cost: `python -m benchmarks.stub`."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from noetl_cli.embedded.server import LOOPBACK

BODY = b'{"patient_id":17,"name":"Ada Adler","birth_year":1961,"facility":"clinic-7"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Stub(asyncio.Protocol):
    """One connection: an answer for each request's end. Requests have no body."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        *whole, self._rest = (self._rest + data).split(b"\r\n\r\n")
        self._transport.write(ANSWER * len(whole))


@contextmanager
def stub() -> Iterator[tuple[str, int]]:
    """Lend a stub in a process of its own: its URL and its process id."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.stub"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://{LOOPBACK}:{int(process.stdout.readline())}", process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def serve() -> None:
    """Listen on any free port, say which, and serve until terminated."""
    server = await asyncio.get_running_loop().create_server(Stub, LOOPBACK, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())

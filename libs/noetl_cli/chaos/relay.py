"""TCP links on loopback that can be cut, stalled and slowed: the network between any two processes."""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from noetl_cli.embedded.server import LOOPBACK

CHUNK_BYTES = 65_536
NO_LINGERING = struct.pack("ii", 1, 0)
Mode = Literal["open", "cut", "stalled", "slow"]


class Link:
    """One client's way to one server. Cut: connections are reset and none is taken. Stalled: bytes wait unread."""

    def __init__(self, name: str, target_port: int) -> None:
        self.name = name
        self.target_port = target_port
        self.port = 0
        self.delay_s = 0.0
        self.mode: Mode = "open"
        self._flows = asyncio.Event()
        self._flows.set()
        self._transports: set[asyncio.WriteTransport] = set()

    async def listen(self) -> None:
        """Take connections on a free port of loopback."""
        self._server = await asyncio.start_server(self._taken, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Take no more connections and end those there are."""
        self._server.close()
        self.set("cut")

    def set(self, mode: Mode, delay_s: float = 0.0) -> None:
        """Change how the link behaves, for open connections and later ones."""
        self.mode, self.delay_s = mode, delay_s
        if mode == "stalled":
            self._flows.clear()
        else:
            self._flows.set()
        if mode == "cut":
            for transport in list(self._transports):
                # Not closed but reset, as by a firewall: what was under way is gone.
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
                transport.abort()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            if self.mode == "cut":
                return
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self.target_port)
            ends.append(far_writer)
            self._transports.update(end.transport for end in ends)
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        except OSError:
            pass  # either end is gone: the other learns it from its own connection
        finally:
            for end in ends:
                self._transports.discard(end.transport)
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._flows.wait()
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class Relays:
    """All links of a stack, served by one thread."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="chaos.relays", daemon=True)
        self._thread.start()

    def through(self, who: str, what: str, url: str) -> str:
        """Return the URL by which the process `who` reaches the server `what`: through a link named `who>what`.

        Where there are several such servers, the links to the others are named `who>what.2`, `who>what.3`.
        """
        parts = urlsplit(url)
        assert parts.port is not None, "a server of the stack listens on a port"
        name = f"{who}>{what}"
        others = sum(each.partition(".")[0] == name for each in self.links)
        link = Link(f"{name}.{others + 1}" if others else name, parts.port)
        self._do(link.listen())
        self.links[link.name] = link
        login, at, _place = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}{LOOPBACK}:{link.port}"))

    def set(self, name: str, mode: Mode, delay_s: float = 0.0) -> None:
        """Change a link."""

        async def change() -> None:
            self.links[name].set(mode, delay_s)

        self._do(change())

    def close(self) -> None:
        """End every connection and the thread."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _serve(self) -> None:
        with self._runner:
            self._runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self._ended.wait()
        for link in self.links.values():
            link.close()
        flows = asyncio.all_tasks() - {asyncio.current_task()}
        for flow in flows:
            flow.cancel()
        await asyncio.gather(*flows, return_exceptions=True)
        await asyncio.sleep(0)  # transports that were aborted close themselves in the loop's next round

    def _do(self, what: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

"""A gate in a TCP connection: it lets bytes pass until it sees a mark, and then does what the test asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

# hold: keep back what the client sends; hold_answer: pass it on and keep back the answer;
# cut: end the connection before it is passed on; cut_answer: pass it on, and end the connection when it is answered.
Mode = Literal["open", "hold", "hold_answer", "cut", "cut_answer"]


class Gate:
    """One gate. `caught` is set when the mark went by; `release` lets all go on."""

    def __init__(self, host: str, port: int, *, mark: bytes, mode: Mode) -> None:
        self.mark = mark
        self.mode: Mode = mode
        self.caught = asyncio.Event()
        self.port = 0
        self._to = (host, port)
        self._free = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def release(self) -> None:
        """Let everything pass from now on."""
        self.mode = "open"
        self._free.set()

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        there = await asyncio.open_connection(*self._to)
        link = _Link(self, (reader, writer), there)
        tasks = [asyncio.create_task(link.forth()), asyncio.create_task(link.back())]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.difference_update(tasks)
        for each in (writer, there[1]):
            each.close()

    def catch(self, data: bytes) -> Mode:
        """Return what to do with what a client sent."""
        if self.mode == "open" or self.mark not in data:
            return "open"
        mode, self.mode = self.mode, "open"
        self.caught.set()
        return mode

    async def freed(self) -> None:
        """Return once the test lets all go on."""
        await self._free.wait()

    async def close(self) -> None:
        """End every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection through a gate."""

    def __init__(self, gate: Gate, here: Ends, there: Ends) -> None:
        self._gate = gate
        self._here = here
        self._there = there
        self._mode: Mode = "open"

    async def forth(self) -> None:
        while data := await self._here[0].read(1 << 16):
            caught = self._gate.catch(data)
            if caught == "cut":
                return
            if caught == "hold":
                await self._gate.freed()
            elif caught != "open":
                self._mode = caught
            self._there[1].write(data)
            await self._there[1].drain()

    async def back(self) -> None:
        while data := await self._there[0].read(1 << 16):
            if self._mode == "cut_answer":
                return
            if self._mode == "hold_answer":
                await self._gate.freed()
            self._here[1].write(data)
            await self._here[1].drain()


@asynccontextmanager
async def open_gate(host: str, port: int, *, mark: bytes, mode: Mode) -> AsyncIterator[Gate]:
    """Serve a gate in front of `host`:`port` on a port of its own."""
    gate = Gate(host, port, mark=mark, mode=mode)
    server = await asyncio.start_server(gate.pass_on, "127.0.0.1", 0)
    gate.port = server.sockets[0].getsockname()[1]
    try:
        yield gate
    finally:
        server.close()
        await gate.close()

"""The network: requests that are lost, answered too late or delivered twice; bells that may not ring."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from noetl_common.bus import Handler, matches
from noetl_common.errors import NoetlError, Unavailable
from noetl_common.loop import is_expected
from tests.simulation.faults import Faults
from tests.simulation.loop import RUNNING, Process, SimLoop

REQUEST_TIMEOUT_S = 6.0


class Network:
    """Requests and bells. `losses`: the part of them that is lost; `is_down`: no bell rings."""

    def __init__(self, source: random.Random, loop: SimLoop, faults: Faults) -> None:
        self.random = source
        self.loop = loop
        self.faults = faults
        self.losses = source.choice([0.0, 0.0, 0.02, 0.1])
        self.is_down = False
        self.servers: Callable[[], list[Any]] = list
        self.bugs: list[str] = []
        self._subscriptions: list[tuple[str, Handler, Process]] = []

    async def ask(self, method: str, body: bytes, *, is_repeatable: bool = False) -> bytes:
        """Return the answer of some ingest. Errors: Unavailable; those of the handler that are ours."""
        answer = self.loop.create_future()
        server = self.faults.pick(self.servers())
        copies = 1
        if self._loses():
            self.faults.count("request lost", method)
            copies = 0
        elif is_repeatable and self._loses():
            self.faults.count("request repeated", method)
            copies = 2
        for _ in range(copies):
            self.loop.after(self.faults.travel_s(), self._arrive, server, method, body, answer)
        late = self.loop.after(REQUEST_TIMEOUT_S, _fail, answer, Unavailable(f"{method}: no answer"))
        try:
            found: bytes = await answer
        finally:
            late.cancel()
        return found

    def _loses(self) -> bool:
        return self.faults.is_on and self.losses > 0.0 and self.random.random() < self.losses

    def _arrive(self, server: Any, method: str, body: bytes, answer: Any) -> None:
        if server is None or server.is_dead:
            self.loop.after(self.faults.travel_s(), _fail, answer, Unavailable("connection refused"))
        else:
            server.spawn(self._handled(server, method, body, answer))

    async def _handled(self, server: Any, method: str, body: bytes, answer: Any) -> None:
        await self.faults.reach(f"{method} received")
        error: Exception | None = None
        found = b""
        try:
            found = await server.serve(method, body)
        except Exception as raised:
            error = raised if isinstance(raised, NoetlError) else Unavailable(f"500: {raised!r}")
            if not is_expected(raised):
                self.bugs.append(f"{method}: {type(raised).__name__}: {raised}")
        await self.faults.reach(f"{method} answered")
        if self._loses():
            self.faults.count("answer lost", method)
        elif error is not None:
            self.loop.after(self.faults.travel_s(), _fail, answer, error)
        else:
            self.loop.after(self.faults.travel_s(), _settle, answer, found)

    def subscribe(self, pattern: str, handler: Handler) -> None:
        """Have the running process's handler called for what is published."""
        process = RUNNING.get()
        assert process is not None
        self._subscriptions.append((pattern, handler, process))

    def publish(self, subject: str, payload: bytes) -> None:
        """Ring: to each subscriber never, once or twice, and in any order."""
        if self.is_down:
            self.faults.count("bell not rung")
            return
        self._subscriptions = [one for one in self._subscriptions if not one[2].is_dead]
        for pattern, handler, process in self._subscriptions:
            if not matches(pattern, subject):
                continue
            if self._loses():
                self.faults.count("bell lost")
                continue
            copies = 1
            if self._loses():
                self.faults.count("bell repeated")
                copies = 2
            for _ in range(copies):
                delay_s = self.faults.travel_s() * self.random.choice([1, 1, 1, 30])
                self.loop.after(delay_s, _ring, process, handler, subject, payload)


class SimBus:
    """The bus of one process (noetl_common.bus.Bus)."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def connected(self) -> bool:
        return not self._network.is_down

    async def publish(self, subject: str, payload: bytes = b"") -> None:
        await self._network.faults.reach(f"bell {subject.split('.')[1]}")
        self._network.publish(subject, payload)

    async def publish_and_wait(self, subject: str) -> None:
        """What a bus without a budget does while it is away: wait. Only a mutant rings like this."""
        while self._network.is_down:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # nobody tells a client when its server is back
        self._network.publish(subject, b"")

    async def subscribe(self, subject: str, handler: Handler) -> Any:
        self._network.subscribe(subject, handler)

    async def close(self) -> None:
        return None


def _ring(process: Process, handler: Handler, subject: str, payload: bytes) -> None:
    if not process.is_dead:
        process.spawn(handler(subject, payload))  # type: ignore[arg-type]


def _settle(answer: Any, found: bytes) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: Any, error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)

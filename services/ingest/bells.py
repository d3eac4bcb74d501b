"""Doorbells: what a request that is held waits on instead of asking the database again and again."""

import asyncio
import math
from collections.abc import Callable

from noetl_common.subjects import commands_bell, last_token

BELLS_MAX = 1024
STROKE_S = 0.05


class Bells:
    """A bell a name. A ring wakes all that wait; it carries nothing, and a lost one costs one wait at most."""

    def __init__(self) -> None:
        self._rung: dict[str, int] = {}
        self._waiting: dict[str, asyncio.Event] = {}
        self._due: set[tuple[str, int]] = set()

    def ring(self, name: str) -> None:
        """Wake whoever waits for this bell."""
        name = self._spelled(name)
        if name in self._rung or len(self._rung) < BELLS_MAX:
            self._rung[name] = self._rung.get(name, 0) + 1
        event = self._waiting.pop(name, None)
        if event is not None:
            event.set()

    def ring_later(self, name: str, delay_s: float, ring: Callable[[], None]) -> None:
        """Call `ring` when something becomes due, once for all that is due within a twentieth of a second."""
        due = (name, math.ceil((asyncio.get_running_loop().time() + delay_s) / STROKE_S))
        if due not in self._due and len(self._due) < BELLS_MAX:
            self._due.add(due)
            asyncio.get_running_loop().call_at(due[1] * STROKE_S, self._strike, due, ring)

    def _strike(self, due: tuple[str, int], ring: Callable[[], None]) -> None:
        self._due.discard(due)
        ring()

    async def close(self) -> None:
        """Wake everyone: the process stops."""
        for name in list(self._waiting):
            self.ring(name)

    def mark(self, name: str) -> int:
        """Return how often the bell has rung: taken before looking, it makes a ring meanwhile count."""
        return self._rung.get(self._spelled(name), 0)

    def waiting(self, name: str) -> bool:
        """Return True while someone waits for the bell."""
        return self._spelled(name) in self._waiting

    async def wait(self, name: str, timeout_s: float, *, since: int | None = None) -> bool:
        """Return True as soon as the bell rings (or has rung since the mark), False after `timeout_s`."""
        if since is not None and self.mark(name) != since:
            return True
        event = self._waiting.setdefault(self._spelled(name), asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def on_message(self, subject: str, _payload: bytes) -> None:
        """Ring for a message of the bus."""
        self.ring(last_token(subject))

    def _spelled(self, name: str) -> str:
        return name


class PoolBells(Bells):
    """The bells of command pools, by the spelling of their subjects: a ring by name and one by the bus agree."""

    def _spelled(self, name: str) -> str:
        return last_token(commands_bell(name))

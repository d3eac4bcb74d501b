"""Doorbells of command pools: what a held claim request waits on instead of asking the database."""

import asyncio

from noetl_common.subjects import commands_bell, last_token

POOLS_MAX = 1024


class PoolBells:
    """One bell a pool. A ring wakes all that wait; it carries nothing, and a lost one costs one wait at most."""

    def __init__(self) -> None:
        self._rung: dict[str, int] = {}
        self._waiting: dict[str, asyncio.Event] = {}

    def ring(self, pool: str) -> None:
        """Wake whoever waits for the pool."""
        pool = _spelled(pool)
        if pool in self._rung or len(self._rung) < POOLS_MAX:
            self._rung[pool] = self._rung.get(pool, 0) + 1
        event = self._waiting.pop(pool, None)
        if event is not None:
            event.set()

    async def close(self) -> None:
        """Wake everyone: the process stops."""
        for pool in list(self._waiting):
            self.ring(pool)

    def mark(self, pool: str) -> int:
        """Return how often the pool's bell has rung: taken before looking, it makes a ring meanwhile count."""
        return self._rung.get(_spelled(pool), 0)

    def waiting(self, pool: str) -> bool:
        """Return True while someone waits for the pool."""
        return _spelled(pool) in self._waiting

    async def wait(self, pool: str, timeout_s: float, *, since: int | None = None) -> bool:
        """Return True as soon as the pool's bell rings (or has rung since the mark), False after `timeout_s`."""
        if since is not None and self.mark(pool) != since:
            return True
        event = self._waiting.setdefault(_spelled(pool), asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def on_message(self, subject: str, _payload: bytes) -> None:
        """Ring for a message of the bus."""
        self.ring(last_token(subject))


def _spelled(pool: str) -> str:
    """Return the pool as its subject spells it: a ring by name and one by the bus are the same."""
    return last_token(commands_bell(pool))

"""Reads that callers share: whoever asks while one is under way gets the answer of the next, which begins behind it.

So each answer is as fresh as if its caller had read alone, and a crowd costs two reads at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedReads(Generic[T]):
    """The reads of one kind, by what they ask for."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._next: dict[Hashable, asyncio.Task[T]] = {}

    async def read(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return what `make` returns, called after this was asked, by whomever. Errors: those of `make`."""
        reading = self._next.get(key)
        if reading is None:
            reading = self._next[key] = asyncio.create_task(self._read(key, make, self._under_way.get(key)))
        return await asyncio.shield(reading)  # others wait for it as well

    async def _read(self, key: Hashable, make: Callable[[], Awaitable[T]], before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait({before})
        reading = self._under_way[key] = self._next.pop(key)
        try:
            return await make()
        finally:
            if self._under_way.get(key) is reading:
                del self._under_way[key]

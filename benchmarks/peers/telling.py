"""What every peer's file shares: run the works that it is told, time them, print a JSON line for each.

Runs in the peer's own environment: what is imported here needs nothing but the standard library.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from benchmarks.proc import family_ms, machine_ms
from noetl_common.sql import load_queries

SQL = load_queries("benchmarks")
DATABASE_URL = os.environ.get("DATABASE_URL", "")
FOLDER = os.environ.get("PEER_FOLDER", ".")
LOOK_S = 0.01

Work = Callable[[int], Awaitable[Any]]
One = Callable[[], Awaitable[Any]]


async def told(**works: Work) -> None:
    """Run the works that PEER_WORKS names ({"fanout": [count, ...]}), the first time to warm up, and print each."""
    for name, counts in json.loads(os.environ["PEER_WORKS"]).items():
        if name in works:
            for count in counts:
                print(json.dumps(await _timed(name, works[name], count)), flush=True)


async def _timed(name: str, work: Work, count: int) -> dict[str, Any]:
    """Return what one go takes. A work returns None, or the ms that each of its runs took."""
    postgres = int(os.environ["POSTGRES_PID"])
    before = family_ms(os.getpid()), family_ms(postgres), machine_ms()
    began_s = time.perf_counter()
    latencies = await work(count)
    seconds = time.perf_counter() - began_s
    peer, database, machine = (
        now - then
        for now, then in zip((family_ms(os.getpid()), family_ms(postgres), machine_ms()), before, strict=True)
    )
    return {
        "work": name,
        "count": len(latencies) if latencies else count,
        "seconds": seconds,
        "cpu_ms": {"peer": peer, "postgres": database},
        "others_cpu": max(machine - peer - database, 0) / machine if machine else 0.0,
        "latencies_ms": sorted(latencies) if latencies else [],
    }


@contextmanager
def worker() -> Iterator[None]:
    """Have the peer's file run as a worker, in a process of its own, while the block lasts."""
    process = subprocess.Popen([sys.executable, sys.argv[0], "worker"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def until(count: Callable[[], Awaitable[int]], wanted: int) -> None:
    """Return when a count has reached what is wanted."""
    while True:
        if await count() >= wanted:
            return
        await asyncio.sleep(LOOK_S)


async def in_flight(count: int, limit: int, one: One) -> list[float]:
    """Do something `count` times, at most `limit` at once; return the ms that each took."""
    took_ms: list[float] = []
    left: Iterator[int] = iter(range(count))

    async def slot() -> None:
        for _ in left:
            began_s = time.perf_counter()
            await one()
            took_ms.append((time.perf_counter() - began_s) * 1000)

    await asyncio.gather(*(slot() for _ in range(min(count, limit))))
    return took_ms


class Ends:
    """Who waits for the end of which job; one query looks for all of them."""

    def __init__(self, find: Callable[[list[Any]], Awaitable[list[Any]]]) -> None:
        self._find = find
        self._waiting: dict[Any, asyncio.Future[None]] = {}

    async def wait(self, job_id: Any) -> None:
        """Return when a job has ended."""
        future = self._waiting[job_id] = asyncio.get_running_loop().create_future()
        await future
        del self._waiting[job_id]

    @asynccontextmanager
    async def looking(self) -> Any:
        """Look for ends while the block lasts."""
        task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            task.cancel()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._waiting:
                for job_id in await self._find(list(self._waiting)):
                    future = self._waiting.get(job_id)
                    if future is not None and not future.done():
                        future.set_result(None)

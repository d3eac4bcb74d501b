"""Start one-step runs from a client: a number in flight, or so many a second, whatever becomes of them."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from psycopg.rows import dict_row

from benchmarks.http_client import Connection, sleep_until
from benchmarks.report import Figures
from benchmarks.sampling import percentile
from benchmarks.stack import SQL, Bench
from noetl_common.errors import Unavailable

LOOK_S = 0.01
DONE_TIMEOUT_S = 120.0


class Ends:
    """Who waits for the end of which run; one query looks for all of them."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def wait(self, execution_id: int) -> None:
        """Return when a run has ended. Errors: Unavailable after DONE_TIMEOUT_S."""
        future = self._waiting[execution_id] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(future, DONE_TIMEOUT_S)
        except TimeoutError as exc:
            raise Unavailable(f"execution {execution_id} did not end within {DONE_TIMEOUT_S:.0f} s") from exc
        finally:
            del self._waiting[execution_id]

    async def look(self) -> None:
        """Look for ends until cancelled."""
        connecting = psycopg.AsyncConnection.connect(self._database_url, autocommit=True, row_factory=dict_row)
        async with await connecting as conn:
            while True:
                await asyncio.sleep(LOOK_S)
                rows = await conn.execute(SQL["ended_runs"], {"execution_ids": list(self._waiting)})
                for row in await rows.fetchall():
                    if (future := self._waiting.get(row["execution_id"])) is not None and not future.done():
                        future.set_result(None)


async def start_in_flight(b: Bench, where: Mapping[str, Any], count: int, in_flight: int) -> list[int]:
    """Start `count` runs, at most `in_flight` of them not ended; return their ids. Errors: Unavailable."""
    body = msgspec.json.encode({**where, "payload": {}})
    ends = Ends(b.running.database_url)
    started: list[int] = []
    left = iter(range(count))

    async def slot() -> None:
        async with Connection(b.running.api_url) as api:
            for _ in left:
                status, answer = await api.send("POST", "/api/execute", body)
                if status >= 300:
                    raise Unavailable(f"POST /api/execute: {status}: {answer[:200]!r}")
                execution_id = int(msgspec.json.decode(answer)["execution_id"])
                started.append(execution_id)
                await ends.wait(execution_id)

    looking = asyncio.create_task(ends.look())
    try:
        await asyncio.gather(*(slot() for _ in range(min(in_flight, count))))
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    return started


async def start_at_rate(b: Bench, where: Mapping[str, Any], *, rate: float, seconds: float) -> Counter[int]:
    """Ask for `rate` starts a second, done or not, for `seconds`; return how often each status was answered.

    A request waits for none before it; one that finds no free connection is sent as soon as there is one.
    """
    body = msgspec.json.encode({**where, "payload": {}})
    answers: Counter[int] = Counter()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    began_s = time.perf_counter()

    async def send() -> None:
        api = await free.get()
        try:
            status, _body = await api.send("POST", "/api/execute", body)
            answers[status] += 1
        finally:
            free.put_nowait(api)

    connections = [Connection(b.running.api_url) for _ in range(256)]
    for connection in connections:
        free.put_nowait(await connection.__aenter__())
    sending = []
    for n in range(round(rate * seconds)):
        await sleep_until(began_s + n / rate)
        sending.append(asyncio.create_task(send()))
    await asyncio.gather(*sending)
    for connection in connections:
        await connection.__aexit__(None, None, None)
    return answers


def latencies(b: Bench, execution_ids: list[int]) -> Figures:
    """Return how long runs took from their start to their first command and to their end, by the log."""
    rows = b.conn.execute(SQL["run_latencies"], {"execution_ids": execution_ids}).fetchall()
    if len(rows) != len(execution_ids):
        raise Unavailable(f"expected {len(execution_ids)} completed runs, found {len(rows)}")
    claimed, done = [row["claimed_ms"] for row in rows], [row["done_ms"] for row in rows]
    return {
        "first_claim_ms_p50": round(percentile(claimed, 0.5), 1),
        "first_claim_ms_p99": round(percentile(claimed, 0.99), 1),
        "done_ms_p50": round(percentile(done, 0.5), 1),
        "done_ms_p99": round(percentile(done, 0.99), 1),
    }

"""How fast items flow from an HTTP API into Postgres, one command an item, and how fast asyncio alone does it.

python -m benchmarks.flow [--items 2000] prints a table and ends with one JSON line. The floor makes the same requests
and the same inserts, one an item, with as many at once, over kept connections, and keeps nothing else.
"""

import argparse
import asyncio
import sys
import time
from typing import Any

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from benchmarks.http_client import Connection
from benchmarks.loops import one_run
from benchmarks.proc import family_ms
from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.stack import SQL, Bench, bench
from benchmarks.stub import stub
from noetl_common.errors import Conflict

WARM_UP_ITEMS = 128
CONNECTIONS = 8  # to Postgres, as many as a worker's tool has


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("flow", __doc__)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--max-in-flight", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    return report("flow", lambda: measured(options), vars(options))


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of some runs on a new stack. Errors: Unavailable; Conflict when an item was not stored."""
    with bench(workers=options.workers) as b, stub() as (api_url, stub_pid):
        where = b.register("flow.yaml")
        payload = {"api_url": api_url, "items": options.items, "max_in_flight": options.max_in_flight}
        b.run(where, {**payload, "items": WARM_UP_ITEMS})
        return medians([timed(b, where, payload, stub_pid) for _ in range(options.runs)])


def timed(b: Bench, where: dict[str, Any], payload: dict[str, Any], stub_pid: int) -> Figures:
    """Return the figures of one run, and those of asyncio alone right after it."""
    items = payload["items"]
    stub_before_ms = family_ms(stub_pid)
    figures = one_run(b, where, payload)
    stub_ms = family_ms(stub_pid) - stub_before_ms
    figures["cpu_ms_per_item"]["stub"] = round(stub_ms / items, 4)
    database_url = b.running.database_url.rpartition("/")[0] + "/playbook"
    with psycopg.connect(database_url) as conn:
        stored = conn.execute(SQL["flow_count"]).fetchone()
    if stored != (items,):
        raise Conflict(f"expected {items} items in the table, found {stored}")
    cpu_before_ms = time.process_time() * 1000
    floor = asyncio.run(floor_items_per_s(payload, database_url))
    return {
        **figures,
        "floor_items_per_s": round(floor, 1),
        "floor_client_cpu_ms_per_item": round((time.process_time() * 1000 - cpu_before_ms) / items, 3),
        "ratio_to_floor": round(figures["items_per_s"] / floor, 3),
    }


async def floor_items_per_s(payload: dict[str, Any], database_url: str) -> float:
    """Return how many items a second asyncio fetches and inserts, one by one."""
    left = iter(range(payload["items"]))
    sizes: dict[str, Any] = {"min_size": CONNECTIONS, "max_size": CONNECTIONS, "kwargs": {"autocommit": True}}

    async def flow() -> None:
        async with Connection(payload["api_url"]) as api:
            for item in left:
                _status, body = await api.send("GET", f"/api/patients/{item}")
                record = msgspec.json.decode(body)
                given = {"item": item, "patient_id": record["patient_id"], "name": record["name"]}
                async with pool.connection() as conn:
                    await conn.execute(SQL["flow_insert"], given)

    async with AsyncConnectionPool(database_url, open=False, **sizes) as pool:
        async with pool.connection() as conn:
            await conn.execute(SQL["flow_table"])
        began_s = time.perf_counter()
        await asyncio.gather(*(flow() for _ in range(payload["max_in_flight"])))
        seconds = time.perf_counter() - began_s
        async with pool.connection() as conn:
            await conn.execute(SQL["flow_drop"])
    return float(payload["items"] / seconds)


if __name__ == "__main__":
    sys.exit(main())

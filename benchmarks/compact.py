"""How fast runs are folded, a range is dropped, lineage is walked, and a status is read beside a fan-out.

python -m benchmarks.compact [--runs 2000 --items 100] prints a table and ends with one JSON line. Each figure that the
machine's speed decides stands beside that of the bare statement it cannot be faster than.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.report import print_table
from benchmarks.sampling import hardware, percentile
from benchmarks.status import status_reads
from noetl_cli.embedded.databases import ensure_database
from noetl_cli.embedded.stack import Plan, replicas_from, throwaway_stack
from noetl_common.clock import SystemClock
from noetl_common.cluster import initialise
from noetl_common.core.shard import EPOCH_MS
from noetl_common.core.values import TierRule
from noetl_common.db import Pool, migrate, open_pool
from noetl_common.errors import NoetlError, Unavailable
from noetl_common.leases import Leases
from noetl_common.partitions import create_ahead
from noetl_common.sql import load_queries
from noetl_common.store.disk import DiskTier
from noetl_common.store.results import ResultStore
from services.compactor import store
from services.compactor.compactor import Compactor
from services.compactor.loops.compact_executions import compact_executions_once
from services.compactor.loops.drop_partitions import drop_partitions_once
from services.ingest.lineage import Walk

SQL = load_queries("benchmarks")
INGEST = load_queries("services.ingest")
DATABASE = "bench_compact"
WIDTH_HOURS = 168
LONG_AGO_DAYS = 60
CHAIN_DEPTH = 1_000
WALKS = 20
DROP_TIMEOUT_S = 60.0
STATUS_RUNS = 100_000

Figures = dict[str, Any]


def main() -> int:
    """Return the exit code: 0, or 1 when something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compact", description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--fanout-items", type=int, default=10_000)
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="noetl-bench-") as folder:
            figures = measured(Path(folder), options)
    except NoetlError as exc:
        print(f"benchmark failed: {exc}", file=sys.stderr)
        return 1
    settings = {"runs": options.runs, "items": options.items, "status_runs": STATUS_RUNS}
    figures |= {"hardware": hardware(), "settings": {**settings, "fanout_items": options.fanout_items}}
    print_table(figures)
    print(json.dumps(figures))
    return 0


def measured(folder: Path, options: argparse.Namespace) -> Figures:
    """Return the figures on a new stack, each role a process of its own."""
    replicas = replicas_from(processes=True, workers=None, given=[])
    with throwaway_stack(folder / "stack", Plan(owner="run", replicas=replicas)) as stack:
        running = stack.running
        assert running is not None
        figures = status_reads(running.api_url, running.database_url, runs=STATUS_RUNS, items=options.fanout_items)
        # A database of its own, in which nothing else happens.
        ensure_database(running.database_url, DATABASE)
        dsn = running.database_url.rpartition("/")[0] + f"/{DATABASE}"
        return asyncio.run(compaction(dsn, folder / "results", options)) | figures


async def compaction(dsn: str, folder: Path, options: argparse.Namespace) -> Figures:
    """Return how fast finished runs are folded, dropped and walked."""
    async with open_pool(dsn, size_max=3, name="bench", statement_timeout_s=600) as pool:
        range_, events = await seed(pool, options)
        select_s = min([await select_all(dsn, range_) for _ in range(2)])
        live_ms = await walk_ms(pool, chain_of(range_))
        compactor = await compactor_on(pool, folder)
        began_s = time.perf_counter()
        while await compact_executions_once(compactor):
            pass
        fold_s = time.perf_counter() - began_s
        async with pool.connection() as conn:
            held = await (await conn.execute(SQL["count_parts"])).fetchone()
            log = await (await conn.execute(SQL["size_log"], {"pattern": f"_{range_.suffix}$"})).fetchone()
        assert held is not None and log is not None and held["events"] == events
        folded_ms = await walk_ms(pool, chain_of(range_))
        return {
            "events": events,
            "folded_events_per_s": round(events / fold_s, 1),
            "selected_events_per_s": round(events / select_s, 1),
            "ratio_to_select": round(select_s / fold_s, 3),
            "manifest_bytes_per_event": round(held["bytes"] / events, 1),
            "log_bytes_per_event": round(log["bytes"] / events, 1),
            "walk_live_ms": round(live_ms, 1),
            "walk_manifest_ms": round(folded_ms, 1),
            **await drop_times(compactor),
        }


async def seed(pool: Pool, options: argparse.Namespace) -> tuple[store.Range, int]:
    """Make a database with finished runs of one shard in a closed range; return the range and how many events."""
    clock = SystemClock()
    moment_ms = clock.unix_ms() - LONG_AGO_DAYS * 86_400_000
    async with pool.connection() as conn:
        await migrate(conn)
        await initialise(conn, shard_count=16, partition_width_hours=WIDTH_HOURS, now_ms=clock.unix_ms())
        await create_ahead(conn, moment_ms, WIDTH_HOURS, ahead=0)
        await conn.set_autocommit(True)
        ranges = await store.find_ranges(pool, (moment_ms + WIDTH_HOURS * 3_600_000 - EPOCH_MS) << 22)
        range_ = ranges[0]
        args = {"first": range_.low, "runs": options.runs, "items": options.items}
        for name in ("seed_executions", "seed_starts", "seed_items", "seed_commands", "seed_results"):
            await conn.execute(SQL[name], args)
        await conn.execute(SQL["seed_chain"], {"run": chain_of(range_), "depth": CHAIN_DEPTH})
        await conn.execute(SQL["settle"])
        await conn.execute(SQL["analyze_tables"])
        await conn.execute(SQL["own_shards"], {"instance": "bench"})
        await conn.set_autocommit(False)
    return range_, options.runs * (2 + 2 * options.items)


def chain_of(range_: store.Range) -> int:
    """Return the run with the long chain: the first."""
    return range_.low


async def select_all(dsn: str, range_: store.Range) -> float:
    """Return how many seconds the bare read of the same rows takes, page by page."""
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        began_s = time.perf_counter()
        async with conn.cursor("bare") as cursor:
            cursor.itersize = 20_000
            await cursor.execute(SQL["select_events"], {"low": range_.low, "high": range_.high})
            while await cursor.fetchmany(20_000):
                pass
        return time.perf_counter() - began_s


async def compactor_on(pool: Pool, folder: Path) -> Compactor:
    """Return a compactor that owns every shard and waits for nothing."""
    clock = SystemClock()
    leases = Leases(pool, role="compactor", instance="bench", lease_s=3600.0, clock=clock)
    await leases.renew_once()
    payloads = ResultStore([DiskTier(folder)], TierRule())
    return Compactor(pool=pool, store=payloads, leases=leases, clock=clock, retention_days=30.0, settle_s=0.0)


async def walk_ms(pool: Pool, run_id: int) -> float:
    """Return the median of what a walk over the whole chain takes, in ms."""
    took_ms = []
    for _ in range(WALKS):
        began_s = time.perf_counter()
        found = await Walk(pool).trace(run_id, f"s{CHAIN_DEPTH}", limit=CHAIN_DEPTH)
        took_ms.append((time.perf_counter() - began_s) * 1000)
        assert len(found.rows) == CHAIN_DEPTH
    return percentile(took_ms, 0.5)


async def drop_times(compactor: Compactor) -> Figures:
    """Return how long the steps take that end a range: detach, verify, drop."""
    took_ms: dict[str, float] = {}
    deadline_s = time.monotonic() + DROP_TIMEOUT_S
    while time.monotonic() < deadline_s:
        leaving = await store.read_leaving(compactor.pool)
        state = leaving[0].state if leaving else "open"
        began_s = time.perf_counter()
        steps = await drop_partitions_once(compactor)
        took_ms[state] = took_ms.get(state, 0.0) + (time.perf_counter() - began_s) * 1000
        if state == "verified" and steps:
            return {
                "detach_ms": round(took_ms["detaching"], 1),
                "verify_ms": round(took_ms["detached"], 1),
                "drop_ms": round(took_ms["verified"], 1),
            }
        if not steps:
            await asyncio.sleep(0.01)  # a transaction of another database is still open
    raise Unavailable(f"the range was not dropped within {DROP_TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    sys.exit(main())

"""How fast a system is verified, and that it takes no more memory for more events.

python -m benchmarks.verify [--runs 500 --items 1000] prints a table and ends with one JSON line. All of it, Postgres
included, runs on one core.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.report import print_table
from benchmarks.sampling import hardware
from noetl_cli.embedded.postgres import discard_postgres, start_postgres
from noetl_common.bus import MemoryBus
from noetl_common.clock import SystemClock
from noetl_common.cluster import initialise
from noetl_common.core.shard import EPOCH_MS
from noetl_common.db import Pool, migrate, open_pool
from noetl_common.errors import NoetlError
from noetl_common.leases import Leases
from noetl_common.sql import load_queries
from services.compute import store
from services.compute.loops.project_shards import Projector, Runs, project_shards

SQL = load_queries("benchmarks")
SEEDS = ("executions", "heads", "items", "commands", "results", "settle")
BATCH_EVENTS = 5_000
Figures = dict[str, Any]


def main() -> int:
    """Return the exit code: 0, or 1 when something failed or was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify", description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--items", type=int, default=1_000)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="noetl-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server may run as another user
        server = start_postgres(folder)
        try:
            figures, is_clean = asyncio.run(measured(server.url, folder / "results", options))
        except NoetlError as exc:
            print(f"benchmark failed: {exc}", file=sys.stderr)
            return 1
        finally:
            server.stop()
            discard_postgres(folder)
    figures |= {"hardware": hardware(), "settings": {"runs": options.runs, "items": options.items}}
    print_table(figures)
    print(json.dumps(figures))
    return 0 if is_clean else 1


async def measured(dsn: str, folder: Path, options: argparse.Namespace) -> tuple[Figures, bool]:
    """Return the figures, and whether what was seeded is whole."""
    async with open_pool(dsn, size_max=2, name="bench", statement_timeout_s=1_800) as pool:
        first = await seed(pool, options)
    select_s = await select_all(dsn)
    one, one_mib = verified(dsn, folder, "--execution", str(first))
    report, peak_mib = verified(dsn, folder)
    for finding in report["findings"][:5]:
        print(finding, file=sys.stderr)
    looked = report["looked"]
    figures = {
        "events": looked["events"],
        "verify_seconds": looked["seconds"],
        "verified_events_per_s": round(looked["events"] / looked["seconds"], 1),
        "ratio_to_select": round(looked["seconds"] / select_s, 2),
        "peak_memory_mib": round(peak_mib, 1),
        "events_of_one_run": one["looked"]["events"],
        "peak_memory_one_run_mib": round(one_mib, 1),
    }
    return figures, report["clean"]


def verified(dsn: str, folder: Path, *options: str) -> tuple[Figures, float]:
    """Return what `noetl verify --json` says, and the peak of its memory in MiB."""
    command = [sys.executable, "-m", "noetl_cli.main", "verify", "--json", "--database-url", dsn, *options]
    environ = {**os.environ, "NOETL_STORE_DIR": str(folder)}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environ, stdout=said)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return json.loads(said.read()), usage.ru_maxrss / 1024


async def seed(pool: Pool, options: argparse.Namespace) -> int:
    """Make a database with finished runs of one shard, projected by the projection itself; return the first run."""
    clock = SystemClock()
    async with pool.connection() as conn:
        await migrate(conn)
        await initialise(conn, shard_count=16, partition_width_hours=168, now_ms=clock.unix_ms())
        args = {"first": clock.unix_ms() - EPOCH_MS << 22, "runs": options.runs, "items": options.items}
        for name in SEEDS:
            await conn.execute(SQL[f"verify_{name}"], args)
        await conn.execute(SQL["analyze_tables"])
    leases = Leases(pool, role="compute", instance="bench", lease_s=3600.0, clock=clock)
    projector = Projector(
        pool=pool, bus=MemoryBus(), leases=leases, clock=clock, runs=Runs(10), batch_events_max=BATCH_EVENTS
    )
    while True:
        [position] = await store.read_positions(pool, [0])
        if position.projected >= position.routed:
            break
        await project_shards(projector, [position], {0: 1})
    async with pool.connection() as conn:
        await conn.execute(SQL["verify_route"])
    return int(args["first"])


async def select_all(dsn: str) -> float:
    """Return how many seconds the bare read of the same rows takes, page by page."""
    async with await psycopg.AsyncConnection.connect(dsn) as conn, conn.cursor("bare") as cursor:
        began_s = time.perf_counter()
        await cursor.execute(SQL["verify_select"])
        while await cursor.fetchmany(1_000):
            pass
        return time.perf_counter() - began_s


if __name__ == "__main__":
    sys.exit(main())

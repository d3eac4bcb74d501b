"""How long reading the status of one of 100,000 runs takes while a fan-out runs, and what the bare read takes.

python -m benchmarks.status [--runs 100000 --items 40000] prints a table and ends with one JSON line. Each round reads
one run three ways: over HTTP on a connection that stays open, by the statement that the API runs, by primary key alone.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg.rows import dict_row

from benchmarks.report import print_table
from benchmarks.rows import STATISTICS_QUIET_S
from benchmarks.sampling import hardware, percentile
from benchmarks.stack import POLL_S, RUN_TIMEOUT_S, finish
from noetl_cli.api import Api
from noetl_cli.embedded.stack import Plan, replicas_from, throwaway_stack
from noetl_common.clock import SystemClock
from noetl_common.core.shard import snowflake
from noetl_common.errors import NoetlError, Unavailable
from noetl_common.sql import load_queries

SQL = load_queries("benchmarks")
PLAYBOOK = Path(__file__).with_name("fanout_noop.yaml")
WARM_UP_ITEMS = 500
STATUS_SQL = load_queries("services.ingest")["read_execution"]
PAUSE_S = 0.004  # a reader, not a flood: what is measured is one read beside the work, not a queue of reads
IDLE_READS = 500
MAX_IN_FLIGHT = 1_000

Conn = psycopg.Connection[dict[str, Any]]
Figures = dict[str, Any]


def main() -> int:
    """Return the exit code: 0, or 1 when the run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.status", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=40_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    replicas = replicas_from(processes=True, workers=options.workers, given=[])
    try:
        with (
            tempfile.TemporaryDirectory(prefix="noetl-bench-") as folder,
            throwaway_stack(Path(folder), Plan(owner="run", replicas=replicas)) as stack,
        ):
            running = stack.running
            assert running is not None
            figures = status_reads(running.api_url, running.database_url, runs=options.runs, items=options.items)
    except NoetlError as exc:
        print(f"benchmark failed: {exc}", file=sys.stderr)
        return 1
    figures |= {
        "hardware": hardware(),
        "settings": {"runs": options.runs, "items": options.items, "workers": options.workers},
    }
    print_table(figures)
    print(json.dumps(figures))
    return 0


def status_reads(api_url: str, database_url: str, *, runs: int, items: int) -> Figures:
    """Return what reading one of `runs` statuses takes on an idle stack, and while a loop of `items` goes on.

    Errors: Unavailable when the loop does not complete.
    """
    first = snowflake(SystemClock().unix_ms() - 60_000, node=0, seq=0)
    with (
        Api(api_url) as api,
        httpx.Client(base_url=api_url, timeout=30, trust_env=False) as client,
        psycopg.connect(database_url, autocommit=True, row_factory=dict_row) as conn,
        psycopg.connect(database_url, autocommit=True, row_factory=dict_row) as watch,
    ):
        conn.execute(SQL["seed_status_runs"], {"first": first, "runs": runs})
        conn.execute(SQL["settle_status_runs"])
        catalog_id = api.register(PLAYBOOK.read_text(encoding="utf-8"))["catalog_id"]
        where = {"catalog_id": catalog_id}
        finish(watch, api.execute(where, {"items": WARM_UP_ITEMS, "max_in_flight": MAX_IN_FLIGHT}))
        reader = Reader(client, conn, first=first, runs=runs)
        idle = reader.read_until(lambda: reader.rounds >= IDLE_READS, name="idle")
        before = updates(watch)
        execution_id = int(api.execute(where, {"items": items, "max_in_flight": MAX_IN_FLIGHT}))
        began_s = time.monotonic()
        busy = reader.read_until(lambda: has_ended(watch, execution_id), name="status")
        seconds = time.monotonic() - began_s
        after = updates(watch)
    updated, hot = after["updated"] - before["updated"], after["hot"] - before["hot"]
    return {
        **busy,
        **idle,
        "reads": reader.rounds - IDLE_READS,
        "fanout_items_per_s": round(items / seconds, 1),
        "hot_updates": round(hot / updated, 4) if updated else 0.0,
    }


class Reader:
    """Read runs by chance, each in three ways."""

    def __init__(self, client: httpx.Client, conn: Conn, *, first: int, runs: int) -> None:
        self.rounds = 0
        self._client = client
        self._conn = conn
        self._first = first
        self._runs = runs
        self._dice = random.Random(7)

    def read_until(self, is_over: Callable[[], bool], *, name: str) -> Figures:
        """Return {name}_ms_p50 and so on of reads made until `is_over`, which is asked every POLL_S."""
        took: dict[str, list[float]] = {"http": [], "sql": [], "bare": []}
        deadline_s = time.monotonic() + RUN_TIMEOUT_S
        next_look_s = 0.0
        while time.monotonic() < next_look_s or not is_over():
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + POLL_S
            if time.monotonic() > deadline_s:
                raise Unavailable(f"expected the loop to end within {RUN_TIMEOUT_S:.0f} s")
            self._read(took)
            time.sleep(PAUSE_S)
        figures: Figures = {}
        for way, values in took.items():
            for percent in (50, 99):
                figures[f"{name}_{way}_ms_p{percent}"] = round(percentile(values, percent / 100), 2)
        for percent in (50, 99):
            bare_ms = max(percentile(took["bare"], percent / 100), 1e-3)
            figures[f"{name}_ratio_p{percent}"] = round(percentile(took["http"], percent / 100) / bare_ms, 1)
        return figures

    def _read(self, took: dict[str, list[float]]) -> None:
        self.rounds += 1
        chosen = self._first + self._dice.randrange(self._runs)
        marks = [time.perf_counter()]
        self._client.get(f"/api/executions/{chosen}/status").raise_for_status()
        marks.append(time.perf_counter())
        self._conn.execute(STATUS_SQL, {"execution_id": chosen}, prepare=True).fetchone()
        marks.append(time.perf_counter())
        self._conn.execute(SQL["select_bare_run"], {"execution_id": chosen}, prepare=True).fetchone()
        marks.append(time.perf_counter())
        for way, began, ended in zip(took, marks, marks[1:], strict=False):
            took[way].append((ended - began) * 1000)


def has_ended(conn: Conn, execution_id: int) -> bool:
    """Return whether a run has ended. Errors: Unavailable when it did not complete."""
    row = conn.execute(SQL["terminal_event"], {"execution_id": execution_id}).fetchone()
    if row is not None and row["event_type"] != "playbook.completed":
        raise Unavailable(f"execution {execution_id} ended as {row['event_type']}: {row['error']}")
    return row is not None


def updates(conn: Conn) -> dict[str, int]:
    """Return how often rows of runs were updated so far, once every process has published its counts."""
    time.sleep(STATISTICS_QUIET_S)
    row = conn.execute(SQL["execution_updates"]).fetchone()
    assert row is not None, "the table is there"
    return row


if __name__ == "__main__":
    sys.exit(main())

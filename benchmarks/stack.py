"""A new stack to measure on, each role a process of its own, and a run of a playbook on it."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import psycopg
from psycopg.rows import DictRow, dict_row

from benchmarks.report import Figures
from benchmarks.sampling import Sampler, percentile
from noetl_cli.api import Api
from noetl_cli.embedded.stack import Plan, Stack, replicas_from, throwaway_stack
from noetl_cli.state_dir import Running
from noetl_common.errors import Invalid, Unavailable
from noetl_common.sql import load_queries

SQL = load_queries("benchmarks")
PLAYBOOKS = Path(__file__).parent
POLL_S = 0.05
RUN_TIMEOUT_S = 600.0
SLOWEST_ITEMS_PER_S = 200  # a run slower than this is given up
SETTLE_TIMEOUT_S = 60.0

Conn = psycopg.Connection[DictRow]


class Bench(msgspec.Struct, frozen=True):
    """A stack that runs, and ways to it. `folder` is its state directory."""

    folder: Path
    stack: Stack
    running: Running
    api: Api
    conn: Conn

    def register(self, name: str) -> dict[str, Any]:
        """Register the playbook of a file beside this one; return what names it to `execute`."""
        return self.register_text((PLAYBOOKS / name).read_text(encoding="utf-8"))

    def register_text(self, text: str) -> dict[str, Any]:
        """Register a playbook; return what names it to `execute`."""
        return {"catalog_id": self.api.register(text)["catalog_id"]}

    def run(self, where: Mapping[str, Any], payload: Mapping[str, Any], *, items: int = 0) -> int:
        """Run a playbook to its end; return its execution id. Errors: Unavailable when it does not complete."""
        execution_id = self.api.execute(where, payload)
        self.finish(execution_id, items=items)
        return int(execution_id)

    def finish(self, execution_id: str, *, items: int = 0) -> None:
        """Return when a run has completed. Errors: Unavailable when it ended otherwise, or took too long."""
        finish(self.conn, execution_id, timeout_s=max(RUN_TIMEOUT_S, items / SLOWEST_ITEMS_PER_S))

    def settle(self) -> None:
        """Return once all that is in the log is routed and projected. Errors: Unavailable after SETTLE_TIMEOUT_S."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline:
            row = self.conn.execute(SQL["is_settled"]).fetchone()
            if row is not None and row["settled"]:
                return
            time.sleep(POLL_S)
        raise Unavailable(f"expected the log to be projected within {SETTLE_TIMEOUT_S:.0f} s")

    def sampler(self) -> Sampler:
        """Return what watches the stack's processes."""
        return Sampler(self.running, servers={name: server.pid for name, server in self.stack.servers.items()})


@contextmanager
def bench(*, workers: int = 2, replicas: Mapping[str, int] | None = None) -> Iterator[Bench]:
    """Lend a new stack: one process a role, but `workers` workers and as many of others as `replicas` says.

    Errors: Invalid when the environment names servers: their processor time and log are out of reach.
    """
    for name in ("DATABASE_URL", "NATS_URL"):
        if os.environ.get(name) or os.environ.get(f"{name}_FILE"):
            raise Invalid(f"{name}: a benchmark measures servers that it starts; expected none to be named, found one")
    counts = replicas_from(processes=True, workers=workers, given=[f"{k}={n}" for k, n in (replicas or {}).items()])
    with (
        TemporaryDirectory(prefix="noetl-bench-") as name,
        throwaway_stack(Path(name), Plan(owner="run", replicas=counts)) as stack,
    ):
        running = stack.running
        assert running is not None
        with (
            Api(running.api_url) as api,
            psycopg.connect(running.database_url, autocommit=True, row_factory=dict_row) as conn,
        ):
            yield Bench(folder=Path(name), stack=stack, running=running, api=api, conn=conn)


def finish(conn: Conn, execution_id: str, *, timeout_s: float = RUN_TIMEOUT_S) -> None:
    """Return when the run has completed.

    Errors: Unavailable when it ended otherwise, or not within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        row = conn.execute(SQL["terminal_event"], {"execution_id": int(execution_id)}).fetchone()
        if row is not None:
            if row["event_type"] != "playbook.completed":
                raise Unavailable(f"execution {execution_id} ended as {row['event_type']}: {row['error']}")
            return
        time.sleep(POLL_S)
    raise Unavailable(f"execution {execution_id} did not end within {timeout_s:.0f} s")


def watched(sampler: Sampler, count: int) -> Figures:
    """Return what a sampler saw while `count` things were done."""
    return {
        "projection_lag_ms_p95": round(percentile(sampler.lags_s, 0.95) * 1000, 1),
        "projection_lag_ms_p99": round(percentile(sampler.lags_s, 0.99) * 1000, 1),
        "cpu_ms_per_item": sampler.cpu.per(count),
        "others_cpu": sampler.cpu.others(),
        "rss_mb": {role: round(peak / 1e6, 1) for role, peak in sorted(sampler.rss_bytes.items())},
    }

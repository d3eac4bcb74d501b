"""What one run of a loop tells: speed, latency, lag, status reads, CPU and memory."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from benchmarks.report import Figures
from benchmarks.sampling import percentile
from benchmarks.stack import SQL, Bench, Conn, watched
from noetl_common.errors import Unavailable

STATUS_PAUSE_S = 0.05  # a reader, not a flood


def one_run(b: Bench, where: Mapping[str, Any], payload: Mapping[str, Any]) -> Figures:
    """Return speed, latency, lag, status reads, CPU and memory of one run."""
    items = payload["items"]
    with b.sampler() as sampler:
        execution_id = b.api.execute(where, payload)
        with reading_status(b.running.api_url, execution_id) as reads_ms:
            b.finish(execution_id, items=items)
        b.settle()
    return {
        **figures_of(b.conn, int(execution_id), items),
        "status_ms_p50": round(percentile(reads_ms, 0.5), 1),
        "status_ms_p99": round(percentile(reads_ms, 0.99), 1),
        **watched(sampler, items),
    }


@contextmanager
def reading_status(api_url: str, execution_id: str) -> Iterator[list[float]]:
    """Read a run's status again and again while the block lasts; lend the list of what each read took, in ms."""
    took_ms: list[float] = []
    over = threading.Event()

    def read() -> None:
        with httpx.Client(base_url=api_url, timeout=30, trust_env=False) as client:
            while not over.wait(STATUS_PAUSE_S):
                began_s = time.perf_counter()
                client.get(f"/api/executions/{execution_id}/status").raise_for_status()
                took_ms.append((time.perf_counter() - began_s) * 1000)

    thread = threading.Thread(target=read, name="status")
    thread.start()
    try:
        yield took_ms
    finally:
        over.set()
        thread.join()


def figures_of(conn: Conn, execution_id: int, items: int) -> Figures:
    """Return speed and latency by the log.

    Errors: Unavailable when an item has no accepted report, or the loop did not end exactly once.
    """
    named = {"execution_id": execution_id}
    wall = conn.execute(SQL["wall_time"], named).fetchone()
    latency = conn.execute(SQL["step_latency"], named).fetchone()
    assert wall is not None and latency is not None, "aggregates always return a row"
    if latency["items"] != items:
        raise Unavailable(f"expected {items} items with a report in the log, found {latency['items']}")
    if wall["loops_done"] != 1:
        raise Unavailable(f"expected one loop.done of execution {execution_id}, found {wall['loops_done']}")
    return {
        "items_per_s": round(items / wall["wall_s"], 1),
        "events_per_s": round(wall["events"] / wall["wall_s"], 1),
        "wall_s": round(wall["wall_s"], 3),
        "step_ms_p50": round(latency["p50"], 1),
        "step_ms_p99": round(latency["p99"], 1),
    }

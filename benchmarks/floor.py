"""The raw limit: the rows of a parallel no-op loop, written set-based by psycopg alone, with no runtime around them."""

import time

import psycopg

from noetl_common.core.shard import event_id
from noetl_common.db import json_text
from noetl_common.sql import load_queries

SQL = load_queries("benchmarks")
BATCH_ITEMS = 500
RESULT = json_text({"status": "COMPLETED"})
PAYLOAD = b'{"item":1000,"square":1000000}'


def floor_items_per_s(database_url: str, items: int, *, with_results: bool) -> float:
    """Return how many items a second one connection writes: per item 2 events, 1 command, 2 updates, perhaps a result.

    One transaction a batch of 500, its statements pipelined, each commit durable. A no-op's result is null, which has
    no payload and no row.
    """
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(SQL["floor_tables"])
        try:
            began = time.perf_counter()
            for first in range(0, items, BATCH_ITEMS):
                _write_batch(conn, first, min(first + BATCH_ITEMS, items), with_results=with_results)
            return items / (time.perf_counter() - began)
        finally:
            conn.execute(SQL["floor_drop"])


def _write_batch(conn: psycopg.Connection[tuple[object, ...]], first: int, end: int, *, with_results: bool) -> None:
    issued = [_row(n, ord_=1, guard="issued") for n in range(first, end)]
    done = [_row(n, ord_=2, guard="done") for n in range(first, end)]
    ends = {"first": first, "last": end - 1}
    with conn.transaction(), conn.pipeline():
        conn.execute(SQL["floor_events"], {"event_type": "command.issued", "result": RESULT, "rows": json_text(issued)})
        conn.execute(SQL["floor_commands"], {"rows": json_text(issued)})
        conn.execute(SQL["floor_claim"], ends)
        if with_results:
            conn.execute(SQL["floor_results"], {**ends, "payload": PAYLOAD})
        conn.execute(
            SQL["floor_events"], {"event_type": "command.completed", "result": RESULT, "rows": json_text(done)}
        )
        conn.execute(SQL["floor_finish"], ends)


def _row(n: int, *, ord_: int, guard: str) -> dict[str, object]:
    return {"event_id": event_id(0, n + 1) + ord_, "command_id": n, "iter_index": n, "dedup_key": f"{guard}:{n}"}

"""The raw limit: the rows of runs, written set-based by psycopg alone, with no runtime around them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg

from noetl_common.core.shard import event_id
from noetl_common.db import json_text
from noetl_common.sql import load_queries

SQL = load_queries("benchmarks")
RESULT = json_text({"status": "COMPLETED"})
PAYLOAD = b'{"item":1000,"square":1000000}'

Conn = psycopg.Connection[tuple[Any, ...]]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What one thing writes. `before` and `after`: events until it is claimed, and from its report on.

    `batch`: how many are written by one set of statements. `commits`: 1, all of it at once, or 3, as they must be when
    one thing waits for another: issued, claimed, reported.
    """

    batch: int = 500
    before: Sequence[str] = ("command.issued",)
    after: Sequence[str] = ("command.completed",)
    with_results: bool = False
    with_executions: bool = False
    commits: int = 1


def floor_per_s(database_url: str, count: int, shape: Shape) -> float:
    """Return how many things a second one connection writes, statements pipelined, each commit durable.

    Each is its events, one command inserted and updated twice, perhaps a result and an execution. A no-op's result is
    null, which has no payload and no row.
    """

    def write(conn: Conn) -> None:
        for first in range(0, count, shape.batch):
            _write_batch(conn, first, min(first + shape.batch, count), shape)

    return count / _timed(database_url, write)


def floor_events_per_s(database_url: str, count: int, *, batch: int, event_type: str) -> float:
    """Return how many events a second one connection appends, a commit a batch, and nothing else."""

    def write(conn: Conn) -> None:
        for first in range(0, count, batch):
            with conn.transaction(), conn.pipeline():
                _insert_events(conn, first, min(first + batch, count), [event_type], 1)

    return count / _timed(database_url, write)


def _timed(database_url: str, write: Callable[[Conn], None]) -> float:
    """Return the seconds that `write` takes on empty tables."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(SQL["floor_tables"])
        try:
            began_s = time.perf_counter()
            write(conn)
            return time.perf_counter() - began_s
        finally:
            conn.execute(SQL["floor_drop"])


def _write_batch(conn: Conn, first: int, end: int, shape: Shape) -> None:
    ends = {"first": first, "last": end - 1}
    with _commit(conn, shape.commits == 1):
        with _commit(conn, shape.commits == 3):
            if shape.with_executions:
                conn.execute(SQL["floor_executions"], ends)
            _insert_events(conn, first, end, shape.before, 1)
            issued = [_row(n, ord_=len(shape.before), guard="") for n in range(first, end)]
            conn.execute(SQL["floor_commands"], {"rows": json_text(issued)})
        with _commit(conn, shape.commits == 3):
            conn.execute(SQL["floor_claim"], ends)
        with _commit(conn, shape.commits == 3):
            if shape.with_results:
                conn.execute(SQL["floor_results"], {**ends, "payload": PAYLOAD})
            _insert_events(conn, first, end, shape.after, 1 + len(shape.before))
            conn.execute(SQL["floor_finish"], ends)


@contextmanager
def _commit(conn: Conn, is_wanted: bool) -> Iterator[None]:
    """Have a block be one transaction, when it is to be one."""
    if not is_wanted:
        yield
        return
    with conn.transaction(), conn.pipeline():
        yield


def _insert_events(conn: Conn, first: int, end: int, event_types: Sequence[str], ord_: int) -> None:
    """Insert events of each type, one a thing, with places from `ord_` on."""
    for place, event_type in enumerate(event_types, ord_):
        rows = [_row(n, ord_=place, guard=event_type) for n in range(first, end)]
        conn.execute(SQL["floor_events"], {"event_type": event_type, "result": RESULT, "rows": json_text(rows)})


def _row(n: int, *, ord_: int, guard: str) -> dict[str, object]:
    return {"event_id": event_id(0, n + 1) + ord_, "command_id": n, "iter_index": n, "dedup_key": f"{guard}:{n}"}

"""Rows that Postgres counted as inserted and updated."""

import time

import msgspec

from benchmarks.stack import SQL, Conn

STATISTICS_QUIET_S = 11.0  # a Postgres backend publishes its counts at the latest after 10 s of idleness


class Rows(msgspec.Struct, frozen=True):
    """Rows inserted and updated, by table: up to a moment `seconds`, or in a span of `seconds`."""

    seconds: float
    by_table: dict[str, int]

    @classmethod
    def between(cls, first: "Rows", last: "Rows") -> "Rows":
        """Return what was written from one moment to another."""
        by_table = {name: count - first.by_table.get(name, 0) for name, count in last.by_table.items()}
        return cls(last.seconds - first.seconds, by_table)

    @property
    def total(self) -> int:
        """All tables together."""
        return sum(self.by_table.values())

    def per_s(self) -> float:
        """Return how many a second of the span."""
        return self.total / self.seconds


def row_operations(conn: Conn) -> Rows:
    """Return what was written so far, once every process has published its counts."""
    time.sleep(STATISTICS_QUIET_S)
    rows = conn.execute(SQL["row_operations"]).fetchall()
    return Rows(time.monotonic(), {row["name"]: row["inserted"] + row["updated"] for row in rows})

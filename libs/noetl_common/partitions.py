"""Make the partitions of the log's tables ahead of time, without ever stalling an append.

A partition is created as a table of its own, given its bounds as a CHECK, and attached. `PARTITION OF` would take
an exclusive lock on the parent and queue every append behind the slowest reader.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from psycopg import sql

from noetl_common.core.shard import minted_at_ms, partition_bounds
from noetl_common.db import Conn
from noetl_common.sql import load_queries

SQL = load_queries("noetl_common")
AHEAD = 3
PARTITIONS_LOCK = 7_240_116
PARENTS = ("event", "command", "command_context", "result_ref")

# A command is updated twice and then dead weight: room for HOT updates, and a vacuum that does not wait for 20 %.
STORAGE = {
    "command": sql.SQL(
        " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,"
        " autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1)"
    ),
    "event": sql.SQL(" WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)"),
}


class Slot(NamedTuple):
    """One partition that should exist. Units: [low, high) are execution ids."""

    parent: str
    name: str
    low: int
    high: int


async def create_ahead(conn: Conn, now_ms: int, width_hours: int, *, ahead: int = AHEAD) -> list[str]:
    """Make the partitions of `now_ms` and the next `ahead` ones that are missing; return their names.

    One transaction; whoever else does the same waits and then finds nothing missing.
    """
    async with conn.transaction():
        await conn.execute(SQL["lock_partitions"], {"lock": PARTITIONS_LOCK})
        present = await _attached(conn)
        missing = [slot for slot in slots(now_ms, width_hours, ahead=ahead) if slot.name not in present]
        for slot in missing:
            await _create(conn, slot)
    return [slot.name for slot in missing]


async def count_ahead(conn: Conn, now_ms: int, width_hours: int) -> dict[str, int]:
    """Return, for each table, how many partitions in a row follow the one of `now_ms`; -1 when that one is missing."""
    present = await _attached(conn)
    counts = dict.fromkeys(PARENTS, -1)
    for parent in PARENTS:
        while _slot(parent, now_ms, width_hours=width_hours, step=counts[parent] + 1).name in present:
            counts[parent] += 1
    return counts


def slots(now_ms: int, width_hours: int, *, ahead: int) -> list[Slot]:
    """Return the partitions wanted at `now_ms`: the current one and `ahead` more, of every table."""
    return [
        _slot(parent, now_ms, width_hours=width_hours, step=step) for step in range(ahead + 1) for parent in PARENTS
    ]


def _slot(parent: str, now_ms: int, *, width_hours: int, step: int) -> Slot:
    low, high = partition_bounds(now_ms + step * width_hours * 3_600_000, width_hours)
    begin = datetime.fromtimestamp(minted_at_ms(low) / 1000, UTC)
    return Slot(parent, f"{parent}_{begin:%Y%m%d_%H}", low, high)


async def _attached(conn: Conn) -> set[str]:
    rows = await (await conn.execute(SQL["attached_partitions"], {"parents": list(PARENTS)})).fetchall()
    return {row["name"] for row in rows}


async def _create(conn: Conn, slot: Slot) -> None:
    names = {
        "parent": sql.Identifier("noetl", slot.parent),
        "child": sql.Identifier("noetl", slot.name),
        "bounds": sql.Identifier(f"{slot.name}_bounds"),
        "low": sql.Literal(slot.low),
        "high": sql.Literal(slot.high),
        "storage": STORAGE.get(slot.parent, sql.SQL("")),
    }
    # The CHECK spares the attach its scan; once attached the bounds are the partition's own, and each insert is
    # spared the CHECK.
    for text in (
        "CREATE TABLE {child} (LIKE {parent} INCLUDING ALL){storage}",
        "ALTER TABLE {child} ADD CONSTRAINT {bounds} CHECK (execution_id >= {low} AND execution_id < {high})",
        "ALTER TABLE {parent} ATTACH PARTITION {child} FOR VALUES FROM ({low}) TO ({high})",
        "ALTER TABLE {child} DROP CONSTRAINT {bounds}",
    ):
        await conn.execute(sql.SQL(text).format(**names))

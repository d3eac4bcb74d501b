"""Concurrency groups in the database: who has a place, who waits, who is next."""

from collections.abc import Sequence
from typing import Any

from noetl_common import metrics
from noetl_common.core.events import Envelope, Event
from noetl_common.core.routing.draft import Decision
from noetl_common.db import Conn, Pool, round_trip
from noetl_common.sql import load_queries

SQL = load_queries("services.ingest")
ADMITTED_MAX = 1_000  # by one decision; no limit is larger
AHEAD_COUNTED_MAX = 10_000


async def admit(conn: Conn, decisions: Sequence[Decision]) -> list[Event]:
    """Give up the places of the runs that ended, and free places to those that wait; return the inputs that say so.

    Whoever joins is seen by its own start's decision at the latest, whoever leaves by that of its end: so no place
    stays free while someone waits for it. The lock of a group is its only meeting point.
    Source: docs/adr/0029-runs-wait-in-the-order-they-came.md.
    """
    states = [d.state for d in decisions if d.state.group is not None and (d.state.is_waiting or d.state.is_terminal)]
    groups = sorted({state.group.group_id for state in states if state.group is not None})
    if not groups:
        return []
    await conn.execute(SQL["lock_groups"], {"groups": groups})
    if ended := sorted({state.execution_id for state in states if state.is_terminal}):
        await conn.execute(SQL["leave_groups"], {"ended": ended})
    admitted = await conn.execute(SQL["admit_runs"], {"groups": groups, "max": ADMITTED_MAX})
    await round_trip(conn)
    found = await admitted.fetchall()
    metrics.inc("noetl_runs_admitted_total", len(found))
    return [
        Event(
            execution_id=execution_id,
            event_type="playbook.admitted",
            status="ADMITTED",
            result=Envelope(status="ADMITTED"),
            dedup_key="admitted",
        )
        for execution_id in sorted(row["execution_id"] for row in found)
    ]


async def read_waiting(pool: Pool, execution_id: int) -> dict[str, Any] | None:
    """Return {key, limit, place, since} of a run that waits for a place in its group, 1 being next; else None."""
    async with pool.connection() as conn:
        args = {"execution_id": execution_id, "counted_max": AHEAD_COUNTED_MAX}
        row = await (await conn.execute(SQL["read_waiting"], args)).fetchone()
    if row is None:
        return None
    return {"key": row["key"], "limit": row["run_limit"], "place": row["ahead"] + 1, "since": row["joined_at"]}

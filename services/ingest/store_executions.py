"""Queries of runs: the read models that the API shows, and the routed part of the log. Nothing decided."""

from collections.abc import Sequence
from typing import Any

from noetl_common.core.shard import shard_in
from noetl_common.db import Pool
from services.ingest.store import SQL

FAMILY_MAX = 1000
Row = dict[str, Any]


async def list_executions(
    pool: Pool,
    *,
    path: str | None = None,
    status: str | None = None,
    catalog_id: int | None = None,
    parent: int | None = None,
    before: int | None = None,
    limit: int,
    offset: int,
) -> list[Row]:
    """Return runs as projected, newest first; `before`: only those with smaller ids."""
    args = {
        "path": path,
        "status": status,
        "catalog_id": catalog_id,
        "parent": parent,
        "before": before,
        "limit": limit,
        "offset": offset,
    }
    return await _all(pool, "list_executions", args)


async def read_execution(pool: Pool, execution_id: int) -> Row | None:
    """Return a run as projected, with as_of_event_id and lag_ms of its shard's projection."""
    rows = await _all(pool, "read_execution", {"execution_id": execution_id})
    return rows[0] if rows else None


async def read_standing(pool: Pool, execution_id: int) -> Row | None:
    """Return {execution_id, shard_id, path, status, cancelling} by the router's state or else the projection."""
    rows = await _all(pool, "read_standing", {"execution_id": execution_id})
    return rows[0] if rows else None


async def list_live_family(pool: Pool, execution_id: int) -> list[int]:
    """Return a run and those of its descendants that have not ended."""
    rows = await _all(pool, "list_live_family", {"execution_id": execution_id, "limit": FAMILY_MAX})
    return [row["execution_id"] for row in rows]


async def read_start_input(pool: Pool, execution_id: int) -> Row | None:
    """Return the envelope of a run's start."""
    rows = await _all(pool, "read_start_input", {"execution_id": execution_id})
    return rows[0]["result"] if rows else None


async def read_events(
    pool: Pool, execution_id: int, *, since: int, event_type: str | None, limit: int, offset: int
) -> tuple[list[Row], int]:
    """Return a page of a run's routed events, oldest first, and how many there are in all."""
    args = {
        "execution_id": execution_id,
        "since": since,
        "event_type": event_type,
        "limit": limit,
        "offset": offset,
    }
    rows = await _all(pool, "read_events", args)
    counted = await _all(pool, "count_events", args)
    return rows, counted[0]["total"]


async def read_leases(pool: Pool, execution_id: int, command_ids: Sequence[int]) -> dict[int, Row]:
    """Return {command id: its worker, attempt and status} of those that were ever claimed."""
    if not command_ids:
        return {}
    rows = await _all(pool, "read_leases", {"execution_id": execution_id, "command_ids": list(command_ids)})
    return {row["command_id"]: row for row in rows}


async def find_event(pool: Pool, event_id: int) -> Row | None:
    """Return {execution_id, created_at} of an event, by its id alone."""
    rows = await _all(pool, "find_event", {"shard_id": shard_in(event_id), "event_id": event_id})
    return rows[0] if rows else None


async def list_stalled(pool: Pool, *, minutes: int) -> list[int]:
    """Return live runs in which nothing has happened for `minutes` and nothing is under way."""
    rows = await _all(pool, "list_stalled", {"minutes": minutes, "limit": FAMILY_MAX})
    return [row["execution_id"] for row in rows]


async def trace_step(pool: Pool, execution_id: int, step: str, *, limit: int) -> list[Row]:
    """Return the results of a step and all they descend from, oldest first."""
    return await _all(pool, "trace_step", {"execution_id": execution_id, "step": step, "limit": limit})


async def _all(pool: Pool, name: str, args: Row) -> list[Row]:
    async with pool.connection() as conn:
        return await (await conn.execute(SQL[name], args)).fetchall()

"""Queries of runs: the read models that the API shows, and the routed part of the log. Nothing decided."""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from noetl_common.core.shard import shard_in
from noetl_common.core.state import Status
from noetl_common.db import Pool, single
from noetl_common.errors import Gone, NotFound
from services.ingest.pages import LOOKED_AT_MAX, Asked, Page, Window, page_of
from services.ingest.store import SQL

FAMILY_MAX = 1000
LAG_UNKNOWN_MS_MAX = 1000  # a lag may be told as longer than it is by this much
INT64_MAX = (1 << 63) - 1
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
    """Return runs as projected, newest first; `before`: only those with smaller ids. A parent excludes the others."""
    given = {"parent": parent, "catalog_id": catalog_id, "path": path}
    args = {
        **given,
        # The index to go by: of the narrowest that is given.
        "by": next((name for name, value in given.items() if value is not None), "status"),
        "statuses": [status] if status is not None else list(get_args(Status)),
        "before": before if before is not None else INT64_MAX,
        "limit": limit,
        "offset": offset,
    }
    return await _all(pool, "list_executions", args)


async def read_execution(pool: Pool, execution_id: int) -> Row | None:
    """Return a run as projected, with as_of_event_id and lag_ms of its shard's projection.

    Units: `lag_ms`, the age of the shard's oldest event that is not projected; 0 when there is none.
    """
    rows = await _all(pool, "read_execution", {"execution_id": execution_id})
    if not rows:
        return None
    return {**rows[0], "lag_ms": await _lag_ms(pool, rows[0])}


async def _lag_ms(pool: Pool, row: Row) -> int:
    if not row["is_behind"]:
        return 0
    since_ms = max(0, int((row["now"] - row["last_projected_at"]).total_seconds() * 1000))
    if row["lag_ms"]:
        return int(row["lag_ms"]) + since_ms  # what was the oldest then is so still
    if since_ms <= LAG_UNKNOWN_MS_MAX:
        return since_ms
    # All was projected long ago, and something came since. Only the log knows when.
    args = {"shard_id": row["shard_id"], "after": row["as_of_event_id"]}
    waiting = await _all(pool, "read_oldest_waiting", args)
    return max(0, int((row["now"] - waiting[0]["created_at"]).total_seconds() * 1000)) if waiting else 0


async def read_standing(pool: Pool, execution_id: int) -> Row | None:
    """Return {execution_id, shard_id, path, status, cancelling, compacted_at}, by the router's state if it has one."""
    rows = await _all(pool, "read_standing", {"execution_id": execution_id})
    return rows[0] if rows else None


async def check_in_log(pool: Pool, execution_id: int) -> Row:
    """Return a run's standing when its log is there. Errors: NotFound; Gone when it is folded into a manifest."""
    standing = await read_standing(pool, execution_id)
    if standing is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    if standing["compacted_at"] is not None:
        expected = "expected an execution that is still in the log"
        raise Gone(
            f"{expected}, found that {execution_id} was archived at {standing['compacted_at']:%Y-%m-%d %H:%M} UTC"
        )
    return standing


async def list_live_family(pool: Pool, execution_id: int) -> list[int]:
    """Return a run and those of its descendants that have not ended."""
    rows = await _all(pool, "list_live_family", {"execution_id": execution_id, "limit": FAMILY_MAX})
    return [row["execution_id"] for row in rows]


async def read_start_input(pool: Pool, execution_id: int) -> Row | None:
    """Return the envelope of a run's start; of a folded run, its context with the workload alone."""
    rows = await _all(pool, "read_start_input", {"execution_id": execution_id})
    return rows[0]["result"] if rows else None


async def read_events(pool: Pool, execution_id: int, asked: Asked) -> Page:
    """Return a page of a run's routed events, oldest first. Errors: Invalid for one too far behind."""
    args = {
        "execution_id": execution_id,
        "since": asked.since,
        "event_type": asked.event_type,
        "limit": asked.limit + 1,
        "offset": asked.offset,
        "looked_at_max": LOOKED_AT_MAX if asked.event_type else asked.offset + asked.limit + 1,
    }
    rows = await _all(pool, "read_events", args)
    is_last = len(rows) <= asked.limit and (bool(rows) or not asked.offset)
    if is_last and asked.event_type is None:
        return page_of(asked, rows, None)
    [counted] = await _all(pool, "count_events", {**args, "looked_at_max": LOOKED_AT_MAX})
    return page_of(asked, rows, msgspec.convert(counted, Window))


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


async def _all(pool: Pool, name: str, args: Row) -> list[Row]:
    async with single(pool) as conn:
        return await (await conn.execute(SQL[name], args)).fetchall()

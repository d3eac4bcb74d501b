"""Queries of the router's state: the fold as it is stored, what is written behind it, the log it came from."""

from typing import Any

import msgspec

from noetl_common import event_log
from noetl_common.core.events import Event
from noetl_common.core.state import ExecutionState
from noetl_common.db import Pool
from services.ingest.store import SQL


async def read_state(pool: Pool, execution_id: int) -> ExecutionState | None:
    """Return the router's fold of a run, None while nothing of it is routed."""
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL["read_state"], {"execution_id": execution_id})).fetchone()
    return None if row is None else msgspec.convert(row["state"], ExecutionState, strict=False)


async def read_variable_inputs(pool: Pool, execution_id: int, *, after: int) -> list[Event]:
    """Return the `vars.set` inputs of a run behind an event, in order."""
    return await _events(pool, "read_variable_inputs", {"execution_id": execution_id, "after": after})


async def read_history(pool: Pool, execution_id: int, *, after: int, upto: int, limit: int) -> list[Event]:
    """Return a page of a run's log behind `after`, up to and with `upto`."""
    args = {"execution_id": execution_id, "after": after, "upto": upto, "limit": limit}
    return await _events(pool, "read_history", args)


async def _events(pool: Pool, name: str, args: dict[str, Any]) -> list[Event]:
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL[name], args)).fetchall()
    return [event_log.event_of(row) for row in rows]

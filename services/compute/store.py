"""What compute reads and writes, one function a query."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from psycopg import AsyncCursor
from psycopg.rows import DictRow

from noetl_common.core.events import Event
from noetl_common.core.progress import Progress
from noetl_common.core.shard import last_id
from noetl_common.core.state import ExecutionState
from noetl_common.db import Conn, Pool, json_text, pipelined, round_trip, single
from noetl_common.errors import Fenced
from noetl_common.event_log import event_of
from noetl_common.sql import load_queries

SQL = load_queries("services.compute")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a shard is. `lag_s` is the age of its oldest event not projected, None when there is none."""

    shard_id: int
    routed_seq: int
    projected: int
    lease_epoch: int
    lag_s: float | None = None

    @property
    def routed(self) -> int:
        """Return the greatest event id that may be projected."""
        return last_id(self.shard_id, self.routed_seq)


class Run(msgspec.Struct, kw_only=True):
    """One execution as projected so far. `last_event_id` is the last event that was looked at."""

    state: ExecutionState
    progress: Progress
    last_event_id: int = 0


async def ping(pool: Pool) -> None:
    """Return when the database answers."""
    async with single(pool) as conn:
        await conn.execute(SQL["ping"])


async def read_positions(pool: Pool, shards: Collection[int]) -> list[Position]:
    """Return how far each shard is routed and projected."""
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["read_positions"], {"shards": list(shards)})).fetchall()
    return msgspec.convert(rows, list[Position])


async def read_events(pool: Pool, position: Position, limit: int) -> list[Event]:
    """Return the shard's next routed events that are not projected, in order."""
    args = {
        "shard_id": position.shard_id,
        "after": position.projected,
        "until": position.routed,
        "limit": limit,
    }
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["read_events"], args)).fetchall()
    return [event_of(row) for row in rows]


async def read_runs(pool: Pool, executions: Collection[int]) -> dict[int, Run]:
    """Return {execution id: what is projected of it}; an execution never projected starts empty."""
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["read_runs"], {"executions": list(executions)})).fetchall()
    found = {row["execution_id"]: _run_of(row) for row in rows}
    return {
        id_: found.get(id_) or Run(state=ExecutionState(execution_id=id_), progress=Progress()) for id_ in executions
    }


async def save_batch(pool: Pool, position: Position, runs: Sequence[Run], *, epoch: int, new: int) -> None:
    """Move the shard's position from where it was read and save what was projected, all or nothing.

    Errors: Fenced when another owner moved it, or this one is it no more.
    """
    async with pipelined(pool) as conn:
        moved = await _advance(conn, position, epoch=epoch, new=new)
        if runs:
            await save_runs(conn, runs)
        await round_trip(conn)
        if moved.rowcount == 0:
            raise Fenced(position.shard_id, epoch)


async def advance(conn: Conn, position: Position, *, epoch: int, new: int) -> bool:
    """Move the shard's position from where it was read; False when another owner did, or this one is it no more."""
    return (await _advance(conn, position, epoch=epoch, new=new)).rowcount == 1


async def _advance(conn: Conn, position: Position, *, epoch: int, new: int) -> AsyncCursor[DictRow]:
    args = {"shard_id": position.shard_id, "epoch": epoch, "old": position.projected, "new": new}
    return await conn.execute(SQL["advance_projection"], args)


async def save_runs(conn: Conn, runs: Sequence[Run]) -> None:
    """Save the state and the read model of executions."""
    states = [
        {"execution_id": run.state.execution_id, "last_event_id": run.last_event_id, "state": run.state} for run in runs
    ]
    await conn.execute(SQL["save_states"], {"runs": json_text(states)})
    await conn.execute(SQL["save_progress"], {"runs": json_text([_columns(run) for run in runs])})


def _columns(run: Run) -> dict[str, Any]:
    progress = run.progress
    shown: dict[str, Any] = {"steps": progress.steps, "counts": progress.counts}
    if progress.projection_error is not None:
        shown["projection_error"] = progress.projection_error
    return {
        "execution_id": run.state.execution_id,
        "last_event_id": run.last_event_id,
        "status": progress.status,
        "current_step": progress.current_step,
        "progress": shown,
        "result": progress.result,
        "error": progress.error,
        "end_time": progress.end_time or None,
    }


def _run_of(row: dict[str, Any]) -> Run:
    text = row["state"]
    state = (
        msgspec.json.decode(text, type=ExecutionState)
        if text is not None
        else ExecutionState(execution_id=row["execution_id"])
    )
    end_time = row["end_time"].isoformat() if row["end_time"] is not None else None
    columns = {name: row[name] for name in ("status", "current_step", "result", "error")}
    progress = msgspec.convert({**row["progress"], **columns, "end_time": end_time}, Progress)
    return Run(state=state, progress=progress, last_event_id=row["last_event_id"])

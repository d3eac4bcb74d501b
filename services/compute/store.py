"""What compute reads and writes, one function a query."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from noetl_common.core.events import Event
from noetl_common.core.progress import Progress
from noetl_common.core.shard import last_id, shard_in
from noetl_common.core.state import ExecutionState
from noetl_common.db import Conn, Pool, json_text, single
from noetl_common.event_log import event_of
from noetl_common.sql import load_queries

SQL = load_queries("services.compute")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a shard is. `lag_s` is the age of its oldest event not projected, None when there is none."""

    shard_id: int
    routed_seq: int
    projected: int
    lag_s: float | None = None

    @property
    def routed(self) -> int:
        """Return the greatest event id that may be projected."""
        return last_id(self.shard_id, self.routed_seq)

    @property
    def is_behind(self) -> bool:
        """True when something may be projected."""
        return self.routed_seq > 0 and self.projected < self.routed


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a shard's position, from where it was read, by the owner of an epoch."""

    shard_id: int
    epoch: int
    old: int
    new: int


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


async def read_events(pool: Pool, positions: Sequence[Position], *, limit: int) -> dict[int, list[Event]]:
    """Return {shard: its next routed events that are not projected, in order}; `limit` of each shard at most."""
    shards = [{"shard_id": one.shard_id, "after": one.projected, "until": one.routed} for one in positions]
    async with single(pool) as conn:
        cursor = await conn.execute(SQL["read_events"], {"shards": json_text(shards), "limit": limit})
        rows = await cursor.fetchall()
    events: dict[int, list[Event]] = {one.shard_id: [] for one in positions}
    for row in rows:
        event = event_of(row)
        events[shard_in(event.event_id)].append(event)
    return events


async def read_runs(pool: Pool, executions: Collection[int]) -> dict[int, Run]:
    """Return {execution id: what is projected of it}; an execution never projected starts empty."""
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["read_runs"], {"executions": list(executions)})).fetchall()
    found = {row["execution_id"]: _run_of(row) for row in rows}
    return {id_: found.get(id_) or new_run(id_) for id_ in executions}


def new_run(execution_id: int) -> Run:
    """Return an execution of which nothing was projected."""
    return Run(state=ExecutionState(execution_id=execution_id), progress=Progress())


async def save_projection(conn: Conn, moves: Sequence[Move], runs: Sequence[Run]) -> set[int]:
    """Move shards and save the runs of those that moved, all or nothing; return the shards that moved.

    One does not move, and its runs are not saved, when another owner moved it, or this one is it no more.
    """
    args = {"moves": json_text(moves), "runs": json_text([_columns(run) for run in runs])}
    rows = await (await conn.execute(SQL["save_projection"], args)).fetchall()
    return {row["shard_id"] for row in rows}


def _columns(run: Run) -> dict[str, Any]:
    progress = run.progress
    shown: dict[str, Any] = {"steps": progress.steps, "counts": progress.counts}
    if progress.projection_error is not None:
        shown["projection_error"] = progress.projection_error
    return {
        "execution_id": run.state.execution_id,
        "last_event_id": run.last_event_id,
        "state": run.state,
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

"""What routing reads before a decision and writes with it: rows in, records out; nothing is decided here."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncCursor
from psycopg.rows import DictRow

from noetl_common import event_log
from noetl_common.core.events import Envelope, Event
from noetl_common.core.routing.draft import Decision
from noetl_common.core.shard import last_id, shard_of
from noetl_common.core.state import ExecutionState
from noetl_common.db import Conn, Pool, json_text, pipelined, round_trip
from noetl_common.errors import Fenced
from noetl_common.sql import load_queries
from noetl_common.wire import ResultRow
from services.ingest import groups
from services.ingest.store import group_columns, insert_results

SQL = load_queries("services.ingest")


class CatalogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A registered document version."""

    catalog_id: int
    version: int
    content: str


class Batch(msgspec.Struct, kw_only=True):
    """The decisions of consecutive inputs of one shard: they move its cursor from `old_seq` to `new_seq`."""

    shard_id: int
    epoch: int
    old_seq: int
    new_seq: int
    decisions: list[Decision]
    payload_rows: list[ResultRow] = []


class Applied(msgspec.Struct, kw_only=True):
    """What to ring after the commit: inputs that went to shards, by shard; pools that have new commands."""

    inputs: dict[int, list[Event]] = {}
    pools: set[str] = set()


async def read_cursor(pool: Pool, shard_id: int, *, epoch: int) -> tuple[int, int]:
    """Return the last routed seq of a shard, and how many inputs wait behind it.

    Errors: Fenced when the shard is under another epoch.
    """
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL["read_cursor"], {"shard_id": shard_id})).fetchone()
    if row is None or row["lease_epoch"] != epoch:
        raise Fenced(shard_id, epoch)
    return row["seq"], row["waiting"]


async def read_inputs(pool: Pool, shard_id: int, *, after_seq: int, limit: int) -> list[Event]:
    """Return up to `limit` inputs behind `after_seq`, in order."""
    args = {"shard_id": shard_id, "after": last_id(shard_id, after_seq), "limit": limit}
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["read_inputs"], args)).fetchall()
    return [event_log.event_of(row) for row in rows]


async def read_states(pool: Pool, execution_ids: Iterable[int]) -> dict[int, ExecutionState]:
    """Return the stored folds of these executions; one not yet started is missing."""
    async with pool.connection() as conn:
        args = {"execution_ids": list(execution_ids)}
        rows = await (await conn.execute(SQL["read_states"], args)).fetchall()
    return {row["execution_id"]: msgspec.convert(row["state"], ExecutionState, strict=False) for row in rows}


async def read_playbook(pool: Pool, catalog_id: int) -> CatalogRow | None:
    """Return one registered version."""
    return await _catalog_row(pool, "read_playbook", {"catalog_id": catalog_id})


async def read_registered_playbook(pool: Pool, path: str, version: int | None) -> CatalogRow | None:
    """Return a version of a path, None: the newest; one that is archived is not there."""
    return await _catalog_row(pool, "read_registered_playbook", {"path": path, "version": version})


async def list_playbook_versions(pool: Pool, path: str) -> tuple[int, ...]:
    """Return the newest few versions of a path that are in use, newest first."""
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["list_playbook_versions"], {"path": path})).fetchall()
    return tuple(row["version"] for row in rows)


async def _catalog_row(pool: Pool, query: str, args: Mapping[str, Any]) -> CatalogRow | None:
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL[query], args)).fetchone()
    return None if row is None else msgspec.convert(row, CatalogRow)


async def apply(pool: Pool, batch: Batch, *, shard_count: int, fenced: bool = True) -> Applied:
    """Write a batch of decisions, all or nothing, if the shard is still at `old_seq` under our epoch.

    `fenced=False` exists for the test that shows what the guard is for.
    Errors: Fenced; psycopg errors pass through (the caller knows which mean retry and which mean poison).
    Source: docs/adr/0005-one-decision.md.
    """
    move = SQL["move_cursor"] if fenced else SQL["move_cursor_unfenced"]
    args = place_of(batch)
    moved: AsyncCursor[DictRow] | None = None
    try:
        async with pipelined(pool) as conn:
            moved = await conn.execute(move, args)
            await _write_rows(conn, batch, shard_count=shard_count)
            await round_trip(conn)
            if moved.rowcount == 0:
                raise Fenced(batch.shard_id, batch.epoch)
            applied = await _append_inputs(conn, batch, shard_count=shard_count)
    except psycopg.Error as error:
        # Whoever fenced us may have written these very rows already: what they collide with is not what is wrong.
        if moved is not None and moved.rowcount == 0:
            raise Fenced(batch.shard_id, batch.epoch) from error
        raise
    applied.pools = {command.pool for decision in batch.decisions for command in decision.commands}
    return applied


async def _append_inputs(conn: Conn, batch: Batch, *, shard_count: int) -> Applied:
    """Append what the batch says to executions: ends of commands it cancelled, starts, ends and cancels of children."""
    applied = Applied()
    inputs = await _cancel(conn, batch)
    inputs += [event for decision in batch.decisions for event in decision.inputs]
    inputs += await groups.admit(conn, batch.decisions)  # behind the starts: a child may get its place as it is made
    by_shard: dict[int, list[Event]] = {}
    for event in inputs:
        by_shard.setdefault(shard_of(event.execution_id, shard_count), []).append(event)
    for shard_id in sorted(by_shard):
        taken = await event_log.append(conn, shard_id, by_shard[shard_id])
        for event, event_id in zip(by_shard[shard_id], taken, strict=True):
            event.event_id = event_id
        applied.inputs[shard_id] = [event for event in by_shard[shard_id] if event.event_id]
    return applied


async def _write_rows(conn: Conn, batch: Batch, *, shard_count: int) -> None:
    """Queue the statements of everything the batch drew; a statement without rows is left out."""
    decisions = batch.decisions
    children = [
        {
            **msgspec.to_builtins(child),
            **group_columns(child.group),
            "shard_id": shard_of(child.execution_id, shard_count),
        }
        for d in decisions
        for child in d.children
    ]
    events = [event for d in decisions for event in d.events]
    contexts = [row for d in decisions for row in context_rows(d)]
    commands = [command for d in decisions for command in d.commands]
    timers = [row for d in decisions for row in timer_rows(d)]
    states = {d.state.execution_id: d.state for d in decisions}
    shard = {"shard_id": batch.shard_id}
    for query, name, rows in (  # a field left out of an event or a command is at its default
        ("insert_children", "children", children),
        ("insert_consequences", "events", events),
        ("insert_contexts", "contexts", contexts),
        ("insert_commands", "commands", commands),
        ("insert_timers", "timers", timers),
        ("upsert_states", "states", [state_row(state) for state in states.values()]),
    ):
        if rows:
            await conn.execute(SQL[query], {**shard, name: json_text(rows)})
    await insert_results(conn, batch.payload_rows)
    if ended := [state.execution_id for state in states.values() if state.is_terminal]:
        await conn.execute(SQL["drop_timers"], {"execution_ids": ended})


def place_of(batch: Batch) -> dict[str, int]:
    """Return how a batch moves its shard's cursor, and under which epoch."""
    return {"shard_id": batch.shard_id, "epoch": batch.epoch, "old_seq": batch.old_seq, "new_seq": batch.new_seq}


def context_rows(decision: Decision) -> list[dict[str, Any]]:
    """Return the contexts of a decision's commands as records of their table."""
    return [
        {"execution_id": context.execution_id, "context_id": context_id, "body": context}
        for context_id, context in decision.contexts.items()
    ]


def timer_rows(decision: Decision) -> list[dict[str, Any]]:
    """Return the timers of a decision as records of their table."""
    cause = {"execution_id": decision.state.execution_id, "cause_event_id": decision.state.last_event_id}
    return [{**cause, **msgspec.to_builtins(timer)} for timer in decision.timers]


def state_row(state: ExecutionState) -> dict[str, Any]:
    """Return a fold as a record of its table."""
    return {"execution_id": state.execution_id, "last_event_id": state.last_event_id, "state": state}


async def _cancel(conn: Conn, batch: Batch) -> list[Event]:
    """Cancel what the decided cancels stop; return a report for each command that no worker will report."""
    ids = sorted({d.state.execution_id for d in batch.decisions if d.cancels_commands})
    if not ids:
        return []
    cancelled = await conn.execute(SQL["cancel_commands"], {"execution_ids": ids})
    await round_trip(conn)
    rows = await cancelled.fetchall()
    return [
        Event(
            execution_id=row["execution_id"],
            event_type="command.cancelled",
            step=row["step"],
            command_id=row["command_id"],
            loop_epoch=row["loop_epoch"],
            iter_index=row["iter_index"],
            status="CANCELLED",
            result=Envelope(status="CANCELLED"),
            dedup_key=f"done:{row['command_id']}",
        )
        for row in sorted(rows, key=lambda row: (row["execution_id"], row["command_id"]))
        if row["was"] == "pending"
    ]


async def fire_timers(conn: Conn, shard_id: int) -> list[Event]:
    """Turn a shard's due timers into inputs, in the caller's transaction; return those taken."""
    rows: Sequence[Mapping[str, Any]] = await (
        await conn.execute(SQL["fire_timers"], {"shard_id": shard_id})
    ).fetchall()
    events = [
        Event(
            execution_id=row["execution_id"],
            event_type="timer.fired",
            status="FIRED",
            result=Envelope(status="FIRED", context={"timer_id": row["timer_id"], "kind": row["kind"]}),
            dedup_key=f"timer:{row['timer_id']}",
        )
        for row in rows
    ]
    taken = await event_log.append(conn, shard_id, events)
    for event, event_id in zip(events, taken, strict=True):
        event.event_id = event_id
    return [event for event in events if event.event_id]

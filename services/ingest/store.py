"""The append transaction: one typed function for each hot statement. Rows in, records out, nothing decided."""

from collections.abc import Sequence
from typing import Any

import msgspec

from noetl_common import event_log
from noetl_common.core.events import Event
from noetl_common.core.groups import Group
from noetl_common.db import Conn, Pool, json_text, pipelined, round_trip
from noetl_common.sql import load_queries
from noetl_common.wire import Outcome, ResultRow

SQL = load_queries("services.ingest")
COMMAND_STATUS = {
    "command.completed": "completed",
    "command.failed": "failed",
    "command.cancelled": "cancelled",
    "call.partial": "partial",  # the row stays claimed
}


class ExecutionRow(msgspec.Struct, kw_only=True):
    """What is written once when an execution is created."""

    execution_id: int
    shard_id: int
    catalog_id: int
    path: str
    version: int
    parent_execution_id: int | None = None
    idempotency_key: str | None = None
    group: Group | None = None


class Finishing(msgspec.Struct, kw_only=True):
    """The claim that a report finishes, or a chunk comes from.

    By token, or for clients without one by worker and attempt (0 = any).
    """

    claim_token: int
    worker_id: str = ""
    attempt: int = 0


class Entry(msgspec.Struct, kw_only=True):
    """One input of a batch, with what is written beside it."""

    event: Event
    rows: list[ResultRow] = []
    claim: Finishing | None = None
    execution: ExecutionRow | None = None


class Written(msgspec.Struct, frozen=True):
    """What became of one input. `is_new`: this transaction wrote it."""

    event_id: int
    outcome: Outcome
    is_new: bool = False


class StartFound(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds an execution id or an idempotency key. `nonce` tells one start from another, `asked` one wish."""

    execution_id: int
    catalog_id: int
    path: str
    version: int
    idempotency_key: str | None = None
    asked: str | None = None
    event_id: int | None = None
    nonce: str | None = None


async def append_batch(pool: Pool, shard_id: int, entries: Sequence[Entry]) -> list[Written]:
    """Write one batch of a shard in one transaction; return what became of each input, in order.

    An accepted report takes its step, attempt and loop place from the command's row, not from the reporter.
    Errors: Unavailable; psycopg errors pass through (23514 or class 22: an input the log refuses).
    """
    async with pipelined(pool) as conn:
        outcomes = await _finish_commands(conn, entries)
        created = await _insert_executions(conn, entries)
        takers = [
            place
            for place, entry in enumerate(entries)
            if outcomes[place] == "accepted" and (entry.execution is None or entry.execution.execution_id in created)
        ]
        await insert_results(conn, [row for place in takers for row in entries[place].rows])
        event_ids = await event_log.append(conn, shard_id, [entries[place].event for place in takers])
    taken = {place: event_id for place, event_id in zip(takers, event_ids, strict=True) if event_id}
    known = await _find_known(pool, [entry for place, entry in enumerate(entries) if place not in taken])
    return [_written(entry, outcomes[place], taken.get(place, 0), known) for place, entry in enumerate(entries)]


async def find_starts(pool: Pool, execution_ids: Sequence[int], keys: Sequence[str]) -> list[StartFound]:
    """Return who holds these execution ids or idempotency keys."""
    async with pool.connection() as conn:
        args = {"execution_ids": list(execution_ids), "keys": list(keys)}
        rows = await (await conn.execute(SQL["find_starts"], args)).fetchall()
    return msgspec.convert(rows, list[StartFound])


async def read_pressure(pool: Pool, *, counted_max: int) -> tuple[dict[int, int], dict[str, int]]:
    """Return {shard: inputs not routed} and {pool: commands due and not claimed}, these counted up to `counted_max`."""
    async with pipelined(pool) as conn:
        lags = await conn.execute(SQL["read_lags"])
        due = await conn.execute(SQL["count_due"], {"counted_max": counted_max})
        lag_rows, due_rows = await lags.fetchall(), await due.fetchall()
    return {row["shard_id"]: row["waiting"] for row in lag_rows}, {row["pool"]: row["due"] for row in due_rows}


async def insert_results(conn: Conn, rows: Sequence[ResultRow]) -> None:
    """Index results, with their small payloads, in the caller's transaction."""
    if rows:
        records = [result_record(row) for row in rows]
        await conn.execute(SQL["insert_results"], {"rows": json_text(records)})


async def _finish_commands(conn: Conn, entries: Sequence[Entry]) -> list[Outcome]:
    """Finish the commands that reports name; what is no report counts as accepted."""
    outcomes: list[Outcome] = ["accepted"] * len(entries)
    reports = [
        {
            "place": place,
            "execution_id": entry.event.execution_id,
            "command_id": entry.event.command_id,
            "claim_token": entry.claim.claim_token,
            "worker_id": entry.claim.worker_id,
            "attempt": entry.claim.attempt,
            "status": COMMAND_STATUS[entry.event.event_type],
        }
        for place, entry in enumerate(entries)
        if entry.claim is not None
    ]
    if not reports:
        return outcomes
    finished = await conn.execute(SQL["finish_commands"], {"reports": json_text(reports)})
    await round_trip(conn)
    for row in await finished.fetchall():
        outcomes[row["place"]] = row["outcome"]
        if row["outcome"] == "accepted":
            event = entries[row["place"]].event
            event.step, event.attempt = row["step"], row["attempt"]
            event.loop_epoch, event.iter_index = row["loop_epoch"], row["iter_index"]
            if event.meta.get("foreign") and event.event_type == "command.completed":
                # A public worker does not say which item of a loop its result belongs to.
                for result in entries[row["place"]].rows:
                    result.loop_epoch, result.iter_index = event.loop_epoch, event.iter_index
    return outcomes


async def _insert_executions(conn: Conn, entries: Sequence[Entry]) -> set[int]:
    records = [
        {**msgspec.to_builtins(entry.execution), **group_columns(entry.execution.group)}
        for entry in entries
        if entry.execution is not None
    ]
    if not records:
        return set()
    rows = await (await conn.execute(SQL["insert_executions"], {"executions": json_text(records)})).fetchall()
    return {row["execution_id"] for row in rows}


def group_columns(group: Group | None) -> dict[str, Any]:
    """Return what the rows of a new execution say of its concurrency group; nothing without one."""
    return {} if group is None else {"group_id": group.group_id, "group_key": group.key, "run_limit": group.limit}


async def _find_known(pool: Pool, entries: Sequence[Entry]) -> dict[tuple[int, str], int]:
    """Return the ids of inputs that stand in the log already, by (execution id, dedup key)."""
    keys = [
        {"execution_id": entry.event.execution_id, "dedup_key": entry.event.dedup_key}
        for entry in entries
        if entry.event.dedup_key is not None
    ]
    if not keys:
        return {}
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["find_events_by_dedup"], {"keys": json_text(keys)})).fetchall()
    return {(row["execution_id"], row["dedup_key"]): row["event_id"] for row in rows}


def _written(entry: Entry, outcome: Outcome, event_id: int, known: dict[tuple[int, str], int]) -> Written:
    if event_id:
        return Written(event_id, outcome, is_new=True)
    standing = known.get((entry.event.execution_id, entry.event.dedup_key or ""), 0)
    if entry.execution is not None:
        return Written(0, "duplicate")
    if outcome == "accepted":
        return Written(standing, "duplicate" if standing else "unknown")
    return Written(standing if outcome == "duplicate" else 0, outcome)


def result_record(row: ResultRow) -> dict[str, Any]:
    """Return a result row as the record that json_to_recordset reads."""
    label = row.step if row.task_label in ("", row.step) else f"{row.step}.{row.task_label}"
    return {
        "execution_id": row.execution_id,
        "ref_id": row.ref_id,
        "ref": f"noetl://execution/{row.execution_id}/result/{label}/{row.ref_id}",
        "step": row.step,
        "task_label": row.task_label,
        "shape": row.shape,
        "loop_epoch": row.loop_epoch,
        "iter_index": row.iter_index,
        "parent_ref_id": row.parent_ref_id,
        "store_tier": row.store_tier,
        "physical_uri": row.physical_uri,
        "content_type": row.content_type,
        "bytes": row.bytes,
        "sha256": row.sha256,
        "compression": row.compression,
        "rows": row.rows,
        "preview": row.preview,
        "extracted": row.extracted,
        "inline": bytes(row.inline).decode() if row.inline is not None else None,
    }


def result_of(row: dict[str, Any]) -> ResultRow:
    """Return a row of noetl.result_ref as it travels."""
    fields = {name: value for name, value in row.items() if value is not None and name != "inline_payload"}
    payload = row.get("inline_payload")
    if payload is not None:
        fields["inline"] = msgspec.Raw(bytes(payload))
    return ResultRow(**fields)

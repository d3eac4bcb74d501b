"""The one door into the log: append inputs to a shard, numbered without a gap under its head lock."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from noetl_common.core.events import Event
from noetl_common.core.shard import event_id
from noetl_common.db import Conn, json_text, utc_now_text
from noetl_common.sql import load_queries

SQL = load_queries("noetl_common")
BATCH_EVENTS_MAX = 500
BATCH_BYTES_MAX = 2 * 1024 * 1024


async def append(conn: Conn, shard_id: int, inputs: Sequence[Event], *, lock_head: bool = True) -> list[int]:
    """Append `inputs` to the shard inside the caller's transaction; return each one's event id, 0 = not taken.

    An input is not taken when its (execution_id, dedup_key) already stands in the log or earlier in the batch,
    or when its execution does not exist or is folded into a manifest. The rest are numbered in order; the head moves
    by exactly that count.
    The head lock is taken last of all locks and held until commit: commit soon, and do not think meanwhile.
    `lock_head=False` exists for the test that shows what the lock is for.
    Errors: psycopg errors pass through; 23514 means an envelope the log refuses.
    Source: docs/adr/0001-ids-under-the-shard-lock.md.
    """
    if not inputs:
        return []
    # The lock is a statement of its own, so that the next one's snapshot sees all that committed before it.
    query = SQL["lock_head"] if lock_head else SQL["peek_head"]
    row = await (await conn.execute(query, {"shard_id": shard_id})).fetchone()
    assert row is not None, f"shard {shard_id} has no head row"
    args = {"shard_id": shard_id, "head": row["seq"], "events": json_text([event_row(e) for e in inputs])}
    rows = await (await conn.execute(SQL["append_inputs"], args)).fetchall()
    taken = {r["place"]: r["seq"] for r in rows}
    if taken:
        await conn.execute(SQL["advance_head"], {"shard_id": shard_id, "seq": max(taken.values())})
    return [event_id(shard_id, taken[i]) if i in taken else 0 for i in range(1, len(inputs) + 1)]


def event_row(event: Event) -> dict[str, object]:
    """Return an event as the record that json_to_recordset reads; empty becomes null."""
    result = msgspec.to_builtins(event.result) if event.result is not None else None
    return {
        "execution_id": event.execution_id,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "step": event.step or None,
        "command_id": event.command_id or None,
        "attempt": event.attempt or None,
        "loop_epoch": event.loop_epoch or None,
        "iter_index": event.iter_index if event.iter_index >= 0 else None,
        "status": event.status or None,
        "result": result,
        "meta": event.meta or None,
        "dedup_key": event.dedup_key,
        "catalog_id": event.catalog_id,
        "parent_execution_id": event.parent_execution_id or None,
        "worker_id": event.worker_id or None,
        "event_time": event.event_time or utc_now_text(),
    }


def event_of(row: dict[str, object]) -> Event:
    """Return a row of noetl.event as an Event; null becomes empty."""
    fields = {name: row[name] for name in EVENT_FIELDS if row.get(name) is not None}
    moment = fields.get("event_time")
    fields["event_time"] = moment.isoformat() if isinstance(moment, datetime) else ""
    return msgspec.convert(fields, Event)


EVENT_FIELDS = tuple(Event.__struct_fields__)

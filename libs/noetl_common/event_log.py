"""The one door into the log: append inputs to a shard, numbered without a gap under its head lock."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from psycopg.pq import TransactionStatus

from noetl_common.core.events import Event
from noetl_common.core.shard import event_id
from noetl_common.db import Conn, json_text, round_trip, utc_now_text
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
    assert conn.info.transaction_status != TransactionStatus.IDLE, (
        "expected a transaction: outside of one the lock ends at once"
    )
    # The lock is a statement of its own, so that the next one's snapshot sees all that committed before it.
    if lock_head:
        await conn.execute(SQL["lock_head"], {"shard_id": shard_id})
    args = {"shard_id": shard_id, "events": events_text(inputs)}
    appended = await conn.execute(SQL["append_inputs"], args)
    await round_trip(conn)
    rows = await appended.fetchall()
    taken = {r["place"]: r["seq"] for r in rows}
    return [event_id(shard_id, taken[i]) if i in taken else 0 for i in range(1, len(inputs) + 1)]


def events_text(events: Sequence[Event]) -> str:
    """Return events as the records that json_to_recordset reads: what is empty is left out, and so null."""
    now = utc_now_text()
    for event in events:
        event.event_time = event.event_time or now
    return json_text(events)


def event_of(row: dict[str, object]) -> Event:
    """Return a row of noetl.event as an Event; null becomes empty."""
    fields = {name: row[name] for name in EVENT_FIELDS if row.get(name) is not None}
    moment = fields.get("event_time")
    fields["event_time"] = moment.isoformat() if isinstance(moment, datetime) else ""
    return msgspec.convert(fields, Event)


EVENT_FIELDS = tuple(Event.__struct_fields__)

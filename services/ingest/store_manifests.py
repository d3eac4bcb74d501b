"""Queries of folded runs: their manifests, and results that outlived them. Rows in, records out, nothing decided."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from noetl_common.db import Pool, json_text, single
from noetl_common.errors import Gone
from noetl_common.wire import ResultRow
from services.ingest.pages import LOOKED_AT_MAX, Asked, Page, Window, page_of
from services.ingest.store import SQL, result_of

Row = dict[str, Any]
PARTS_AT_ONCE = 16  # of 500 events each
EVENT_COLUMNS = (
    "event_id",
    "event_type",
    "step",
    "command_id",
    "attempt",
    "loop_epoch",
    "iter_index",
    "status",
    "result",
    "meta",
    "dedup_key",
    "catalog_id",
    "parent_execution_id",
    "worker_id",
    "event_time",
    "created_at",
    "claim_worker_id",
    "claim_attempt",
    "shape",
    "payload",
)
TRACE_COLUMNS = (
    "ref_id",
    "ref",
    "parent_ref_id",
    "step",
    "task_label",
    "shape",
    "loop_epoch",
    "iter_index",
    "store_tier",
    "physical_uri",
    "content_type",
    "bytes",
    "sha256",
    "compression",
    "rows",
    "preview",
    "created_at",
    "status",
    "context",
    "event_id",
    "inputs",
)
TIMES = ("event_time", "created_at")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a history: its number, its first event, how many events."""

    part_no: int
    first: int
    count: int


async def read_events(pool: Pool, execution_id: int, asked: Asked) -> Page:
    """Return a page of a folded run's events, oldest first. Errors: Invalid for one too far behind.

    Shapes: rows as of the log, and `claim_worker_id`, `claim_attempt`, `shape`, `payload` of what is shown beside.
    """
    parts = msgspec.convert(await _all(pool, "index_event_parts", {"execution_id": execution_id}), list[Part])
    # Those that begin at or before `since` are passed over, but the last of them.
    since = asked.since
    behind = max(0, sum(part.first <= since for part in parts) - 1)
    if asked.event_type is not None:
        return await _of_type(pool, execution_id, parts[behind:], asked)
    first = await _read_parts(pool, execution_id, parts[behind : behind + 1]) if since else []
    passed = sum(part.count for part in parts[:behind]) + sum(row["event_id"] <= since for row in first)
    low, high = passed + asked.offset, passed + asked.offset + asked.limit + 1
    wanted: list[Part] = []
    start = before = 0
    for part in parts:
        if before < high and before + part.count > low:
            start = start if wanted else before
            wanted.append(part)
        before += part.count
    rows = await _read_parts(pool, execution_id, wanted)
    looked_at = min(before - passed, LOOKED_AT_MAX)
    window = Window(looked_at=looked_at, matching=looked_at)
    asked = msgspec.structs.replace(asked, projected=before)
    return page_of(asked, rows[low - start : high - start] if wanted else [], window)


async def _of_type(pool: Pool, execution_id: int, parts: Sequence[Part], asked: Asked) -> Page:
    """Return a page of one type's events, of those that are looked at."""
    found: list[Row] = []
    looked_at, last = 0, None
    for place in range(0, len(parts), PARTS_AT_ONCE):
        rows = await _read_parts(pool, execution_id, parts[place : place + PARTS_AT_ONCE])
        rows = [row for row in rows if row["event_id"] > asked.since][: LOOKED_AT_MAX - looked_at]
        looked_at += len(rows)
        last = rows[-1]["event_id"] if rows else last
        found += [row for row in rows if row["event_type"] == asked.event_type]
        if looked_at == LOOKED_AT_MAX:
            break
    window = Window(looked_at=looked_at, matching=len(found), last_event_id=last)
    return page_of(asked, found[asked.offset : asked.offset + asked.limit + 1], window)


async def read_traced(pool: Pool, execution_id: int) -> tuple[list[Row], dict[str, list[tuple[int, int, int]]]]:
    """Return a folded run's results without payloads, and {step: (execution, result, loop) of other runs}."""
    rows: list[Row] = []
    links: dict[str, list[tuple[int, int, int]]] = {}
    for part in await _all(pool, "read_trace_parts", {"execution_id": execution_id}):
        if part["kind"] == "links":
            links[part["step"]] = msgspec.json.decode(part["body"], type=list[tuple[int, int, int]])
            continue
        rows += _rows_of(part["body"], TRACE_COLUMNS)
    return rows, links


async def read_kept(pool: Pool, keys: Collection[tuple[int, int]]) -> list[ResultRow]:
    """Return the rows of (execution id, reference id) keys whose results outlived their runs."""
    records = [{"execution_id": execution_id, "ref_id": ref_id} for execution_id, ref_id in keys]
    return [result_of(row) for row in await _all(pool, "read_kept_results", {"keys": json_text(records)})]


async def read_kept_loop(pool: Pool, execution_id: int, epoch: int, *, after: int, limit: int) -> list[ResultRow]:
    """Return results of a loop's items that outlived their run, beyond index `after`, in index order."""
    args = {"execution_id": execution_id, "epoch": epoch, "after": after, "limit": limit}
    return [result_of(row) for row in await _all(pool, "read_kept_loop_results", args)]


async def find_compacted(pool: Pool, ids: Collection[int]) -> set[int]:
    """Return those runs that are folded into manifests."""
    return {row["execution_id"] for row in await _all(pool, "find_compacted", {"ids": list(ids)})}


async def check_not_archived(pool: Pool, execution_id: int, name: str) -> None:
    """Return if a result that was not found may never have been there. Errors: Gone when its run is archived."""
    if await find_compacted(pool, [execution_id]):
        raise Gone(
            f"expected a result, found that {name[:200]} went with the retention of execution {execution_id}",
            code="RESULT_ARCHIVED",
        )


async def _read_parts(pool: Pool, execution_id: int, parts: Sequence[Part]) -> list[Row]:
    if not parts:
        return []
    args = {"execution_id": execution_id, "first": parts[0].part_no, "last": parts[-1].part_no}
    bodies = await _all(pool, "read_event_parts", args)
    return [{"execution_id": execution_id, **row} for body in bodies for row in _rows_of(body["body"], EVENT_COLUMNS)]


def _rows_of(body: str, columns: tuple[str, ...]) -> list[Row]:
    rows = [dict(zip(columns, line, strict=True)) for line in msgspec.json.decode(body)]
    for row in rows:
        for name in TIMES:
            if row.get(name) is not None:
                row[name] = datetime.fromisoformat(row[name])
    return rows


async def _all(pool: Pool, name: str, args: Row) -> list[Row]:
    async with single(pool) as conn:
        return await (await conn.execute(SQL[name], args)).fetchall()

"""Read the payloads a decision needs, and keep those it made: between the pure core and the result tiers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from noetl_common.core.results import extract, merged, preview
from noetl_common.core.routing.draft import Decision, Payload
from noetl_common.core.scope import NeedPayload
from noetl_common.core.tables import TABLE_TYPE, group_in
from noetl_common.core.values import Ref, loop_stats
from noetl_common.db import Pool
from noetl_common.errors import ReferenceNotAvailable, TooLarge
from noetl_common.store.results import ResultStore
from noetl_common.store.tables import ReadPart, read_footer
from noetl_common.wire import ResultRow, encoded
from services.ingest import store_claims
from services.ingest.payloads import PayloadCache

READS_AT_ONCE_MAX = 16
LOOP_PAGE_ROWS = 2_000
TABLE_AS_JSON_BYTES_MAX = 64 * 1024 * 1024  # of a table that is read whole as JSON
READ_BYTES_MAX = 48 * 1024 * 1024  # at once, for a decision: less than its cache holds
TOO_LARGE = (
    "{uri}: expected at most {most} bytes to be read of a result at once to decide what comes next, found {found}: "
    "name single rows or fields, or have a step read it"
)

T = TypeVar("T")


async def read_payloads(
    pool: Pool, store: ResultStore, *, cache: PayloadCache, needs: Sequence[tuple[Ref, str | None]]
) -> None:
    """Load each (reference, key or whole) into the cache; a key that the index holds saves loading the payload.

    Errors: ReferenceNotAvailable when the index or the tier does not have it; ReferenceCorrupt; TooLarge for what is
    no loop's, and more than READ_BYTES_MAX.
    """
    _check_size(cache, needs)
    keys = [(ref.execution_id, ref.ref_id) for ref, _key in needs if ref.shape != "loop"]
    found = await store_claims.read_results(pool, keys) if keys else []
    rows = {(row.execution_id, row.ref_id): row for row in found}
    for ref, key in needs:
        if ref.shape == "loop":
            whole, size_bytes = await _read_loop(pool, store, ref)
            cache.put(ref.execution_id, ref.ref_id, whole, size_bytes=size_bytes)
            continue
        row = rows.get((ref.execution_id, ref.ref_id))
        if row is None:
            raise ReferenceNotAvailable(f"{ref.uri} is not in the index")
        if row.inline is None and key is not None and key in (row.extracted or {}):
            cache.put_head(ref.execution_id, ref.ref_id, row.extracted or {})
        elif row.content_type == TABLE_TYPE:
            await _read_table(store, row, cache=cache, need=(ref, key))
        elif row.bytes > READ_BYTES_MAX:
            raise TooLarge(TOO_LARGE.format(uri=ref.uri, most=READ_BYTES_MAX, found=row.bytes))
        else:
            cache.put_encoded(ref.execution_id, ref.ref_id, await read_body(store, row))


async def settled(pool: Pool, store: ResultStore, *, cache: PayloadCache, make: Callable[[], T]) -> T:
    """Return what `make` returns, called again each time the payloads that it missed are in `cache`.

    Errors: those of `read_payloads`; the cache must have room for all that `make` reads at once.
    """
    while True:
        try:
            return make()
        except NeedPayload as missing:
            await read_payloads(pool, store, cache=cache, needs=missing.needs)


async def read_body(store: ResultStore, row: ResultRow) -> bytes:
    """Return a row's payload as JSON text, from the row or from its tier."""
    if row.inline is not None:
        return bytes(row.inline)
    if row.content_type == TABLE_TYPE:
        return await _table_as_json(store, row)
    is_copied = row.store_tier == "kv"
    return await store.read(row.physical_uri, row.sha256, row.compression, is_copied=is_copied)


def parts_of(store: ResultStore, row: ResultRow) -> ReadPart:
    """Return what reads parts of the file of a table."""

    async def part(offset: int, length: int) -> bytes:
        return await store.read_range(row.physical_uri, offset=offset, length=length)

    return part


def _check_size(cache: PayloadCache, needs: Sequence[tuple[Ref, str | None]]) -> None:
    """Return when the groups of tables' rows that are needed fit in memory together. Errors: TooLarge."""
    found = 0
    for ref, key in needs:
        number, footer = group_in(key), cache.table(ref)
        if number is not None and footer is not None:
            found += footer.held_bytes(number)
        if found > READ_BYTES_MAX:
            raise TooLarge(TOO_LARGE.format(uri=ref.uri, most=READ_BYTES_MAX, found="more"))


async def _read_table(store: ResultStore, row: ResultRow, *, cache: PayloadCache, need: tuple[Ref, str | None]) -> None:
    """Load what a table's file says of itself, and the group of its rows that a read asks for."""
    ref, number = need[0], group_in(need[1])
    part = parts_of(store, row)
    footer = cache.table(ref)
    if footer is None:
        footer = await read_footer(part, size=row.bytes, uri=ref.uri)
        cache.put_table(ref.execution_id, ref.ref_id, footer)
    if number is not None:
        cache.put_group(ref, number, footer.group(number, await part(*footer.place_of(number))))


async def _table_as_json(store: ResultStore, row: ResultRow) -> bytes:
    part = parts_of(store, row)
    footer = await read_footer(part, size=row.bytes, uri=row.physical_uri)
    rows: list[Any] = []
    size_bytes = 0
    for number in range(len(footer.frame.sizes)):
        group = footer.group(number, await part(*footer.place_of(number)))
        size_bytes += group.bytes
        if size_bytes > TABLE_AS_JSON_BYTES_MAX:
            expected = f"expected a table of at most {TABLE_AS_JSON_BYTES_MAX} bytes in memory, found more"
            raise TooLarge(f"{row.physical_uri}: {expected}: read it by parts as Parquet, or in a step by its rows")
        rows += await asyncio.to_thread(list, group)
    return await asyncio.to_thread(encoded, footer.frame.filled(rows))


async def _read_loop(pool: Pool, store: ResultStore, ref: Ref) -> tuple[dict[str, Any], int]:
    rows: list[ResultRow] = []
    while page := await store_claims.read_loop_results(
        pool, ref.execution_id, ref.epoch, after=rows[-1].iter_index if rows else -1, limit=LOOP_PAGE_ROWS
    ):
        rows += page
    reading = asyncio.Semaphore(READS_AT_ONCE_MAX)

    async def item(row: ResultRow) -> Any:
        async with reading:
            value = msgspec.json.decode(await read_body(store, row))
        return merged(value) if row.shape == "pipeline" else value

    values: list[Any] = [None] * ref.size
    for row, value in zip(rows, await asyncio.gather(*(item(row) for row in rows)), strict=True):
        values[row.iter_index] = value
    return {"results": values, "stats": loop_stats(ref), "count": ref.size}, sum(row.bytes for row in rows)


async def store_payloads(store: ResultStore, made: Sequence[Decision]) -> list[ResultRow]:
    """Make durable what these decisions made, before any event names it; return the rows of the index.

    Errors: ReferenceNotAvailable when no tier takes a payload over 8 KiB.
    """
    payloads = [payload for decision in made for payload in decision.payloads]
    return [await _stored(store, payload) for payload in payloads]


async def _stored(store: ResultStore, payload: Payload) -> ResultRow:
    ref = payload.ref
    step, _, label = ref.label.partition(".")
    row = await stored_row(store, payload.body, execution_id=ref.execution_id, step=step, ref_id=ref.ref_id)
    row.task_label, row.shape = label, ref.shape
    row.loop_epoch, row.iter_index = payload.loop_epoch, payload.iter_index
    return row


async def stored_row(store: ResultStore, text: bytes, *, execution_id: int, step: str, ref_id: int) -> ResultRow:
    """Keep an encoded payload, inline or in a tier, and return its row. Errors: ReferenceNotAvailable."""
    stored = await store.write(execution_id, step, text)
    # What stands in the row is its own preview.
    payload = msgspec.json.decode(text) if stored.inline is None else None
    return ResultRow(
        execution_id=execution_id,
        ref_id=ref_id,
        step=step,
        bytes=stored.bytes,
        sha256=stored.sha256,
        store_tier=stored.tier,
        physical_uri=stored.uri,
        compression=stored.compression,
        preview=preview(payload) if payload is not None else None,
        extracted=extract(payload),
        inline=stored.inline,
    )

"""Persist before emit: every result becomes a stored payload and a reference before any report names it."""

import asyncio
from typing import Any

import msgspec

from noetl_common import metrics
from noetl_common.core.playbook import Output
from noetl_common.core.results import extract, preview
from noetl_common.core.shard import hashed_id
from noetl_common.core.tables import TABLE_TYPE, Rows, rows_in
from noetl_common.core.values import INLINE_VALUE_BYTES_MAX, Ref, Shape, Value, fits_inline
from noetl_common.core.views import plain
from noetl_common.errors import TooLarge
from noetl_common.store.results import ResultStore, Stored
from noetl_common.wire import PAYLOAD_INLINE_BYTES_MAX, ClaimedCommand, ResultRow, encoded
from services.worker.json_text import JsonText, json_text
from services.worker.tables import table_file

AS_USUAL = Output()
PAYLOAD_BYTES_MAX = 256 * 1024 * 1024
CONTEXT_BYTES_MAX = 4096


async def persist_before_emit(
    command: ClaimedCommand,
    payload: Any,
    *,
    store: ResultStore,
    shape: Shape = "plain",
    label: str = "",
    tabular: bool = False,
    output: Output = AS_USUAL,
) -> tuple[Ref, ResultRow]:
    """Return the reference and the index row of a result of `command` that is now durable or rides in the row.

    Up to 8 KiB ride beside the report, and ingest stores them in its transaction; more is in a tier on return,
    with `tabular` as a Parquet file when it has rows and columns.
    Errors: TooLarge over PAYLOAD_BYTES_MAX for one that is JSON.
    """
    has_rows = rows_in(payload)
    text = JsonText() if has_rows else await json_text(payload)
    try:
        if tabular and (has_rows or text.size > PAYLOAD_INLINE_BYTES_MAX):
            stored_table = await _persist_table(command, payload, text.size, store=store, shape=shape, output=output)
            if stored_table is not None:
                return stored_table
        if has_rows:
            text = await json_text(await asyncio.to_thread(plain, payload))
        stored = await _put(store, command.execution_id, label or command.step, text=text, wanted=output.store)
    finally:
        text.close()
    ref, row = _named(command, stored, shape=shape, label=label)
    row.rows = _rows(payload)
    if stored.tier == "db":
        row.inline = msgspec.Raw(text.body)
    else:
        # What rides inline is its own preview; the likeness of a large one is made from what is cheap to look at.
        row.preview, row.extracted = _described(preview, payload), _extracted(payload, output)
    return ref, row


async def _put(store: ResultStore, execution_id: int, label: str, *, text: JsonText, wanted: str) -> Stored:
    if text.size > PAYLOAD_BYTES_MAX:
        raise TooLarge(f"result: expected at most {PAYLOAD_BYTES_MAX} bytes of JSON, found {text.size}")
    if text.size <= PAYLOAD_INLINE_BYTES_MAX:
        return Stored(tier="db", uri="", bytes=text.size, sha256=text.sha256)
    if text.file is None:
        return await store.put(execution_id, label, text.body, sha256=text.sha256, wanted=wanted)
    return await store.put_file(execution_id, label, text.file, sha256=text.sha256, size=text.size, wanted=wanted)


async def _persist_table(
    command: ClaimedCommand, payload: Any, size: int, *, store: ResultStore, shape: Shape, output: Output
) -> tuple[Ref, ResultRow] | None:
    """Return what `persist_before_emit` does of a payload stored as a Parquet file, None when it must be JSON."""
    found = await table_file(payload, size=size)
    if found is None:
        return None
    table, part = found
    try:
        stored = await store.put_table(
            command.execution_id,
            command.step,
            table.file,
            sha256=table.sha256,
            size=table.bytes,
            wanted=output.store,
        )
    finally:
        if not isinstance(part.rows, Rows):
            table.file.close()
    ref, row = _named(command, stored, shape=shape, content_type=TABLE_TYPE)
    row.rows = len(part.rows)
    row.preview, row.extracted = _described(preview, payload), _extracted(payload, output)
    return ref, row


def _extracted(payload: Any, output: Output) -> Any:
    return _described(lambda value: extract(value, select=output.select), payload)


def _named(
    command: ClaimedCommand, stored: Stored, *, shape: Shape, label: str = "", content_type: str = "application/json"
) -> tuple[Ref, ResultRow]:
    """Return the reference and the row of a payload, without what describes it."""
    metrics.observe("noetl_result_bytes", stored.bytes, tier=stored.tier)
    ref_id = hashed_id(command.command_id, command.attempt, label)
    prior = command.item.prior if command.item is not None else None
    ref = Ref(
        execution_id=command.execution_id,
        ref_id=ref_id,
        tier=stored.tier,
        bytes=stored.bytes,
        sha256=stored.sha256,
        shape=shape,
        label=label or command.step,
        content_type=content_type,
    )
    row = ResultRow(
        execution_id=command.execution_id,
        ref_id=ref_id,
        step=command.step,
        bytes=stored.bytes,
        sha256=stored.sha256,
        store_tier=stored.tier,
        content_type=content_type,
        physical_uri=stored.uri,
        compression=stored.compression,
        task_label=label,
        shape=shape,
        # A variable is no item's result, so it does not stand among those of its loop.
        loop_epoch=0 if label else command.loop_epoch,
        iter_index=-1 if label else command.iter_index,
        parent_ref_id=prior.ref_id if prior is not None else None,
    )
    return ref, row


async def persist_variables(
    command: ClaimedCommand, variables: dict[str, Any], *, store: ResultStore
) -> tuple[dict[str, Any], list[ResultRow]]:
    """Return ({name: Value}, rows) of what a command sets in the execution's `ctx`.

    Values over 512 bytes become references; the largest others too, until all together fit CONTEXT_BYTES_MAX.
    """
    bodies = {name: encoded(value) for name, value in variables.items()}
    small = {name: len(body) for name, body in bodies.items() if fits_inline(body, INLINE_VALUE_BYTES_MAX)}
    values: dict[str, Any] = {}
    rows: list[ResultRow] = []
    while sum(small.values()) + 32 * len(small) > CONTEXT_BYTES_MAX // 2:
        small.pop(max(small, key=small.__getitem__))
    for name, value in variables.items():
        if name in small:
            values[name] = msgspec.to_builtins(Value(value))
        else:
            ref, row = await persist_before_emit(command, value, store=store, label=f"ctx.{name}")
            values[name] = msgspec.to_builtins(Value(ref=ref))
            rows.append(row)
    if len(encoded(values)) > CONTEXT_BYTES_MAX:
        raise TooLarge(
            f"set: expected names and references of at most {CONTEXT_BYTES_MAX} bytes, found {len(values)} names"
        )
    return values, rows


def _rows(payload: Any) -> int | None:
    if isinstance(payload, list):
        return len(payload)
    rows = payload.get("rows") if isinstance(payload, dict) else None
    return len(rows) if isinstance(rows, list) else None


def _described(describe: Any, payload: Any) -> Any:
    try:
        return describe(payload)
    except (OverflowError, UnicodeEncodeError):
        return None  # a likeness for people: what JSON can hardly say is not worth failing for

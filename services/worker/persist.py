"""Persist before emit: every result becomes a stored payload and a reference before any report names it."""

import hashlib
import json
from typing import Any

import msgspec

from noetl_common import metrics
from noetl_common.core.results import extract, preview
from noetl_common.core.shard import hashed_id
from noetl_common.core.values import INLINE_VALUE_BYTES_MAX, Ref, Shape, Value, fits_inline
from noetl_common.errors import TooLarge
from noetl_common.store.results import ResultStore, Stored
from noetl_common.wire import PAYLOAD_INLINE_BYTES_MAX, ClaimedCommand, ResultRow, encode

PAYLOAD_BYTES_MAX = 256 * 1024 * 1024
CONTEXT_BYTES_MAX = 4096


async def persist_before_emit(
    command: ClaimedCommand, payload: Any, *, store: ResultStore, shape: Shape = "plain", label: str = ""
) -> tuple[Ref, ResultRow]:
    """Return the reference and the index row of a result of `command` that is now durable or rides in the row.

    Up to 8 KiB ride beside the report, and ingest stores them in its transaction; more is in a tier on return.
    Errors: TooLarge over PAYLOAD_BYTES_MAX.
    """
    body = encoded(payload)
    size = len(body)
    if size > PAYLOAD_BYTES_MAX:
        raise TooLarge(f"result: expected at most {PAYLOAD_BYTES_MAX} bytes of JSON, found {size}")
    digest = hashlib.sha256(body).hexdigest()
    inline = size <= PAYLOAD_INLINE_BYTES_MAX
    stored = Stored(tier="db", uri="", bytes=size, sha256=digest)
    if not inline:
        stored = await store.put(command.execution_id, label or command.step, body, sha256=digest)
    metrics.observe("noetl_result_bytes", size, tier=stored.tier)
    ref_id = hashed_id(command.command_id, command.attempt, label)
    prior = command.item.prior if command.item is not None else None
    ref = Ref(
        execution_id=command.execution_id,
        ref_id=ref_id,
        tier=stored.tier,
        bytes=size,
        sha256=digest,
        shape=shape,
        label=label or command.step,
    )
    row = ResultRow(
        execution_id=command.execution_id,
        ref_id=ref_id,
        step=command.step,
        bytes=size,
        sha256=digest,
        store_tier=stored.tier,
        physical_uri=stored.uri,
        compression=stored.compression,
        task_label=label,
        shape=shape,
        # A variable is no item's result, so it does not stand among those of its loop.
        loop_epoch=0 if label else command.loop_epoch,
        iter_index=-1 if label else command.iter_index,
        parent_ref_id=prior.ref_id if prior is not None else None,
        rows=_rows(payload),
        # What rides inline is its own preview; the likeness of a large one is made from what is cheap to look at.
        preview=None if inline else _described(preview, payload),
        extracted=None if inline else _described(extract, payload),
        inline=msgspec.Raw(body) if inline else None,
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


def encoded(value: Any) -> bytes:
    """Return `value` as JSON; integers over 64 bits and lone surrogates take the slow way."""
    try:
        return encode(value)
    except (OverflowError, UnicodeEncodeError):
        text = json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", errors="replace")


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

"""A run's variables from outside: as routing knows them, and as inputs that change them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl_common.core.events import Envelope, Event
from noetl_common.core.fold import fold
from noetl_common.core.results import plain, value_view
from noetl_common.core.shard import hashed_id
from noetl_common.core.state import ExecutionState
from noetl_common.core.values import INLINE_VALUE_BYTES_MAX, Ref, Value, fits_inline
from noetl_common.db import Pool
from noetl_common.errors import Invalid, TooLarge
from noetl_common.store.results import ResultStore
from noetl_common.wire import ResultRow, encode, ref_of
from services.ingest import store_state
from services.ingest.payloads import PayloadCache
from services.ingest.read_payloads import read_payloads, settled, stored_row

NAME_CHARACTERS_MAX = 200
SET_BYTES_MAX = 4096  # of names and references in one event
WHOLE_BYTES_MAX = 1024 * 1024 * 1024
SHOWN_BYTES_MAX = 4 * 1024 * 1024  # of the values that one answer holds


async def read_variables(pool: Pool, execution_id: int) -> dict[str, Value]:
    """Return the run's variables: the router's fold, and on it what was written since."""
    state = await store_state.read_state(pool, execution_id) or ExecutionState(execution_id=execution_id)
    for event in await store_state.read_variable_inputs(pool, execution_id, after=state.last_event_id):
        state = fold(state, event)
    return state.ctx


async def shown_values(pool: Pool, store: ResultStore, *, variables: Mapping[str, Value]) -> dict[str, Any]:
    """Return the variables' values; one by reference is read, unless it is too large to stand in an answer.

    Shapes: what is not read is {"reference": its address, "bytes": its size}.
    Errors: ReferenceNotAvailable, ReferenceCorrupt.
    """
    cache = PayloadCache(SHOWN_BYTES_MAX * 2)
    wanted: dict[str, Ref] = {}
    room = SHOWN_BYTES_MAX
    for name, value in variables.items():
        if value.ref is not None and value.ref.bytes <= room:
            wanted[name] = value.ref
            room -= value.ref.bytes
    if wanted:
        await read_payloads(pool, store, cache=cache, needs=[(ref, None) for ref in wanted.values()])
    shown: dict[str, Any] = {}
    for name, value in variables.items():
        if value.ref is None:
            shown[name] = value.v
        elif name in wanted:
            ref = value.ref
            shown[name] = await settled(
                pool,
                store,
                cache=cache,
                make=lambda ref=ref: plain(value_view(ref, cache.load)),  # type: ignore[misc]
            )
        else:
            shown[name] = {"reference": value.ref.uri, "bytes": value.ref.bytes}
    return shown


async def whole_value(pool: Pool, store: ResultStore, *, value: Value) -> Any:
    """Return what a value stands for, read whole when it is by reference.

    Errors: ReferenceNotAvailable, ReferenceCorrupt.
    """
    if value.ref is None:
        return value.v
    cache = PayloadCache(WHOLE_BYTES_MAX)
    ref = value.ref
    return await settled(pool, store, cache=cache, make=lambda: plain(value_view(ref, cache.load)))


async def stored_values(
    store: ResultStore, execution_id: int, values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[ResultRow]]:
    """Return ({name: Value}, rows) of variables to write: small ones inline, the others durable by reference.

    Errors: Invalid for a name nobody can write in a template; TooLarge when names and references fill the event.
    """
    texts = {_checked(name): encode(value) for name, value in values.items()}
    small = {name: len(text) for name, text in texts.items() if fits_inline(text, INLINE_VALUE_BYTES_MAX)}
    while sum(small.values()) + 32 * len(small) > SET_BYTES_MAX // 2:
        small.pop(max(small, key=small.__getitem__))
    named: dict[str, Any] = {}
    rows: list[ResultRow] = []
    for name, text in texts.items():
        if name in small:
            named[name] = msgspec.to_builtins(Value(msgspec.json.decode(text)))
            continue
        ref_id = hashed_id(execution_id, "vars", name, text)
        row = await stored_row(store, text, execution_id=execution_id, step=f"ctx.{name}", ref_id=ref_id)
        rows.append(row)
        named[name] = msgspec.to_builtins(Value(ref=ref_of(row)))
    size = len(encode(named))
    if size > SET_BYTES_MAX:
        raise TooLarge(f"variables: expected names and references of at most {SET_BYTES_MAX} bytes, found {size}")
    return named, rows


def written(execution_id: int, context: dict[str, Any]) -> Event:
    """Return the input that writes variables. Shapes: context {set: {name: Value}, unset: [name], clear: bool}."""
    envelope = Envelope(status="REQUESTED", context=context)
    return Event(execution_id=execution_id, event_type="vars.set", status="REQUESTED", result=envelope)


def _checked(name: str) -> str:
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        expected = f"a name of 1 to {NAME_CHARACTERS_MAX} printable characters"
        raise Invalid(f"variables: expected {expected}, found {name[:60]!r}", pointer="/variables")
    return name

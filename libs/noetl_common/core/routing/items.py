"""Items of a loop: what a collection is, the limits a loop is begun with, and which item an index stands for."""

from typing import Any

import msgspec

from noetl_common.core import templates
from noetl_common.core.commands import ITEM_INLINE_BYTES_MAX, Item
from noetl_common.core.routing.draft import Draft, encode, fits_inline
from noetl_common.core.scope import Scope
from noetl_common.core.state import LoopState
from noetl_common.core.tables import Rows
from noetl_common.core.values import Value
from noetl_common.errors import TemplateFailed

LOOP_ITEMS_MAX = 1_000_000
IN_FLIGHT_DEFAULT = 1_000
IN_FLIGHT_MAX = 10_000
COMMANDS_PER_INPUT_MAX = 1_000


def may_begin(draft: Draft, loop: LoopState, begun: int) -> bool:
    """Return whether this decision may begin another item, `begun` of the loop's having begun in it."""
    # What failed here or elsewhere is not made worse: items in flight drain, none is added.
    return not (loop.is_stopped or draft.is_stopping or draft.is_full or begun >= COMMANDS_PER_INPUT_MAX)


def item_of(draft: Draft, loop: LoopState, index: int) -> Item:
    """Return an item of a loop: one that is open, or the next of a collection."""
    if loop.cursor is not None:
        return row_item(loop, *loop.cursor.rows[index])
    if loop.stream is not None:
        return Item(ref=loop.stream.chunks[index], whole=True)
    return item_at(loop.items, None if loop.items is None else load_value(draft, loop.items), index)


def row_item(loop: LoopState, claim: int, row: int) -> Item:
    """Return the item of a cursor loop that stands for a row of a claim: the row, or all the claim brought."""
    assert loop.cursor is not None
    frame = loop.cursor.frames[claim]
    if loop.cursor.whole:
        return Item(ref=frame.ref, whole=True)
    return Item(ref=frame.ref, index=row, total=frame.size)


def load_value(draft: Draft, value: Value) -> Any:
    """Return a variable's value, loading it when it is held by reference."""
    return draft.load(value.ref, None) if value.ref is not None else value.v


def item_at(source: Value | None, items: list[Any] | Rows | None, index: int) -> Item:
    """Return item `index` of a collection: itself when small, else its place in the payload `source` names."""
    if items is None or source is None:
        return Item(v=index)
    item = items[index]
    if source.ref is None or fits_inline(encode(item), ITEM_INLINE_BYTES_MAX):
        return Item(v=item)
    return Item(ref=source.ref, index=index)


def iteration_of(draft: Draft, loop: LoopState, item: Item, *, index: int, iterator: str) -> dict[str, Any]:
    """Return what the body of an item sees of its loop.

    Shapes: in a cursor loop `_index` and `_total` count within the item's frame, `loop_index` over the whole loop.
    `_total` is 0 where nobody knows it yet.
    """
    value = item.v
    if item.ref is not None:
        value = draft.load(item.ref, None) if item.whole else draft.load(item.ref, None)[item.index]
    place, total = (item.index, item.total) if item.total else (index, loop.size if loop.is_collection else 0)
    return {
        iterator: value,
        "_index": place,
        "loop_index": index,
        "_total": total,
        "_first": place == 0,
        "_last": place == total - 1,
    }


def collection_of(value: Any, *, where: str, expression: str = "") -> list[Any] | Rows | int:
    """Return what a loop goes over: a list, the rows of a table, or n for range(n).

    Shapes: a list is itself; an object becomes [{key, value}]; a string is a JSON array, or is cut at commas and
    newlines; a whole number n is 0..n-1.
    Errors: TemplateFailed for null, a boolean, or anything else.
    """
    if isinstance(value, bool) or value is None:
        pass
    elif isinstance(value, Rows):
        return value
    elif isinstance(value, list | tuple):
        return list(value)
    elif isinstance(value, int | float) and value >= 0 and value == int(min(value, LOOP_ITEMS_MAX + 1)):
        return int(value)
    elif isinstance(value, dict):
        return [{"key": key, "value": item} for key, item in value.items()]
    elif isinstance(value, str):
        try:
            parsed = msgspec.json.decode(value)
        except msgspec.DecodeError:
            parsed = None
        if isinstance(parsed, list):
            return parsed
        return [part.strip() for part in value.replace("\n", ",").split(",") if part.strip()]
    found = "null" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
    message = f"expected an iterable (list, object, text or whole number), found {found}"
    raise TemplateFailed(message, expression=expression, where=where)


class Limit(msgspec.Struct, frozen=True):
    """A number of a loop's spec: what it must lie between, and what it is when it is not written."""

    default: int
    least: int
    most: int


def limit_of(written: Any, scope: Scope, *, limit: Limit, where: str) -> int:
    """Return a limit as it is now, its template rendered. Errors: TemplateFailed unless a whole number in range."""
    value = templates.render(written, scope, where=where)
    if value is None or value == "":
        return limit.default
    try:
        number = int(value)
        is_whole = not isinstance(value, bool) and number == float(value)
    except (TypeError, ValueError, OverflowError):
        number, is_whole = -1, False
    if not is_whole or not limit.least <= number <= limit.most:
        message = f"expected a whole number from {limit.least} to {limit.most}, found {value!r}"
        raise TemplateFailed(message, expression=str(written), where=where)
    return number

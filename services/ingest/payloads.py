"""Payloads that routing has at hand: a cache with a byte limit, and the reader that fills it."""

from collections import OrderedDict
from typing import Any

import msgspec

from noetl_common.core.scope import NeedPayload
from noetl_common.core.tables import group_key, table_value
from noetl_common.core.values import Ref
from noetl_common.store.tables import Footer, Group
from noetl_common.wire import ResultRow

CACHE_BYTES_MAX = 64 * 1024 * 1024
ENTRY_BYTES = 450  # of memory for an entry beside its payload: a million small results are mostly this

Place = tuple[int, int, int]  # (execution id, reference id, group of a table's rows or WHOLE)
WHOLE = -1


class PayloadCache:
    """Payloads by (execution_id, ref_id), least recently used out first. Units: bytes of JSON, and some an entry."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._whole: OrderedDict[Place, tuple[int, bytes | None, Any]] = OrderedDict()
        self._heads: OrderedDict[tuple[int, int], dict[str, Any]] = OrderedDict()

    def put_encoded(self, execution_id: int, ref_id: int, body: bytes) -> None:
        """Keep a payload as JSON text; it is decoded when something looks at it, and most never are."""
        self._put((execution_id, ref_id, WHOLE), len(body), body, None)

    def put_row(self, row: ResultRow) -> None:
        """Keep the small payload that a result's row carries; a row without one is left alone."""
        if row.inline is not None:
            self.put_encoded(row.execution_id, row.ref_id, bytes(row.inline))

    def put(self, execution_id: int, ref_id: int, value: Any, *, size_bytes: int) -> None:
        """Keep a decoded payload."""
        self._put((execution_id, ref_id, WHOLE), size_bytes, None, value)

    def put_table(self, execution_id: int, ref_id: int, footer: Footer) -> None:
        """Keep what a table's file says of itself; its rows come by groups, when something reads them."""
        self._put((execution_id, ref_id, WHOLE), footer.bytes, None, footer)

    def put_group(self, ref: Ref, number: int, group: Group) -> None:
        """Keep one group of a table's rows."""
        self._put((ref.execution_id, ref.ref_id, number), group.bytes, None, group)

    def table(self, ref: Ref) -> Footer | None:
        """Return what a table's file says of itself, None when it is not at hand."""
        held = self._whole.get((ref.execution_id, ref.ref_id, WHOLE))
        return held[2] if held is not None and isinstance(held[2], Footer) else None

    def put_head(self, execution_id: int, ref_id: int, extracted: dict[str, Any]) -> None:
        """Keep the top-level scalars of a payload too large to load for one of them."""
        self._heads[execution_id, ref_id] = extracted
        while len(self._heads) > 10_000:
            self._heads.popitem(last=False)

    def forget(self, execution_id: int, ref_id: int) -> None:
        """Let go of a payload that was put decoded, and never stored."""
        held = self._whole.pop((execution_id, ref_id, WHOLE), None)
        if held is not None:
            self._bytes -= held[0]

    def load(self, ref: Ref, key: str | None) -> Any:
        """Return a payload, or one key of it. Errors: NeedPayload when it is not at hand; KeyError, IndexError."""
        place = (ref.execution_id, ref.ref_id)
        if key is not None and key in self._heads.get(place, {}):
            return self._heads[place][key]
        held = self._whole.get((*place, WHOLE))
        if held is None:
            raise NeedPayload([(ref, key)])
        self._whole.move_to_end((*place, WHOLE))
        size, body, value = held
        if isinstance(value, Footer):
            table = table_value(ref, value.frame, group=lambda number: self._group(ref, number))
            return table if key is None else table[key]
        if body is not None:
            value = msgspec.json.decode(body)
            self._whole[*place, WHOLE] = (size, None, value)
        return value if key is None else value[key]

    def _group(self, ref: Ref, number: int) -> Group:
        held = self._whole.get((ref.execution_id, ref.ref_id, number))
        if held is None:
            raise NeedPayload([(ref, group_key(number))])
        self._whole.move_to_end((ref.execution_id, ref.ref_id, number))
        group: Group = held[2]
        return group

    def _put(self, place: Place, size: int, body: bytes | None, value: Any) -> None:
        if place in self._whole:
            self._bytes -= self._whole.pop(place)[0]
        size += ENTRY_BYTES
        self._whole[place] = (size, body, value)
        self._bytes += size
        while self._bytes > self._bytes_max and len(self._whole) > 1:
            self._bytes -= self._whole.popitem(last=False)[1][0]

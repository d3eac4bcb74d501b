"""Payloads that templates read: a cache with a byte limit, and the reads that fill it when one is missing."""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from noetl_common import metrics
from noetl_common.core.results import merged
from noetl_common.core.scope import NeedPayload
from noetl_common.core.tables import group_in, group_key, is_table, table_value
from noetl_common.core.values import Ref, loop_stats
from noetl_common.core.views import plain
from noetl_common.errors import ReferenceCorrupt, ReferenceNotAvailable, TooLarge
from noetl_common.store.results import ResultStore
from noetl_common.store.tables import Footer, Group, read_footer
from noetl_common.wire import ResultRow, ref_of
from services.worker.api import LoopPage, persistently

ROUNDS_MAX = 50
READS_MAX = 8  # at the same time, of one loop's large items
COPIED_BYTES = 8 * 1024 * 1024  # at a time
GROUPS_MAX = 2  # groups of tables' rows that are read at the same time
READ_BYTES_MAX = 256 * 1024 * 1024  # of tables' rows, in memory, that the templates of one call read
TOO_MANY_ROWS = (
    "{uri}: expected a read of at most {most} bytes of its rows, found more: name the rows by their index, or query "
    "them where they are stored (`tables` of the duckdb tool)"
)

Key = tuple[int, int, int]
T = TypeVar("T")


class Reader(Protocol):
    """The part of ingest's API that payloads come from."""

    async def payload(self, ref: Ref) -> bytes:
        """Return the JSON that `ref` names."""

    async def part(self, ref: Ref, *, offset: int, length: int) -> bytes:
        """Return a part of the Parquet file that `ref` names."""

    async def loop_page(self, ref: Ref, *, after: int) -> LoopPage:
        """Return the results of a loop's items behind index `after`."""


class Payloads:
    """Payloads by reference, decoded once, least recently used out first.

    Units: the limit counts JSON bytes; what a command is reading right now stays, whatever the limit says.
    """

    def __init__(self, reader: Reader, *, bytes_max: int, store: ResultStore | None = None) -> None:
        self._reader = reader
        self._bytes_max = bytes_max
        self._store = store
        self._bytes = 0
        self._held: OrderedDict[Key, tuple[int, bytes | None, Any]] = OrderedDict()
        self._pins: Counter[Key] = Counter()
        self._groups = asyncio.Semaphore(GROUPS_MAX)
        self._under_way: dict[Key, asyncio.Task[None]] = {}

    def load(self, ref: Ref, key: str | None) -> Any:
        """Return a payload, or one key of it. Errors: NeedPayload when it is not here; KeyError, TypeError."""
        place = _key(ref)
        held = self._held.get(place)
        if held is None:
            raise NeedPayload([(ref, key)])
        self._held.move_to_end(place)
        size, body, value = held
        if isinstance(value, Footer):
            table = table_value(ref, value.frame, group=lambda number: self._group(ref, number))
            return table if key is None else table[key]
        if body is not None:
            value = _decoded(body, ref.uri)
            self._held[place] = (size, None, value)
        return value if key is None else value[key]

    def keep(self, row: ResultRow) -> None:
        """Keep a small payload that came along with a claim; it is decoded when something reads it."""
        if row.inline is not None:
            self._put((row.execution_id, row.ref_id, 0), row.bytes, bytes(row.inline), None)

    async def table_file(self, ref: Ref, copy: Path) -> tuple[Path, dict[str, str]] | None:
        """Return where the file of a table can be read, and {column: what it holds}; None when SQL cannot read it so.

        In place where a folder of this worker has it, else copied to `copy`, a part at a time. Errors: as `settled`.
        """
        footer = await self._footer(ref)
        if footer.bare or (ref.shape != "rows" and not any(map(_is_result_of_sql, footer.frame.places))):
            return None
        path = self._store.table_path(ref) if self._store is not None else None
        if path is None:
            path, digest = copy, hashlib.sha256()
            with open(copy, "wb") as file:  # noqa: ASYNC230 - opening it takes no time
                for offset in range(0, ref.bytes, COPIED_BYTES):
                    part = await self._part(ref, offset, min(COPIED_BYTES, ref.bytes - offset))
                    digest.update(part)
                    await asyncio.to_thread(file.write, part)
            if digest.hexdigest() != ref.sha256:
                raise ReferenceCorrupt(f"{ref.uri}: the table does not have the digest recorded for it")
        return path, footer.columns

    async def settled(self, make: Callable[[], T]) -> T:
        """Return what `make` returns, called again each time the payloads it missed have been loaded.

        Errors: those of `make`; ReferenceNotAvailable and ReferenceCorrupt; ReferenceNotAvailable after 50 rounds.
        """
        try:
            return make()
        except NeedPayload as exc:
            first = exc

        async def soon() -> T:
            return make()

        return await self._rounds(soon, first)

    async def settled_call(self, make: Callable[[], Awaitable[T]]) -> T:
        """Return what the coroutine of `make` returns, as `settled` does."""
        try:
            return await make()
        except NeedPayload as exc:
            first = exc
        return await self._rounds(make, first)

    async def _rounds(self, make: Callable[[], Awaitable[T]], missing: NeedPayload) -> T:
        pinned: list[Key] = []
        read_bytes = 0
        try:
            for _ in range(ROUNDS_MAX):
                for ref, key in missing.needs:
                    pinned.append(_place(ref, key))
                    self._pins[_place(ref, key)] += 1
                    read_bytes += self._group_bytes(ref, key)
                    if read_bytes > READ_BYTES_MAX:
                        raise TooLarge(TOO_MANY_ROWS.format(uri=ref.uri, most=READ_BYTES_MAX))
                await asyncio.gather(*(self._fetch_once(ref, key) for ref, key in missing.needs))
                try:
                    return await make()
                except NeedPayload as exc:
                    missing = exc
            raise ReferenceNotAvailable(f"{missing}: still missing after {ROUNDS_MAX} rounds of loading")
        finally:
            self._pins.subtract(pinned)
            self._pins = +self._pins
            self._shrink()

    def _group_bytes(self, ref: Ref, key: str | None) -> int:
        """Return how much memory the group of rows that `key` names takes, 0 for anything else."""
        number, held = group_in(key), self._held.get(_key(ref))
        if number is None or held is None or not isinstance(held[2], Footer):
            return 0
        return held[2].held_bytes(number)

    def _group(self, ref: Ref, number: int) -> Group:
        """Return a group of a table's rows. Errors: NeedPayload when it is not here."""
        place = _place(ref, group_key(number))
        if place not in self._held:
            raise NeedPayload([(ref, group_key(number))])
        self._held.move_to_end(place)
        group: Group = self._held[place][2]
        return group

    async def _fetch_once(self, ref: Ref, key: str | None) -> None:
        # Items of one loop miss the same payload at the same moment: one read serves them all.
        place = _place(ref, key)
        if place in self._held:
            return
        task = self._under_way.get(place)
        if task is None:
            task = self._under_way[place] = asyncio.create_task(self._fetch(ref, key))
            task.add_done_callback(lambda _: self._under_way.pop(place, None))
        await asyncio.shield(task)

    async def _fetch(self, ref: Ref, key: str | None) -> None:
        metrics.inc("noetl_payload_cache_misses_total", 1, kind="table" if is_table(ref) else ref.shape)
        if is_table(ref):
            await self._fetch_table(ref, group_in(key))
        elif ref.shape == "loop":
            value, size = await self._loop(ref)
            self._put(_key(ref), size, None, value)
        else:
            body = await self._body(ref)
            self._put(_key(ref), len(body), body, None)

    async def _fetch_table(self, ref: Ref, number: int | None) -> None:
        """Hold what the end of a table's file says, or one group of its rows."""
        footer = await self._footer(ref)
        if number is not None:
            async with self._groups:
                group = footer.group(number, await self._part(ref, *footer.place_of(number)))
            self._put(_place(ref, group_key(number)), group.bytes, None, group)

    async def _footer(self, ref: Ref) -> Footer:
        held = self._held.get(_key(ref))
        if held is not None:
            footer: Footer = held[2]
            return footer
        footer = await read_footer(lambda *place: self._part(ref, *place), size=ref.bytes, uri=ref.uri)
        self._put(_key(ref), footer.bytes, None, footer)
        return footer

    async def _part(self, ref: Ref, offset: int, length: int) -> bytes:
        found = await self._store.read_table(ref, offset=offset, length=length) if self._store is not None else None
        if found is None:
            found = await persistently(lambda: self._reader.part(ref, offset=offset, length=length), "table")
        return found

    async def _body(self, ref: Ref) -> bytes:
        # From a tier this worker shares, if it can be; else ingest is asked.
        body = await self._store.read_ref(ref) if self._store is not None else None
        if body is None:
            body = await persistently(lambda: self._reader.payload(ref), "payload")
            if ref.sha256 and hashlib.sha256(body).hexdigest() != ref.sha256:
                raise ReferenceCorrupt(f"{ref.uri}: the payload does not have the digest recorded for it")
        return body

    async def _loop(self, ref: Ref) -> tuple[dict[str, Any], int]:
        """Return a loop's payload {results, stats, count} and its size; an item without a result is None."""
        results: list[Any] = [None] * ref.size
        size, after = 0, -1
        limit = asyncio.Semaphore(READS_MAX)

        async def place(row: ResultRow) -> None:
            async with limit:
                if is_table(ref_of(row)):
                    value = await self.settled(lambda: plain(self.load(ref_of(row), None)))
                else:
                    body = bytes(row.inline) if row.inline is not None else await self._body(ref_of(row))
                    value = _decoded(body, ref.uri)
            if 0 <= row.iter_index < ref.size:
                is_labelled = row.shape == "pipeline" and isinstance(value, dict)
                results[row.iter_index] = merged(value) if is_labelled else value

        while True:
            start = after
            page = await persistently(lambda start=start: self._reader.loop_page(ref, after=start), "loop results")  # type: ignore[misc]
            await asyncio.gather(*(place(row) for row in page.results))
            size += sum(row.bytes for row in page.results)
            if page.next_after is None or page.next_after <= after:
                break
            after = page.next_after
        return {"results": results, "stats": loop_stats(ref), "count": ref.size}, size

    def _put(self, place: Key, size: int, body: bytes | None, value: Any) -> None:
        if place in self._held:
            self._bytes -= self._held.pop(place)[0]
        self._held[place] = (size, body, value)
        self._bytes += size
        self._shrink()

    def _shrink(self) -> None:
        if self._bytes > self._bytes_max:
            for place in [place for place in self._held if not self._pins[place]]:
                self._bytes -= self._held.pop(place)[0]
                if self._bytes <= self._bytes_max:
                    break
        metrics.gauge("noetl_payload_cache_bytes", self._bytes)


def _is_result_of_sql(place: list[str]) -> bool:
    """Return whether rows in this place of a result are what a query of the whole result would see."""
    return not place or (place[-1] == "rows" and len(place) <= 2)


def _key(ref: Ref) -> Key:
    return ref.execution_id, ref.ref_id, ref.epoch if ref.shape == "loop" else 0


def _place(ref: Ref, key: str | None) -> Key:
    """Return where a payload is held, or the group of a table's rows that `key` names."""
    number = group_in(key) if is_table(ref) else None
    return _key(ref) if number is None else (ref.execution_id, ref.ref_id, -1 - number)


def _decoded(body: bytes, uri: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as exc:
        raise ReferenceCorrupt(f"{uri}: the payload is not JSON: {exc}") from exc

"""Payloads that templates read: a cache with a byte limit, and the reads that fill it when one is missing."""

import asyncio
import contextlib
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import msgspec

from noetl_common.core.results import merged
from noetl_common.core.scope import NeedPayload
from noetl_common.core.values import Ref
from noetl_common.errors import ReferenceCorrupt, ReferenceNotAvailable
from noetl_common.store.results import ResultStore, key_of
from noetl_common.wire import ResultRow, ref_of
from services.worker.api import LoopPage, persistently

ROUNDS_MAX = 50
READS_MAX = 8  # at the same time, of one loop's large items

Key = tuple[int, int, int]
T = TypeVar("T")


class Reader(Protocol):
    """The part of ingest's API that payloads come from."""

    async def payload(self, ref: Ref) -> bytes:
        """Return the JSON that `ref` names."""

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
        self._under_way: dict[Key, asyncio.Task[None]] = {}

    def load(self, ref: Ref, key: str | None) -> Any:
        """Return a payload, or one key of it. Errors: NeedPayload when it is not here; KeyError, TypeError."""
        place = _key(ref)
        held = self._held.get(place)
        if held is None:
            raise NeedPayload([(ref, key)])
        self._held.move_to_end(place)
        size, body, value = held
        if body is not None:
            value = _decoded(body, ref.uri)
            self._held[place] = (size, None, value)
        return value if key is None else value[key]

    def keep(self, row: ResultRow) -> None:
        """Keep a small payload that came along with a claim; it is decoded when something reads it."""
        if row.inline is not None:
            self._put((row.execution_id, row.ref_id, 0), row.bytes, bytes(row.inline), None)

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
        try:
            for _ in range(ROUNDS_MAX):
                for ref, _key_wanted in missing.needs:
                    pinned.append(_key(ref))
                    self._pins[_key(ref)] += 1
                await asyncio.gather(*(self._fetch_once(ref) for ref, _key_wanted in missing.needs))
                try:
                    return await make()
                except NeedPayload as exc:
                    missing = exc
            raise ReferenceNotAvailable(f"{missing}: still missing after {ROUNDS_MAX} rounds of loading")
        finally:
            self._pins.subtract(pinned)
            self._pins = +self._pins
            self._shrink()

    async def _fetch_once(self, ref: Ref) -> None:
        # Items of one loop miss the same payload at the same moment: one read serves them all.
        place = _key(ref)
        if place in self._held:
            return
        task = self._under_way.get(place)
        if task is None:
            task = self._under_way[place] = asyncio.create_task(self._fetch(ref))
            task.add_done_callback(lambda _: self._under_way.pop(place, None))
        await asyncio.shield(task)

    async def _fetch(self, ref: Ref) -> None:
        if ref.shape == "loop":
            value, size = await self._loop(ref)
            self._put(_key(ref), size, None, value)
        else:
            body = await self._body(ref)
            self._put(_key(ref), len(body), body, None)

    async def _body(self, ref: Ref) -> bytes:
        body = await self._shared(ref)
        if body is None:
            body = await persistently(lambda: self._reader.payload(ref), "payload")
            if ref.sha256 and hashlib.sha256(body).hexdigest() != ref.sha256:
                raise ReferenceCorrupt(f"{ref.uri}: the payload does not have the digest recorded for it")
        return body

    async def _shared(self, ref: Ref) -> bytes | None:
        """Return the payload from a tier this worker shares; None when it has to ask ingest."""
        if self._store is None or ref.tier == "db" or not ref.sha256:
            return None
        for compression in ("gzip", "none"):
            key = key_of(ref.execution_id, ref.label, ref.sha256, compression=compression)
            with contextlib.suppress(ReferenceNotAvailable, ReferenceCorrupt):
                return await self._store.read(f"{ref.tier}://{key}", ref.sha256, compression)
        return None

    async def _loop(self, ref: Ref) -> tuple[dict[str, Any], int]:
        """Return a loop's payload {results, stats, count} and its size; an item without a result is None."""
        results: list[Any] = [None] * ref.size
        size, after = 0, -1
        limit = asyncio.Semaphore(READS_MAX)

        async def place(row: ResultRow) -> None:
            async with limit:
                body = bytes(row.inline) if row.inline is not None else await self._body(ref_of(row))
            if 0 <= row.iter_index < ref.size:
                value = _decoded(body, ref.uri)
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
        stats = {"total": ref.size, "success": ref.size - ref.failed, "failed": ref.failed}
        return {"results": results, "stats": stats, "count": ref.size}, size

    def _put(self, place: Key, size: int, body: bytes | None, value: Any) -> None:
        if place in self._held:
            self._bytes -= self._held.pop(place)[0]
        self._held[place] = (size, body, value)
        self._bytes += size
        self._shrink()

    def _shrink(self) -> None:
        if self._bytes <= self._bytes_max:
            return
        for place in [place for place in self._held if not self._pins[place]]:
            if self._bytes <= self._bytes_max:
                return
            self._bytes -= self._held.pop(place)[0]


def _key(ref: Ref) -> Key:
    return ref.execution_id, ref.ref_id, ref.epoch if ref.shape == "loop" else 0


def _decoded(body: bytes, uri: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as exc:
        raise ReferenceCorrupt(f"{uri}: the payload is not JSON: {exc}") from exc

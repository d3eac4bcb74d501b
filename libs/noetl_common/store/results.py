"""The result store: which tier a payload goes to, its name there, and that what comes back is what went in."""

import asyncio
import hashlib
import io
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from noetl_common import metrics
from noetl_common.core.values import KV_COPY_BYTES_MAX, Ref, TierRule
from noetl_common.core.values import Tier as TierName
from noetl_common.errors import (
    ConfigError,
    NoetlError,
    ReferenceCorrupt,
    ReferenceNotAvailable,
    TooLarge,
    Unavailable,
)
from noetl_common.log import get_logger
from noetl_common.store import Tier
from noetl_common.store.compress import PART_BYTES, Expander, compressed, compressed_file, expanded
from noetl_common.store.disk import DiskTier
from noetl_common.store.kv import Copies
from noetl_common.wire import PAYLOAD_INLINE_BYTES_MAX

PAYLOAD_BYTES_MAX = 512 * 1024 * 1024
LABEL_CHARACTERS_MAX = 100
STREAMED_BYTES_MIN = 16 * 1024 * 1024  # a larger one is compressed to a file, and read by parts
TABLE_SUFFIX = ".parquet"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")

log = get_logger(__name__)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a payload stands: these are fields of a wire.ResultRow.

    Units: `bytes` and `sha256` are of the payload before compression. Tier db: `uri` is empty, and the payload
    must travel in the row (`inline`), which ingest writes together with the event that names it. Tier kv: `uri` is
    of the durable tier.
    """

    tier: TierName
    uri: str
    bytes: int
    sha256: str
    compression: str = "none"
    inline: msgspec.Raw | None = None


class ResultStore:
    """Payloads in the tier that `rule` names, and in the others, in their order, when that one does not take them.

    With `copies`, those whose tier is `kv` are copied once they are durable; a copy is read first and is never missed.
    """

    def __init__(self, tiers: Sequence[Tier], rule: TierRule, *, copies: Copies | None = None) -> None:
        self.rule = rule
        self._tiers = {tier.name: tier for tier in tiers}
        self._copies = copies
        self._missed: set[str] = set()  # tiers that authors named in vain, each told once
        if rule.default != "db" and rule.default not in self._tiers:
            known = ", ".join(self._tiers) or "none"
            raise ConfigError(f"default store tier: expected one of those configured ({known}), found {rule.default!r}")

    async def start(self) -> list[TierName]:
        """Make ready what payloads stand in; return the tiers that are away, to be tried again when one is needed.

        Errors: ConfigError when a tier can never work as it is configured.
        """
        away: list[TierName] = []
        for tier in self._tiers.values():
            try:
                await tier.start()
            except Unavailable as error:
                away.append(tier.name)
                log.warning("store.tier_away", tier=tier.name, error=error)
        return away

    async def close(self) -> None:
        """Let go of every connection."""
        for tier in self._tiers.values():
            await tier.close()
        if self._copies is not None:
            await self._copies.close()

    async def write(self, execution_id: int, label: str, payload: bytes) -> Stored:
        """Keep an encoded payload: up to 8 KiB it is returned `inline` for its row, more goes to a tier.

        Errors: as `put`.
        """
        if len(payload) > PAYLOAD_INLINE_BYTES_MAX:
            return await self.put(execution_id, label, payload)
        digest = hashlib.sha256(payload).hexdigest()
        return Stored(tier="db", uri="", bytes=len(payload), sha256=digest, inline=msgspec.Raw(payload))

    async def put(self, execution_id: int, label: str, payload: bytes, *, sha256: str = "", wanted: str = "") -> Stored:
        """Store a payload in a tier; durable on return. `sha256` saves computing it again.

        `wanted` is the tier that its author names, taken first if it is configured; `kv`: a copy, whatever the size.
        Errors: ReferenceNotAvailable when no tier takes it.
        """
        digest = sha256 or await asyncio.to_thread(_digest, payload)
        if len(payload) > STREAMED_BYTES_MIN:
            file, size = io.BytesIO(payload), len(payload)
            return await self.put_file(execution_id, label, file, sha256=digest, size=size, wanted=wanted)
        body, compression = await asyncio.to_thread(compressed, payload)
        key = key_of(execution_id, label, digest, compression=compression)
        name, uri = await self._placed(key, len(payload), lambda tier: tier.put(key, body), first=self._wanted(wanted))
        wants_copy = wanted == "kv" and self._copies is not None and len(payload) <= KV_COPY_BYTES_MAX
        if wants_copy or self.rule.of(len(payload)) == "kv":
            name = "kv"
            if self._copies is not None:
                await self._copies.put(_copy_key(uri), body, compression)
        return Stored(tier=name, uri=uri, bytes=len(payload), sha256=digest, compression=compression)

    async def put_file(
        self, execution_id: int, label: str, file: BinaryIO, *, sha256: str, size: int, wanted: str = ""
    ) -> Stored:
        """Store a payload of `size` bytes that stands in a file, a part at a time. Errors: as `put`."""
        packed = await asyncio.to_thread(compressed_file, file, size)
        compression = "none" if packed is None else "gzip"
        key = key_of(execution_id, label, sha256, compression=compression)
        try:
            name, uri = await self._placed(
                key, size, lambda tier: tier.put_file(key, packed or file), first=self._wanted(wanted)
            )
        finally:
            if packed is not None:
                packed.close()
        return Stored(tier=name, uri=uri, bytes=size, sha256=sha256, compression=compression)

    async def put_table(
        self, execution_id: int, label: str, file: BinaryIO, *, sha256: str, size: int, wanted: str = ""
    ) -> Stored:
        """Store a Parquet file of `size` bytes in a tier, a part at a time; durable on return. Errors: as `put`."""
        key = key_of(execution_id, label, sha256, suffix=TABLE_SUFFIX)
        name, uri = await self._placed(key, size, lambda tier: tier.put_file(key, file), first=self._wanted(wanted))
        return Stored(tier=name, uri=uri, bytes=size, sha256=sha256)

    async def read_table(self, ref: Ref, *, offset: int, length: int) -> bytes | None:
        """Return a part of a Parquet file by its reference alone; None when no tier here has it."""
        for uri in self._table_uris(ref):
            try:
                return await self.read_range(uri, offset=offset, length=length)
            except ReferenceNotAvailable:
                continue
        return None

    async def read_range(self, uri: str, *, offset: int, length: int) -> bytes:
        """Return a part of what a tier holds, unchecked. Errors: ReferenceNotAvailable."""
        tier = self._tier_of(uri)
        try:
            found = await tier.get_range(uri, offset=offset, length=length)
        except NoetlError:
            metrics.inc("noetl_object_store_ops_total", 1, tier=tier.name, op="get_range", outcome="error")
            raise
        metrics.inc("noetl_object_store_ops_total", 1, tier=tier.name, op="get_range", outcome="ok")
        return found

    def table_path(self, ref: Ref) -> Path | None:
        """Return where a Parquet file can be read in place, None when that is no folder here."""
        for uri in self._table_uris(ref):
            tier = self._tier_of(uri)
            if isinstance(tier, DiskTier) and (path := tier.path_of(uri)).is_file():
                return path
        return None

    def _table_uris(self, ref: Ref) -> list[str]:
        key = key_of(ref.execution_id, ref.label, ref.sha256, suffix=TABLE_SUFFIX)
        return [f"{tier.name}://{key}" for tier in self._order(ref.bytes, first=ref.tier)]

    def _wanted(self, wanted: str) -> TierName:
        """Return the tier that an author names, or db, which no payload of a tier goes to, when it is not there."""
        for name in self._tiers:
            if name == wanted:
                return name
        is_there = not wanted or (wanted == "kv" and self._copies is not None)
        if not is_there:
            metrics.inc("noetl_object_store_ops_total", 1, tier=wanted, op="put", outcome="not_configured")
            if wanted not in self._missed:
                self._missed.add(wanted)
                log.warning("store.tier_not_configured", wanted=wanted, used=self.rule.default)
        return "db"

    async def _placed(
        self, key: str, size: int, write: Callable[[Tier], Awaitable[str]], *, first: TierName = "db"
    ) -> tuple[TierName, str]:
        """Return (the tier that took a payload, its uri there). Errors: ReferenceNotAvailable when none does."""
        for tier in self._order(size, first=first):
            try:
                uri = await write(tier)
            except NoetlError as error:
                metrics.inc("noetl_object_store_ops_total", 1, tier=tier.name, op="put", outcome="error")
                log.warning("store.put_failed", tier=tier.name, key=key, error=error)
                continue
            metrics.inc("noetl_object_store_ops_total", 1, tier=tier.name, op="put", outcome="ok")
            return tier.name, uri
        tried = ", ".join(tier.name for tier in self._order(size)) or "none"
        raise ReferenceNotAvailable(f"{key}: no tier takes it (tried {tried})")

    async def read(self, uri: str, sha256: str, compression: str = "none", *, is_copied: bool = False) -> bytes:
        """Return the payload of a row; `is_copied`: its tier is kv, so that a copy may be nearer.

        Errors: ReferenceNotAvailable when the tier is not configured here or has not got it; ReferenceCorrupt when
        it is not what was stored.
        """
        if is_copied and (payload := await self._copy(_copy_key(uri), sha256)) is not None:
            return payload
        tier = self._tier_of(uri)
        started = time.monotonic()
        try:
            payload = await _checked(await tier.get(uri), uri=uri, sha256=sha256, compression=compression)
        except NoetlError:
            metrics.inc("noetl_object_store_ops_total", 1, tier=tier.name, op="get", outcome="error")
            raise
        metrics.inc("noetl_object_store_ops_total", 1, tier=tier.name, op="get", outcome="ok")
        metrics.observe("noetl_reference_resolve_seconds", time.monotonic() - started, tier=tier.name)
        return payload

    async def read_into(self, file: BinaryIO, uri: str, sha256: str, *, compression: str = "none") -> None:
        """Write the payload of a row to a file, a part at a time.

        Errors: as `read`; what was written by then is worthless.
        """
        digest, size = hashlib.sha256(), 0
        expander = Expander(compression)

        def take(stored: bytes) -> None:
            nonlocal size
            for part in expander.parts(stored):
                digest.update(part)
                size += len(part)
                if size > PAYLOAD_BYTES_MAX:
                    raise TooLarge(f"{uri}: expected at most {PAYLOAD_BYTES_MAX} bytes, found more")
                file.write(part)

        offset = 0
        while stored := await self.read_range(uri, offset=offset, length=PART_BYTES):
            await asyncio.to_thread(take, stored)
            offset += len(stored)
        expander.check_end()
        if digest.hexdigest() != sha256:
            raise ReferenceCorrupt(f"{uri}: expected sha256 {sha256}, found {digest.hexdigest()}")

    async def read_ref(self, ref: Ref) -> bytes | None:
        """Return a payload by its reference alone; None when it takes its row to find it."""
        if ref.tier == "db" or not ref.sha256:
            return None
        plain_key = key_of(ref.execution_id, ref.label, ref.sha256)
        if ref.tier == "kv" and (payload := await self._copy(plain_key, ref.sha256)) is not None:
            return payload
        for tier in self._order(ref.bytes, first=ref.tier):
            for compression in ("gzip", "none"):
                key = key_of(ref.execution_id, ref.label, ref.sha256, compression=compression)
                try:
                    return await self.read(f"{tier.name}://{key}", ref.sha256, compression)
                except (ReferenceNotAvailable, ReferenceCorrupt) as error:
                    if isinstance(error.__cause__, Unavailable):
                        break  # the server is away: asking it for the other name helps nobody
        return None

    async def delete(self, uri: str, *, is_copied: bool = False) -> None:
        """Remove a payload and its copy; one that is not there is no error. Errors: Unavailable."""
        await self._tier_of(uri).delete(uri)
        if is_copied and self._copies is not None:
            await self._copies.delete(_copy_key(uri))

    def tier_names(self) -> list[TierName]:
        """Return the tiers that payloads may stand in."""
        return list(self._tiers)

    async def list_uris(self, tier: TierName, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the uris of a tier's payloads behind `after`. Errors: Unavailable."""
        return await self._tiers[tier].list_uris(prefix, after=after, limit=limit)

    async def _copy(self, key: str, sha256: str) -> bytes | None:
        found = await self._copies.get(key) if self._copies is not None else None
        if found is None:
            return None
        try:
            return await _checked(found[0], uri=f"kv://{key}", sha256=sha256, compression=found[1])
        except NoetlError as error:
            metrics.inc("noetl_object_store_ops_total", 1, tier="kv", op="get", outcome="corrupt")
            log.warning("store.copy_corrupt", key=key, error=error)
            return None

    def _order(self, size: int, *, first: TierName = "db") -> list[Tier]:
        """Return the tiers by preference for a payload of `size` bytes."""
        wanted = (first, self.rule.durable(size), self.rule.default, *self._tiers)
        return [self._tiers[name] for name in dict.fromkeys(wanted) if name in self._tiers]

    def _tier_of(self, uri: str) -> Tier:
        for name, tier in self._tiers.items():
            if uri.startswith(f"{name}://"):
                return tier
        known = ", ".join(self._tiers) or "none"
        raise ReferenceNotAvailable(f"{uri!r}: its tier is not configured here (configured: {known})")


def key_of(execution_id: int, label: str, sha256: str, *, compression: str = "none", suffix: str = "") -> str:
    """Return the content address of a payload: exec/<execution id>/<step>/<sha256>, with .gz when compressed."""
    safe = _UNSAFE.sub("_", label)[:LABEL_CHARACTERS_MAX] or "_"
    return f"exec/{execution_id}/{safe}/{sha256}" + (".gz" if compression == "gzip" else suffix)


def _copy_key(uri: str) -> str:
    """Return the key of a payload's copy: the same whether it is compressed or not."""
    return uri.partition("://")[2].removesuffix(".gz")


async def _checked(stored: bytes, *, uri: str, sha256: str, compression: str) -> bytes:
    def check() -> bytes:
        payload = expanded(stored, compression, bytes_max=PAYLOAD_BYTES_MAX)
        found = _digest(payload)
        if found != sha256:
            raise ReferenceCorrupt(f"{uri}: expected sha256 {sha256}, found {found}")
        return payload

    return await asyncio.to_thread(check)


def _digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()

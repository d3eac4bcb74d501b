"""The result store: which tier a payload goes to, its name there, and that what comes back is what went in."""

import asyncio
import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from noetl_common import metrics
from noetl_common.core.values import Tier as TierName
from noetl_common.errors import ConfigError, NoetlError, ReferenceCorrupt, ReferenceNotAvailable
from noetl_common.log import get_logger
from noetl_common.store import Tier
from noetl_common.store.compress import compressed, expanded
from noetl_common.store.disk import DiskTier
from noetl_common.wire import PAYLOAD_INLINE_BYTES_MAX

PAYLOAD_BYTES_MAX = 512 * 1024 * 1024
LABEL_CHARACTERS_MAX = 100
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")

log = get_logger(__name__)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a payload stands: these are fields of a wire.ResultRow.

    Units: `bytes` and `sha256` are of the payload before compression. Tier db: `uri` is empty, and the payload
    must travel in the row (`inline`), which ingest writes together with the event that names it.
    """

    tier: TierName
    uri: str
    bytes: int
    sha256: str
    compression: str = "none"
    inline: msgspec.Raw | None = None


class ResultStore:
    """Payloads in one default tier, and in the other `tiers`, in their order, when that one does not take them."""

    def __init__(self, tiers: Sequence[Tier], default: TierName) -> None:
        self._tiers = {tier.name: tier for tier in tiers}
        if default != "db" and default not in self._tiers:
            known = ", ".join(self._tiers) or "none"
            raise ConfigError(f"default store tier: expected one of those configured ({known}), found {default!r}")
        self._order = sorted(tiers, key=lambda tier: tier.name != default)

    async def write(self, execution_id: int, label: str, payload: bytes) -> Stored:
        """Keep an encoded payload: up to 8 KiB it is returned `inline` for its row, more goes to a tier.

        Errors: as `put`.
        """
        if len(payload) > PAYLOAD_INLINE_BYTES_MAX:
            return await self.put(execution_id, label, payload)
        digest = hashlib.sha256(payload).hexdigest()
        return Stored(tier="db", uri="", bytes=len(payload), sha256=digest, inline=msgspec.Raw(payload))

    async def put(self, execution_id: int, label: str, payload: bytes, *, sha256: str = "") -> Stored:
        """Store a payload in a tier; durable on return. `sha256` saves computing it again.

        Errors: ReferenceNotAvailable when no tier takes it.
        """
        digest = sha256 or await asyncio.to_thread(_digest, payload)
        body, compression = await asyncio.to_thread(compressed, payload)
        key = key_of(execution_id, label, digest, compression=compression)
        for tier in self._order:
            try:
                uri = await tier.put(key, body)
            except NoetlError as error:
                metrics.inc("noetl_object_store_ops_total", 1, tier=tier.name, op="put", outcome="error")
                log.warning("store.put_failed", tier=tier.name, key=key, error=error)
                continue
            metrics.inc("noetl_object_store_ops_total", 1, tier=tier.name, op="put", outcome="ok")
            return Stored(tier=tier.name, uri=uri, bytes=len(payload), sha256=digest, compression=compression)
        raise ReferenceNotAvailable(
            f"{key}: no tier takes it (tried {', '.join(t.name for t in self._order) or 'none'})"
        )

    async def read(self, uri: str, sha256: str, compression: str = "none") -> bytes:
        """Return the payload of a row.

        Errors: ReferenceNotAvailable when the tier is not configured here or has not got it; ReferenceCorrupt when
        it is not what was stored.
        """
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

    async def delete(self, uri: str) -> None:
        """Remove a payload; one that is not there is no error."""
        await self._tier_of(uri).delete(uri)

    def _tier_of(self, uri: str) -> Tier:
        for name, tier in self._tiers.items():
            if uri.startswith(f"{name}://"):
                return tier
        known = ", ".join(self._tiers) or "none"
        raise ReferenceNotAvailable(f"{uri!r}: its tier is not configured here (configured: {known})")


def open_store(tier: TierName, folder: Path) -> ResultStore:
    """Return the store a role is configured for: `disk` or `pvc` in `folder`.

    Errors: ConfigError for a tier this release has no writer for.
    """
    if tier == "disk" or tier == "pvc":
        return ResultStore([DiskTier(folder, tier)], tier)
    raise ConfigError(f"NOETL_STORE_TIER: expected disk or pvc, found {tier!r}")


def key_of(execution_id: int, label: str, sha256: str, *, compression: str = "none") -> str:
    """Return the content address of a payload: exec/<execution id>/<step>/<sha256>, with .gz when compressed."""
    safe = _UNSAFE.sub("_", label)[:LABEL_CHARACTERS_MAX] or "_"
    return f"exec/{execution_id}/{safe}/{sha256}" + (".gz" if compression == "gzip" else "")


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

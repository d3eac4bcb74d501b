"""Copies of payloads in NATS: for readers elsewhere who come soon. Only ever a copy of what a durable tier holds."""

from typing import BinaryIO

from noetl_common import metrics
from noetl_common.bus_values import Values
from noetl_common.core.values import Tier
from noetl_common.errors import NoetlError, ReferenceNotAvailable, Unavailable
from noetl_common.log import get_logger
from noetl_common.store.keys import checked_key, key_in

_COMPRESSIONS = {b"n": "none", b"g": "gzip"}

log = get_logger(__name__)


class KvTier:
    """Values in NATS as a tier; a value may be gone at any time."""

    def __init__(self, values: Values) -> None:
        self.name: Tier = "kv"
        self._values = values

    async def start(self) -> None:
        """Do nothing: the connection is made by the first call, and nobody waits for it."""

    async def put(self, key: str, payload: bytes) -> str:
        """Keep a value for a while. Errors: Unavailable."""
        await self._values.put(checked_key(key, "kv"), payload)
        return f"kv://{key}"

    async def put_file(self, key: str, file: BinaryIO) -> str:
        """Keep all of an open file, which a value must hold, for a while. Errors: Unavailable."""
        file.seek(0)
        return await self.put(key, file.read())

    async def get(self, uri: str) -> bytes:
        """Return a value. Errors: ReferenceNotAvailable when it is gone or NATS is away."""
        try:
            value = await self._values.get(key_in(uri, "kv"))
        except Unavailable as exc:
            raise ReferenceNotAvailable(f"{uri}: cannot be read now: {exc}") from exc
        if value is None:
            raise ReferenceNotAvailable(f"{uri}: not there any more")
        return value

    async def get_range(self, uri: str, *, offset: int, length: int) -> bytes:
        """Return a part of a value. Errors: as `get`."""
        return (await self.get(uri))[offset : offset + max(length, 0)]

    async def delete(self, uri: str) -> None:
        """Forget a value. Errors: Unavailable."""
        await self._values.delete(key_in(uri, "kv"))

    async def list_uris(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the values that are still there, in the order of their keys. Errors: Unavailable."""
        behind = key_in(after, "kv") if after else ""
        keys = sorted(key for key in await self._values.keys() if key.startswith(prefix) and key > behind)
        return [f"kv://{key}" for key in keys[:limit]]

    async def close(self) -> None:
        """Disconnect."""
        await self._values.close()


class Copies:
    """Copies of payloads under the key of the payload. Nothing here ever fails: a copy that is not there is not read.

    Shapes: the first byte of a copy says whether the rest is compressed, so that a reader needs no row to know.
    """

    def __init__(self, tier: KvTier) -> None:
        self._tier = tier

    async def put(self, key: str, stored: bytes, compression: str) -> None:
        """Keep a copy of what a durable tier has stored."""
        mark = next(mark for mark, name in _COMPRESSIONS.items() if name == compression)
        try:
            await self._tier.put(key, mark + stored)
        except NoetlError as error:
            _count("put", "error")
            log.debug("store.copy_failed", key=key, error=error)
        else:
            _count("put", "ok")

    async def get(self, key: str) -> tuple[bytes, str] | None:
        """Return (what is stored, its compression), None when there is no copy; the caller checks the digest."""
        try:
            copy = await self._tier.get(f"kv://{key}")
        except ReferenceNotAvailable as error:
            _count("get", "error" if isinstance(error.__cause__, Unavailable) else "absent")
            return None
        compression = _COMPRESSIONS.get(copy[:1])
        if compression is None:
            _count("get", "corrupt")
            return None
        _count("get", "ok")
        return copy[1:], compression

    async def delete(self, key: str) -> None:
        """Forget a copy; one that stays is gone with the bucket's time."""
        try:
            await self._tier.delete(f"kv://{key}")
        except NoetlError as error:
            _count("delete", "error")
            log.debug("store.copy_not_removed", key=key, error=error)

    async def close(self) -> None:
        """Disconnect."""
        await self._tier.close()


def _count(op: str, outcome: str) -> None:
    metrics.inc("noetl_object_store_ops_total", 1, tier="kv", op=op, outcome=outcome)

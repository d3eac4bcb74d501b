"""Result tiers: where payloads live. One file a tier, one conformance suite for all."""

from typing import BinaryIO, Protocol

from noetl_common.core.values import Tier as TierName


class Tier(Protocol):
    """One place for payloads. What `put` has returned for is stored whole; a repetition is harmless.

    A key is relative, `/` between its parts; a uri is `<tier name>://<key>`, so it means the same on every machine.
    """

    name: TierName

    async def start(self) -> None:
        """Make ready what payloads stand in. Errors: ConfigError when the settings are wrong; Unavailable."""

    async def put(self, key: str, payload: bytes) -> str:
        """Store under `key`; return the uri. Errors: Unavailable when the tier does not take it."""

    async def put_file(self, key: str, file: BinaryIO) -> str:
        """Store all of an open file, read a part at a time, under `key`; return the uri. Errors: as `put`."""

    async def get(self, uri: str) -> bytes:
        """Return what is stored. Errors: ReferenceNotAvailable when it is not there or cannot be read."""

    async def get_range(self, uri: str, *, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the end, none behind it. Errors: as `get`."""

    async def delete(self, uri: str) -> None:
        """Remove it; one that is not there is no error. Errors: Unavailable."""

    async def list_uris(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the uris of payloads whose key begins with `prefix`, in the tier's own order, behind `after`.

        `after` is a uri that was listed; `prefix` ends with a slash or is empty. Errors: Unavailable.
        """

    async def close(self) -> None:
        """Let go of connections and threads."""

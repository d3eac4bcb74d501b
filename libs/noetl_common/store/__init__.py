"""Result tiers: where payloads live. One file a tier, one conformance suite for all."""

from typing import Protocol

from noetl_common.core.values import Tier as TierName


class Tier(Protocol):
    """One place for payloads. What `put` has returned for is durable; a repetition is harmless.

    A key is relative, `/` between its parts; a uri is `<tier name>://<key>`, so it means the same on every machine.
    """

    name: TierName

    async def put(self, key: str, payload: bytes) -> str:
        """Store under `key`; return the uri. Errors: Unavailable when the tier does not take it."""

    async def get(self, uri: str) -> bytes:
        """Return what is stored. Errors: ReferenceNotAvailable when it is not there or cannot be read."""

    async def delete(self, uri: str) -> None:
        """Remove it; one that is not there is no error."""

"""Keys of payloads: what may stand in one, and how a uri holds it."""

import re

from noetl_common.core.values import Tier
from noetl_common.errors import ReferenceNotAvailable

_OF_EXECUTION = re.compile(r"\w+://exec/(\d{1,19})/")
PARTIAL_PREFIX = ".partial-"  # of a file that is being written


def key_in(uri: str, tier: Tier) -> str:
    """Return the key of a uri of `tier`. Errors: ReferenceNotAvailable for another tier's, or a key that is none."""
    scheme, found, key = uri.partition("://")
    if not found or scheme != tier:
        raise ReferenceNotAvailable(f"expected a uri of the {tier} tier, found {uri!r}")
    return checked_key(key, tier)


def checked_key(key: str, tier: Tier) -> str:
    """Return `key`. Errors: ReferenceNotAvailable for one that could lead out of the tier."""
    parts = key.split("/")
    if any(part in ("", ".", "..") or "\0" in part or part.startswith(PARTIAL_PREFIX) for part in parts):
        raise ReferenceNotAvailable(f"expected a key inside the {tier} tier, found {key!r}")
    return key


def execution_in(uri: str) -> int | None:
    """Return the execution that a payload belongs to, None for one of another kind."""
    found = _OF_EXECUTION.match(uri)
    return int(found[1]) if found is not None and int(found[1]) < 1 << 63 else None

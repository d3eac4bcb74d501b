"""The canonical trace: what happened in a run, without ids, times and order between what ran side by side."""

import hashlib
from collections.abc import Iterable

from noetl_common.core.events import Event


def canonical_trace(events: Iterable[Event]) -> list[tuple[str, str, int, str]]:
    """Return the sorted multiset of (event type, step, loop index, outcome).

    Two undisturbed or disturbed runs of one playbook on one input have the same, whatever the transport did.
    """
    return sorted((event.event_type, event.step, event.iter_index, event.status) for event in events)


def trace_digest(events: Iterable[Event]) -> str:
    """Return the SHA-256 of the canonical trace."""
    text = "\n".join(f"{kind}|{step}|{index}|{status}" for kind, step, index, status in canonical_trace(events))
    return hashlib.sha256(text.encode()).hexdigest()

"""The canonical trace: what happened in a run, without ids, times and order between what ran side by side."""

import hashlib
from collections.abc import Iterable

from noetl_common.core.events import COMMAND_TERMINALS, Event

_OF_COMMANDS = COMMAND_TERMINALS | {"command.issued"}


def canonical_trace(events: Iterable[Event]) -> list[tuple[str, str, int, str]]:
    """Return the sorted multiset of (event type, step, loop index, outcome).

    The claims of a cursor loop are left out: how many it takes to bring all rows is a matter of chance.
    Two undisturbed or disturbed runs of one playbook on one input have the same, whatever the transport did.
    """
    return sorted(
        (event.event_type, event.step, event.iter_index, event.status)
        for event in events
        if is_traced(event.event_type, loop_epoch=event.loop_epoch, iter_index=event.iter_index)
    )


def is_traced(event_type: str, *, loop_epoch: int, iter_index: int) -> bool:
    """Return whether an event is part of the canonical trace: all are, but the claims of cursor loops."""
    return event_type not in _OF_COMMANDS or loop_epoch == 0 or iter_index >= 0


def trace_digest(events: Iterable[Event]) -> str:
    """Return the SHA-256 of the canonical trace."""
    text = "\n".join(f"{kind}|{step}|{index}|{status}" for kind, step, index, status in canonical_trace(events))
    return hashlib.sha256(text.encode()).hexdigest()

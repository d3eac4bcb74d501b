"""Upcast: bring an event written by an older release into today's shape, before it is folded."""

from noetl_common.core.events import Event

SHAPE = 1  # the shape this release writes, in `meta.v` when it is not 1


def upcast(event: Event) -> Event:
    """Return `event` in today's shape.

    Errors: ValueError for a shape this release does not know: a newer release wrote it.
    """
    shape = event.meta.get("v", SHAPE) if event.meta else SHAPE
    if shape != SHAPE:
        raise ValueError(f"event {event.event_id}: expected shape {SHAPE}, found {shape}")
    return event

"""Pages of a run's history: the same arithmetic whether the log or a manifest is read, so that both answer alike."""

from typing import Any

import msgspec

from noetl_common.errors import Invalid

LOOKED_AT_MAX = 20_000  # events behind the cursor that are counted, and among which those of one type are looked for
Row = dict[str, Any]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which page: at most `limit` events behind event `since` and `offset` more, of one type or of all.

    `projected`: how many events the run has by its read model.
    """

    since: int
    event_type: str | None
    limit: int
    offset: int
    projected: int = 0


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The first events behind a cursor, LOOKED_AT_MAX of them or all: how many, how many match, which is the last."""

    looked_at: int = 0
    matching: int = 0
    last_event_id: int | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Events, oldest first. `total` is all there are when `is_exact`, else the least that there are."""

    rows: list[Row]
    total: int
    is_exact: bool
    has_next: bool
    last_event_id: int | None


def page_of(asked: Asked, rows: list[Row], window: Window | None) -> Page:
    """Return the page of `rows`, read one further than it is long; `window` None: they are all that there are.

    Errors: Invalid when the page lies beyond what is looked at for events of one type.
    """
    shown = rows[: asked.limit]
    has_more = len(rows) > asked.limit
    reached = asked.offset + len(rows)
    last = shown[-1]["event_id"] if shown else None
    if window is None or window.looked_at < LOOKED_AT_MAX:
        total = reached if window is None else window.matching
        return Page(
            rows=shown, total=max(total, reached if rows else 0), is_exact=True, has_next=has_more, last_event_id=last
        )
    if asked.event_type is None:
        known = asked.projected if asked.since == 0 else 0
        total = max(known, window.matching, reached)
        return Page(rows=shown, total=total, is_exact=False, has_next=has_more, last_event_id=last)
    if not has_more and not shown and asked.offset:
        beyond = f"expected one among the first {LOOKED_AT_MAX} events; go on with cursor={window.last_event_id}"
        raise Invalid(f"page: {beyond}, found {asked.offset} of the type before it", pointer="/page")
    # What follows the window may match too: the next page begins behind it.
    last = last if has_more else window.last_event_id
    return Page(rows=shown, total=window.matching, is_exact=False, has_next=True, last_event_id=last)

"""Cursor loops: claims bring frames of rows, each row is an item, and a claim without rows says that nothing is left.

A slot of the loop holds a claim or the frame it brought; at most `max_in_flight` slots are busy. One claim begins. A
claim with rows starts a further slot while there is room for one; a frame whose rows have all ended makes its slot
claim again; a claim without rows gives its slot up. So behind every frame comes a claim, and the last found nothing.
"""

from typing import Any

import msgspec

from noetl_common.core.playbook import Loop, Step
from noetl_common.core.routing.bodies import Start
from noetl_common.core.routing.draft import Draft
from noetl_common.core.routing.items import IN_FLIGHT_MAX, Limit, limit_of, may_begin, row_item
from noetl_common.core.routing.segments import bare_context, begin_segment, issue_command, keep_context
from noetl_common.core.scope import Scope
from noetl_common.core.shard import hashed_id
from noetl_common.core.state import LoopState

CURSOR_ROWS_MAX = 10_000_000
FRAME_ROWS_MAX = 10_000
FRAMES = Limit(1, 1, IN_FLIGHT_MAX)
FRAME_ROWS = Limit(1, 1, FRAME_ROWS_MAX)


def limits(loop: Loop, scope: Scope, *, where: str) -> dict[str, Any]:
    """Return what `loop.started` says of a cursor loop. Errors: TemplateFailed."""
    spec = f"{where}.spec"
    found: dict[str, Any] = {}
    for name, written in (("max_rows", loop.frame.max_rows), ("row_concurrency", loop.frame.row_concurrency)):
        found[name] = limit_of(written, scope, limit=FRAME_ROWS, where=f"{spec}.frame.{name}")
    if loop.frame.process == "frame":
        found["whole"] = True
    in_flight_max = limit_of(loop.max_in_flight, scope, limit=FRAMES, where=f"{spec}.max_in_flight")
    return {"max_in_flight": in_flight_max, "cursor": found}


def issue(draft: Draft, step: Step, loop: LoopState) -> None:
    """Issue the claims that are due, and the rows of open frames for which there is room."""
    cursor = loop.cursor
    assert cursor is not None
    if cursor.claimed > CURSOR_ROWS_MAX and not cursor.failed:
        _refuse(draft, step, loop)
    begun = 0
    while may_begin(draft, loop, begun):
        before = begun
        if cursor.due:
            _issue_claim(draft, step, cursor.max_rows)
            begun += 1
        # Rows may end as they begin, and frames with them.
        for claim in list(cursor.frames):
            while may_begin(draft, loop, begun) and _has_room(loop, claim):
                row = cursor.frames[claim].issued
                start = Start(
                    index=loop.issued_upto, item=row_item(loop, claim, row), place={"frame": claim, "row": row}
                )
                begin_segment(draft, step, start)
                begun += 1
        if begun == before:
            return


def _has_room(loop: LoopState, claim: int) -> bool:
    assert loop.cursor is not None
    frame = loop.cursor.frames.get(claim)
    if frame is None or frame.issued >= frame.size:
        return False
    return frame.open < loop.cursor.row_concurrency and len(loop.open) < IN_FLIGHT_MAX


def _issue_claim(draft: Draft, step: Step, max_rows: int) -> None:
    assert step.loop is not None and step.loop.claim is not None
    context = msgspec.structs.replace(
        bare_context(draft, step), tasks=(step.loop.claim,), frame={"__frame_max_rows": max_rows}
    )
    cause = draft.state.active[step.name].cause
    issue_command(
        draft,
        step,
        command_id=hashed_id(draft.state.execution_id, step.name, cause, "claim", draft.next_event_id),
        context_id=keep_context(draft, context),
        index=-1,
        context={"claim": True},
        meta={"tool_kind": "cursor", "pool": step.pool},
    )


def _refuse(draft: Draft, step: Step, loop: LoopState) -> None:
    found = loop.cursor.claimed if loop.cursor is not None else 0
    message = f"expected at most {CURSOR_ROWS_MAX} rows in all, found {found}: does the claim mark what it takes?"
    error = {"code": "RUNAWAY", "kind": "limit", "message": message, "retryable": False}
    draft.emit(
        "task.ended", step=step.name, status="FAILED", loop_epoch=loop.epoch, context={"claim": True}, error=error
    )

"""Fold of loops: the items, claims and chunks that begin and end in a step that was entered."""

import msgspec

from noetl_common.core.events import Event
from noetl_common.core.state import Activity, CursorState, ExecutionState, FrameState, LoopState, StreamState
from noetl_common.core.values import Value, ref_in, ref_or_none


def opened(event: Event) -> LoopState:
    """Return the loop that a `loop.started` opens."""
    context = event.context
    items = context.get("items")
    cursor = context.get("cursor")
    producer = context.get("producer")
    return LoopState(
        epoch=event.loop_epoch,
        size=context["size"],
        max_in_flight=context["max_in_flight"],
        items=msgspec.convert(items, Value) if items is not None else None,
        context_id=context.get("context_id", 0),
        max_failures=context.get("max_failures", 0),
        drains=context.get("mode") == "fanout",
        max_retries=context.get("max_retries", 0),
        cursor=msgspec.convert(cursor, CursorState) if cursor is not None else None,
        stream=StreamState(producer=producer) if producer is not None else None,
    )


def begin_item(loop: LoopState, event: Event, body: Activity) -> None:
    """Take one item, or a further segment of its body, into what is open."""
    index, context = event.iter_index, event.context
    loop.issued_upto = max(loop.issued_upto, index + 1)
    loop.open.add(index)
    loop.again.discard(index)
    if "segment" in context:  # only bodies that call playbooks are in several segments
        loop.children[index] = body
    if loop.cursor is not None and "frame" in context:
        frame = loop.cursor.frames[context["frame"]]
        frame.issued = context["row"] + 1
        frame.open += 1
        loop.cursor.rows[index] = (context["frame"], context["row"])
    if loop.stream is not None:
        loop.size = loop.issued_upto
        if "chunk" in context:
            loop.stream.chunks[index] = ref_in(context["chunk"])


def end_item(loop: LoopState, event: Event, *, succeeded: bool, may_retry: bool) -> None:
    """End one item, or keep it open to be issued again when it failed and has a retry left."""
    index = event.iter_index
    loop.children.pop(index, None)
    retries = loop.retries.get(index, 0)
    if may_retry and retries < loop.max_retries:
        loop.retries[index] = retries + 1
        loop.again.add(index)
        return
    loop.open.discard(index)
    loop.retries.pop(index, None)
    if loop.cursor is not None:
        _end_row(loop.cursor, index)
    if loop.stream is not None:
        loop.stream.chunks.pop(index, None)
    if succeeded:
        loop.done += 1
        return
    loop.failed += 1
    is_first = loop.error is None or index < loop.error.get("iter_index", -1)  # whatever order they failed in
    if is_first and event.result is not None:
        loop.error = {**(event.result.error or {}), "iter_index": index}


def _end_row(cursor: CursorState, index: int) -> None:
    claim, _row = cursor.rows.pop(index)
    frame = cursor.frames[claim]
    frame.open -= 1
    if frame.open == 0 and frame.issued == frame.size:
        del cursor.frames[claim]
        cursor.due += 1  # only a claim made after these rows ended can tell that nothing is left


def is_claim(loop: LoopState, event: Event) -> bool:
    """Return whether a report is that of a claim that is under way."""
    return loop.cursor is not None and event.iter_index < 0 and event.command_id in loop.cursor.claims


def begin_claim(cursor: CursorState, command_id: int) -> None:
    """Await the claim's report."""
    cursor.due -= 1
    cursor.claims.add(command_id)


def end_claim(loop: LoopState, event: Event) -> None:
    """Open the frame that a claim brought; one without rows gives its slot up, one that failed ends the loop."""
    cursor = loop.cursor
    assert cursor is not None
    cursor.claims.discard(event.command_id)
    if event.event_type != "command.completed":
        fail_claims(loop, event)
        return
    rows = event.context.get("row_count", 0)
    ref = ref_or_none(event.result.reference if event.result else None)
    if not rows or ref is None:
        return
    cursor.frames[event.command_id] = FrameState(ref=ref, size=1 if cursor.whole else rows)
    cursor.claimed += rows
    loop.size += cursor.frames[event.command_id].size
    if len(cursor.claims) + len(cursor.frames) + cursor.due < loop.max_in_flight:
        cursor.due += 1  # there may be more where these came from


def fail_claims(loop: LoopState, event: Event) -> None:
    """Record that no more rows can be had, and why."""
    assert loop.cursor is not None
    if not loop.cursor.failed:
        loop.cursor.failed = True
        loop.error = (event.result.error if event.result else None) or {"code": "CANCELLED", "message": "cancelled"}


def close_streams(state: ExecutionState, producer: str) -> None:
    """Record that the step was left: no further chunk of it comes."""
    for entry in state.active.values():
        if entry.loop is not None and entry.loop.stream is not None and entry.loop.stream.producer == producer:
            entry.loop.stream.closed = True

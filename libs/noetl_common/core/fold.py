"""Fold: the state after an event. One small function for each kind of event; an unknown kind raises.

Folding never evaluates a template: what routing rendered stands in the event (docs/adr/0005-one-decision.md).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from noetl_common.core import fold_loops
from noetl_common.core.events import Event, EventType
from noetl_common.core.groups import Group
from noetl_common.core.state import Activity, Entry, ExecutionState
from noetl_common.core.upcast import upcast
from noetl_common.core.values import Value, ref_in, ref_or_none


class Place(NamedTuple):
    """Where a report belongs: the step, its entry, and the body (of the step, or of one item of its loop)."""

    step: str
    entry: Entry
    body: Activity | None  # None: a claim, or an item of a loop without sub-playbooks, which keeps no body of its own


def fold(state: ExecutionState, event: Event) -> ExecutionState:
    """Return the state after `event`. It takes the state given and changes it: `copy()` first to keep the old one.

    An event at or before `last_event_id` is in the state already and changes nothing; neither does anything
    after the terminal event.
    Errors: KeyError for an event type without an applier.
    Source: docs/adr/0005-one-decision.md.
    """
    event = upcast(event)
    applier = APPLIERS[event.event_type]
    assert event.execution_id == state.execution_id
    if event.event_id <= state.last_event_id:
        return state
    if not state.is_terminal:
        applier(state, event)
    state.last_event_id = event.event_id
    return state


def locate(state: ExecutionState, event: Event) -> Place | None:
    """Return where a command's or child's report belongs, or None when nobody waits for it (any more)."""
    entry = state.active.get(event.step)
    if entry is None:
        return None
    loop = entry.loop
    if loop is None:
        return Place(event.step, entry, entry.activity) if _awaits(entry.activity, event) else None
    if event.loop_epoch != loop.epoch:
        return None
    if fold_loops.is_claim(loop, event):
        return Place(event.step, entry, None)
    if event.iter_index not in loop.open or event.iter_index in loop.again:
        return None
    body = loop.children.get(event.iter_index)
    if body is not None and not _awaits(body, event):
        return None
    return Place(event.step, entry, body)


def _awaits(body: Activity, event: Event) -> bool:
    return event.command_id != 0 and body.command_id == event.command_id


def on_playbook_started(state: ExecutionState, event: Event) -> None:
    """Open the execution."""
    context = event.context
    state.started = True
    state.catalog_id = event.catalog_id
    state.parent_execution_id = event.parent_execution_id
    state.path = context.get("path", "")
    state.version = context.get("version", 0)
    state.depth = context.get("depth", 0)
    state.priority = context.get("priority")
    state.behind = context.get("behind", 0)
    if "group" in context:
        state.group = msgspec.convert(context["group"], Group)
        state.is_waiting = True
    state.groups_above = context.get("groups_above", [])
    state.return_step = context.get("return_step", "")
    state.parent_place = context.get("parent")
    state.workload = msgspec.convert(context.get("workload", {"v": {}}), Value)


def on_playbook_admitted(state: ExecutionState, event: Event) -> None:
    """Give the run its place among those of its concurrency group."""
    state.is_waiting = False


def on_step_enter(state: ExecutionState, event: Event) -> None:
    """Put the token on the step."""
    cause = state.pending.pop(event.step, event.event_id)
    state.active[event.step] = Entry(cause=cause)
    state.visits[event.step] = state.visits.get(event.step, 0) + 1


def on_loop_started(state: ExecutionState, event: Event) -> None:
    """Give the entered step its loop."""
    state.active[event.step].loop = fold_loops.opened(event)


def on_command_issued(state: ExecutionState, event: Event) -> None:
    """Await the command's report."""
    state.commands_issued += 1
    loop = state.active[event.step].loop
    if loop is not None and loop.cursor is not None and event.context.get("claim"):
        fold_loops.begin_claim(loop.cursor, event.command_id)
    else:
        _begin_body(state, event, Activity(command_id=event.command_id))


def on_call_partial(state: ExecutionState, event: Event) -> None:
    """Change nothing: the item that routing makes of the chunk, which follows, is what stands for it."""


def on_child_started(state: ExecutionState, event: Event) -> None:
    """Await the child's end."""
    attempt = event.context.get("attempt", 1)
    child = Activity(command_id=event.command_id, child_id=event.context["child_id"], attempt=attempt)
    _begin_body(state, event, child)


def _begin_body(state: ExecutionState, event: Event, body: Activity) -> None:
    entry = state.active[event.step]
    context = event.context
    if context:
        body.segment = context.get("segment", 0)
        body.more = context.get("more", False)
        body.prior = ref_or_none(context.get("prior"))
    loop = entry.loop
    if loop is None:
        entry.activity = body
    else:
        fold_loops.begin_item(loop, event, body)


def on_command_ended(state: ExecutionState, event: Event) -> None:
    """Take a command's report: the body is over, or waits for routing to begin its next segment."""
    place = locate(state, event)
    if place is None:
        return
    loop = place.entry.loop
    if loop is not None and fold_loops.is_claim(loop, event):
        fold_loops.end_claim(loop, event)
        return
    for name, value in event.context.get("ctx", {}).items():
        state.ctx[name] = msgspec.convert(value, Value)
    succeeded = event.event_type == "command.completed"
    body = place.body
    if body is not None and succeeded and (body.more or event.context.get("to")):
        body.command_id = 0
        body.prior = ref_or_none(event.result.reference if event.result else None)
        return
    _end_body(state, place, event, succeeded=succeeded)


def on_child_ended(state: ExecutionState, event: Event) -> None:
    """Take a child's end; what it means for the body is routing's to say (its task may have rules)."""
    place = locate(state, event)
    if place is not None and place.body is not None:
        place.body.command_id = 0
        place.body.child_id = 0


def on_task_ended(state: ExecutionState, event: Event) -> None:
    """Apply what routing decided about a playbook task: the item is over, or a retry waits for its timer."""
    entry = state.active[event.step]
    if event.context.get("claim") and entry.loop is not None:
        fold_loops.fail_claims(entry.loop, event)
        return
    body = entry.loop.children[event.iter_index] if entry.loop else entry.activity
    if event.status == "RETRYING":
        body.command_id = body.child_id = 0  # a child that could not start has no end to clear them
        body.timer_id = event.context["timer_id"]
        body.attempt = event.context["attempt"]
        if event.result is not None and event.result.reference:
            body.prior = ref_in(event.result.reference)
        return
    if event.status == "TIMEOUT":
        body.command_id = body.child_id = 0  # its child is waited for no longer
        return
    if event.status == "CONTINUED":
        body.prior = ref_or_none(event.result.reference if event.result else None)
        return
    _end_body(state, Place(event.step, entry, body), event, succeeded=event.status == "COMPLETED")


def _end_body(state: ExecutionState, place: Place, event: Event, *, succeeded: bool) -> None:
    loop = place.entry.loop
    if loop is None:
        place.entry.activity.command_id = 0
        return
    # A run that stops tries nothing again; neither is a command that its worker gave up.
    is_stopping = state.failure is not None or state.cancelling is not None
    may_retry = not succeeded and not is_stopping and event.event_type != "command.cancelled"
    fold_loops.end_item(loop, event, succeeded=succeeded, may_retry=may_retry)


def on_timer_fired(state: ExecutionState, event: Event) -> None:
    """Release the retry that waited for this timer; a stale one changes nothing."""
    timer_id = event.context.get("timer_id", 0)
    for entry in state.active.values():
        bodies = [entry.activity, *(entry.loop.children.values() if entry.loop else ())]
        for body in bodies:
            if body.timer_id == timer_id:
                body.timer_id = 0


def on_ctx_updated(state: ExecutionState, event: Event) -> None:
    """Write variables."""
    for name, value in event.context["set"].items():
        state.ctx[name] = msgspec.convert(value, Value)


def on_vars_set(state: ExecutionState, event: Event) -> None:
    """Take variables away, then write others, from outside the run (docs/adr/0021-variables-are-inputs.md)."""
    context = event.context
    if context.get("clear"):
        state.ctx.clear()
    for name in context.get("unset", ()):
        state.ctx.pop(name, None)
    for name, value in context.get("set", {}).items():
        state.ctx[name] = msgspec.convert(value, Value)


def on_loop_done(state: ExecutionState, event: Event) -> None:
    """Change nothing: the step's exit, which follows, takes the token away."""


def on_step_exit(state: ExecutionState, event: Event) -> None:
    """Take the token off the step and put one before each step that an arc fired to."""
    context = event.context
    state.active.pop(event.step, None)
    reference = ref_or_none(event.result.reference if event.result else None)
    if reference is not None:
        state.results[event.step] = reference
        if not context.get("noop"):
            state.last_step, state.last_result = event.step, reference
    for target in context.get("arcs", ()):
        state.pending.setdefault(target, event.event_id)
    fold_loops.close_streams(state, event.step)
    if event.status == "FAILED" and not context.get("handled") and state.failure is None:
        state.failure = {**((event.result.error if event.result else None) or {}), "step": event.step}


def on_step_skipped(state: ExecutionState, event: Event) -> None:
    """Take what an arc put before the step away, and put it before those that the step's own arcs fired to, if any."""
    was_pending = state.pending.pop(event.step, None) is not None
    if was_pending or not state.active:  # else a chunk led to it, and chunks have their own limit
        state.visits[event.step] = state.visits.get(event.step, 0) + 1
    for target in event.context.get("arcs", ()):
        state.pending.setdefault(target, event.event_id)


def on_cancel_requested(state: ExecutionState, event: Event) -> None:
    """Dispatch nothing more."""
    if state.cancelling is None:
        state.cancelling = event.context.get("reason") or "cancelled by request"


def on_finalize_requested(state: ExecutionState, event: Event) -> None:
    """Change nothing: the terminal event follows."""


def on_routing_failed(state: ExecutionState, event: Event) -> None:
    """Record that an input could not be routed."""
    if state.failure is None:
        state.failure = (event.result.error if event.result else None) or {"code": "ROUTING_FAILED"}


def on_playbook_ended(state: ExecutionState, event: Event) -> None:
    """Close the execution."""
    state.status = TERMINAL_STATUS[event.event_type]
    state.active.clear()
    state.pending.clear()


TERMINAL_STATUS: dict[str, Any] = {
    "playbook.completed": "COMPLETED",
    "playbook.failed": "FAILED",
    "playbook.cancelled": "CANCELLED",
}

APPLIERS: dict[EventType | str, Callable[[ExecutionState, Event], None]] = {
    "playbook.started": on_playbook_started,
    "playbook.admitted": on_playbook_admitted,
    "command.completed": on_command_ended,
    "command.failed": on_command_ended,
    "command.cancelled": on_command_ended,
    "call.partial": on_call_partial,
    "child.ended": on_child_ended,
    "timer.fired": on_timer_fired,
    "cancel.requested": on_cancel_requested,
    "finalize.requested": on_finalize_requested,
    "vars.set": on_vars_set,
    "step.enter": on_step_enter,
    "step.exit": on_step_exit,
    "step.skipped": on_step_skipped,
    "command.issued": on_command_issued,
    "child.started": on_child_started,
    "task.ended": on_task_ended,
    "ctx.updated": on_ctx_updated,
    "loop.started": on_loop_started,
    "loop.done": on_loop_done,
    "routing.failed": on_routing_failed,
    "playbook.completed": on_playbook_ended,
    "playbook.failed": on_playbook_ended,
    "playbook.cancelled": on_playbook_ended,
}

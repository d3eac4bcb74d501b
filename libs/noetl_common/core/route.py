"""Route: what an input leads to. Pure: the same state, input and loaded values give the same decision."""

from collections.abc import Callable
from typing import Any

from noetl_common.core.events import Envelope, Event
from noetl_common.core.fold import Place, fold, locate
from noetl_common.core.playbook import Playbook, Step
from noetl_common.core.routing import children, leave, loops
from noetl_common.core.routing.bodies import start_of
from noetl_common.core.routing.draft import Decision, Draft, Following, Passed, Timer, World
from noetl_common.core.routing.enter import enter
from noetl_common.core.routing.join import ready_steps
from noetl_common.core.routing.segments import begin_segment
from noetl_common.core.routing.stream import take_chunk
from noetl_common.core.shard import hashed_id
from noetl_common.core.state import ExecutionState
from noetl_common.core.values import ref_in, reference_of

CANCEL_GRACE_S = 30.0


def decide(playbook: Playbook, state: ExecutionState, event: Event, *, world: World) -> Decision:
    """Return everything that `event` leads to. `state` is left as it is; the decision carries the one after.

    Errors: NeedPayload, NeedPlaybook when something is not loaded: load it and decide again. Any other exception
    means that this input can never be routed (see `fail`).
    Source: docs/adr/0005-one-decision.md.
    """
    before = state.copy()
    place = locate(before, event)
    was_terminal = before.is_terminal
    draft = Draft(playbook, fold(before, event), cause=event, world=world)
    if not was_terminal:
        ROUTERS[event.event_type](draft, event, place)
        _settle(draft)
    return draft.decision


def fail(playbook: Playbook | None, state: ExecutionState, event: Event, *, world: World, message: str) -> Decision:
    """Return the decision for an input that cannot be routed: its execution fails, with the reason."""
    error = {"code": "ROUTING_FAILED", "kind": "routing", "message": message, "retryable": False}
    nothing = Playbook(path=state.path, name=state.path, steps={}, entry_step="")
    draft = Draft(playbook or nothing, fold(state.copy(), event), cause=event, world=world)
    if not draft.state.is_terminal:
        draft.emit("routing.failed", step=event.step, status="FAILED", error=error)
        _finish(draft, "playbook.failed", error=draft.state.failure)
    return draft.decision


def _on_started(draft: Draft, event: Event, place: Place | None) -> None:
    if not draft.state.is_waiting:
        _begin(draft, event)


def _on_admitted(draft: Draft, event: Event, place: Place | None) -> None:
    if draft.state.cancelling is None:
        _begin(draft, event)


def _begin(draft: Draft, event: Event) -> None:
    if draft.playbook.timeout_s:
        timer_id = hashed_id(event.event_id, "timeout")
        draft.decision.timers.append(Timer(timer_id=timer_id, due_s=draft.playbook.timeout_s, kind="timeout"))
    enter(draft, draft.playbook.entry_step)


def _on_command_ended(draft: Draft, event: Event, place: Place | None) -> None:
    if place is None:
        return  # nobody waits for it any more: an earlier entry of the step, or a duplicate
    step = draft.step(event.step)
    succeeded = event.event_type == "command.completed"
    body = place.body
    if body is not None and succeeded and (body.more or event.context.get("to")):
        _begin_following(draft, step, place, event)
    elif place.entry.loop is not None:
        draft.loops[step.name] = None
    else:
        envelope = event.result or Envelope(status=event.status)
        ref = ref_in(envelope.reference) if envelope.reference else None
        if succeeded:
            leave.leave_completed(draft, step, ref)
        elif event.event_type == "command.failed":
            error = envelope.error or {"code": "FAILED", "message": "no message"}
            leave.leave_failed(draft, step, error=error, ref=ref)
        elif draft.state.cancelling is None:
            # A worker gave the command up although nobody asked the run to stop.
            error = {"code": "CANCELLED", "kind": "cancelled", "message": "the command was cancelled by its worker"}
            leave.leave_failed(draft, step, error=error)


def _begin_following(draft: Draft, step: Step, place: Place, event: Event) -> None:
    """Go on with the segment behind the one that a worker finished, or where its task jumped to."""
    body, index = place.body, event.iter_index
    assert body is not None
    if draft.state.cancelling is not None:
        return  # a cancelled run begins nothing more
    if event.context.get("breaks"):
        children.end_body(draft, step, index=index, ref=body.prior, error=None)
        return
    following, error = children.segment_to(step, body, event.context.get("to"))
    if error is not None:
        children.end_body(draft, step, index=index, ref=None, error=error)
    else:
        draft.notes.append(Following(step=step.name, index=index, segment=following, prior=body.prior))


def _on_call_partial(draft: Draft, event: Event, place: Place | None) -> None:
    if place is not None and not draft.is_stopping:
        take_chunk(draft, draft.step(event.step), event)


def _on_child_ended(draft: Draft, event: Event, place: Place | None) -> None:
    if place is not None and place.body is not None and draft.state.cancelling is None:
        children.take_child_end(draft, draft.step(event.step), place=place, event=event)


def _on_timer_fired(draft: Draft, event: Event, place: Place | None) -> None:
    kind, _, rest = str(event.context.get("kind", "")).partition(":")
    if kind == "timeout":
        message = f"the playbook ran longer than its timeout of {draft.playbook.timeout_s} s"
        error = {"code": "TIMEOUT", "kind": "timeout", "message": message, "retryable": False}
        _finish(draft, "playbook.failed", error=error)
    elif kind == "cancel" and draft.state.cancelling is not None:
        _finish(draft, "playbook.cancelled", error=_cancel_reason(draft.state))
    elif kind == "child" and draft.state.cancelling is None:
        children.take_timeout(draft, rest)
    elif kind == "retry" and draft.state.cancelling is None and draft.state.failure is None:
        name, _, index = rest.rpartition(":")
        entry = draft.state.active.get(name)
        if entry is not None:
            _retry_child(draft, name, int(index))
    elif kind == "continue":
        entry = draft.state.active.get(rest)
        if entry is not None and entry.loop is not None:
            draft.loops[rest] = None


def _retry_child(draft: Draft, name: str, index: int) -> None:
    step = draft.step(name)
    entry = draft.state.active[name]
    body = entry.activity if entry.loop is None else entry.loop.children.get(index)
    if body is None or body.command_id or body.timer_id or not step.segments[body.segment].is_child:
        return  # a stale timer
    place = Place(name, entry, body)
    start = start_of(draft, place, index, segment=body.segment, prior=body.prior, attempt=body.attempt)
    children.start_child(draft, step, start)


def _on_cancel(draft: Draft, event: Event, place: Place | None) -> None:
    state = draft.state
    draft.decision.cancels_commands = True
    timer_id = hashed_id(event.event_id, "cancel")
    draft.decision.timers.append(Timer(timer_id=timer_id, due_s=CANCEL_GRACE_S, kind="cancel"))
    _cancel_children(draft, reason=f"parent: {state.cancelling}")


def _cancel_children(draft: Draft, *, reason: str) -> None:
    for entry in draft.state.active.values():
        bodies = [entry.activity, *(entry.loop.children.values() if entry.loop else ())]
        draft.decision.inputs += [
            Event(
                execution_id=body.child_id,
                event_type="cancel.requested",
                result=Envelope(status="REQUESTED", context={"reason": reason}),
                parent_execution_id=draft.state.execution_id,
                event_time=draft.cause.event_time,
            )
            for body in bodies
            if body.child_id and body.in_flight
        ]


def _on_finalize(draft: Draft, event: Event, place: Place | None) -> None:
    if event.context.get("status") == "FAILED":
        message = event.context.get("error") or "finalized by request"
        _finish(draft, "playbook.failed", error={"code": "FINALIZED", "message": message, "retryable": False})
    else:
        _finish(draft, "playbook.completed", error=None)


def _on_vars_set(draft: Draft, event: Event, place: Place | None) -> None:
    """Draw nothing: what is dispatched later reads the variables as they are then."""


def _settle(draft: Draft) -> None:
    """Dispatch what is ready until nothing more is, then end the execution if nothing will happen any more."""
    while not draft.state.is_terminal:
        _carry_on(draft)
        state = draft.state
        if state.cancelling is not None:
            if not state.in_flight:
                _finish(draft, "playbook.cancelled", error=_cancel_reason(state))
            return
        if state.failure is not None:
            if not state.in_flight:
                _finish(draft, "playbook.failed", error=state.failure)
            return
        if draft.is_full and state.pending:
            timer_id = hashed_id(draft.cause.event_id, "settle")
            draft.decision.timers.append(Timer(timer_id=timer_id, due_s=0.0, kind="settle"))
            return  # go on when woken: one transaction holds only so much
        ready = ready_steps(draft.playbook, state)
        if not ready:
            if not state.active and not state.pending and not state.is_waiting:
                final = draft.playbook.final_step
                if final and final in draft.playbook.steps and not state.visits.get(final):
                    enter(draft, final)
                    continue
                _finish(draft, "playbook.completed", error=None)
            return
        # All of them before anything that comes of one: whether two arcs to a step are one visit or two must not
        # depend on which of these was ready first.
        for step in ready:
            if not draft.is_full:
                enter(draft, step)


def _carry_on(draft: Draft) -> None:
    """Draw what the notes say is still to be drawn: of bodies first, then of the loops they belong to."""
    while draft.notes or draft.loops:
        if not draft.notes:
            name = next(iter(draft.loops))
            del draft.loops[name]
            loops.continue_loop(draft, draft.step(name))
            continue
        note = draft.notes.popleft()
        step = draft.step(note.step)
        if isinstance(note, Following):
            place = Place(note.step, draft.state.active[note.step], None)
            begin_segment(draft, step, start_of(draft, place, note.index, segment=note.segment, prior=note.prior))
        elif isinstance(note, Passed):
            leave.pass_by(draft, step)
        elif note.error is None:
            leave.leave_completed(draft, step, note.ref)
        else:
            leave.leave_failed(draft, step, error=note.error)


def _finish(draft: Draft, event_type: str, *, error: dict[str, Any] | None) -> None:
    """End the execution, once: stop what is still under way, tell the parent that waits for it."""
    state = draft.state
    if state.in_flight:
        draft.decision.cancels_commands = True
        _cancel_children(draft, reason=f"parent: {event_type.removeprefix('playbook.')}")
    ref = state.last_result
    if state.return_step:
        ref = state.results.get(state.return_step)
        if ref is None and event_type == "playbook.completed":
            message = f"return_step: expected a step that ran, found that {state.return_step!r} did not"
            event_type = "playbook.failed"
            error = {"code": "RETURN_STEP_MISSING", "kind": "not_found", "message": message, "retryable": False}
    status = event_type.removeprefix("playbook.").upper()
    reference = reference_of(ref) if ref is not None and status == "COMPLETED" else None
    parent = state.parent_place
    parent_id = state.parent_execution_id
    draft.emit(event_type, status=status, dedup_key="end", reference=reference, error=error)
    if parent:
        draft.decision.inputs.append(
            Event(
                execution_id=parent_id,
                event_type="child.ended",
                step=parent["step"],
                command_id=parent["command_id"],
                loop_epoch=parent["loop_epoch"],
                iter_index=parent["iter_index"],
                status=status,
                result=Envelope(status=status, reference=reference, error=error, context={"status": status}),
                dedup_key=f"child:{state.execution_id}",
                event_time=draft.cause.event_time,
            )
        )


def _cancel_reason(state: ExecutionState) -> dict[str, Any]:
    return {"code": "CANCELLED", "kind": "cancelled", "message": state.cancelling or "", "retryable": False}


ROUTERS: dict[str, Callable[[Draft, Event, Place | None], None]] = {
    "playbook.started": _on_started,
    "playbook.admitted": _on_admitted,
    "command.completed": _on_command_ended,
    "command.failed": _on_command_ended,
    "command.cancelled": _on_command_ended,
    "call.partial": _on_call_partial,
    "child.ended": _on_child_ended,
    "timer.fired": _on_timer_fired,
    "cancel.requested": _on_cancel,
    "finalize.requested": _on_finalize,
    "vars.set": _on_vars_set,
}

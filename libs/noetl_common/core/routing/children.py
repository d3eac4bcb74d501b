"""Sub-playbooks: start a child, and say what its end means for the body that waits for it.

No worker is held. The child's start is an input to its own shard; its end comes back as an input to ours.
"""

from typing import Any

import msgspec

from noetl_common.core import policy, results, templates
from noetl_common.core.duration import seconds_in
from noetl_common.core.events import Envelope, Event
from noetl_common.core.fold import Place
from noetl_common.core.groups import Group, group_of
from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Step, Task, version_number
from noetl_common.core.policy import Verdict
from noetl_common.core.routing.bodies import (
    Start,
    body_scope,
    epoch_of,
    handed_on,
    place_of,
    segment_context,
    segment_id,
    start_of,
)
from noetl_common.core.routing.draft import (
    CatalogEntry,
    Child,
    Draft,
    Ended,
    Following,
    NeedPlaybook,
    Timer,
    Wanted,
    encode,
    fits_inline,
    template_error,
)
from noetl_common.core.routing.writes import render_variables, write_rendered
from noetl_common.core.scope import system_names
from noetl_common.core.shard import hashed_id
from noetl_common.core.state import Activity, ExecutionState
from noetl_common.core.values import INLINE_VALUE_BYTES_MAX, Ref, Value, ref_in, reference_of
from noetl_common.core.workload import effective_workload
from noetl_common.errors import TemplateFailed

DEPTH_MAX = 16


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A child about to be opened."""

    path: str
    workload: dict[str, Any]
    found: CatalogEntry
    child_id: int
    waits: bool
    timeout_s: float  # 0: as long as it takes
    behind: int
    group: Group | None


def start_child(draft: Draft, step: Step, start: Start) -> None:
    """Start the child of a `playbook` task; a task that cannot start is judged by its rules like any failure."""
    task = step.segments[start.segment].tasks[0]
    index = start.index
    command_id = segment_id(draft, step, start)
    context = {"attempt": start.attempt, **segment_context(step, start)}
    error: dict[str, Any] | None = None
    path, call = "", None
    try:
        path, version, payload, timeout_s = _render_call(draft, step, task, start)
        found, error = _find(draft, step, (path, version))
        if found is not None:
            waits = not task.config.get("async")
            call = _call_of(draft, found, path=path, payload=payload, waits=waits, timeout_s=timeout_s)
    except TemplateFailed as exc:
        error = template_error(exc)
    child_id = call.child_id if call is not None else 0
    draft.emit(
        "child.started",
        step=step.name,
        status="STARTED" if call is not None else "FAILED",
        command_id=command_id,
        loop_epoch=epoch_of(draft, step),
        iter_index=index,
        dedup_key=f"issued:{command_id}",
        context={**context, "child_id": child_id, "path": path},
    )
    place = place_of(draft, step, index)
    if call is None:
        end_task(draft, step, place=place, outcome=Outcome(status="error", error=error), ref=None, index=index)
        return
    _open_child(draft, step, place, call=call, index=index)
    if not call.waits:
        data = {"status": "started", "execution_id": str(child_id), "path": path, "async": True}
        end_task(draft, step, place=place, outcome=Outcome(data=data), ref=None, index=index)


def _render_call(draft: Draft, step: Step, task: Task, start: Start) -> tuple[str, int | None, dict[str, Any], float]:
    scope = body_scope(draft, step, index=start.index, item=start.item, prior=start.prior)
    previous = next(reversed(handed_on(draft, start.prior).labelled.values()), None)
    scope = scope.extended(locals={"_task": task.label, "_attempt": start.attempt, "_prev": previous})
    where = f"step {step.name!r}, tool" + (f"[{task.label}]" if step.is_pipeline else "")
    written = task.config.get("path")
    path = templates.render(written, scope, where=f"{where}.path")
    if not isinstance(path, str) or not path:
        message = f"expected the path of a playbook, found {path!r}"
        raise TemplateFailed(message, expression=str(written or ""), where=f"{where}.path")
    version = _version_in(templates.render(task.config.get("version"), scope, where=f"{where}.version"), where)
    given = task.input or task.config.get("payload") or {}
    payload = templates.render(given, scope, where=f"{where}.input")
    if not isinstance(payload, dict):
        raise TemplateFailed(f"expected a mapping, found {type(payload).__name__}", where=f"{where}.input")
    timeout = templates.render(task.config.get("timeout"), scope, where=f"{where}.timeout")
    return path, version, payload, seconds_in(timeout, 0.0)


def _version_in(written: Any, where: str) -> int | None:
    """Return the version that a rendered `version` asks for, None for the newest. Errors: TemplateFailed."""
    if written is None or (isinstance(written, str) and written.strip() in ("", "latest")):
        return None
    version = version_number(written)
    if version is None:
        message = f"expected the version of a playbook (a whole number from 1 on, or latest), found {written!r:.80}"
        raise TemplateFailed(message, expression=str(written), where=f"{where}.version")
    return version


def _find(draft: Draft, step: Step, wanted: Wanted) -> tuple[CatalogEntry | None, dict[str, Any] | None]:
    if wanted not in draft.world.playbooks:
        raise NeedPlaybook(wanted)
    found = draft.world.playbooks[wanted]
    path, version = wanted
    if not isinstance(found, CatalogEntry):
        if version is None or not found:
            place = f"step {step.name!r}, tool.path"
            message = f"{place}: expected a registered playbook, found that {path!r} is not in the catalog"
        else:
            there = ", ".join(map(str, found))
            message = f"step {step.name!r}, tool.version: expected a registered version of {path!r}, "
            message += f"found no version {version}; the newest are {there}"
    elif draft.state.depth + 1 > DEPTH_MAX:
        message = f"step {step.name!r}: expected at most {DEPTH_MAX} levels of sub-playbooks, found more"
    else:
        return found, None
    return None, {"code": "CHILD_NOT_STARTED", "kind": "not_found", "message": message, "retryable": False}


def _call_of(
    draft: Draft, found: CatalogEntry, *, path: str, payload: dict[str, Any], waits: bool, timeout_s: float
) -> Call:
    """Return the child that is to be opened, with what it starts from. Errors: TemplateFailed of its group's key."""
    state = draft.state
    child_id = next(draft.world.fresh_ids)
    begun_at = draft.cause.event_time
    system = system_names(
        execution_id=child_id,
        catalog_id=found.catalog_id,
        path=path,
        version=found.version,
        parent_execution_id=state.execution_id,
        env=draft.world.env,
        now=lambda: begun_at,
    )
    workload = effective_workload(found.playbook.workload, payload, execution_id=child_id, system=system)
    group = group_of(found.playbook, workload, path=path, system=system)
    if group is not None and waits and group.group_id in groups_held(state):
        group = None  # a run above it has the place and waits for it: it would wait for itself
    return Call(
        path=path,
        workload=workload,
        found=found,
        child_id=child_id,
        waits=waits,
        timeout_s=timeout_s,
        behind=draft.behind,
        group=group,
    )


def groups_held(state: ExecutionState) -> list[int]:
    """Return the concurrency groups in which this run, or one above it that waits for it, has a place."""
    return [*state.groups_above, *([state.group.group_id] if state.group is not None else [])]


def _open_child(draft: Draft, step: Step, place: Place, *, call: Call, index: int) -> None:
    state = draft.state
    assert place.body is not None
    task = step.segments[place.body.segment].tasks[0]
    child_id, group = call.child_id, call.group
    body = encode(call.workload)
    value = Value(call.workload)
    if not fits_inline(body, INLINE_VALUE_BYTES_MAX):
        value = Value(ref=draft.payload(call.workload, label="workload", body=body, execution_id=child_id))
    context: dict[str, Any] = {
        "path": call.path,
        "version": call.found.version,
        "depth": state.depth + 1,
        "workload": msgspec.to_builtins(value),
    }
    if return_step := task.config.get("return_step") or task.config.get("result_step"):
        context["return_step"] = return_step
    if state.priority is not None:
        context["priority"] = state.priority
    if call.behind:
        context["behind"] = call.behind
    if group is not None:
        context["group"] = msgspec.to_builtins(group)
    if call.waits:
        if held := groups_held(state):
            context["groups_above"] = held
        loop = place.entry.loop
        context["parent"] = {
            "command_id": place.body.command_id,
            "step": step.name,
            "loop_epoch": loop.epoch if loop else 0,
            "iter_index": index,
        }
        if call.timeout_s:
            kind = f"child:{place.body.command_id}:{index}:{call.timeout_s:g}:{step.name}"
            timer_id = hashed_id(place.body.command_id, "timeout")
            draft.decision.timers.append(Timer(timer_id=timer_id, due_s=call.timeout_s, kind=kind))
    draft.decision.children.append(
        Child(
            execution_id=child_id,
            catalog_id=call.found.catalog_id,
            path=call.path,
            version=call.found.version,
            parent_execution_id=state.execution_id,
            parent_command_id=place.body.command_id,
            group=group,
        )
    )
    draft.decision.inputs.append(
        Event(
            execution_id=child_id,
            event_type="playbook.started",
            status="STARTED",
            result=Envelope(status="STARTED", context=context),
            dedup_key="start",
            catalog_id=call.found.catalog_id,
            parent_execution_id=state.execution_id,
            event_time=draft.cause.event_time,
        )
    )


def take_child_end(draft: Draft, step: Step, *, place: Place, event: Event) -> None:
    """Judge a finished child by its task's rules."""
    envelope = event.result
    reference = envelope.reference if envelope else None
    ref = ref_in(reference) if reference else None
    status = event.context.get("status", event.status)
    error = None
    if status != "COMPLETED":
        cause = (envelope.error if envelope else None) or {}
        message = f"step {step.name!r}: playbook ended {status}: {cause.get('message', 'no message')}"
        error = {"code": f"CHILD_{status}", "kind": "child", "retryable": False, **cause, "message": message}
    data = results.view(ref, draft.load) if ref is not None else None
    outcome = Outcome(status="success" if error is None else "error", data=data, error=error)
    end_task(draft, step, place=place, outcome=outcome, ref=ref, index=event.iter_index)


def take_timeout(draft: Draft, description: str) -> None:
    """Give up a child that did not end in its time: cancel it, and judge its task's failure by the task's rules.

    Shapes: `description` is what stands behind "child:" in the timer's kind. A timer that came too late does nothing.
    """
    command_id, index, timeout_s, name = description.split(":", 3)
    entry = draft.state.active.get(name)
    body = None if entry is None else entry.loop.children.get(int(index)) if entry.loop else entry.activity
    if entry is None or body is None or body.command_id != int(command_id) or not body.child_id:
        return
    step, child_id = draft.step(name), body.child_id
    draft.emit("task.ended", step=name, status="TIMEOUT", iter_index=int(index))
    path = step.segments[body.segment].tasks[0].config.get("path")
    message = f"step {name!r}: playbook {path!r} did not end within {timeout_s} s"
    draft.decision.inputs.append(
        Event(
            execution_id=child_id,
            event_type="cancel.requested",
            result=Envelope(status="REQUESTED", context={"reason": f"parent: {message}"}),
            parent_execution_id=draft.state.execution_id,
            event_time=draft.cause.event_time,
        )
    )
    error = {"code": "CHILD_TIMEOUT", "kind": "timeout", "message": message, "retryable": True}
    outcome = Outcome(status="error", error=error)
    end_task(draft, step, place=Place(name, entry, body), outcome=outcome, ref=None, index=int(index))


def end_task(draft: Draft, step: Step, *, place: Place, outcome: Outcome, ref: Ref | None, index: int) -> None:
    """Apply a playbook task's rules to its outcome, and carry the body on, end it, or retry the child."""
    body = place.body
    assert body is not None
    task = step.segments[body.segment].tasks[0]
    where = f"step {step.name!r}, tool" + (f"[{task.label}]" if step.is_pipeline else "")
    handed = handed_on(draft, body.prior)
    try:
        start = start_of(draft, place, index, segment=body.segment, prior=body.prior)
        scope = body_scope(draft, step, index=index, item=start.item, prior=body.prior)
        verdict = policy.judge(task, outcome, scope, attempt=body.attempt, where=where)
        _write(draft, step, verdict.sets, handed)
        if task.set and verdict.do in ("continue", "jump", "break"):
            view = results.output_raw_view(outcome)
            scope = scope.extended(locals={"output": view, "result": view}, iteration=handed.iteration)
            _write(draft, step, render_variables(task.set, scope, where=f"{where}.set"), handed, local=True)
        following = _segment_after(step, body, verdict)
    except TemplateFailed as exc:
        outcome = Outcome(status="error", error=template_error(exc))
        verdict, following = Verdict(do="fail", to="", delay_s=0.0, sets={}), 0
    if verdict.do == "retry":
        _retry(draft, step, body, verdict=verdict, index=index, handed=handed)
    elif verdict.do == "fail":
        fallback = {
            "code": "FAILED_BY_RULE",
            "kind": "rule",
            "message": f"{where}: a rule said fail",
            "retryable": False,
        }
        end_body(draft, step, index=index, ref=None, error=outcome.error or fallback)
    else:
        handed.labelled.pop(task.label, None)  # to the end: the order of the results is that of the runs
        handed.labelled[task.label] = results.plain(outcome.data)
        _carry_on(draft, step, place, following=following, handed=handed, ref=ref, index=index)


def _write(draft: Draft, step: Step, sets: dict[str, Any], handed: results.Carried, *, local: bool = False) -> None:
    """Write what was set: variables of the execution at once, what only this body sees into what it hands on."""
    variables: dict[str, Any] = {}
    for name, value in sets.items():
        kind, bare = policy.target_of(name)
        if kind == "iter":
            handed.iteration[bare] = value
        elif local and "." not in name and step.is_pipeline:
            handed.names[bare] = value
        else:
            variables[name] = value
    write_rendered(draft, variables, step=step.name)


def _retry(draft: Draft, step: Step, body: Activity, *, verdict: Verdict, index: int, handed: results.Carried) -> None:
    changed = handed != handed_on(draft, body.prior)
    prior = draft.payload(handed.payload(), label=step.name, shape="pipeline") if changed else None
    timer_id = hashed_id(draft.cause.event_id, step.name, index, body.attempt)
    draft.emit(
        "task.ended",
        step=step.name,
        status="RETRYING",
        iter_index=index,
        context={"timer_id": timer_id, "attempt": body.attempt + 1},
        reference=None if prior is None else reference_of(prior),
    )
    draft.decision.timers.append(Timer(timer_id=timer_id, due_s=verdict.delay_s, kind=f"retry:{step.name}:{index}"))


def _carry_on(
    draft: Draft, step: Step, place: Place, *, following: int, handed: results.Carried, ref: Ref | None, index: int
) -> None:
    body = place.body
    assert body is not None
    loop = place.entry.loop
    epoch = loop.epoch if loop else 0
    last = following >= len(step.segments)
    if last and not step.is_pipeline:
        if loop is not None or ref is None:
            # The items of a loop are found by epoch and index, in this execution.
            data = handed.labelled[step.name]
            ref = draft.payload(data, label=step.name, loop_epoch=epoch, iter_index=index)
        end_body(draft, step, index=index, ref=ref, error=None)
        return
    at: dict[str, Any] = {"loop_epoch": epoch, "iter_index": index} if last else {}
    payload = handed.labelled if last else handed.payload()
    made = draft.payload(payload, label=step.name, shape="pipeline", **at)
    if last:
        end_body(draft, step, index=index, ref=made, error=None)
    else:
        draft.notes.append(Following(step=step.name, index=index, segment=following, prior=made))


def _segment_after(step: Step, body: Activity, verdict: Verdict) -> int:
    if verdict.do == "break":
        return len(step.segments)
    if verdict.do != "jump":
        return body.segment + 1
    for number, segment in enumerate(step.segments):
        if segment.tasks[0].label == verdict.to:
            return number
    expected = ", ".join(segment.tasks[0].label for segment in step.segments)
    raise TemplateFailed(f"jump: expected one of {expected}; found {verdict.to!r}", where=f"step {step.name!r}")


def segment_to(step: Step, body: Activity, label: str | None) -> tuple[int, dict[str, Any] | None]:
    """Return the segment to go on with: the next one, or the one that a jump of a worker's task leads to."""
    verdict = Verdict(do="jump", to=label) if label else Verdict(do="continue")
    try:
        return _segment_after(step, body, verdict), None
    except TemplateFailed as exc:
        return 0, template_error(exc)


def end_body(draft: Draft, step: Step, *, index: int, ref: Ref | None, error: dict[str, Any] | None) -> None:
    """End the body of a step or of a loop's item, with its result or its error; leave a note to go on from there."""
    draft.emit(
        "task.ended",
        step=step.name,
        status="COMPLETED" if error is None else "FAILED",
        iter_index=index,
        reference=reference_of(ref) if ref is not None else None,
        error=error,
    )
    if index >= 0:
        draft.loops[step.name] = None
    else:
        draft.notes.append(Ended(step=step.name, ref=ref, error=error))

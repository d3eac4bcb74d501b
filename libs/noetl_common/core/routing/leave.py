"""Leave a step: write its variables, choose its arcs, take its token away."""

from typing import Any

from noetl_common.core import results, templates
from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Arc, Step
from noetl_common.core.routing.draft import Draft, template_error
from noetl_common.core.routing.writes import write_variables
from noetl_common.core.scope import Scope
from noetl_common.core.state import LoopState
from noetl_common.core.values import NULL_REF_ID, Ref, reference_of
from noetl_common.errors import TemplateFailed


def leave_completed(draft: Draft, step: Step, ref: Ref | None) -> None:
    """Leave a step whose body succeeded with the result `ref`."""
    # A result of null has no payload and no row; the reference says so.
    ref = ref or Ref(execution_id=draft.state.execution_id, ref_id=NULL_REF_ID, label=step.name)
    _leave(draft, step, ref=ref, error=None, names={"event": {"name": "call.done"}})


def leave_failed(draft: Draft, step: Step, *, error: dict[str, Any], ref: Ref | None = None) -> None:
    """Leave a step whose body failed: only arcs that test `event.name` may carry on from here."""
    _leave(draft, step, ref=ref, error=error, names={"event": {"name": "call.error"}})


def leave_loop(draft: Draft, step: Step) -> None:
    """Close a loop whose last item has ended, and leave its step. More failures than it may have fail the step."""
    loop = draft.state.active[step.name].loop
    assert loop is not None
    total = loop.total
    ref = Ref(
        execution_id=draft.state.execution_id,
        ref_id=loop.epoch,
        shape="loop",
        label=step.name,
        epoch=loop.epoch,
        size=total,
        failed=loop.failed,
        skipped=total - loop.done - loop.failed,
        tolerated=bool(loop.failed) and not loop.has_failed,
        halted=loop.cursor is not None and loop.cursor.failed,
    )
    error = _loop_error(step, loop) if loop.has_failed else None
    fanin = {"status": _fanin_status(loop), "done": loop.done, "failed": loop.failed, "total": total}
    draft.emit(
        "loop.done",
        step=step.name,
        status="COMPLETED" if error is None else "FAILED",
        loop_epoch=loop.epoch,
        dedup_key=f"loop:{loop.epoch}",
        context={"size": total, "done": loop.done, "failed": loop.failed},
        reference=reference_of(ref),
    )
    event_name = "loop.done" if error is None else "call.error"
    _leave(draft, step, ref=ref, error=error, names={"event": {"name": event_name}, "fanin": fanin})


def pass_by(draft: Draft, step: Step) -> None:
    """Skip a step whose own `when` does not hold: follow its arcs, which see no output of it.

    Arcs that cannot be evaluated fail the step.
    """
    scope = draft.scope(locals={"event": {"name": "step.skipped"}})
    try:
        context = {"reason": "when", **_targets(draft, _take_arcs(draft, step, scope, failed=False))}
    except TemplateFailed as exc:
        draft.emit("step.enter", step=step.name, status="STARTED")
        leave_failed(draft, step, error=template_error(exc))
    else:
        draft.emit("step.skipped", step=step.name, status="SKIPPED", context=context)


def _loop_error(step: Step, loop: LoopState) -> dict[str, Any]:
    first = loop.error or {}
    text = first.get("message", "no message")
    if loop.cursor is not None and loop.cursor.failed:
        return {**first, "message": f"step {step.name!r}, loop.cursor.claim: {text}"}
    message = f"step {step.name!r}: {loop.failed} of {loop.total} items failed"
    return {**first, "message": f"{message}; first, item {first.get('iter_index')}: {text}"}


def _fanin_status(loop: LoopState) -> str:
    if not loop.failed and not loop.has_failed:
        return "complete"
    return "partial" if loop.done else "failed"


def _leave(draft: Draft, step: Step, *, ref: Ref | None, error: dict[str, Any] | None, names: dict[str, Any]) -> None:
    chosen: list[Arc] = []
    failed_body = error is not None
    try:
        scope = _scope_after(draft, step, ref=ref, error=error, names=names)
        if step.set and not failed_body:
            write_variables(draft, step.set, scope, step=step.name, where=f"step {step.name!r}, set")
            scope = _scope_after(draft, step, ref=ref, error=error, names=names)
        chosen = _take_arcs(draft, step, scope, failed=failed_body)
    except TemplateFailed as exc:
        # What the tool said comes first: the template is wrong as well, but it is not why the step failed.
        message = f"{error['message']}; {exc}" if error and error.get("message") else str(exc)
        error, chosen = {**template_error(exc), **(error or {}), "message": message}, []
    handled = error is not None and bool(chosen)
    context: dict[str, Any] = _targets(draft, chosen)
    if handled:
        context["handled"] = True
    if all(task.kind == "noop" for task in step.tasks):
        context["noop"] = True
    draft.emit(
        "step.exit",
        step=step.name,
        status="COMPLETED" if error is None else "FAILED",
        context=context,
        reference=reference_of(ref) if ref is not None else None,
        error=error,
    )
    # What was fed with its chunks gets no more; a stream that has drained is over.
    for name, entry in draft.state.active.items():
        if entry.loop is not None and entry.loop.stream is not None and entry.loop.stream.producer == step.name:
            draft.loops[name] = None


def _scope_after(
    draft: Draft, step: Step, *, ref: Ref | None, error: dict[str, Any] | None, names: dict[str, Any]
) -> Scope:
    data = results.view(ref, draft.load) if ref is not None else None
    outcome = Outcome(status="success" if error is None else "error", data=data, error=error)
    if error and error.get("http_status"):
        outcome.http = {"status": error["http_status"]}
    names = {**names, "output": results.output_view(outcome), "result": data}
    if error is not None:
        names["error"] = error
    return draft.scope(locals=names, results={step.name: ref} if ref is not None else None)


def _take_arcs(draft: Draft, step: Step, scope: Scope, *, failed: bool) -> list[Arc]:
    """Choose the arcs to follow, and write what they set. Errors: TemplateFailed."""
    chosen = _choose_arcs(step, scope, failed=failed)
    for arc in chosen:
        write_variables(draft, arc.set, scope, step=step.name, where=f"step {step.name!r}, arc to {arc.step!r}, set")
    ways = [arc for arc in step.arcs if not arc.on_partial]
    if not chosen and ways and not failed and draft.playbook.no_next_is_error:
        raise TemplateFailed("no arc matched and the playbook says that is an error", where=f"step {step.name!r}")
    return chosen


def _targets(draft: Draft, chosen: list[Arc]) -> dict[str, Any]:
    # An arc to a step that does not exist (the conventional `end`) ends its branch.
    targets = [arc.step for arc in chosen if arc.step in draft.playbook.steps]
    return {"arcs": targets} if targets else {}


def _choose_arcs(step: Step, scope: Scope, *, failed: bool) -> list[Arc]:
    chosen: list[Arc] = []
    for arc in step.arcs:
        if arc.on_partial or (failed and not arc.tests_event):
            continue
        if templates.holds(arc.when, scope, where=f"step {step.name!r}, arc to {arc.step!r}, when"):
            chosen.append(arc)
            if step.mode == "exclusive":
                break
    return chosen

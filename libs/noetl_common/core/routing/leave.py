"""Leave a step: write its variables, choose its arcs, take its token away."""

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl_common.core import results, templates
from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Arc, Step
from noetl_common.core.policy import target_of
from noetl_common.core.routing import enter
from noetl_common.core.routing.draft import Draft
from noetl_common.core.scope import Scope
from noetl_common.core.values import NULL_REF_ID, Ref, reference_of
from noetl_common.errors import TemplateFailed


def leave_completed(draft: Draft, step: Step, ref: Ref | None) -> None:
    """Leave a step whose body succeeded with the result `ref`."""
    # A result of null has no payload and no row; the reference says so.
    ref = ref or Ref(execution_id=draft.state.execution_id, ref_id=NULL_REF_ID, label=step.name)
    _leave(draft, step, ref=ref, error=None, event_name="call.done")


def leave_failed(draft: Draft, step: Step, *, error: dict[str, Any], ref: Ref | None = None) -> None:
    """Leave a step whose body failed: only arcs that test `event.name` may carry on from here."""
    _leave(draft, step, ref=ref, error=error, event_name="call.error")


def leave_loop(draft: Draft, step: Step) -> None:
    """Close a loop whose last item has ended, and leave its step. One failed item fails the step."""
    loop = draft.state.active[step.name].loop
    assert loop is not None
    ref = Ref(
        execution_id=draft.state.execution_id,
        ref_id=loop.epoch,
        shape="loop",
        label=step.name,
        epoch=loop.epoch,
        size=loop.size,
        failed=loop.failed,
    )
    draft.emit(
        "loop.done",
        step=step.name,
        status="FAILED" if loop.failed else "COMPLETED",
        loop_epoch=loop.epoch,
        dedup_key=f"loop:{loop.epoch}",
        context={"size": loop.size, "done": loop.done, "failed": loop.failed},
        reference=reference_of(ref),
    )
    if not loop.failed:
        _leave(draft, step, ref=ref, error=None, event_name="loop.done")
        return
    first = loop.error or {}
    message = f"step {step.name!r}: {loop.failed} of {loop.size} items failed; first, item {first.get('iter_index')}:"
    error = {**first, "message": f"{message} {first.get('message', 'no message')}"}
    _leave(draft, step, ref=ref, error=error, event_name="call.error")


def _leave(draft: Draft, step: Step, *, ref: Ref | None, error: dict[str, Any] | None, event_name: str) -> None:
    chosen: list[Arc] = []
    failed_body = error is not None
    try:
        scope = _scope_after(draft, step, ref=ref, error=error, event_name=event_name)
        if step.set and not failed_body:
            write_variables(draft, step.set, scope, step=step.name, where=f"step {step.name!r}, set")
            scope = _scope_after(draft, step, ref=ref, error=error, event_name=event_name)
        chosen = _choose_arcs(step, scope, failed=failed_body)
        for arc in chosen:
            write_variables(
                draft, arc.set, scope, step=step.name, where=f"step {step.name!r}, arc to {arc.step!r}, set"
            )
        if not chosen and step.arcs and not failed_body and draft.playbook.no_next_is_error:
            raise TemplateFailed("no arc matched and the playbook says that is an error", where=f"step {step.name!r}")
    except TemplateFailed as exc:
        # What the tool said comes first: the template is wrong as well, but it is not why the step failed.
        message = f"{error['message']}; {exc}" if error and error.get("message") else str(exc)
        error, chosen = {**enter.template_error(exc), **(error or {}), "message": message}, []
    handled = error is not None and bool(chosen)
    context: dict[str, Any] = {}
    # An arc to a step that does not exist (the conventional `end`) ends its branch.
    if targets := [arc.step for arc in chosen if arc.step in draft.playbook.steps]:
        context["arcs"] = targets
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


def _scope_after(draft: Draft, step: Step, *, ref: Ref | None, error: dict[str, Any] | None, event_name: str) -> Scope:
    data = results.view(ref, draft.load) if ref is not None else None
    outcome = Outcome(status="success" if error is None else "error", data=data, error=error)
    if error and error.get("http_status"):
        outcome.http = {"status": error["http_status"]}
    names = {"output": results.output_view(outcome), "event": {"name": event_name}, "result": data}
    if error is not None:
        names["error"] = error
    return draft.scope(locals=names, results={step.name: ref} if ref is not None else None)


def _choose_arcs(step: Step, scope: Scope, *, failed: bool) -> list[Arc]:
    chosen: list[Arc] = []
    for arc in step.arcs:
        if failed and not arc.tests_event:
            continue
        if templates.holds(arc.when, scope, where=f"step {step.name!r}, arc to {arc.step!r}, when"):
            chosen.append(arc)
            if step.mode == "exclusive":
                break
    return chosen


def write_variables(draft: Draft, sets: Mapping[str, Any], scope: Scope, *, step: str, where: str) -> None:
    """Render a `set` block against `scope` and write it as variables; its names do not see each other."""
    if not sets:
        return
    write_rendered(draft, render_variables(sets, scope, where=where), step=step)


def render_variables(sets: Mapping[str, Any], scope: Scope, *, where: str) -> dict[str, Any]:
    """Return the values of a `set` block, its keys as written."""
    return {name: templates.render(value, scope, where=f"{where} {name}") for name, value in sets.items()}


def write_rendered(draft: Draft, sets: Mapping[str, Any], *, step: str) -> None:
    """Write values as variables of the execution."""
    if not sets:
        return
    rendered = {target_of(name)[1]: value for name, value in sets.items()}
    values = {name: draft.value(value, label=f"ctx.{name}") for name, value in rendered.items()}
    draft.emit("ctx.updated", step=step, context={"set": msgspec.to_builtins(values)})

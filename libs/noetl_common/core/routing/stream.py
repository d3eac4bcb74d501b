"""Streams: a step's chunks, each an item of its consumer, begun while the step still runs."""

from typing import Any

from noetl_common.core import results, templates
from noetl_common.core.commands import CHUNK, Item
from noetl_common.core.events import Event
from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Step
from noetl_common.core.routing.bodies import Start
from noetl_common.core.routing.draft import Draft, template_error
from noetl_common.core.routing.enter import begin_visit
from noetl_common.core.routing.segments import add_context, begin_segment
from noetl_common.core.shard import hashed_id
from noetl_common.core.values import NULL_REF_ID, Ref, ref_or_none, reference_of
from noetl_common.errors import TemplateFailed

STREAM_OPEN_MAX = 10_000


def take_chunk(draft: Draft, step: Step, event: Event) -> None:
    """Hand a chunk of a step that runs to the consumers its arcs lead to; a run that stops hands nothing on."""
    ref = ref_or_none(event.result.reference if event.result else None)
    ref = ref or Ref(execution_id=draft.state.execution_id, ref_id=NULL_REF_ID, label=step.name)
    data = results.view(ref, draft.load)
    about = {"name": "call.partial", "task": event.context.get("task", ""), "chunk": event.context.get("chunk", 0)}
    names = {"output": results.output_view(Outcome(data=data)), "event": about, "result": data, CHUNK: data}
    for arc in step.arcs:
        if not arc.on_partial or draft.is_stopping:
            continue
        try:
            where = f"step {step.name!r}, arc to {arc.step!r}, when"
            is_chosen = templates.holds(arc.when, draft.scope(locals=names), where=where)
        except TemplateFailed as exc:
            # The step cannot be left while its command runs, so it is the run that fails.
            draft.emit("routing.failed", step=step.name, status="FAILED", error=template_error(exc))
            return
        if is_chosen:
            _hand(draft, draft.step(arc.step), producer=step.name, ref=ref)
            if step.mode == "exclusive":
                return


def _hand(draft: Draft, step: Step, *, producer: str, ref: Ref) -> None:
    if step.name not in draft.state.active:
        if not begin_visit(draft, step):
            return
        _open(draft, step, producer)
    loop = draft.state.active[step.name].loop
    assert loop is not None and loop.stream is not None, "only its producer's chunks lead to a consumer"
    if loop.is_stopped:
        return
    if len(loop.open) >= STREAM_OPEN_MAX:
        message = (
            f"step {step.name!r}: expected at most {STREAM_OPEN_MAX} chunks of step {producer!r} that wait or run,"
            " found one more; stream fewer, larger chunks"
        )
        error = {"code": "STREAM_FULL", "kind": "limit", "message": message, "retryable": False}
        draft.emit("routing.failed", step=step.name, status="FAILED", error=error)
        return
    # A body that a worker runs in one go is never asked for its chunk again: the state need not hold it.
    place = {"chunk": reference_of(ref)} if len(step.segments) > 1 or step.segments[0].is_child else {}
    start = Start(index=loop.issued_upto, item=Item(ref=ref, whole=True), place=place)
    begin_segment(draft, step, start)
    draft.loops[step.name] = None


def _open(draft: Draft, step: Step, producer: str) -> None:
    context: dict[str, Any] = {"size": 0, "max_in_flight": STREAM_OPEN_MAX, "mode": "stream", "producer": producer}
    if not step.segments[0].is_child:
        context["context_id"] = add_context(draft, step, 0, in_loop=True)
    epoch = hashed_id(draft.state.execution_id, step.name, draft.state.active[step.name].cause)
    draft.emit("loop.started", step=step.name, status="STARTED", loop_epoch=epoch, context=context)

"""Enter a step: begin its loop or its body, window by window, segment by segment."""

from typing import Any

import msgspec

from noetl_common.core import templates
from noetl_common.core.commands import ITEM_INLINE_BYTES_MAX, Command, CommandContext, Item
from noetl_common.core.playbook import Loop, Step
from noetl_common.core.routing import children, leave
from noetl_common.core.routing.draft import Draft, Timer, encode, fits_inline
from noetl_common.core.shard import hashed_id
from noetl_common.core.values import Ref, Value, reference_of
from noetl_common.errors import TemplateFailed

LOOP_ITEMS_MAX = 1_000_000
IN_FLIGHT_DEFAULT = 1_000
IN_FLIGHT_MAX = 10_000
COMMANDS_PER_INPUT_MAX = 1_000
STEP_VISITS_MAX = 100_000


def enter(draft: Draft, name: str) -> None:
    """Dispatch a step whose turn has come. A step that cannot begin fails at once, with the reason.

    One that its admission rules deny is skipped: its branch ends here.
    """
    step = draft.step(name)
    error: dict[str, Any] | None = None
    try:
        if not _admits(draft, step):
            draft.emit("step.skipped", step=name, status="SKIPPED", context={"reason": "spec.policy.admit"})
            return
    except TemplateFailed as exc:
        error = template_error(exc)
    draft.emit("step.enter", step=name, status="STARTED")
    if error is not None:
        leave.leave_failed(draft, step, error=error)
        return
    visits = draft.state.visits[name]
    if visits > STEP_VISITS_MAX:
        message = f"step {name!r}: expected at most {STEP_VISITS_MAX} visits, found a cycle that goes on"
        error = {"code": "RUNAWAY", "kind": "limit", "message": message, "retryable": False}
        leave.leave_failed(draft, step, error=error)
        return
    try:
        if step.loop is None:
            begin_segment(draft, step, 0)
        else:
            _begin_loop(draft, step, step.loop)
    except TemplateFailed as exc:
        leave.leave_failed(draft, step, error=template_error(exc))


def _admits(draft: Draft, step: Step) -> bool:
    where = f"step {step.name!r}, spec.policy.admit"
    for number, rule in enumerate(step.admit, 1):
        if templates.holds(rule.when, draft.scope(), where=f"{where}, rule {number}.when"):
            if not rule.allow and draft.playbook.no_next_is_error:
                raise TemplateFailed("not admitted, and the playbook says that is an error", where=where)
            return rule.allow
    return True


def template_error(exc: TemplateFailed) -> dict[str, Any]:
    """Return the error of an expression that could not be evaluated."""
    return {"code": exc.code, "kind": "template", "message": str(exc), "retryable": False, **exc.details()}


def _begin_loop(draft: Draft, step: Step, loop: Loop) -> None:
    scope = draft.scope()
    where = f"step {step.name!r}, loop"
    rendered = templates.render(loop.source, scope, where=f"{where}.in")
    items = collection_of(rendered, where=f"{where}.in", expression=str(loop.source))
    size = items if isinstance(items, int) else len(items)
    if size > LOOP_ITEMS_MAX:
        message = f"expected at most {LOOP_ITEMS_MAX} items, found {size}"
        raise TemplateFailed(message, expression=str(loop.source), where=f"{where}.in")
    in_flight_max = 1
    if loop.mode == "parallel":
        rendered = templates.render(loop.max_in_flight, scope, where=f"{where}.spec.max_in_flight")
        in_flight_max = in_flight_of(rendered, where=f"{where}.spec.max_in_flight", expression=str(loop.max_in_flight))
    cause = draft.state.active[step.name].cause
    context: dict[str, Any] = {"size": size, "max_in_flight": in_flight_max, "mode": loop.mode}
    if not isinstance(items, int):
        context["items"] = msgspec.to_builtins(draft.value(items, label=f"{step.name}.loop"))
    if loop.mode == "parallel" and not step.segments[0].is_child and size:
        # A parallel loop's items share one context, as it is when the loop begins.
        context["context_id"] = add_context(draft, step, 0, total=size)
    epoch = hashed_id(draft.state.execution_id, step.name, cause)
    draft.emit("loop.started", step=step.name, status="STARTED", loop_epoch=epoch, context=context)
    continue_loop(draft, step)


def collection_of(value: Any, *, where: str, expression: str = "") -> list[Any] | int:
    """Return what a loop goes over: a list, or n for range(n).

    Shapes: a list is itself; an object becomes [{key, value}]; a string is a JSON array, or is cut at commas and
    newlines; a whole number n is 0..n-1.
    Errors: TemplateFailed for null, a boolean, or anything else.
    """
    if isinstance(value, bool) or value is None:
        pass
    elif isinstance(value, list | tuple):
        return list(value)
    elif isinstance(value, int | float) and value >= 0 and value == int(min(value, LOOP_ITEMS_MAX + 1)):
        return int(value)
    elif isinstance(value, dict):
        return [{"key": key, "value": item} for key, item in value.items()]
    elif isinstance(value, str):
        try:
            parsed = msgspec.json.decode(value)
        except msgspec.DecodeError:
            parsed = None
        if isinstance(parsed, list):
            return parsed
        return [part.strip() for part in value.replace("\n", ",").split(",") if part.strip()]
    found = "null" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
    message = f"expected an iterable (list, object, text or whole number), found {found}"
    raise TemplateFailed(message, expression=expression, where=where)


def in_flight_of(value: Any, *, where: str, expression: str = "") -> int:
    """Return how many items may run at a time. Errors: TemplateFailed unless 1..10,000."""
    if value is None or value == "":
        return IN_FLIGHT_DEFAULT
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if not 1 <= number <= IN_FLIGHT_MAX:
        message = f"expected a whole number from 1 to {IN_FLIGHT_MAX}, found {value!r}"
        raise TemplateFailed(message, expression=expression, where=where)
    return number


def continue_loop(draft: Draft, step: Step) -> None:
    """Issue the loop's next window, or end the loop when its last item has ended."""
    if draft.expanding:
        return  # an item ended while it began; the window that is being issued goes on by itself
    draft.expanding = True
    begun = 0
    while room := _room(draft, step, begun):
        loop = draft.state.active[step.name].loop
        assert loop is not None
        items = None if loop.items is None else load_value(draft, loop.items)
        for index in range(loop.issued_upto, loop.issued_upto + room):
            begin_segment(draft, step, 0, index=index, item=item_at(loop.items, items, index))
        begun += room
    draft.expanding = False
    loop = draft.state.active[step.name].loop
    assert loop is not None
    if loop.open:
        return
    if loop.failed or loop.issued_upto >= loop.size:
        leave.leave_loop(draft, step)
    elif draft.state.failure is None and draft.state.cancelling is None:
        # Every item of this decision ended as it began, so no report will come: ask to be woken for the next window.
        timer_id = hashed_id(draft.cause.event_id, step.name, "continue")
        draft.decision.timers.append(Timer(timer_id=timer_id, due_s=0.0, kind=f"continue:{step.name}"))


def _room(draft: Draft, step: Step, begun: int) -> int:
    loop = draft.state.active[step.name].loop
    assert loop is not None
    # What failed here or elsewhere is not made worse: items in flight drain, none is added.
    if loop.failed or draft.state.failure is not None or draft.state.cancelling is not None or draft.is_full:
        return 0
    return min(loop.max_in_flight - len(loop.open), loop.size - loop.issued_upto, COMMANDS_PER_INPUT_MAX - begun)


def load_value(draft: Draft, value: Value) -> Any:
    """Return a variable's value, loading it when it is held by reference."""
    return draft.load(value.ref, None) if value.ref is not None else value.v


def item_at(source: Value | None, items: list[Any] | None, index: int) -> Item:
    """Return item `index` of a collection: itself when small, else its place in the payload `source` names."""
    if items is None or source is None:
        return Item(v=index)
    if fits_inline(encode(items[index]), ITEM_INLINE_BYTES_MAX):
        return Item(v=items[index])
    if source.ref is None:
        return Item(v=items[index])
    return Item(ref=source.ref, index=index)


def begin_segment(
    draft: Draft, step: Step, number: int, *, index: int = -1, item: Item | None = None, prior: Ref | None = None
) -> None:
    """Begin one segment of a body: issue its command, or start the child of its `playbook` task."""
    if step.segments[number].is_child:
        children.start_child(draft, step, number, index=index, item=item, prior=prior)
        return
    entry = draft.state.active[step.name]
    epoch = entry.loop.epoch if entry.loop else 0
    shared = entry.loop.context_id if entry.loop and number == 0 else 0
    if prior is not None:
        item = msgspec.structs.replace(item or Item(), prior=prior)
    command_id = segment_id(draft, step, number, index=index)
    context = segment_context(step, number, prior=prior)
    event = draft.emit(
        "command.issued",
        step=step.name,
        status="PENDING",
        command_id=command_id,
        loop_epoch=epoch,
        iter_index=index,
        dedup_key=f"issued:{command_id}",
        context=context,
        meta={} if index >= 0 else {"tool_kind": step.segments[number].tasks[0].kind, "pool": step.pool},
    )
    draft.decision.commands.append(
        Command(
            execution_id=draft.state.execution_id,
            command_id=command_id,
            step=step.name,
            context_id=shared or add_context(draft, step, number, total=entry.loop.size if entry.loop else 0),
            issued_event_id=event.event_id,
            pool=step.pool,
            loop_epoch=epoch,
            iter_index=index,
            item=item,
        )
    )


def segment_id(draft: Draft, step: Step, number: int, *, index: int) -> int:
    """Return the command id of a segment: the same cause always gets the same, a segment begun again another."""
    entry = draft.state.active[step.name]
    epoch = entry.loop.epoch if entry.loop else 0
    # A rule may jump back, or retry: what begins a segment is its own cause, by the id its event will have.
    return hashed_id(draft.state.execution_id, step.name, entry.cause, epoch, index, number, draft.next_event_id)


def segment_context(step: Step, number: int, *, prior: Ref | None) -> dict[str, Any] | None:
    """Return what the event of a segment must say for the fold; nothing for the usual body of one segment."""
    if len(step.segments) == 1:
        return None
    more = number + 1 < len(step.segments)
    return {"segment": number, "more": more, **({"prior": reference_of(prior)} if prior is not None else {})}


def add_context(draft: Draft, step: Step, number: int, *, total: int) -> int:
    """Make the context that a segment's commands share; return its id, a digest of what it says."""
    state = draft.state
    names = step.names
    context = CommandContext(
        execution_id=state.execution_id,
        catalog_id=state.catalog_id,
        path=state.path,
        version=state.version,
        step=step.name,
        tasks=step.segments[number].tasks,
        is_pipeline=step.is_pipeline,
        more=number + 1 < len(step.segments),
        workload=state.workload,
        ctx={k: v for k, v in state.ctx.items() if names is None or "ctx" in names or k in names},
        results={k: v for k, v in state.results.items() if names is None or k in names},
        iterator=step.loop.iterator if step.loop else "",
        total=total,
        keychain=draft.playbook.keychain,
        parent_execution_id=state.parent_execution_id,
        last=state.last_result if names is None or "result" in names else None,
    )
    context_id = hashed_id(encode(context))
    draft.decision.contexts[context_id] = context
    return context_id

"""Loops: begin one, issue its next items, and end it when the last has ended."""

from typing import Any

import msgspec

from noetl_common.core import templates
from noetl_common.core.playbook import Loop, Step
from noetl_common.core.policy import DELAY_MAX_S
from noetl_common.core.routing import cursor, leave
from noetl_common.core.routing.bodies import Start
from noetl_common.core.routing.draft import Draft, Timer
from noetl_common.core.routing.items import (
    COMMANDS_PER_INPUT_MAX,
    IN_FLIGHT_DEFAULT,
    IN_FLIGHT_MAX,
    LOOP_ITEMS_MAX,
    Limit,
    collection_of,
    item_at,
    item_of,
    limit_of,
    load_value,
    may_begin,
)
from noetl_common.core.routing.segments import add_context, begin_segment
from noetl_common.core.scope import Scope
from noetl_common.core.shard import hashed_id
from noetl_common.core.state import LoopState
from noetl_common.core.tables import Rows
from noetl_common.core.values import Value
from noetl_common.errors import TemplateFailed

SHARD_RETRIES_DEFAULT = 2
SHARD_RETRIES_MAX = 100
SHARD_RETRY_DELAY_S = 0.1  # doubled with each further retry of an item
IN_FLIGHT = Limit(IN_FLIGHT_DEFAULT, 1, IN_FLIGHT_MAX)
FAILURES = Limit(0, 0, LOOP_ITEMS_MAX)
SHARD_RETRIES = Limit(SHARD_RETRIES_DEFAULT, 0, SHARD_RETRIES_MAX)


def begin_loop(draft: Draft, step: Step, loop: Loop) -> None:
    """Open the loop of a step that was entered, and issue its first items. Errors: TemplateFailed."""
    scope = draft.scope()
    where = f"step {step.name!r}, loop"
    context: dict[str, Any] = {"size": 0, "max_in_flight": 1, "mode": loop.mode}
    failures = limit_of(loop.max_failures, scope, limit=FAILURES, where=f"{where}.spec.max_failures")
    if failures:
        context["max_failures"] = failures
    if loop.mode == "cursor":
        context |= cursor.limits(loop, scope, where=where)
    else:
        context |= _collection(draft, step, loop, scope=scope, where=where)
    is_shared = loop.mode != "sequential" and not step.segments[0].is_child
    if is_shared and (context["size"] or loop.mode == "cursor"):
        # The items of such a loop share one context, as it is when the loop begins.
        context["context_id"] = add_context(draft, step, 0, total=context["size"], in_loop=True)
    cause = draft.state.active[step.name].cause
    epoch = hashed_id(draft.state.execution_id, step.name, cause)
    draft.emit("loop.started", step=step.name, status="STARTED", loop_epoch=epoch, context=context)
    draft.loops[step.name] = None


def _collection(draft: Draft, step: Step, loop: Loop, *, scope: Scope, where: str) -> dict[str, Any]:
    """Return what `loop.started` says of a loop over a collection."""
    rendered = templates.render_rows(loop.source, scope, where=f"{where}.in")
    items = collection_of(rendered, where=f"{where}.in", expression=str(loop.source))
    size = items if isinstance(items, int) else len(items)
    if size > LOOP_ITEMS_MAX:
        message = f"expected at most {LOOP_ITEMS_MAX} items, found {size}"
        raise TemplateFailed(message, expression=str(loop.source), where=f"{where}.in")
    context: dict[str, Any] = {"size": size}
    if loop.mode != "sequential":
        context["max_in_flight"] = limit_of(
            loop.max_in_flight, scope, limit=IN_FLIGHT, where=f"{where}.spec.max_in_flight"
        )
    if loop.mode == "fanout":
        place = f"{where}.spec.fanout.max_shard_retries"
        context["max_retries"] = limit_of(loop.max_shard_retries, scope, limit=SHARD_RETRIES, where=place)
    if isinstance(items, Rows):
        # They stay where they are stored: windows are read as they are issued.
        context["items"] = msgspec.to_builtins(Value(ref=items.ref))
    elif not isinstance(items, int):
        context["items"] = msgspec.to_builtins(draft.value(items, label=f"{step.name}.loop"))
    return context


def continue_loop(draft: Draft, step: Step) -> None:
    """Issue what may be issued of a loop now, or end the loop when its last item has ended."""
    entry = draft.state.active.get(step.name)
    if entry is None or entry.loop is None:
        return  # it was left meanwhile
    loop = entry.loop
    if loop.cursor is not None:
        cursor.issue(draft, step, loop)
    elif loop.stream is None:
        _issue(draft, step, loop)
    if loop.is_over:
        leave.leave_loop(draft, step)
    elif not loop.awaits and not draft.is_stopping:
        # Every item of this decision ended as it began, so no report will come: ask to be woken for the next window.
        timer_id = hashed_id(draft.cause.event_id, step.name, "continue")
        draft.decision.timers.append(Timer(timer_id=timer_id, due_s=0.0, kind=f"continue:{step.name}"))


def _issue(draft: Draft, step: Step, loop: LoopState) -> None:
    begun = 0
    while may_begin(draft, loop, begun) and loop.again:
        for index in sorted(loop.again)[: COMMANDS_PER_INPUT_MAX - begun]:
            retries = loop.retries[index]
            item, delay_s = item_of(draft, loop, index), SHARD_RETRY_DELAY_S * 2.0 ** (retries - 1)
            begin_segment(
                draft,
                step,
                Start(index=index, item=item, place={"retry": retries}, delay_s=min(delay_s, DELAY_MAX_S)),
            )
            begun += 1
    while may_begin(draft, loop, begun):
        room = min(loop.max_in_flight - len(loop.open), loop.size - loop.issued_upto, COMMANDS_PER_INPUT_MAX - begun)
        if not room:
            return
        items = None if loop.items is None else load_value(draft, loop.items)
        for index in range(loop.issued_upto, loop.issued_upto + room):
            begin_segment(draft, step, Start(index=index, item=item_at(loop.items, items, index)))
        begun += room

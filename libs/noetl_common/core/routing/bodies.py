"""Bodies: what a segment of one begins with, what its event says, and what its templates see."""

from typing import Any

import msgspec

from noetl_common.core import results
from noetl_common.core.commands import CHUNK, Item
from noetl_common.core.fold import Place
from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Step
from noetl_common.core.routing.draft import Draft
from noetl_common.core.routing.items import item_of, iteration_of
from noetl_common.core.scope import Scope
from noetl_common.core.shard import hashed_id
from noetl_common.core.values import Ref, reference_of


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a segment begins with.

    Shapes: `segment` is its number; `index` and `item` those of a loop's item; `prior` the results of the segments
    before; `place` what the event says of where the item is from: {frame, row}, {chunk} or {retry}.
    `attempt` counts the starts of a `playbook` task.
    """

    segment: int = 0
    index: int = -1
    item: Item | None = None
    prior: Ref | None = None
    place: dict[str, Any] = {}
    delay_s: float = 0.0
    attempt: int = 1


def start_of(draft: Draft, place: Place, index: int, *, segment: int, prior: Ref | None, attempt: int = 1) -> Start:
    """Return what a further segment of a body begins with."""
    loop = place.entry.loop
    item = None if loop is None else item_of(draft, loop, index)
    return Start(segment=segment, index=index, item=item, prior=prior, attempt=attempt)


def place_of(draft: Draft, step: Step, index: int) -> Place:
    """Return where the body stands of a step, or of an item whose loop calls playbooks."""
    entry = draft.state.active[step.name]
    return Place(step.name, entry, entry.loop.children[index] if entry.loop else entry.activity)


def epoch_of(draft: Draft, step: Step) -> int:
    """Return the epoch of a step's loop, 0 for a step without one."""
    loop = draft.state.active[step.name].loop
    return loop.epoch if loop else 0


def segment_id(draft: Draft, step: Step, start: Start) -> int:
    """Return the command id of a segment: the same cause always gets the same, a segment begun again another."""
    cause = draft.state.active[step.name].cause
    epoch = epoch_of(draft, step)
    # A rule may jump back, or retry: what begins a segment is its own cause, by the id its event will have.
    return hashed_id(draft.state.execution_id, step.name, cause, epoch, start.index, start.segment, draft.next_event_id)


def segment_context(step: Step, start: Start) -> dict[str, Any]:
    """Return what the event of a segment must say for the fold; nothing for the usual body of one segment."""
    context = dict(start.place)
    if len(step.segments) > 1 or step.segments[start.segment].is_child:
        context |= {"segment": start.segment, "more": start.segment + 1 < len(step.segments)}
        if start.prior is not None:
            context["prior"] = reference_of(start.prior)
    return context


def iterator_of(step: Step) -> str:
    """Return the name that bodies of a step's loop know their item by; a consumer's is `chunk`."""
    return step.loop.iterator if step.loop is not None else CHUNK


def handed_on(draft: Draft, prior: Ref | None) -> results.Carried:
    """Return what the segments before hand on, for changing."""
    return (
        results.carried_in(results.plain(draft.load(prior, None))) if prior is not None else results.Carried({}, {}, {})
    )


def body_scope(draft: Draft, step: Step, *, index: int, item: Item | None, prior: Ref | None) -> Scope:
    """Return what the templates of a `playbook` task see: the item, and the tasks before it by label."""
    iteration: dict[str, Any] = {}
    loop = draft.state.active[step.name].loop
    if loop is not None and item is not None:
        iteration = iteration_of(draft, loop, item, index=index, iterator=iterator_of(step))
    handed = handed_on(draft, prior)
    labels = {label: results.output_raw_view(Outcome(data=data)) for label, data in handed.labelled.items()}
    return draft.scope(locals={**labels, **handed.names}, iteration={**iteration, **handed.iteration})

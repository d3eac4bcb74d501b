"""Segments of a body: issue the command of one, or start the child of its `playbook` task."""

from typing import Any

import msgspec

from noetl_common.core.commands import Command, CommandContext, Item
from noetl_common.core.playbook import Step
from noetl_common.core.routing import children
from noetl_common.core.routing.bodies import Start, epoch_of, iterator_of, segment_context, segment_id
from noetl_common.core.routing.draft import Draft, encode
from noetl_common.core.shard import hashed_id


def begin_segment(draft: Draft, step: Step, start: Start) -> None:
    """Begin one segment of a body: issue its command, or start the child of its `playbook` task."""
    number, segment = start.segment, step.segments[start.segment]
    if segment.is_child:
        children.start_child(draft, step, start)
        return
    loop = draft.state.active[step.name].loop
    item = start.item
    if start.prior is not None:
        item = msgspec.structs.replace(item or Item(), prior=start.prior)
    context_id = loop.context_id if loop is not None and number == 0 else 0
    issue_command(
        draft,
        step,
        command_id=segment_id(draft, step, start),
        context_id=context_id or add_context(draft, step, number, total=collection_size(draft, step)),
        index=start.index,
        item=item,
        delay_s=start.delay_s,
        context=segment_context(step, start),
        meta={} if start.index >= 0 else {"tool_kind": segment.tasks[0].kind, "pool": step.pool},
    )


def issue_command(
    draft: Draft,
    step: Step,
    *,
    command_id: int,
    context_id: int,
    index: int,
    context: dict[str, Any],
    meta: dict[str, Any],
    item: Item | None = None,
    delay_s: float = 0.0,
) -> None:
    """Issue one command, for any worker of the step's pool."""
    epoch = epoch_of(draft, step)
    turn_s = draft.turn_s
    event = draft.emit(
        "command.issued",
        step=step.name,
        status="PENDING",
        command_id=command_id,
        loop_epoch=epoch,
        iter_index=index,
        dedup_key=f"issued:{command_id}",
        context=context or None,
        meta=meta,
    )
    draft.decision.commands.append(
        Command(
            execution_id=draft.state.execution_id,
            command_id=command_id,
            step=step.name,
            context_id=context_id,
            issued_event_id=event.event_id,
            pool=step.pool,
            priority=draft.priority_of(step),
            loop_epoch=epoch,
            iter_index=index,
            item=item,
            delay_s=delay_s,
            turn_s=turn_s,
        )
    )


def collection_size(draft: Draft, step: Step) -> int:
    """Return how many items the step's loop has, 0 where nobody knows it yet and without a loop."""
    loop = draft.state.active[step.name].loop
    return loop.size if loop is not None and loop.is_collection else 0


def add_context(draft: Draft, step: Step, number: int, *, total: int = 0, in_loop: bool | None = None) -> int:
    """Make the context that a segment's commands share; return its id, a digest of what it says.

    `in_loop`: whether bodies have an item; None when the step's loop has begun, and says so itself.
    """
    if in_loop is None:
        in_loop = draft.state.active[step.name].loop is not None
    return keep_context(
        draft,
        msgspec.structs.replace(
            bare_context(draft, step),
            tasks=step.segments[number].tasks,
            is_pipeline=step.is_pipeline,
            output=step.output if number + 1 == len(step.segments) else None,
            more=number + 1 < len(step.segments),
            iterator=iterator_of(step) if in_loop else "",
            total=total,
        ),
    )


def bare_context(draft: Draft, step: Step) -> CommandContext:
    """Return what every command of a step takes along of the execution, as it is now; of no task."""
    state = draft.state
    names = step.names
    return CommandContext(
        execution_id=state.execution_id,
        catalog_id=state.catalog_id,
        path=state.path,
        version=state.version,
        step=step.name,
        tasks=(),
        workload=state.workload,
        ctx={k: v for k, v in state.ctx.items() if names is None or "ctx" in names or k in names},
        results={k: v for k, v in state.results.items() if names is None or k in names},
        keychain=draft.playbook.keychain,
        parent_execution_id=state.parent_execution_id,
        last=state.last_result if names is None or "result" in names else None,
    )


def keep_context(draft: Draft, context: CommandContext) -> int:
    """Add a context to the decision; return its id."""
    context_id = hashed_id(encode(context))
    draft.decision.contexts[context_id] = context
    return context_id

"""Progress: what people see of a run. A second, smaller reading of the same events that `fold` reads."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from noetl_common.core.events import PLAYBOOK_TERMINALS, Event
from noetl_common.core.state import TERMINAL, ExecutionState, LoopState, Status

StepStatus = Literal["pending", "running", "completed", "failed", "skipped", "cancelled"]
UNFINISHED: frozenset[str] = frozenset({"pending", "running"})


class Items(msgspec.Struct, kw_only=True):
    """How far a loop is. `in_flight`: begun and not ended. `more`: the total grows still, of a cursor or of chunks."""

    total: int
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    more: bool = False


class StepProgress(msgspec.Struct, kw_only=True):
    """One step. Times are RFC 3339; `attempts`: the most that one of its commands needed; `items`: its last loop's."""

    status: StepStatus = "pending"
    entered: int = 0
    attempts: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    items: Items | None = None


class Counts(msgspec.Struct, kw_only=True):
    """How much happened in the whole run. `events`: all that were projected, whatever they are."""

    events: int = 0
    commands_issued: int = 0
    commands_completed: int = 0
    commands_failed: int = 0
    commands_cancelled: int = 0
    children_started: int = 0


class Progress(msgspec.Struct, kw_only=True):
    """The read model of one execution: the columns of noetl.execution from `status` on.

    Shapes: `result` is the reference of the run's result. `projection_error` {event_id, event_type, message}: this
    event could not be projected, and since then only the run's end is followed.
    """

    status: Status = "RUNNING"
    current_step: str | None = None
    steps: dict[str, StepProgress] = {}
    counts: Counts = msgspec.field(default_factory=Counts)
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    end_time: str | None = None
    projection_error: dict[str, Any] | None = None

    def step(self, name: str) -> StepProgress:
        """Return the step's progress, begun when the step is new."""
        if name not in self.steps:
            self.steps[name] = StepProgress()
        return self.steps[name]


def project(progress: Progress, event: Event, state: ExecutionState) -> Progress:
    """Return the read model after `event`; `state` is the fold after the same event. Changes `progress` itself.

    After the terminal event nothing changes but the counts. An event type that people do not look at changes nothing.
    """
    count = COUNTED.get(event.event_type)
    if count is not None:
        setattr(progress.counts, count, getattr(progress.counts, count) + 1)
    viewer = VIEWERS.get(event.event_type)
    if viewer is not None and progress.status not in TERMINAL:
        viewer(progress, event, state)
    progress.counts.events += 1
    return progress


def park(progress: Progress, event: Event, message: str) -> Progress:
    """Return the read model of a run one of whose events cannot be projected: the run's end is still followed."""
    progress.counts.events += 1
    if progress.projection_error is None:
        progress.projection_error = {
            "event_id": event.event_id,
            "event_type": event.event_type,
            "message": message[:500],
        }
    if event.event_type in PLAYBOOK_TERMINALS and progress.status not in TERMINAL:
        _close(progress, event)
    return progress


def on_step_enter(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Show the step as running."""
    step = progress.step(event.step)
    step.status = "running"
    step.entered += 1
    step.started_at = event.event_time
    step.ended_at = None
    step.items = None
    progress.current_step = event.step


def on_work(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Show how far the step's loop is, and how often its work was tried."""
    step = progress.step(event.step)
    step.attempts = max(step.attempts, event.attempt, 1)
    entry = state.active.get(event.step)
    if entry is not None and entry.loop is not None:
        step.items = _items_of(entry.loop)


def on_task_ended(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Show how often a sub-playbook was tried."""
    on_work(progress, event, state)
    step = progress.step(event.step)
    step.attempts = max(step.attempts, event.context.get("attempt", 1))


def on_loop_started(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Show the loop's size, as far as it is known."""
    entry = state.active.get(event.step)
    loop = entry.loop if entry is not None else None
    progress.step(event.step).items = _items_of(loop) if loop is not None else Items(total=event.context["size"])


def _items_of(loop: LoopState) -> Items:
    return Items(
        total=max(loop.size, loop.issued_upto),
        done=loop.done,
        failed=loop.failed,
        in_flight=len(loop.open) - len(loop.again),
        more=_may_grow(loop),
    )


def _may_grow(loop: LoopState) -> bool:
    if loop.stream is not None:
        return not loop.stream.closed
    cursor = loop.cursor
    return cursor is not None and not loop.is_stopped and bool(cursor.claims or cursor.due or cursor.frames)


def on_loop_done(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Show the loop's outcome."""
    context = event.context
    progress.step(event.step).items = Items(
        total=context["size"], done=context.get("done", 0), failed=context.get("failed", 0)
    )


def on_step_exit(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Show the step as over, and where its arcs lead as pending."""
    step = progress.step(event.step)
    step.status = "failed" if event.status == "FAILED" else "completed"
    step.ended_at = event.event_time
    _await_targets(progress, event)


def on_step_skipped(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Show the step as skipped, and where its arcs lead as pending."""
    progress.step(event.step).status = "skipped"
    _await_targets(progress, event)


def _await_targets(progress: Progress, event: Event) -> None:
    for target in event.context.get("arcs", ()):
        following = progress.step(target)
        if following.status != "running":
            following.status = "pending"


def on_routing_failed(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Show why the run cannot go on."""
    progress.error = event.result.error if event.result else None


def on_playbook_ended(progress: Progress, event: Event, state: ExecutionState) -> None:
    """Close the run."""
    _close(progress, event)


def _close(progress: Progress, event: Event) -> None:
    progress.status = TERMINAL_STATUS[event.event_type]
    progress.end_time = event.event_time
    if event.result is not None:
        progress.result = event.result.reference
        progress.error = event.result.error or progress.error
    for step in progress.steps.values():
        if step.status in UNFINISHED:
            step.status = "cancelled"  # nobody waits for it any more
            step.ended_at = event.event_time if step.started_at else None
            if step.items is not None:
                step.items.in_flight, step.items.more = 0, False


TERMINAL_STATUS: dict[str, Status] = {
    "playbook.completed": "COMPLETED",
    "playbook.failed": "FAILED",
    "playbook.cancelled": "CANCELLED",
}

COUNTED: dict[str, str] = {
    "command.issued": "commands_issued",
    "command.completed": "commands_completed",
    "command.failed": "commands_failed",
    "command.cancelled": "commands_cancelled",
    "child.started": "children_started",
}

VIEWERS: dict[str, Callable[[Progress, Event, ExecutionState], None]] = {
    "step.enter": on_step_enter,
    "step.exit": on_step_exit,
    "step.skipped": on_step_skipped,
    "loop.started": on_loop_started,
    "loop.done": on_loop_done,
    "command.issued": on_work,
    "command.completed": on_work,
    "command.failed": on_work,
    "command.cancelled": on_work,
    "child.started": on_work,
    "child.ended": on_work,
    "task.ended": on_task_ended,
    "routing.failed": on_routing_failed,
    "playbook.completed": on_playbook_ended,
    "playbook.failed": on_playbook_ended,
    "playbook.cancelled": on_playbook_ended,
}

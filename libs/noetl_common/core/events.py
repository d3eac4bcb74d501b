"""What happened: the one event record, its names, and every spelling of them that clients use."""

from typing import Any, Literal, get_args

import msgspec

from noetl_common.core.shard import ord_in

EventType = Literal[
    # inputs: something arrived (ord 0)
    "playbook.started",
    "playbook.admitted",
    "command.completed",
    "command.failed",
    "command.cancelled",
    "call.partial",
    "child.ended",
    "timer.fired",
    "cancel.requested",
    "finalize.requested",
    "vars.set",
    # consequences: what routing drew from an input (ord 1..)
    "step.enter",
    "step.exit",
    "step.skipped",
    "command.issued",
    "child.started",
    "task.ended",
    "ctx.updated",
    "loop.started",
    "loop.done",
    "routing.failed",
    "playbook.completed",
    "playbook.failed",
    "playbook.cancelled",
]
EVENT_TYPES: frozenset[str] = frozenset(get_args(EventType))
COMMAND_TERMINALS: frozenset[str] = frozenset({"command.completed", "command.failed", "command.cancelled"})
PLAYBOOK_TERMINALS: frozenset[str] = frozenset({"playbook.completed", "playbook.failed", "playbook.cancelled"})

# Every spelling that the public runtimes and their clients are known to send (or to ask for).
ALIASES: dict[str, EventType] = {
    "playbook.initialized": "playbook.started",
    "playbook_started": "playbook.started",
    "playbook_initialized": "playbook.started",
    "execution_started": "playbook.started",
    "playbook_completed": "playbook.completed",
    "execution_completed": "playbook.completed",
    "execution.completed": "playbook.completed",
    "playbook_failed": "playbook.failed",
    "execution_failed": "playbook.failed",
    "execution.failed": "playbook.failed",
    "playbook_cancelled": "playbook.cancelled",
    "execution_cancelled": "playbook.cancelled",
    "execution.cancelled": "playbook.cancelled",
    "step_started": "step.enter",
    "step_enter": "step.enter",
    "step_completed": "step.exit",
    "step_exit": "step.exit",
    "step_skipped": "step.skipped",
    "call_partial": "call.partial",
    "command_issued": "command.issued",
    "command_completed": "command.completed",
    "command_failed": "command.failed",
    "command_cancelled": "command.cancelled",
    "action_completed": "command.completed",
    "action_failed": "command.failed",
    "loop_started": "loop.started",
    "iterator_started": "loop.started",
    "loop_done": "loop.done",
    "iterator_completed": "loop.done",
    "ctx_updated": "ctx.updated",
}

# Accepted from foreign workers and acknowledged, but not facts of the run: never stored.
INFORMATIVE: frozenset[str] = frozenset(
    {
        "command.claimed",
        "command_claimed",
        "command.started",
        "command_started",
        "command.heartbeat",
        "command_heartbeat",
        "call.done",
        "call.error",
        "call.partial",
        "case.evaluated",
        "worker.capacity",
        "workflow.initialized",
        "workflow.completed",
        "workflow.failed",
        "checkpoint.committed",
        "step.enter",
        "step.exit",
    }
)


class Envelope(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The only shape of `event.result`; the database refuses more.

    Shapes: `reference`/`parent_ref` as `values.reference_of` makes them; `context` small values routing needs,
    never rows, columns, data, payload, result or response; `error` {code, message, kind, retryable, ...}.
    """

    status: str
    reference: dict[str, Any] | None = None
    parent_ref: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Event(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A fact, never changed once written. `event_id` 0 means: not yet numbered."""

    execution_id: int
    event_type: str
    event_id: int = 0
    step: str = ""
    command_id: int = 0
    attempt: int = 0
    loop_epoch: int = 0
    iter_index: int = -1
    status: str = ""
    result: Envelope | None = None
    meta: dict[str, Any] = {}
    dedup_key: str | None = None
    catalog_id: int = 0
    parent_execution_id: int = 0
    worker_id: str = ""
    event_time: str = ""  # RFC 3339 UTC; the database fills it when empty

    @property
    def is_input(self) -> bool:
        """True for what arrived, False for what routing drew from it."""
        return ord_in(self.event_id) == 0

    @property
    def context(self) -> dict[str, Any]:
        """The envelope's context, empty when there is none."""
        return (self.result.context if self.result else None) or {}


def canonical(event_type: str) -> str:
    """Return the stored spelling of an event name; an unknown name is returned as it is."""
    return ALIASES.get(event_type, event_type)

"""What is: all that routing needs to know of one execution. O(steps + items in flight), never O(items)."""

from typing import Any, Literal

import msgspec

from noetl_common.core.values import Ref, Value

Status = Literal["RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
TERMINAL: frozenset[str] = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


class Activity(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One body in progress: of a step, or of one item of a loop that calls playbooks.

    `segment` counts the parts a pipeline is cut into at its `playbook` tasks. At most one of `command_id` (a worker
    runs the segment, or a child whose parent command it is) and `timer_id` (a retry waits) is set.
    """

    segment: int = 0
    command_id: int = 0
    child_id: int = 0
    timer_id: int = 0
    attempt: int = 1  # of the playbook task, when its rules retry it
    more: bool = False  # another segment follows
    prior: Ref | None = None  # the results of the tasks so far

    @property
    def in_flight(self) -> bool:
        """True while a worker or a child will still report for this body; a retry that waits reports nothing."""
        return self.command_id != 0


class LoopState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One entry of a loop step. Indices below `issued_upto` that are not in `open` have ended."""

    epoch: int
    size: int
    max_in_flight: int
    items: Value | None = None  # the collection; None: range(size)
    context_id: int = 0  # what the items of a parallel loop share, as it was when the loop began
    issued_upto: int = 0
    done: int = 0
    failed: int = 0
    open: set[int] = set()
    children: dict[int, Activity] = {}  # only loops whose body calls a playbook
    error: dict[str, Any] | None = None  # the first failure of an item

    @property
    def in_flight(self) -> bool:
        """True while something will still report for one of the items."""
        return any(index not in self.children or self.children[index].in_flight for index in self.open)


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A token that stands at a step: the step was entered and has not exited."""

    cause: int  # the event that dispatched it
    activity: Activity = msgspec.field(default_factory=Activity)
    loop: LoopState | None = None

    @property
    def in_flight(self) -> bool:
        """True while something will still report for this step."""
        return self.activity.in_flight or bool(self.loop and self.loop.in_flight)


class ExecutionState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The fold of one execution's events up to `last_event_id`."""

    execution_id: int
    last_event_id: int = 0
    status: Status = "RUNNING"
    started: bool = False
    catalog_id: int = 0
    path: str = ""
    version: int = 0
    parent_execution_id: int = 0
    parent_place: dict[str, Any] | None = None  # {command_id, step, loop_epoch, iter_index} that awaits this child
    return_step: str = ""
    depth: int = 0  # of sub-playbooks
    workload: Value = msgspec.field(default_factory=lambda: Value({}))
    ctx: dict[str, Value] = {}
    results: dict[str, Ref] = {}
    active: dict[str, Entry] = {}
    pending: dict[str, int] = {}  # {step an arc fired to, not yet entered: the event that fired it}
    visits: dict[str, int] = {}  # {step: times entered}
    failure: dict[str, Any] | None = None  # the first failure nobody handled
    cancelling: str | None = None  # the reason given
    last_step: str = ""
    last_result: Ref | None = None
    commands_issued: int = 0

    @property
    def in_flight(self) -> bool:
        """True while a command or a child will still report."""
        return any(entry.in_flight for entry in self.active.values())

    @property
    def is_terminal(self) -> bool:
        """True once the one terminal event is folded in."""
        return self.status in TERMINAL

    def copy(self) -> "ExecutionState":
        """Return a state that shares nothing mutable with this one."""
        twin = msgspec.structs.replace(
            self,
            ctx=dict(self.ctx),
            results=dict(self.results),
            pending=dict(self.pending),
            visits=dict(self.visits),
        )
        twin.active = {step: _copy_entry(entry) for step, entry in self.active.items()}
        return twin


def _copy_entry(entry: Entry) -> Entry:
    loop = entry.loop
    if loop is not None:
        children = {index: msgspec.structs.replace(child) for index, child in loop.children.items()}
        loop = msgspec.structs.replace(loop, open=set(loop.open), children=children)
    return Entry(cause=entry.cause, activity=msgspec.structs.replace(entry.activity), loop=loop)

"""What is: all that routing needs to know of one execution. O(steps + items in flight), never O(items)."""

from typing import Any, Literal

import msgspec

from noetl_common.core.groups import Group
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


class FrameState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one claim of a cursor loop brought: `size` items, one a row, or one when a body takes the whole frame."""

    ref: Ref
    size: int
    issued: int = 0
    open: int = 0


class CursorState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far a cursor loop is: claims and frames together are at most `max_in_flight`.

    Shapes: `frames` {command of the claim: what it brought}; `rows` {open index: (command of the claim, row in it)}.
    """

    max_rows: int
    row_concurrency: int
    whole: bool = False  # a body takes a frame, not a row
    claims: set[int] = set()  # commands that will report
    due: int = 1  # claims to be issued
    frames: dict[int, FrameState] = {}
    rows: dict[int, tuple[int, int]] = {}
    claimed: int = 0  # rows so far
    failed: bool = False  # a claim did


class StreamState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What feeds a consumer: the chunks of step `producer`, until that step is left.

    Shapes: `chunks` {open index: the chunk}, of bodies that are begun again with it: those that call playbooks.
    """

    producer: str
    closed: bool = False
    chunks: dict[int, Ref] = {}


class LoopState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One entry of a loop step, or of a consumer. Indices below `issued_upto` that are not in `open` have ended.

    `size` counts the items; those of a cursor or a stream as far as they are known.
    """

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
    max_failures: int = 0  # of items, and the step still succeeds
    drains: bool = False  # a fan-out: failures never keep the other items from running
    max_retries: int = 0  # how often an item that failed is issued again
    retries: dict[int, int] = {}  # {open index: how often it was}
    again: set[int] = set()  # open indices that failed and are to be issued again
    cursor: CursorState | None = None
    stream: StreamState | None = None

    @property
    def in_flight(self) -> bool:
        """True while something will still report for one of the items, or for a claim."""
        if self.cursor is not None and self.cursor.claims:
            return True
        return any(
            index not in self.again and (index not in self.children or self.children[index].in_flight)
            for index in self.open
        )

    @property
    def has_failed(self) -> bool:
        """True when more items failed than may, or a claim did."""
        return self.failed > self.max_failures or (self.cursor is not None and self.cursor.failed)

    @property
    def is_stopped(self) -> bool:
        """True when no further item is begun: what is in flight drains."""
        return self.has_failed and not self.drains

    @property
    def awaits(self) -> bool:
        """True while a report or a timer will move the loop on."""
        has_claims = self.cursor is not None and bool(self.cursor.claims)
        return has_claims or len(self.open) > len(self.again) or self.stream is not None

    @property
    def is_over(self) -> bool:
        """True when no item is open and none will be begun."""
        if self.open or (self.cursor is not None and self.cursor.claims):
            return False
        if self.stream is not None:
            return self.stream.closed
        if self.is_stopped:
            return True
        if self.cursor is not None:
            return not self.cursor.frames and not self.cursor.due
        return self.issued_upto >= self.size

    @property
    def is_collection(self) -> bool:
        """True when what the loop goes over was known when it began."""
        return self.cursor is None and self.stream is None

    @property
    def total(self) -> int:
        """How many items the loop has; of a cursor or a stream, how many it began."""
        return self.size if self.is_collection else self.issued_upto


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A token that stands at a step: the step was entered and has not exited."""

    cause: int  # the event that dispatched it
    activity: Activity = msgspec.field(default_factory=Activity)
    loop: LoopState | None = None

    @property
    def in_flight(self) -> bool:
        """True while something will still report for this step."""
        return self.activity.in_flight or bool(self.loop and self.loop.in_flight)

    @property
    def under_way(self) -> int:
        """How many commands and children of this step are begun and have not ended."""
        loop = self.loop
        if loop is None:
            return int(self.activity.in_flight)
        return len(loop.open) - len(loop.again) + (len(loop.cursor.claims) if loop.cursor is not None else 0)


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
    priority: int | None = None  # that its start, or the run above it, asks for
    group: Group | None = None  # the concurrency group that it has a place in, or waits for one
    is_waiting: bool = False  # for that place: nothing of it begins before
    groups_above: list[int] = []  # in which a run that waits for this one has a place
    behind: int = 0  # how much of the runs above it was under way when it was started
    workload: Value = msgspec.field(default_factory=lambda: Value({}))
    ctx: dict[str, Value] = {}
    results: dict[str, Ref] = {}
    active: dict[str, Entry] = {}
    pending: dict[str, int] = {}  # {step an arc fired to, not yet entered: the event that fired it}
    visits: dict[str, int] = {}  # {step: times entered or skipped}
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
    def under_way(self) -> int:
        """How many of its commands and children are begun and have not ended."""
        return sum(entry.under_way for entry in self.active.values())

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
        loop.retries, loop.again = dict(loop.retries), set(loop.again)
        if loop.cursor is not None:
            frames = {claim: msgspec.structs.replace(frame) for claim, frame in loop.cursor.frames.items()}
            loop.cursor = msgspec.structs.replace(
                loop.cursor, claims=set(loop.cursor.claims), frames=frames, rows=dict(loop.cursor.rows)
            )
        if loop.stream is not None:
            loop.stream = msgspec.structs.replace(loop.stream, chunks=dict(loop.stream.chunks))
    return Entry(cause=entry.cause, activity=msgspec.structs.replace(entry.activity), loop=loop)

"""A decision being made: consequences are numbered and folded in as they are drawn."""

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from noetl_common.core import results as results_of
from noetl_common.core.commands import TURN_S, Command, CommandContext
from noetl_common.core.events import Envelope, Event
from noetl_common.core.fold import fold
from noetl_common.core.groups import Group
from noetl_common.core.playbook import Playbook, Step
from noetl_common.core.scope import Load, Scope, system_names
from noetl_common.core.shard import ORD_MAX, hashed_id
from noetl_common.core.state import ExecutionState
from noetl_common.core.values import INLINE_VALUE_BYTES_MAX, Ref, TierRule, Value
from noetl_common.core.values import fits_inline as fits_inline
from noetl_common.errors import TemplateFailed

ERROR_TEXT_MAX = 1_000  # characters
CONSEQUENCES_MAX = 8_000  # of one input: past them a decision stops and asks to be woken; ids have room for 32,767
encode = msgspec.json.Encoder(enc_hook=str).encode


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A registered playbook as routing needs it to start a child."""

    catalog_id: int
    version: int
    playbook: Playbook


Wanted = tuple[str, int | None]  # a path, and the version asked for; None: the newest


class NeedPlaybook(Exception):
    """A child's playbook is not loaded; the shell reads it from the catalog and decides again."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class World(msgspec.Struct, kw_only=True):
    """What a decision may look at beside the state: loaded payloads, loaded playbooks, fresh ids."""

    load: Load
    playbooks: Mapping[Wanted, CatalogEntry | tuple[int, ...]]  # no such version: those that there are, newest first
    fresh_ids: Iterator[int]  # execution ids nobody has used
    tiers: TierRule = TierRule()
    env: Mapping[str, str] = {}  # what workload templates may read of the environment


class Payload(msgspec.Struct, kw_only=True):
    """A payload that routing made; stored before the event that names it is visible."""

    ref: Ref
    body: bytes
    value: Any
    loop_epoch: int = 0
    iter_index: int = -1


class Child(msgspec.Struct, kw_only=True):
    """An execution row to create for a sub-playbook."""

    execution_id: int
    catalog_id: int
    path: str
    version: int
    parent_execution_id: int
    parent_command_id: int
    group: Group | None = None


class Timer(msgspec.Struct, kw_only=True):
    """Something to be woken for, `due_s` from the moment of the decision."""

    timer_id: int
    due_s: float
    kind: str


class Following(msgspec.Struct, frozen=True, kw_only=True):
    """A body goes on with another segment."""

    step: str
    index: int
    segment: int
    prior: Ref | None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a step without a loop is over, with its result or its error."""

    step: str
    ref: Ref | None
    error: dict[str, Any] | None


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose own `when` does not hold is passed by: what remains to be drawn is where its arcs lead."""

    step: str


class Decision(msgspec.Struct, kw_only=True):
    """All consequences of one input. Applied whole or not at all."""

    state: ExecutionState
    events: list[Event] = []
    commands: list[Command] = []
    contexts: dict[int, CommandContext] = {}
    payloads: list[Payload] = []
    children: list[Child] = []
    timers: list[Timer] = []
    inputs: list[Event] = []  # for other executions: starts, ends and cancels of children
    cancels_commands: bool = False  # what is queued is cancelled, what is claimed is asked to stop


class Draft:
    """One decision while it is drawn. `state` is its own copy, always exact after the last consequence.

    `notes` and `loops` say what is still to be drawn: bodies that went on or ended without a worker, steps passed by,
    and loops in which an item ended (a set in order). Whoever draws these consequences leaves a note instead of doing
    it himself.
    """

    def __init__(self, playbook: Playbook, state: ExecutionState, *, cause: Event, world: World) -> None:
        self.playbook = playbook
        self.cause = cause
        self.world = world
        self.decision = Decision(state=state)
        self.notes: deque[Following | Ended | Passed] = deque()
        self.loops: dict[str, None] = {}
        self._made: dict[int, Any] = {}

    @property
    def state(self) -> ExecutionState:
        """The state after all consequences drawn so far."""
        return self.decision.state

    @property
    def next_event_id(self) -> int:
        """The id of the consequence drawn next. Errors: ValueError when the input's ids are used up."""
        number = len(self.decision.events) + 1
        if number > ORD_MAX:
            raise ValueError(f"expected at most {ORD_MAX} consequences of one input")
        return self.cause.event_id + number

    @property
    def is_full(self) -> bool:
        """True when enough was drawn for one transaction."""
        return len(self.decision.events) >= CONSEQUENCES_MAX

    def emit(
        self,
        event_type: str,
        *,
        step: str = "",
        status: str = "",
        context: dict[str, Any] | None = None,
        reference: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
        dedup_key: str | None = None,
        **columns: Any,
    ) -> Event:
        """Draw one consequence: number it right behind its cause, fold it in, return it."""
        result = None
        if context or reference or error:
            error = bounded_error(error) if error else None
            result = Envelope(status=status or "OK", reference=reference, context=context or None, error=error)
        event = Event(
            execution_id=self.state.execution_id,
            event_id=self.next_event_id,
            event_type=event_type,
            step=step,
            status=status,
            result=result,
            dedup_key=dedup_key,
            catalog_id=self.state.catalog_id,
            parent_execution_id=self.state.parent_execution_id,
            event_time=self.cause.event_time,
            **columns,
        )
        self.decision.events.append(event)
        self.decision.state = fold(self.state, event)
        return event

    def value(self, value: Any, *, label: str) -> Value:
        """Return `value` as it stands in events and state: inline when small, else as a payload of its own."""
        body = encode(value)
        if fits_inline(body, INLINE_VALUE_BYTES_MAX):
            return Value(value)
        return Value(ref=self.payload(value, label=label, body=body))

    def payload(self, value: Any, *, label: str, body: bytes | None = None, **place: Any) -> Ref:
        """Make `value` a payload of this execution; `place` may hold shape, execution_id, loop_epoch, iter_index."""
        body = encode(value) if body is None else body
        ref = Ref(
            execution_id=place.get("execution_id", self.state.execution_id),
            ref_id=hashed_id(self.cause.event_id, len(self.decision.payloads), label),
            tier=self.world.tiers.of(len(body)),
            bytes=len(body),
            sha256=hashlib.sha256(body).hexdigest(),
            shape=place.get("shape", "plain"),
            label=label,
        )
        self._made[ref.ref_id] = value
        self.decision.payloads.append(
            Payload(
                ref=ref,
                body=body,
                value=value,
                loop_epoch=place.get("loop_epoch", 0),
                iter_index=place.get("iter_index", -1),
            )
        )
        return ref

    def load(self, ref: Ref, key: str | None) -> Any:
        """Return a payload, or one key of it; what this decision made is at hand, the rest comes from the world."""
        if ref.ref_id in self._made:
            value = self._made[ref.ref_id]
            return value if key is None else value[key]
        return self.world.load(ref, key)

    def scope(
        self,
        *,
        locals: Mapping[str, Any] | None = None,
        iteration: Mapping[str, Any] | None = None,
        results: Mapping[str, Ref] | None = None,
    ) -> Scope:
        """Return what templates of this execution see now."""
        state = self.state
        return Scope(
            load=self.load,
            workload=state.workload,
            ctx=state.ctx,
            results={**state.results, **results} if results else state.results,
            system=system_of(state, last=results_of.view(state.last_result, self.load) if state.last_result else None),
            iteration=iteration or {},
            locals=locals or {},
        )

    @property
    def is_stopping(self) -> bool:
        """True when the run begins nothing more: something failed, or it is cancelled."""
        return self.state.failure is not None or self.state.cancelling is not None

    @property
    def behind(self) -> int:
        """How much of this run, and of those above it, is under way: the next of it waits its turn behind that."""
        return self.state.behind + self.state.under_way

    @property
    def turn_s(self) -> float:
        """How long after its issue the turn of the command issued next comes (docs/adr/0028-claims-take-turns.md)."""
        return self.behind * TURN_S

    def priority_of(self, step: Step) -> int:
        """Return how urgent a step's commands are: as the step says, else its run's start, else its playbook."""
        for priority in (step.priority, self.state.priority):
            if priority is not None:
                return priority
        return self.playbook.priority

    def step(self, name: str) -> Step:
        """Return a step of the playbook."""
        return self.playbook.steps[name]


def template_error(exc: TemplateFailed) -> dict[str, Any]:
    """Return the error of an expression that could not be evaluated."""
    return {"code": exc.code, "kind": "template", "message": str(exc), "retryable": False, **exc.details()}


def bounded_error(error: dict[str, Any]) -> dict[str, Any]:
    """Return `error` with its texts cut, so that an envelope that carries it fits the log."""
    return {name: value[:ERROR_TEXT_MAX] if isinstance(value, str) else value for name, value in error.items()}


def system_of(state: ExecutionState, *, last: Any = None) -> dict[str, Any]:
    """Return the names every template of an execution sees, whatever the author calls his own."""
    return system_names(
        execution_id=state.execution_id,
        catalog_id=state.catalog_id,
        path=state.path,
        version=state.version,
        parent_execution_id=state.parent_execution_id,
        last=last,
    )

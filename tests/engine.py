"""The pure core driven in memory: every decision, no IO. A tool is a function of the command that returns its data.

The tool of a claim (`is_claim`) returns the rows it takes. One that streams returns `Chunks`: each chunk is an input of
its own, and anything may happen between two of them.

Not a twin of Postgres: order, atomicity and fencing are tested on the real one.
"""

import random
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import msgspec

from noetl_common.core import route
from noetl_common.core.commands import Command, CommandContext
from noetl_common.core.events import Envelope, Event
from noetl_common.core.fold import fold
from noetl_common.core.groups import Group, group_of
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Playbook
from noetl_common.core.routing.draft import CatalogEntry, Wanted, World
from noetl_common.core.scope import NeedPayload
from noetl_common.core.shard import event_id, hashed_id
from noetl_common.core.state import ExecutionState
from noetl_common.core.values import Ref, Value, loop_stats, reference_of
from noetl_common.core.workload import effective_workload


class Failed(Exception):
    """Raised by a test's tool: the command fails with this message."""


class Chunks:
    """What a test's tool streams, and what it ends with: its data, or a failure."""

    def __init__(self, *values: Any, then: Any = None) -> None:
        self.values = list(values)
        self.then = then


class Streaming(msgspec.Struct):
    """A command that runs, and what it has still to say."""

    command: Command
    context: CommandContext
    chunks: Chunks
    sent: int = 0


Tool = Callable[[Command, CommandContext, "Engine"], Any]


class Engine:
    """One shard, any number of executions, in memory."""

    def __init__(self, *texts: str, tool: Tool | None = None, seed: int = 0) -> None:
        self.playbooks: dict[str, CatalogEntry] = {}
        self.by_catalog: dict[int, Playbook] = {}
        for catalog_id, text in enumerate(texts, 1):
            playbook, _warnings = parse(text)
            self.playbooks[playbook.path] = CatalogEntry(catalog_id=catalog_id, version=1, playbook=playbook)
            self.by_catalog[catalog_id] = playbook
        self.tool: Tool = tool or (lambda command, context, engine: {"ran": command.step})
        self.random = random.Random(seed)
        self.seq = count(1)
        self.ids = count(1000)
        self.states: dict[int, ExecutionState] = {}
        self.log: list[Event] = []
        self.inputs: list[Event] = []
        self.commands: list[Command] = []
        self.contexts: dict[int, CommandContext] = {}
        self.payloads: dict[int, Any] = {}
        self.items: dict[tuple[int, int], Any] = {}
        self.timers: list[Event] = []
        self.streaming: list[Streaming] = []
        self.groups: dict[int, list[int]] = {}  # {concurrency group: its runs in the order they came, until they end}
        self.admitted: set[int] = set()
        self.known: set[tuple[int, str]] = set()  # what the guard of the log knows of inputs

    def start(self, path: str, **payload: Any) -> int:
        """Start an execution; nothing runs until `run`."""
        entry = self.playbooks[path]
        execution_id = next(self.ids)
        workload = effective_workload(entry.playbook.workload, payload, execution_id=execution_id)
        context: dict[str, Any] = {"path": path, "version": 1, "workload": msgspec.to_builtins(Value(workload))}
        group = group_of(entry.playbook, workload, path=path, system={})
        if group is not None:
            context["group"] = msgspec.to_builtins(group)
            self.groups.setdefault(group.group_id, []).append(execution_id)
        envelope = Envelope(status="STARTED", context=context)
        self._input(
            Event(
                execution_id=execution_id,
                event_type="playbook.started",
                result=envelope,
                dedup_key="start",
                catalog_id=entry.catalog_id,
            )
        )
        return execution_id

    def run(self, path: str, **payload: Any) -> ExecutionState:
        """Start an execution and drive everything until nothing is left to do; return its state."""
        execution_id = self.start(path, **payload)
        self.drive()
        return self.states[execution_id]

    def drive(self, *, steps_max: int = 100_000) -> None:
        """Route inputs, run commands in a random order, fire timers, until all is quiet."""
        for _ in range(steps_max):
            if self.inputs:
                self.route_next()
            elif self.commands or self.streaming:
                place = self.random.randrange(len(self.commands) + len(self.streaming))
                if place < len(self.commands):
                    self.run_command(self.commands.pop(place))
                else:
                    self.stream(self.streaming[place - len(self.commands)])
            elif self.timers:
                self._input(self.timers.pop(0))
            else:
                return
        raise AssertionError("the engine did not come to rest")

    def route_next(self) -> None:
        """Decide the next input and take all its consequences."""
        event = self.inputs.pop(0)
        state = self.states.get(event.execution_id) or ExecutionState(execution_id=event.execution_id)
        playbook = self.by_catalog[event.catalog_id or state.catalog_id]
        world = World(load=self.load, playbooks=_Catalog(self.playbooks), fresh_ids=iter(self.ids))
        decision = route.decide(playbook, state, event, world=world)
        self.states[event.execution_id] = decision.state
        self.log += [event, *decision.events]
        self.payloads.update({payload.ref.ref_id: payload.value for payload in decision.payloads})
        for payload in decision.payloads:
            if payload.loop_epoch:
                self.items[payload.loop_epoch, payload.iter_index] = payload.value
        self.contexts.update(decision.contexts)
        self.commands += decision.commands
        if decision.cancels_commands:
            self._cancel(event.execution_id)
        for child in decision.children:
            if child.group is not None:
                self.groups.setdefault(child.group.group_id, []).append(child.execution_id)
        for one in decision.inputs:
            self._input(one)
        if decision.state.group is not None:
            self._admit(decision.state, decision.state.group)
        for timer in decision.timers:
            context = {"timer_id": timer.timer_id, "kind": timer.kind}
            fired = Event(
                execution_id=event.execution_id,
                event_type="timer.fired",
                result=Envelope(status="FIRED", context=context),
                dedup_key=f"timer:{timer.timer_id}",
            )
            if timer.kind not in ("cancel", "timeout"):
                self.timers.append(fired)

    def run_command(self, command: Command, *, times: int = 1) -> None:
        """Run a command with the test's tool and report it, `times` times over; one that streams only begins."""
        context = self.contexts[command.context_id]
        data: Any = None
        try:
            data = self.tool(command, context, self)
        except Failed as exc:
            data = exc
        if isinstance(data, Chunks):
            self.streaming.append(Streaming(command, context, data))
        else:
            self.report(command, data, times=times)

    def stream(self, running: Streaming, *, times: int = 1) -> None:
        """Report the next chunk of a command that streams, or its end behind the last one."""
        chunks = running.chunks
        if running.sent < len(chunks.values):
            for _ in range(times):
                self._input(self.chunk(running.command, running.sent, chunks.values[running.sent]))
            running.sent += 1
        else:
            self.streaming = [one for one in self.streaming if one is not running]
            self.report(running.command, chunks.then, times=times)

    def chunk(self, command: Command, number: int, value: Any) -> Event:
        """Return the input that carries a chunk, its payload stored."""
        label = self.contexts[command.context_id].tasks[-1].label
        ref_id = hashed_id(command.command_id, label, number)
        self.payloads[ref_id] = value
        ref = Ref(execution_id=command.execution_id, ref_id=ref_id, label=f"{label}.chunk.{number}")
        envelope = Envelope(status="PARTIAL", reference=reference_of(ref), context={"task": label, "chunk": number})
        return self._report(command, "call.partial", envelope, key=f"partial:{command.command_id}:{label}:{number}")

    def report(self, command: Command, data: Any, *, times: int = 1) -> None:
        """Report a command's end, `times` times over: with its data, or failed with a `Failed`."""
        context = self.contexts[command.context_id]
        if isinstance(data, Failed):
            envelope = Envelope(status="FAILED", error={"code": "TOOL", "message": str(data)})
        else:
            rows = len(data or ()) if is_claim(context) else 0
            reference = None if data is None or (is_claim(context) and not rows) else self.keep(command, context, data)
            envelope = Envelope(
                status="COMPLETED",
                reference=None if reference is None else reference_of(reference),
                context={"row_count": rows} if is_claim(context) else None,
            )
        event_type = f"command.{envelope.status.lower()}"
        event = self._report(command, event_type, envelope, key=f"done:{command.command_id}")
        for _ in range(times):
            self._input(msgspec.structs.replace(event))

    def _report(self, command: Command, event_type: str, envelope: Envelope | None, *, key: str) -> Event:
        return Event(
            execution_id=command.execution_id,
            event_type=event_type,
            status=envelope.status if envelope else "",
            result=envelope,
            step=command.step,
            command_id=command.command_id,
            loop_epoch=command.loop_epoch,
            iter_index=command.iter_index,
            dedup_key=key,
        )

    def keep(self, command: Command, context: CommandContext, data: Any) -> Ref:
        """Store a command's result as a worker would."""
        ref_id = hashed_id(command.command_id, "result")
        pipeline = context.is_pipeline or context.more
        if pipeline:
            prior = command.item.prior if command.item else None
            before = self.payloads[prior.ref_id] if prior else {}
            data = {**before, **{task.label: data for task in context.tasks}}
        self.payloads[ref_id] = data
        if command.loop_epoch and command.iter_index >= 0 and not context.more:
            self.items[command.loop_epoch, command.iter_index] = data
        shape = "pipeline" if pipeline else "plain"
        return Ref(execution_id=command.execution_id, ref_id=ref_id, shape=shape, label=command.step)

    def item(self, command: Command) -> Any:
        """Return the item that a command works on, as its body sees it."""
        item = command.item
        if item is None or item.ref is None:
            return None if item is None else item.v
        value = self.load(item.ref, None)
        return value if item.whole else value[item.index]

    def load(self, ref: Ref, key: str | None) -> Any:
        """Return a payload; the core asks for what it reads, and everything is at hand here."""
        if ref.shape == "loop":
            results = [self.items.get((ref.epoch, index)) for index in range(ref.size)]
            value: Any = {"results": results, "stats": loop_stats(ref), "count": ref.size}
        elif ref.ref_id in self.payloads:
            value = self.payloads[ref.ref_id]
        else:
            raise NeedPayload([(ref, key)])
        return value if key is None else value[key]

    def result(self, state: ExecutionState, step: str) -> Any:
        """Return a step's result as stored."""
        return self.load(state.results[step], None)

    def events(self, event_type: str, step: str | None = None) -> list[Event]:
        """Return the log's events of a type (of a step)."""
        return [e for e in self.log if e.event_type == event_type and step in (None, e.step)]

    def replayed(self, execution_id: int) -> ExecutionState:
        """Return the fold of the log alone."""
        state = ExecutionState(execution_id=execution_id)
        for event in sorted((e for e in self.log if e.execution_id == execution_id), key=lambda e: e.event_id):
            state = fold(state, event)
        return state

    def cancel(self, execution_id: int) -> None:
        """Ask for a cancel."""
        envelope = Envelope(status="REQUESTED", context={"reason": "test"})
        self._input(Event(execution_id=execution_id, event_type="cancel.requested", result=envelope))

    def write_variables(self, execution_id: int, context: dict[str, Any]) -> None:
        """Write variables from outside the run."""
        self._input(
            Event(
                execution_id=execution_id, event_type="vars.set", result=Envelope(status="REQUESTED", context=context)
            )
        )

    def _cancel(self, execution_id: int) -> None:
        stopped = [command for command in self.commands if command.execution_id == execution_id]
        stopped += [one.command for one in self.streaming if one.command.execution_id == execution_id]
        self.commands = [command for command in self.commands if command.execution_id != execution_id]
        self.streaming = [one for one in self.streaming if one.command.execution_id != execution_id]
        for command in stopped:
            self._input(self._report(command, "command.cancelled", None, key=f"done:{command.command_id}"))

    def _admit(self, state: ExecutionState, group: Group) -> None:
        """Do what services/ingest/groups.py does in the transaction of a decision."""
        runs = self.groups[group.group_id]
        if state.is_terminal and state.execution_id in runs:
            runs.remove(state.execution_id)
        for execution_id in runs[: group.limit]:
            if execution_id not in self.admitted:
                self.admitted.add(execution_id)
                self._input(Event(execution_id=execution_id, event_type="playbook.admitted", dedup_key="admitted"))

    def _input(self, event: Event) -> None:
        if event.dedup_key:
            key = (event.execution_id, event.dedup_key)
            if key in self.known:
                return
            self.known.add(key)
        event.event_id = event_id(0, next(self.seq))
        self.inputs.append(event)


def is_claim(context: CommandContext) -> bool:
    """Return whether a command is the claim of a cursor loop."""
    return context.tasks[0].kind == "cursor"


class _Catalog(dict[Wanted, CatalogEntry | tuple[int, ...]]):
    """Every path is known to be registered or not: the core never has to ask."""

    def __init__(self, entries: Mapping[str, CatalogEntry]) -> None:
        self._entries = entries

    def __contains__(self, wanted: object) -> bool:
        return True

    def __getitem__(self, wanted: Wanted) -> CatalogEntry | tuple[int, ...]:
        path, version = wanted
        entry = self._entries.get(path)
        if entry is None or version in (None, entry.version):
            return entry or ()
        return (entry.version,)

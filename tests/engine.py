"""The pure core driven in memory: every decision, no IO. A tool is a function of the command that returns its data.

Not a twin of Postgres: order, atomicity and fencing are tested on the real one.
"""

import random
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from noetl_common.core import route
from noetl_common.core.commands import Command, CommandContext
from noetl_common.core.events import Envelope, Event
from noetl_common.core.fold import fold
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Playbook
from noetl_common.core.routing.draft import CatalogEntry, World
from noetl_common.core.scope import NeedPayload
from noetl_common.core.shard import event_id, hashed_id
from noetl_common.core.state import ExecutionState
from noetl_common.core.values import Ref, Value, reference_of
from noetl_common.core.workload import effective_workload


class Failed(Exception):
    """Raised by a test's tool: the command fails with this message."""


Tool = Callable[[Command, CommandContext, "Engine"], Any]


class Engine:
    """One shard, any number of executions, in memory."""

    def __init__(self, *texts: str, tool: Tool | None = None, seed: int = 0) -> None:
        self.playbooks: dict[str, CatalogEntry | None] = {}
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

    def start(self, path: str, **payload: Any) -> int:
        """Start an execution; nothing runs until `run`."""
        entry = self.playbooks[path]
        assert entry is not None
        execution_id = next(self.ids)
        workload = effective_workload(entry.playbook.workload, payload, execution_id=execution_id)
        context = {"path": path, "version": 1, "workload": msgspec.to_builtins(Value(workload))}
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
            elif self.commands:
                self.run_command(self.commands.pop(self.random.randrange(len(self.commands))))
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
        for one in decision.inputs:
            self._input(one)
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
        """Run a command with the test's tool and report it, `times` times over."""
        context = self.contexts[command.context_id]
        event = Event(
            execution_id=command.execution_id,
            event_type="command.completed",
            step=command.step,
            command_id=command.command_id,
            loop_epoch=command.loop_epoch,
            iter_index=command.iter_index,
            dedup_key=f"done:{command.command_id}",
        )
        try:
            data = self.tool(command, context, self)
            reference = None if data is None else reference_of(self.keep(command, context, data))
            event.status, event.result = "COMPLETED", Envelope(status="COMPLETED", reference=reference)
        except Failed as exc:
            event.event_type, event.status = "command.failed", "FAILED"
            event.result = Envelope(status="FAILED", error={"code": "TOOL", "message": str(exc)})
        for _ in range(times):
            self._input(msgspec.structs.replace(event))

    def keep(self, command: Command, context: CommandContext, data: Any) -> Ref:
        """Store a command's result as a worker would."""
        ref_id = hashed_id(command.command_id, "result")
        pipeline = context.is_pipeline or context.more
        if pipeline:
            prior = command.item.prior if command.item else None
            before = self.payloads[prior.ref_id] if prior else {}
            data = {**before, **{task.label: data for task in context.tasks}}
        self.payloads[ref_id] = data
        if command.loop_epoch and not context.more:
            self.items[command.loop_epoch, command.iter_index] = data
        shape = "pipeline" if pipeline else "plain"
        return Ref(execution_id=command.execution_id, ref_id=ref_id, shape=shape, label=command.step)

    def load(self, ref: Ref, key: str | None) -> Any:
        """Return a payload; the core asks for what it reads, and everything is at hand here."""
        if ref.shape == "loop":
            results = [self.items.get((ref.epoch, index)) for index in range(ref.size)]
            stats = {"total": ref.size, "success": ref.size - ref.failed, "failed": ref.failed}
            value: Any = {"results": results, "stats": stats, "count": ref.size}
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
        self.commands = [command for command in self.commands if command.execution_id != execution_id]
        for command in stopped:
            self._input(
                Event(
                    execution_id=execution_id,
                    event_type="command.cancelled",
                    step=command.step,
                    command_id=command.command_id,
                    loop_epoch=command.loop_epoch,
                    iter_index=command.iter_index,
                    dedup_key=f"done:{command.command_id}",
                )
            )

    def _input(self, event: Event) -> None:
        keys = {(e.execution_id, e.dedup_key) for e in (*self.log, *self.inputs) if e.dedup_key}
        if event.dedup_key and (event.execution_id, event.dedup_key) in keys:
            return
        event.event_id = event_id(0, next(self.seq))
        self.inputs.append(event)


class _Catalog(dict[str, CatalogEntry | None]):
    """Every path is known to be registered or not: the core never has to ask."""

    def __contains__(self, path: object) -> bool:
        return True

    def __getitem__(self, path: str) -> CatalogEntry | None:
        return self.get(path)

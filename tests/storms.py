"""Random playbooks, and an engine that does everything in a random order and checks each decision as it falls."""

import random
from typing import Any

import msgspec

from noetl_common.core.commands import Command, CommandContext
from noetl_common.core.events import COMMAND_TERMINALS, PLAYBOOK_TERMINALS, Event
from noetl_common.core.fold import fold
from noetl_common.core.playbook import Playbook
from noetl_common.core.state import ExecutionState
from tests.engine import Engine, Failed

WRITES = 0.01  # how often somebody outside changes a run's variables
CHANGES: tuple[dict[str, Any], ...] = (
    {"set": {"x": {"v": 1}, "n": {"v": None}}},
    {"unset": ["x", "turns"]},
    {"clear": True, "set": {"y": {"v": [1]}}},
)
RETRIES = (
    "spec: {policy: {rules: [{when: '{{ output.status == \"error\" }}', then: {do: retry, attempts: 2, delay: 1}}]}}"
)
ACCEPTS = "spec: {policy: {rules: [{else: {then: {do: continue}}}]}}"
# Back to the first task, once: `turns` counts.
RETURNS = (
    "spec: {policy: {rules: [{when: '{{ ctx.turns | default(0) < 2 }}',"
    " then: {do: jump, to: first, set: {ctx.turns: '{{ ctx.turns | default(0) + 1 }}'}}}]}}"
)


def random_playbook(source: random.Random, *, path: str, children: list[str]) -> str:
    """Return a document of 1 to 7 steps: loops, children, pipelines, joins, guarded cycles, handled failures."""
    count = source.randint(1, 7)
    names = ["start", *(f"s{number}" for number in range(1, count))]
    text = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {path}, path: {path}}}\nworkflow:\n"
    for place, name in enumerate(names):
        text += f"- step: {name}\n"
        if source.random() < 0.35:
            mode = source.choice(["parallel", "sequential"])
            spec = f"{{mode: {mode}, max_in_flight: {source.randint(1, 3)}}}"
            text += f"  loop: {{in: '{{{{ {source.choice([0, 1, 2, 5])} }}}}', iterator: n, spec: {spec}}}\n"
        text += _body(source, children)
        text += f"  set: {{ctx.visits_{name}: '{{{{ ctx.visits_{name} | default(0) + 1 }}}}'}}\n"
        arcs = _arcs(source, names, place)
        if arcs:
            text += f"  next:\n    spec: {{mode: {source.choice(['exclusive', 'inclusive'])}}}\n    arcs:\n"
            text += "".join(f"    - {arc}\n" for arc in arcs)
    return text


def _body(source: random.Random, children: list[str]) -> str:
    python = "kind: python, code: 'x = 1'"
    if not children or source.random() < 0.5:
        return f"  tool: {{{python}}}\n"
    rules = source.choice(["", "", f", {RETRIES}", f", {ACCEPTS}"])
    call = f"kind: playbook, path: {source.choice([*children, 'nowhere'])}"
    if source.random() < 0.1:
        call += ", async: true"
    if source.random() < 0.2:
        call += ", timeout: 5"
    if source.random() < 0.5:
        return f"  tool: {{{call}{rules}}}\n"
    rules = source.choice([rules, f", {RETURNS}"])
    tasks = [f"{{name: first, {python}}}", f"{{name: call, {call}{rules}}}", f"{{name: last, {python}}}"]
    return "  tool:\n" + "".join(
        f"  - {task}\n" for task in tasks[source.randint(0, 1) if RETURNS not in rules else 0 :]
    )


def _arcs(source: random.Random, names: list[str], place: int) -> list[str]:
    arcs = [f"{{step: {name}}}" for name in names[place + 1 :] if source.random() < 0.45]
    if source.random() < 0.3:
        back = source.choice(names[: place + 1])
        arcs.append(f"{{step: {back}, when: '{{{{ ctx.visits_{names[place]} < 3 }}}}'}}")
    if source.random() < 0.2 and place + 1 < len(names):
        arcs.append(f"{{step: {names[-1]}, when: \"{{{{ event.name == 'call.error' }}}}\"}}")
    source.shuffle(arcs)
    return arcs


class Storm(Engine):
    """Routes, runs, fires, repeats and cancels in any order; every state passes through its stored form."""

    def __init__(self, *texts: str, seed: int = 0, failures: float = 0.0, cancels: float = 0.0) -> None:
        super().__init__(*texts, tool=self._tool, seed=seed)
        self.failures = failures
        self.cancels = cancels
        self.keys: set[tuple[int, str]] = set()

    def _tool(self, command: Command, context: CommandContext, engine: Engine) -> Any:
        if self.random.random() < self.failures:
            raise Failed("by chance")
        return {"ran": command.step}

    def drive(self, *, steps_max: int = 20_000) -> None:
        for _ in range(steps_max):
            ways = [way for way in (self.inputs, self.commands, self.timers) if way]
            if not ways:
                return
            if self.states and self.random.random() < self.cancels:
                self.cancel(self.random.choice(list(self.states)))
            if self.states and self.random.random() < WRITES:
                self.write_variables(self.random.choice(list(self.states)), self.random.choice(CHANGES))
            way = self.random.choice(ways)
            if way is self.inputs:
                self.route_next()
            elif way is self.commands:
                command = self.commands.pop(self.random.randrange(len(self.commands)))
                self.run_command(command, times=self.random.choice([1, 1, 1, 2]))
            else:
                self._input(self.timers.pop(self.random.randrange(len(self.timers))))
        raise AssertionError("the run did not come to rest")

    def route_next(self) -> None:
        before, place = {id_: state.copy() for id_, state in self.states.items()}, len(self.log)
        super().route_next()
        cause, *drawn = self.log[place:]
        # What is stored and read again is what is in memory: another process may take over behind every decision.
        stored = msgspec.json.decode(msgspec.json.encode(self.states[cause.execution_id]))
        self.states[cause.execution_id] = msgspec.convert(stored, ExecutionState, strict=False)
        state = before.get(cause.execution_id) or ExecutionState(execution_id=cause.execution_id)
        playbook = self.by_catalog[cause.catalog_id or state.catalog_id]
        for event in [cause, *drawn]:
            self._check(playbook, state, event)
            state = fold(state, event)

    def _check(self, playbook: Playbook, state: ExecutionState, event: Event) -> None:
        if event.dedup_key:
            key = (event.execution_id, event.dedup_key)
            assert key not in self.keys, f"drawn twice: {key}"
            self.keys.add(key)
        if event.is_input:
            return
        assert not state.is_terminal, f"{event.event_type} behind the end"
        if event.event_type in ("step.enter", "command.issued", "child.started"):
            assert state.cancelling is None, f"{event.event_type} of {event.step} after a cancel"
        if event.event_type == "step.enter":
            assert state.failure is None, f"{event.step} entered after a failure"
            for live in state.active:
                one_cycle = live in playbook.reachable[event.step]
                can_arrive = event.step in playbook.reachable[live] and not one_cycle
                assert not can_arrive, f"{event.step} entered while {live} may still reach it"

    def check_end(self) -> None:
        """Everything has ended, once, and the log alone says so."""
        for execution_id, state in self.states.items():
            log = sorted((e for e in self.log if e.execution_id == execution_id), key=lambda e: e.event_id)
            kinds = [event.event_type for event in log]
            assert state.is_terminal, f"{execution_id} hangs: {msgspec.to_builtins(state)}"
            assert sum(kind in PLAYBOOK_TERMINALS for kind in kinds) == 1
            assert msgspec.json.encode(self.replayed(execution_id)) == msgspec.json.encode(state)
            issued = [event.command_id for event in log if event.event_type == "command.issued"]
            ended = [event.command_id for event in log if event.event_type in COMMAND_TERMINALS]
            assert sorted(issued) == sorted(ended)

"""Random playbooks, and an engine that does everything in a random order and checks each decision as it falls."""

import random
from typing import Any

import msgspec

from noetl_common.core.commands import Command, CommandContext
from noetl_common.core.events import COMMAND_TERMINALS, PLAYBOOK_TERMINALS, Event
from noetl_common.core.fold import fold
from noetl_common.core.playbook import Playbook
from noetl_common.core.state import ExecutionState
from tests.engine import Chunks, Engine, Failed, is_claim

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


FINISH = "- step: finish\n  tool: {kind: python, code: 'x = 1'}\n"


def random_playbook(source: random.Random, *, path: str, children: list[str], is_ordered: bool = False) -> str:
    """Return a document of 1 to 7 steps and the consumers of some: loops of all kinds, children, pipelines, joins,
    guarded cycles, handled failures. `is_ordered`: one that comes to the same whatever the order."""
    count = source.randint(1, 7)
    names = ["start", *(f"s{number}" for number in range(1, count))]
    text = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {path}, path: {path}}}\n"
    # What came last depends on the order, unless one step always does.
    text += "executor: {spec: {final_step: finish}}\n" if is_ordered else ""
    text += "workflow:\n"
    for place, name in enumerate(names):
        loop = _loop(source) if source.random() < 0.45 else ""
        ways = _arcs(source, names, place)
        consumer = f"{name}_chunks" if source.random() < 0.3 else ""
        if consumer:
            ways.insert(0, f"{{step: {consumer}, on: call.partial}}")
        text += _step(source, name, loop=loop, body=_body(source, children, is_ordered), ways=ways)
        if consumer:
            ways = _arcs(source, names, place, consumer=consumer)
            text += _step(source, consumer, loop="", body=_body(source, children, is_ordered), ways=ways)
    return text + (FINISH if is_ordered else "")


def _step(source: random.Random, name: str, *, loop: str, body: str, ways: list[str]) -> str:
    text = f"- step: {name}\n{loop}{body}"
    text += f"  set: {{ctx.visits_{name}: '{{{{ ctx.visits_{name} | default(0) + 1 }}}}'}}\n"
    if ways:
        text += f"  next:\n    spec: {{mode: {source.choice(['exclusive', 'inclusive'])}}}\n    arcs:\n"
        text += "".join(f"    - {way}\n" for way in ways)
    return text


def _loop(source: random.Random) -> str:
    mode = source.choice(["parallel", "sequential", "fanout", "cursor"])
    spec = f"mode: {mode}, max_in_flight: {source.randint(1, 3)}"
    if source.random() < 0.3:
        spec += f", max_failures: {source.randint(0, 3)}"
    if mode == "fanout" and source.random() < 0.7:
        spec += f", fanout: {{max_shard_retries: {source.randint(0, 3)}}}"
    if mode != "cursor":
        return f"  loop: {{in: '{{{{ {source.choice([0, 1, 2, 5])} }}}}', iterator: n, spec: {{{spec}}}}}\n"
    process = source.choice(["row", "row", "frame"])
    spec += (
        f", frame: {{max_rows: {source.randint(1, 4)}, row_concurrency: {source.randint(1, 3)}, process: {process}}}"
    )
    return f"  loop: {{cursor: {{auth: pg, claim: select}}, iterator: n, spec: {{{spec}}}}}\n"


def _body(source: random.Random, children: list[str], is_ordered: bool) -> str:
    python = "kind: python, code: 'x = 1'"
    if not children or source.random() < 0.5:
        return f"  tool: {{{python}}}\n"
    rules = source.choice(["", "", f", {RETRIES}", f", {ACCEPTS}"])
    call = f"kind: playbook, path: {source.choice(children if is_ordered else [*children, 'nowhere'])}"
    if source.random() < 0.1:
        call += ", async: true"
    if source.random() < 0.2 and not is_ordered:
        call += ", timeout: 5"
    if source.random() < 0.5:
        return f"  tool: {{{call}{rules}}}\n"
    if not is_ordered:
        rules = source.choice([rules, f", {RETURNS}"])
    tasks = [f"{{name: first, {python}}}", f"{{name: call, {call}{rules}}}", f"{{name: last, {python}}}"]
    return "  tool:\n" + "".join(
        f"  - {task}\n" for task in tasks[source.randint(0, 1) if RETURNS not in rules else 0 :]
    )


def _arcs(source: random.Random, names: list[str], place: int, *, consumer: str = "") -> list[str]:
    arcs = [f"{{step: {name}}}" for name in names[place + 1 :] if source.random() < 0.45]
    if source.random() < 0.3:
        back = source.choice(names[: place + 1])
        arcs.append(f"{{step: {back}, when: '{{{{ ctx.visits_{consumer or names[place]} < 3 }}}}'}}")
    if source.random() < 0.2 and place + 1 < len(names):
        test = source.choice(["event.name == 'call.error'", "fanin is defined and fanin.failed > 0"])
        arcs.append(f'{{step: {names[-1]}, when: "{{{{ {test} }}}}"}}')
    source.shuffle(arcs)
    return arcs


class Storm(Engine):
    """Routes, runs, fires, repeats and cancels in any order; every state passes through its stored form.

    What a cursor finds and what a step streams is the same for every order; what of it fails is not.
    """

    def __init__(
        self, *texts: str, seed: int = 0, failures: float = 0.0, cancels: float = 0.0, writes: float = WRITES
    ) -> None:
        super().__init__(*texts, tool=self._tool, seed=seed)
        self.failures = failures
        self.cancels = cancels
        self.writes = writes
        self.found: dict[int, list[Any]] = {}  # {epoch: the rows that its claims have not taken}
        self.keys: set[tuple[int, str]] = set()

    def _tool(self, command: Command, context: CommandContext, engine: Engine) -> Any:
        fails = self.random.random() < self.failures
        if is_claim(context):
            if fails:
                raise Failed("the claim")
            rows = self.found.setdefault(command.loop_epoch, _rows(context))
            taken = [rows.pop(0) for _ in range(min(context.frame["__frame_max_rows"], len(rows)))]
            return taken
        item = self.item(command)
        result = {"ran": command.step, "item": item}
        step = self.by_catalog[context.catalog_id].steps[context.step]
        if any(arc.on_partial for arc in step.arcs):
            known = random.Random(f"{context.path}:{context.step}:{item}")
            chunks = [{"chunk": number, "of": item} for number in range(known.choice([0, 1, 2, 4]))]
            return Chunks(*chunks, then=Failed("by chance") if fails else result)
        if fails:
            raise Failed("by chance")
        return result

    def drive(self, *, steps_max: int = 20_000) -> None:
        for _ in range(steps_max):
            ways: list[list[Any]] = [way for way in (self.inputs, self.commands, self.streaming, self.timers) if way]
            if not ways:
                return
            if self.states and self.random.random() < self.cancels:
                self.cancel(self.random.choice(list(self.states)))
            if self.states and self.random.random() < self.writes:
                self.write_variables(self.random.choice(list(self.states)), self.random.choice(CHANGES))
            way = self.random.choice(ways)
            if way is self.inputs:
                self.route_next()
            elif way is self.commands:
                command = self.commands.pop(self.random.randrange(len(self.commands)))
                self.run_command(command, times=self.random.choice([1, 1, 1, 2]))
            elif way is self.streaming:
                self.stream(self.random.choice(self.streaming), times=self.random.choice([1, 1, 1, 2]))
            else:
                self._input(self.timers.pop(self.random.randrange(len(self.timers))))
        raise AssertionError("the run did not come to rest")

    def route_next(self) -> None:
        id_, place = self.inputs[0].execution_id, len(self.log)
        state = self.states[id_].copy() if id_ in self.states else ExecutionState(execution_id=id_)
        super().route_next()
        cause, *drawn = self.log[place:]
        # What is stored and read again is what is in memory: another process may take over behind every decision.
        stored = msgspec.json.decode(msgspec.json.encode(self.states[cause.execution_id]))
        self.states[cause.execution_id] = msgspec.convert(stored, ExecutionState, strict=False)
        playbook = self.by_catalog[cause.catalog_id or state.catalog_id]
        for event in [cause, *drawn]:
            self._check(playbook, state, event)
            state = fold(state, event)
            _check_loop(state, event)

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
            if event.step.endswith("_chunks"):
                return  # a consumer is entered while its producer runs
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
            for epoch in {event.loop_epoch for event in log if event.event_type == "loop.started"}:
                _check_items(log, epoch)
            issued = [event.command_id for event in log if event.event_type == "command.issued"]
            ended = [event.command_id for event in log if event.event_type in COMMAND_TERMINALS]
            assert sorted(issued) == sorted(ended)


def outcome(engine: Engine) -> list[Any]:
    """Return what a storm came to, without what may differ between two orders: ids, and the numbers of rows."""
    found = []
    for state in engine.states.values():
        results = {step: _unordered(engine.load(ref, None)) for step, ref in state.results.items() if ref.ref_id}
        last = state.last_result
        final = _unordered(engine.load(last, None)) if last is not None and last.ref_id else None
        found.append([state.path, state.status, sorted(state.visits.items()), sorted(results.items()), final])
    return sorted(found, key=repr)


def _unordered(value: Any) -> Any:
    """Return a result with its ids left out, and the items of a loop in an order of their own."""
    if isinstance(value, dict):
        plain = {key: _unordered(part) for key, part in value.items() if key != "execution_id"}
        return {**plain, "results": sorted(plain["results"], key=repr)} if "results" in plain else plain
    return [_unordered(part) for part in value] if isinstance(value, list) else value


def _rows(context: CommandContext) -> list[Any]:
    known = random.Random(f"{context.path}:{context.step}")
    return [{"row": number} for number in range(known.choice([0, 1, 3, 7]))]


def _check_loop(state: ExecutionState, event: Event) -> None:
    """A loop never has more under way than it may, and knows of each item where it is from."""
    entry = state.active.get(event.step)
    loop = entry.loop if entry is not None else None
    if loop is None:
        return
    assert loop.again <= loop.open and loop.retries.keys() <= loop.open and loop.children.keys() <= loop.open
    assert loop.issued_upto == loop.done + loop.failed + len(loop.open)
    if loop.stream is not None:
        assert loop.children.keys() <= loop.stream.chunks.keys() <= loop.open
    elif loop.cursor is None:
        assert len(loop.open) <= loop.max_in_flight
    else:
        cursor = loop.cursor
        assert cursor.rows.keys() == loop.open
        assert len(cursor.claims) + len(cursor.frames) + cursor.due <= loop.max_in_flight
        for frame in cursor.frames.values():
            assert frame.open <= cursor.row_concurrency and frame.open <= frame.issued <= frame.size


def _check_items(log: list[Event], epoch: int) -> None:
    """Indices are handed out one by one, and what the loop says of itself is so."""
    mine = [event for event in log if event.loop_epoch == epoch]
    begun = {event.iter_index for event in mine if event.event_type in ("command.issued", "child.started")} - {-1}
    assert begun == set(range(len(begun)))
    done = [event.context for event in mine if event.event_type == "loop.done"]
    assert len(done) <= 1
    for context in done:
        assert len(begun) == context["done"] + context["failed"] <= context["size"]

"""What was asked for: a playbook, parsed and checked. parse.py makes these records from YAML."""

from functools import cached_property
from typing import Any, Literal

import msgspec

Verb = Literal["continue", "retry", "jump", "break", "fail"]
_VERSION_DIGITS = 9


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One policy rule of a task: the first whose `when` holds decides; when None is `else`."""

    when: str | bool | None = None
    do: Verb = "continue"
    attempts: Any = 3  # total executions; may be a template
    backoff: Literal["none", "fixed", "linear", "exponential"] = "none"
    delay: Any = 1.0  # seconds; may be a template
    to: str = ""
    set: dict[str, Any] = {}


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool call. `config` holds the tool's own fields, unrendered; `input` its inputs, step's merged under."""

    label: str
    kind: str
    config: dict[str, Any] = {}
    input: dict[str, Any] = {}
    set: dict[str, Any] = {}
    rules: tuple[Rule, ...] = ()


class Arc(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A way on. `tests_event` is True when `when` reads `event` or `fanin`: such an arc may handle a failure.

    `on_partial` is True for an arc that carries each chunk of its step's output while the step still runs.
    """

    step: str
    when: str | bool | None = None
    set: dict[str, Any] = {}
    tests_event: bool = False
    on_partial: bool = False


class Admission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule of `spec.policy.admit`: the first whose `when` holds says whether the step is entered at all."""

    when: str | bool | None = None
    allow: bool = True


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a step's result is kept: `select` names fields that are read without fetching it, `store` its tier if any."""

    select: tuple[str, ...] = ()
    store: str = ""


LoopMode = Literal["sequential", "parallel", "fanout", "cursor"]


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a cursor loop claims: `max_rows` a claim, `row_concurrency` rows of a claim at a time; both may be templates.

    `process` says what a body gets: one `row`, or the whole `frame` as a list.
    """

    max_rows: Any = 1
    row_concurrency: Any = 1
    process: Literal["row", "frame"] = "row"


class Loop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`loop:` of a step. `source` is the unrendered `in`; `max_in_flight` and the other limits may be templates.

    A cursor loop has no `source`: `claim` is the task (kind `cursor`) that brings its next rows, `frame` how many.
    """

    source: Any = None
    iterator: str
    mode: LoopMode = "sequential"
    max_in_flight: Any = None
    max_failures: Any = None  # items that may fail and the step still succeeds; None: 0
    max_shard_retries: Any = None  # fanout only: how often a failed item runs again; None: 2
    claim: Task | None = None
    frame: Frame = Frame()


class Segment(msgspec.Struct, frozen=True):
    """A run of consecutive tasks that one command covers, or one `playbook` task that routing performs."""

    first: int
    tasks: tuple[Task, ...]

    @property
    def is_child(self) -> bool:
        """True for a `playbook` task."""
        return self.tasks[0].kind == "playbook"


class Step(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One step. A single tool is a one-item pipeline named after the step, with `is_pipeline` False."""

    name: str
    tasks: tuple[Task, ...]
    is_pipeline: bool = False
    loop: Loop | None = None
    set: dict[str, Any] = {}
    arcs: tuple[Arc, ...] = ()
    mode: Literal["exclusive", "inclusive"] = "exclusive"
    pool: str = "default"
    priority: int | None = None  # None: that of the run
    admit: tuple[Admission, ...] = ()
    output: Output | None = None
    when: str | bool | None = None  # does not hold: the step is skipped and its arcs are followed
    # Root names that this step's templates mention (tool fields, input, loop, set, arcs, rules), for shipping only
    # what is read. None: cannot be told (`ctx` or `workload` whole, python code reading `context`): ship everything.
    names: frozenset[str] | None = None

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The tasks cut at each `playbook` task: what one command runs, and what routing does itself."""
        cuts: list[Segment] = []
        for index, task in enumerate(self.tasks):
            if task.kind == "playbook" or not cuts or cuts[-1].is_child:
                cuts.append(Segment(index, (task,)))
            else:
                cuts[-1] = Segment(cuts[-1].first, (*cuts[-1].tasks, task))
        return tuple(cuts)


class Concurrency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many runs of the playbook with the same `key` may go on at a time; `key` may be a template, None: all."""

    limit: int
    key: Any = None


class Playbook(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A checked document: arc targets exist, labels are unique, templates parse."""

    path: str
    name: str
    steps: dict[str, Step]
    entry_step: str
    workload: dict[str, Any] = {}
    keychain: tuple[dict[str, Any], ...] = ()
    final_step: str = ""
    no_next_is_error: bool = False
    timeout_s: float | None = None
    priority: int = 0
    concurrency: Concurrency | None = None

    @cached_property
    def reachable(self) -> dict[str, frozenset[str]]:
        """{step: the steps a token standing there may still arrive at, following one arc or more}."""
        direct = {name: {arc.step for arc in step.arcs} for name, step in self.steps.items()}
        closure: dict[str, frozenset[str]] = {}
        for name in self.steps:
            seen: set[str] = set()
            todo = list(direct[name])
            while todo:
                target = todo.pop()
                if target not in seen and target in direct:
                    seen.add(target)
                    todo.extend(direct[target])
            closure[name] = frozenset(seen)
        return closure


def version_number(written: Any) -> int | None:
    """Return the version of a document that a number or its digits name, None when they name none."""
    if isinstance(written, str) and written.strip().isdecimal():
        written = int(written) if len(written.strip()) <= _VERSION_DIGITS else 0
    if not isinstance(written, int) or isinstance(written, bool):
        return None
    return written if 0 < written < 10**_VERSION_DIGITS else None


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem or warning of a document: where it stands, what was expected, what was found."""

    severity: Literal["error", "warning"]
    message: str
    where: str = ""  # step, field: "step 'load', tool.command"
    line: int = 0
    column: int = 0
    hint: str = ""  # did you mean ...

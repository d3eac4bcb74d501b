"""The pipeline of one command: render a task, run its tool, judge the outcome by its rules, go on as they say."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from noetl_common import metrics
from noetl_common.core.duration import seconds_in
from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import Task
from noetl_common.core.policy import Verdict, judge, target_of
from noetl_common.core.results import Carried, output_raw_view
from noetl_common.core.scope import NeedPayload, Scope
from noetl_common.core.templates import names, render, render_reference, render_text
from noetl_common.errors import Invalid, NoetlError, TemplateFailed, TooLarge
from noetl_common.log import get_logger
from noetl_common.wire import STREAM_CHUNKS_MAX
from services.worker.keychain import Concealed, Keychain
from services.worker.keychain_kinds import Source, Tokens
from services.worker.payloads import Payloads
from services.worker.stream import Reporting, Stream
from services.worker.tables import Tables
from services.worker.tools import REFERRING, UNRENDERED, Call, Credential, dispatch, failed
from services.worker.tools.python_pool import PythonPool

log = get_logger(__name__)

RETRY_DELAY_S_MAX = 3600.0
YIELD_EVERY_CALLS = 64
MESSAGE_CHARS_KEPT = 10_000  # well over what a report keeps: what is cut here could begin a secret


class Machine(msgspec.Struct, kw_only=True):
    """What every pipeline of this worker runs on, and its ceilings."""

    payloads: Payloads
    credential: Credential
    reports: Reporting | None = None
    processes: PythonPool | None = None
    calls_max: int = 100_000
    timeouts_s: dict[str, float] = {}  # by kind of tool; "" for every other
    dispatch: Callable[[Call], Awaitable[Outcome]] = dispatch
    tokens: Tokens = msgspec.field(default_factory=Tokens)


class Work(msgspec.Struct, kw_only=True):
    """What one pipeline runs: the tasks, what templates see, and what is already there from earlier segments.

    `rescoped` returns `scope` as it is once the given `ctx` variables are written.
    """

    execution_id: int
    step: str
    tasks: tuple[Task, ...]
    scope: Scope
    rescoped: Callable[[dict[str, Any]], Scope]
    is_pipeline: bool = False
    idempotency_key: str = ""
    iteration: dict[str, Any] = {}
    handed: Carried = Carried({}, {}, {})
    is_part: bool = False  # other segments of the same pipeline stand before or behind
    keychain: tuple[dict[str, Any], ...] = ()
    secretive: frozenset[str] | None = None  # labels of tasks whose templates name the keychain, where that is known
    stream: Stream | None = None


class Ended(msgspec.Struct, kw_only=True):
    """How a pipeline ended. `labelled` are the data of the tasks that ran, by label; `variables` go to `ctx`.

    `names` and `iteration` are what its tasks set for later segments; `breaks` is True when no later one shall run,
    `to` the label of a task in another segment to go on with.
    """

    status: Literal["completed", "failed"]
    labelled: dict[str, Any]
    last: Outcome
    variables: dict[str, Any] = {}
    names: dict[str, Any] = {}
    iteration: dict[str, Any] = {}
    breaks: bool = False
    to: str = ""
    error: dict[str, Any] | None = None
    task: str = ""


class Pipeline:
    """One run of one command's tasks. Nothing of it is shared: a loop has one for each item."""

    def __init__(self, work: Work, machine: Machine) -> None:
        self._work = work
        self._machine = machine
        handed = work.handed
        self._outcomes: dict[str, Outcome] = {label: Outcome(data=data) for label, data in handed.labelled.items()}
        self._names = dict(handed.names)  # what items `set` without a prefix
        self._iterated = dict(handed.iteration)  # what was set under `iter`
        self._iteration = {**work.iteration, **handed.iteration}
        self._variables: dict[str, Any] = {}
        self._attempts: dict[str, int] = {}
        self._passes: dict[str, int] = defaultdict(int)  # begun, by task; its retries are the same pass
        self._last = Outcome(data=next(reversed(handed.labelled.values()), None))
        self._calls = 0
        self._chunks: dict[str, int] = defaultdict(int)  # sent, by task
        self._passed: dict[str, int] = defaultdict(int)  # of these, in passes of the task before the present one
        self._concealed = Concealed()
        self.tables = Tables(self._concealed)
        source = Source(credential=machine.credential, tokens=machine.tokens, execution_id=work.execution_id)
        self._keychain = Keychain(work.keychain, source, self._concealed)
        self._secretive = secretive_in(work.tasks) if work.secretive is None else work.secretive

    async def run(self) -> Ended:
        """Return how the pipeline ended; every failure of a task, its templates or its rules is such an end.

        No secret that the keychain or the secrets tool gave is in it.
        """
        return self._told(await self._run())

    async def _run(self) -> Ended:
        tasks, index = self._work.tasks, 0
        breaks, to = False, ""
        while index < len(tasks):
            task = tasks[index]
            if self._calls >= self._machine.calls_max:
                message = f"expected at most {self._machine.calls_max} tool calls, found more: a jump may never end"
                return self._failed(task, failed("pipeline", message, code="PIPELINE_CALLS_EXCEEDED"))
            self._calls += 1
            if self._calls % YIELD_EVERY_CALLS == 0:
                await asyncio.sleep(0)
            attempt = self._begun(task.label)
            self._last = outcome = await self._call(task, attempt)
            try:
                verdict = await self._verdict(task, outcome, attempt)
                if verdict.do in ("continue", "jump", "break"):
                    await self._accept(task, outcome)
            except NoetlError as exc:
                return self._failed(task, _outcome_of(exc))
            if verdict.do == "fail":
                return self._failed(task, outcome)
            if verdict.do == "break":
                breaks = True
                break
            if verdict.do == "retry":
                await asyncio.sleep(min(max(0.0, verdict.delay_s), RETRY_DELAY_S_MAX))
                continue
            if verdict.do == "jump":
                target = self._target(index, verdict.to)
                if target is None and self._work.is_part:
                    to = verdict.to
                    break
                if target is None:
                    message = f"jump to {verdict.to!r}: expected one of {[each.label for each in tasks]} or previous"
                    return self._failed(task, failed("pipeline", message, code="JUMP_UNKNOWN"))
                index = target
                continue
            index += 1
        return Ended(
            status="completed",
            labelled=self._labelled(),
            last=self._last,
            variables=self._variables,
            names=self._names,
            iteration=self._iterated,
            breaks=breaks,
            to=to,
        )

    def _begun(self, label: str) -> int:
        """Return the attempt that this run of a task is; its chunks are numbered behind those of earlier passes."""
        attempt = self._attempts[label] = self._attempts.get(label, 0) + 1
        if attempt == 1:
            self._passes[label] += 1
            self._passed[label] = self._chunks[label]
        # What a retry hands on again is the same; what another pass does, behind a jump, is not.
        self._chunks[label] = self._passed[label]
        return attempt

    async def _call(self, task: Task, attempt: int) -> Outcome:
        began = time.monotonic()
        try:
            # The ordinary call needs nothing loaded, and then costs no extra coroutine.
            call = await self._prepared(task, attempt)
            outcome = await self._machine.payloads.settled_call(lambda: self._machine.dispatch(call))
        except NoetlError as exc:
            outcome = _outcome_of(exc)
        except NeedPayload:
            raise
        except Exception as exc:
            # A tool stands on other people's libraries: what one raises unforeseen ends its task, not this worker.
            log.exception("tool.bug", execution_id=self._work.execution_id, step=self._work.step, tool=task.kind)
            outcome = failed(
                "internal", f"{type(exc).__name__}: {exc}"[:MESSAGE_CHARS_KEPT], exception=type(exc).__name__
            )
        elapsed_s = time.monotonic() - began
        metrics.observe("noetl_tool_seconds", elapsed_s, tool=task.kind, outcome=outcome.status)
        outcome.meta = {"duration_ms": round(elapsed_s * 1000), **outcome.meta, "attempt": attempt}
        return outcome

    async def _prepared(self, task: Task, attempt: int) -> Call:
        settled = self._machine.payloads.settled
        if task.label not in self._secretive:
            return await settled(lambda: self._rendered(task, attempt))
        return await self._keychain.filled(
            lambda: settled(lambda: self._rendered(task, attempt, reads_keychain=True)),
            self._scope(task, attempt),
            settled=settled,
            attempt=attempt,
        )

    def _rendered(self, task: Task, attempt: int, *, reads_keychain: bool = False) -> Call:
        scope = self._scope(task, attempt)
        inner = scope
        if reads_keychain:
            # Only the fields see it: what a tool looks up by itself, like python's `context`, does not.
            scope = scope.extended(locals={"keychain": self._keychain.view()})
        inputs = _render_fields(task.input, scope, self._place(task, "input"))
        inner = inner.extended(locals=inputs) if inputs else inner
        seeing = scope.extended(locals=inputs) if reads_keychain else inner
        programs = UNRENDERED.get(task.kind, frozenset())
        referring = REFERRING.get(task.kind, "")
        config = _render_fields(task.config, seeing, self._place(task, ""), programs=programs, referring=referring)
        timeouts_s = self._machine.timeouts_s
        default_s = timeouts_s.get(task.kind, timeouts_s.get("", 300.0))
        timeout = config.get("timeout_seconds", config.get("timeout"))
        if timeout not in (None, "") and not seconds_in(timeout, 0.0):
            where = self._place(task, "timeout")
            raise Invalid(f'{where}: expected seconds above 0 (30, "30s", "5m"), found {timeout!r}')
        call = Call(
            kind=task.kind,
            label=task.label,
            step=self._work.step,
            execution_id=self._work.execution_id,
            scope=inner,
            credential=self._credential,
            config=config,
            input=inputs,
            globals=self._iteration,
            idempotency_key=self._key(task.label),
            attempt=attempt,
            timeout_s=seconds_in(timeout, default_s),
            processes=self._machine.processes,
            conceal=self._concealed.add,
            tables=self.tables,
            stored_table=self._machine.payloads.table_file,
            conceals=lambda text: self._concealed.without(text) != text,
        )
        if self._work.stream is not None:
            call.partial = lambda value: self._partial(task.label, value)
            call.note = self._note
            call.details = self._work.stream.details
        return call

    def _key(self, label: str) -> str:
        """Return what names this pass of a task, the same when it is retried or its command is run again.

        Two tasks of a pipeline, and two passes of one behind a jump, are different effects.
        """
        key, passes = self._work.idempotency_key, self._passes[label]
        if self._work.is_pipeline:
            key = f"{key}.{label}"
        return key if passes == 1 else f"{key}.{passes}"

    async def _credential(self, alias: str) -> dict[str, Any]:
        """Return a registered credential; what is secret of it is told by nothing that this command stores."""
        found = await self._machine.credential(alias)
        self._concealed.add_credential(found.get("data"))
        return found

    async def _partial(self, label: str, value: Any) -> None:
        stream, number = self._work.stream, self._chunks[label]
        assert stream is not None, "a call without a stream does not get here"
        if number >= STREAM_CHUNKS_MAX:
            where = f"step {self._work.step!r}, task {label!r}"
            raise TooLarge(f"{where}: expected at most {STREAM_CHUNKS_MAX} chunks, found more; raise `chunk_size`")
        self._chunks[label] = number + 1
        await stream.chunk(label, number, self._concealed.without(value))

    async def _note(self, details: dict[str, Any], payload: Any) -> dict[str, Any]:
        assert self._work.stream is not None, "a call without a stream does not get here"
        return await self._work.stream.note(details, self._concealed.without(payload))

    async def _verdict(self, task: Task, outcome: Outcome, attempt: int) -> Verdict:
        if not task.rules:
            return _CONTINUE if outcome.ok else _FAIL
        where = self._place(task, "spec.policy.rules")

        def judged() -> Verdict:
            return judge(task, outcome, self._scope(task, attempt), attempt=attempt, where=where)

        verdict = await self._machine.payloads.settled(judged)
        for name, value in verdict.sets.items():
            self._set(name, value)
        return verdict

    async def _accept(self, task: Task, outcome: Outcome) -> None:
        self._attempts.pop(task.label, None)
        self._outcomes.pop(task.label, None)  # to the end: the order of the results is that of the runs
        self._outcomes[task.label] = outcome
        if not task.set:
            return
        view = output_raw_view(outcome)

        def values() -> dict[str, Any]:
            scope = self._scope(task, 1).extended(locals={"output": view, "result": view})
            return _render_fields(task.set, scope, self._place(task, "set"))

        for name, value in (await self._machine.payloads.settled(values)).items():
            if "." in name or not self._work.is_pipeline:
                self._set(name, value)  # nobody but later steps could see what a single tool sets
            else:
                self._names[name] = value

    def _set(self, name: str, value: Any) -> None:
        kind, bare = target_of(name)
        if kind == "ctx":
            self._variables[bare] = value
        else:
            self._iteration[bare] = self._iterated[bare] = value

    def _scope(self, task: Task, attempt: int) -> Scope:
        if self._calls == 1 and not self._outcomes and not self._names and not self._variables:
            local: dict[str, Any] = {"_task": task.label, "_attempt": attempt}
        else:
            labels = {label: output_raw_view(outcome) for label, outcome in self._outcomes.items()}
            local = {**labels, **self._names, "_prev": self._last.data, "_task": task.label, "_attempt": attempt}
        scope = self._work.rescoped(self._variables) if self._variables else self._work.scope
        return scope.extended(locals=local, iteration=self._iteration)

    def _target(self, index: int, to: str) -> int | None:
        if to in ("previous", "prev"):
            return max(0, index - 1)
        labels = [task.label for task in self._work.tasks]
        return labels.index(to) if to in labels else None

    def _told(self, ended: Ended) -> Ended:
        without = self._concealed.without
        for part in ("labelled", "variables", "names", "iteration", "error"):
            setattr(ended, part, without(getattr(ended, part)))
        ended.last = msgspec.structs.replace(ended.last, data=without(ended.last.data), error=without(ended.last.error))
        if ended.error is not None:
            ended.error["message"] = self._concealed.message(str(ended.error.get("message", "")))
        return ended

    def _labelled(self) -> dict[str, Any]:
        return {label: outcome.data for label, outcome in self._outcomes.items()}

    def _failed(self, task: Task, outcome: Outcome) -> Ended:
        error = outcome.error
        if error is None:
            message = f"task {task.label!r} succeeded, and a rule of it says fail"
            error = {"kind": "rule", "code": "FAILED_BY_RULE", "message": message, "retryable": False}
        labelled = self._labelled()
        if self._last.data is not None:
            labelled = {**labelled, task.label: self._last.data}
        ended = Ended(status="failed", labelled=labelled, last=self._last, variables=self._variables, error=error)
        ended.task = task.label
        return ended

    def _place(self, task: Task, part: str) -> str:
        tool = f"tool[{task.label}]" if self._work.is_pipeline else "tool"
        return f"step {self._work.step!r}, {tool}" + (f".{part}" if part else "")


def secretive_in(tasks: tuple[Task, ...]) -> frozenset[str]:
    """Return the labels of the tasks whose templates name the keychain."""
    return frozenset(task.label for task in tasks if "keychain" in names((task.input, task.config)))


_CONTINUE = Verdict(do="continue", to="", delay_s=0.0, sets={})
_FAIL = Verdict(do="fail", to="", delay_s=0.0, sets={})


def _render_fields(
    fields: dict[str, Any],
    scope: Scope,
    where: str,
    *,
    programs: frozenset[str] = frozenset(),
    referring: str = "",
) -> dict[str, Any]:
    # Each field by itself, so that an error names it; what is missing is asked for once for all of them.
    rendered: dict[str, Any] = {}
    needs: list[Any] = []
    for name, value in fields.items():
        try:
            if name in programs:
                rendered[name] = _program(value, scope, f"{where}.{name}")
            elif name == referring and isinstance(value, dict):
                rendered[name] = {
                    key: render_reference(part, scope, where=f"{where}.{name}.{key}") for key, part in value.items()
                }
            else:
                rendered[name] = render(value, scope, where=f"{where}.{name}")
        except NeedPayload as exc:
            needs += exc.needs
    if needs:
        raise NeedPayload(needs)
    return rendered


def _program(value: Any, scope: Scope, where: str) -> Any:
    if isinstance(value, str):
        return render_text(value, scope, where=where)
    if not isinstance(value, dict):
        return render(value, scope, where=where)
    return {
        name: _program(part, scope, f"{where}.{name}")
        if name in ("code", "source")
        else render(part, scope, where=f"{where}.{name}")
        for name, part in value.items()
    }


def _outcome_of(exc: NoetlError) -> Outcome:
    if isinstance(exc, TemplateFailed):
        return failed("template", str(exc), code=exc.code)
    kind = exc.code.lower()
    return failed(kind, str(exc)[:MESSAGE_CHARS_KEPT], code=exc.code, retryable=exc.status == 503)

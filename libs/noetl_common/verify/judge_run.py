"""Judge one run: fold its events as routing and projection do, and compare with what they kept. Pure."""

from collections.abc import Callable
from typing import Any

import msgspec

from noetl_common.core.events import PLAYBOOK_TERMINALS, Event
from noetl_common.core.fold import fold
from noetl_common.core.progress import Progress, project
from noetl_common.core.shard import seq_in
from noetl_common.core.state import ExecutionState
from noetl_common.verify.report import Finding

SHOWN_CHARACTERS_MAX = 300


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What stands of a run beside the log: its row, the router's state, the projection's. States are JSON texts."""

    execution_id: int
    shard_id: int
    status: str
    current_step: str | None
    progress: dict[str, Any]
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    end_time: str | None
    last_event_id: int
    is_compacted: bool
    state_event_id: int | None
    state: str | None
    projection_event_id: int | None
    projection: str | None


class RunJudge:
    """Takes the events of one run in order; memory is that of the run's state.

    `routed` and `projected` are the last event ids that the shard's router and projection have seen.
    """

    def __init__(self, kept: Kept, *, routed: int, projected: int) -> None:
        self.findings: list[Finding] = []
        self._kept = kept
        self._routed = routed
        self._projected = projected
        self._state = ExecutionState(execution_id=kept.execution_id)
        self._progress = Progress()
        self._end: Event | None = None
        self._ended_twice = False
        self._loops: dict[int, int] = {}  # {epoch of an open loop: the event that opened it}
        self._first = True
        self._is_compared = False
        self._is_broken = False

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.event_id > self._projected and not self._is_compared:
            self._compare_projection()
        if self._first:
            self._first = False
            if event.event_type != "playbook.started":
                self._add("log.runs", "playbook.started first", event.event_type, event.event_id)
        if event.event_id > self._routed:
            return
        self._watch_end(event)
        self._watch_loop(event)
        if self._is_broken:
            return
        try:
            self._state = fold(self._state, event)
            if not self._is_compared:
                self._progress = project(self._progress, event, self._state)
        except Exception as error:  # whatever a broken log raises is what is to be reported
            self._is_broken = True
            found = f"{event.event_type} at step {event.step!r}: {type(error).__name__}: {error}"
            self._add("log.fold", "an event that follows from those before it", found, event.event_id)

    def finish(self) -> list[Finding]:
        """Return everything that does not hold; all events were taken."""
        if self._first:
            self._add("log.runs", "events of the run", "none")
            return self.findings
        if not self._is_compared:
            self._compare_projection()
        if self._end is not None and self._end.event_type == "playbook.completed":
            for epoch, event_id in self._loops.items():
                found = "a completed run with no loop.done of it"
                self._add("loops.done", f"loop.done of epoch {epoch}", found, event_id)
        if not self._is_broken:
            self._compare_state()
        return self.findings

    def _watch_end(self, event: Event) -> None:
        if event.event_type in PLAYBOOK_TERMINALS:
            if self._end is not None:
                expected = f"one end of the run: {self._end.event_type} (event {self._end.event_id})"
                self._add("log.end", expected, f"{event.event_type} too", event.event_id)
                return
            self._end = event
        elif self._end is not None and not event.is_input and seq_in(event.event_id) > seq_in(self._end.event_id):
            found = f"{event.event_type} at step {event.step!r}"
            self._add("log.end", f"no consequence after {self._end.event_type}", found, event.event_id)

    def _watch_loop(self, event: Event) -> None:
        if event.event_type == "loop.started":
            self._loops[event.loop_epoch] = event.event_id
        elif event.event_type == "loop.done" and self._loops.pop(event.loop_epoch, None) is None:
            expected = "one loop.done for each loop.started"
            self._add("loops.done", expected, f"another one of epoch {event.loop_epoch}", event.event_id)

    def _compare_state(self) -> None:
        kept, expected = self._kept, self._state
        if kept.state is None and (kept.is_compacted or not expected.last_event_id):
            return
        self._compare_fold("state", kept.state, position=kept.state_event_id)

    def _compare_projection(self) -> None:
        self._is_compared = True
        kept, position = self._kept, self._state.last_event_id
        if self._is_broken:
            return
        if not (kept.projection is None and (kept.is_compacted or not position)):
            self._compare_fold("projection", kept.projection, position=kept.projection_event_id)
        if kept.last_event_id != position:
            self._add("read_model", f"last_event_id {position}", str(kept.last_event_id))
        shown = {"steps": {}, "counts": {}, **kept.progress}
        for name in ("status", "current_step", "result", "error", "end_time"):
            shown[name] = getattr(kept, name)
        try:
            found = msgspec.convert(shown, Progress)
        except msgspec.ValidationError as error:
            self._add("read_model", "a read model", str(error))
            return
        self._progress.end_time = self._progress.end_time or None
        if found != self._progress:
            self._add("read_model", *difference(msgspec.to_builtins(self._progress), msgspec.to_builtins(found)))

    def _compare_fold(self, check: str, text: str | None, *, position: int | None) -> None:
        expected = self._state
        if text is None:
            self._add(check, f"a state as of event {expected.last_event_id}", "none")
            return
        try:
            found = msgspec.json.decode(text, type=ExecutionState)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            self._add(check, "a state", str(error))
            return
        if found != expected:
            self._add(check, *difference(msgspec.to_builtins(expected), msgspec.to_builtins(found)))
        elif position != expected.last_event_id:
            self._add(check, f"last_event_id {expected.last_event_id}", str(position))

    def _add(self, check: str, expected: str, found: str, event_id: int = 0) -> None:
        self.findings.append(
            Finding(
                check=check,
                expected=expected,
                found=found,
                shard_id=self._kept.shard_id,
                execution_id=self._kept.execution_id,
                event_id=event_id,
            )
        )


def difference(expected: Any, found: Any, path: str = "") -> tuple[str, str]:
    """Return (what was expected, what was found) at the first place where two JSON values differ, with the place."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in sorted({*expected, *found}, key=str):
            if expected.get(name) != found.get(name) or (name in expected) != (name in found):
                return difference(expected.get(name), found.get(name), f"{path}.{name}" if path else str(name))
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            if one != other:
                return difference(one, other, f"{path}[{place}]")
    return f"{path} {_shown(expected)}", f"{path} {_shown(found)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=_plain).decode()
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


_plain: Callable[[Any], Any] = str

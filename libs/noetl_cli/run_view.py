"""What a person wants to see of a run, taken from its status: steps, loops, durations, what went wrong."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from noetl_cli import human
from noetl_common.core.state import TERMINAL

COLUMNS = ("step", "attempts", "items", "duration", "status")
# Of them, what is a number written for people.
NUMBERS = ("items", "duration")


class StepView(msgspec.Struct, kw_only=True):
    """One step. Units: `began_s` and `ended_s` are Unix time, 0 for not yet. `items` 0 with `is_loop`: an empty one.

    `more`: there may be further items than those known by now. `rate`: items ended a second, None before the first.
    """

    name: str
    status: str
    attempts: int = 0
    is_loop: bool = False
    items: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    more: bool = False
    rate: float | None = None
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """Return True when nothing more will come of it."""
        return self.status not in ("RUNNING", "PENDING")

    @property
    def duration_s(self) -> float:
        """Return how long it took, 0 while it runs."""
        return max(0.0, self.ended_s - self.began_s) if self.ended_s and self.began_s else 0.0

    @property
    def count(self) -> str:
        """Return done/total of a loop, with + when the total grows, and what failed; nothing for other steps."""
        if not self.is_loop:
            return ""
        failed = f" ({self.failed} failed)" if self.failed else ""
        return f"{self.done + self.failed}/{self.items}{'+' if self.more else ''}{failed}"

    @property
    def elapsed(self) -> str:
        """Return how long it took, or has run so far; nothing before its beginning."""
        if not self.began_s:
            return ""
        return human.duration(self.duration_s if self.is_over else max(0.0, time.time() - self.began_s))


class RunView(msgspec.Struct, kw_only=True):
    """One run as last seen."""

    status: str = "RUNNING"
    steps: list[StepView] = []
    error: Any = None
    waits: str = ""

    @property
    def is_over(self) -> bool:
        """Return True once the run has ended."""
        return self.status in TERMINAL


def view_of(answer: Mapping[str, Any]) -> RunView:
    """Return the view of a status answer; steps in the order in which they came up."""
    steps = (answer.get("progress") or {}).get("steps") or {}
    views = [_step_view(name, step) for name, step in steps.items()]
    # The projection's map has no order that lasts: what has not begun stands last.
    views.sort(key=lambda view: (view.began_s == 0.0, view.began_s))
    return RunView(
        status=str(answer.get("status", "RUNNING")),
        steps=views,
        error=answer.get("error"),
        waits=waiting_text(answer.get("waiting")),
    )


def waiting_text(waiting: Mapping[str, Any] | None) -> str:
    """Return what a run waits for before it begins, as a sentence; nothing for one that has begun."""
    if not waiting:
        return ""
    of = f" of key {waiting['key']!r}" if waiting["key"] else ""
    return f"for a place: number {waiting['place']} in line, {waiting['limit']} at a time{of}"


def rows_of(view: RunView) -> list[dict[str, Any]]:
    """Return a row of COLUMNS for each step."""
    return [
        {
            "step": step.name,
            "attempts": step.attempts,
            "items": step.count,
            "duration": step.elapsed,
            "status": step.status,
        }
        for step in view.steps
    ]


def error_text(error: Any) -> str:
    """Return what went wrong as a sentence that says where; the message of a loop or a child says so itself."""
    if not isinstance(error, Mapping):
        return str(error or "")
    message = str(error.get("message") or error.get("code") or "")
    step = error.get("step")
    if not step or message.startswith(("step ", "playbook ")):
        return message
    line = f", line {error['line']}" if error.get("line") else ""
    return f"step '{step}'{line}: {message}"


def _step_view(name: str, step: Mapping[str, Any]) -> StepView:
    items = step.get("items")
    counts = items if isinstance(items, Mapping) else {}
    return StepView(
        name=name,
        status=str(step.get("status", "")).upper(),
        attempts=int(step.get("attempts") or 0),
        is_loop=isinstance(items, Mapping),
        items=int(counts.get("total") or 0),
        done=int(counts.get("done") or 0),
        failed=int(counts.get("failed") or 0),
        in_flight=int(counts.get("in_flight") or 0),
        more=bool(counts.get("more")),
        rate=counts.get("rate"),
        began_s=_time_in(step.get("started_at")),
        ended_s=_time_in(step.get("ended_at")),
    )


def _time_in(text: Any) -> float:
    return human.parsed(text).timestamp() if text else 0.0

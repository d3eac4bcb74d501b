"""Follow one run until its end, showing it as it goes: bars at a terminal, plain lines elsewhere."""

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from noetl_cli.api import Api
from noetl_cli.output import say
from noetl_cli.run_view import RunView, StepView, view_of
from noetl_cli.target import Tend
from noetl_common.errors import Conflict, Unavailable

PAUSE_MIN_S = 0.05
PAUSE_MAX_S = 0.5
SILENCE_MAX_S = 120.0
LINE_EVERY_S = 2.0
NAME_CHARACTERS_MIN = 16
EXIT_INTERRUPTED = 130
CANCEL_REASON = "cancelled from the command line"


class Display(Protocol):
    """What shows a run."""

    def __enter__(self) -> "Display":
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""

    def show(self, view: RunView) -> None:
        """Show the present state."""


def follow(api: Api, execution_id: str, *, tend: Tend) -> RunView:
    """Return the run at its end. Ctrl-C offers to cancel it; another one while it is asked leaves it as it is.

    Errors: Unavailable when the server stays silent for SILENCE_MAX_S.
    """
    say(f"execution {execution_id}")
    while True:
        display = Bars() if sys.stderr.isatty() else Lines()
        try:
            with display:
                return watch(api, execution_id, display=display, tend=tend)
        except KeyboardInterrupt:
            if not wants_cancel(execution_id):
                say(f"execution {execution_id} goes on while a stack runs")
                sys.exit(EXIT_INTERRUPTED)
            say("cancelling")
            with suppress(Conflict):  # it has ended meanwhile, which the next look shows
                api.cancel(execution_id, CANCEL_REASON)


def watch(api: Api, execution_id: str, *, display: Display, tend: Tend) -> RunView:
    """Show the run until it has ended, looking less often while nothing changes; return its last state."""
    view = RunView()
    pause_s = PAUSE_MIN_S
    heard_s = time.monotonic()
    while True:
        for sentence in tend():
            say(sentence)
        before = view
        try:
            view = view_of(api.status(execution_id))
            heard_s = time.monotonic()
        except Unavailable:
            # A server that is being restarted answers again; only a long silence is an end.
            if time.monotonic() - heard_s > SILENCE_MAX_S:
                raise
        display.show(view)
        if view.is_over:
            return view
        pause_s = PAUSE_MIN_S if view != before else min(pause_s * 1.5, PAUSE_MAX_S)
        time.sleep(pause_s)


def wants_cancel(execution_id: str) -> bool:
    """Ask at a terminal; elsewhere the interrupt itself is the answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"\rcancel execution {execution_id}? [y/N] ")
    sys.stderr.flush()
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return False


class Bars:
    """A line a step; loops with done/total and rate. The picture goes when it is over: a table of the steps follows."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", style="bold"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[count]}", justify="right"),
            TextColumn("{task.fields[rate]}", style="cyan", justify="right"),
            TextColumn("{task.fields[elapsed]}", justify="right"),
            TextColumn("{task.fields[status]}"),
            console=console or Console(file=sys.stderr),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Bars":
        """Begin drawing."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self._progress.stop()

    def show(self, view: RunView) -> None:
        """Bring every step's line up to date."""
        for step in view.steps:
            if step.name not in self._tasks:
                self._tasks[step.name] = self._progress.add_task(
                    step.name, total=None, count="", rate="", elapsed="", status=step.status
                )
            task = self._tasks[step.name]
            ended = step.is_over
            total = max(step.items, 1) if step.is_loop else (1 if ended else None)
            done = (step.done + step.failed) if step.is_loop and step.items else int(ended)
            shown: dict[str, Any] = {"count": step.count, "rate": rate_of(step), "elapsed": step.elapsed}
            self._progress.update(task, total=total, completed=done, status=step.status, **shown)
            if ended:
                self._progress.stop_task(task)


class Lines:
    """A line when a step begins or ends, and one now and then while a loop runs."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, int]] = {}
        self._said_s: dict[str, float] = {}
        self._name_width = NAME_CHARACTERS_MIN

    def __enter__(self) -> "Lines":
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to put back."""

    def show(self, view: RunView) -> None:
        """Say what is new."""
        self._name_width = max(self._name_width, *(len(step.name) for step in view.steps), 0)
        for step in view.steps:
            now = (step.status, step.done + step.failed)
            before = self._shown.get(step.name)
            if before == now:
                continue
            is_due = time.monotonic() - self._said_s.get(step.name, 0.0) >= LINE_EVERY_S
            if before is None or before[0] != now[0] or is_due:
                say(self._line_of(step))
                self._shown[step.name] = now
                self._said_s[step.name] = time.monotonic()

    def _line_of(self, step: StepView) -> str:
        parts = f"{step.name:<{self._name_width}}  {step.status:<9}  {step.elapsed:>7}"
        return f"{parts}  {step.count}  {rate_of(step)}".rstrip()


def rate_of(step: StepView) -> str:
    """Return a loop's items a second so far."""
    ended = step.done + step.failed
    elapsed_s = (step.ended_s or time.time()) - step.began_s
    return f"{ended / elapsed_s:.0f}/s" if step.is_loop and ended and step.began_s and elapsed_s > 0 else ""

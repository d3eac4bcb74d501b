"""A compactor that kills itself with SIGKILL at a named point.

python -m tests.killed_compactor reads points from its input, forks for each the role as it is started (all modules are
loaded by then), and prints the process id and, at its end, how it ended. The point "" is none.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from noetl_common.process import run_role
from noetl_common.store.results import ResultStore
from services.compactor import store
from services.compactor.app import app
from services.compactor.config import Config
from tests.servers import end_with_parent


class Point(NamedTuple):
    """Before or after a call of a function of the store, the `nth` of those with an argument `given`."""

    owner: Any
    name: str
    when: Literal["before", "after"]
    given: str = ""
    nth: int = 1


# In the order in which a range comes to them. "After" means: before the commit of what was just written.
POINTS: dict[str, Point] = {
    "in a batch, its parts written and no manifest": Point(store, "_of", "before", "fold_manifests"),
    "in a batch, all of it written": Point(store, "fold", "after"),
    "between two batches": Point(store, "fold", "before", nth=3),
    "range begun": Point(store, "begin_range", "after"),
    "range sealed": Point(store, "step", "after", "seal_range"),
    "heads noted": Point(store, "step", "after", "note_heads"),
    "range let go": Point(store, "step", "after", "leave_range"),
    "two of four tables detached": Point(store, "detach", "before", nth=3),
    "all four tables detached": Point(store, "move", "after", "detached"),
    "compared with the manifests": Point(store, "find_late", "after"),
    "verified": Point(store, "move", "after", "verified"),
    "two of four tables dropped": Point(store, "drop", "after", nth=2),
    "all dropped, states too": Point(store, "drop_states", "after"),
    "orphans noted": Point(store, "mark_orphans", "after"),
    "an orphan deleted, its note not": Point(ResultStore, "delete", "after"),
}


def arm(point: Point) -> None:
    """Make this process end at the point."""
    real: Callable[..., Any] = getattr(point.owner, point.name)
    calls = 0

    def is_there(when: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return point.when == when and calls >= point.nth and point.given in ("", *args, *kwargs.values())

    def passing(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += point.given in ("", *args, *kwargs.values())
        if is_there("before", args, kwargs):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*args, **kwargs)
        return ended(answer, args, kwargs) if asyncio.iscoroutine(answer) else answer

    async def ended(answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = await answer
        if is_there("after", args, kwargs):
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(point.owner, point.name, passing)


def main() -> None:
    """Fork a compactor for each line of the input, one after the other."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a role logs does not stand between the answers
    for line in sys.stdin:
        name = line.rstrip("\n")
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            if name:
                arm(POINTS[name])
            os._exit(run_role("compactor", Config, app))
        print(pid, file=answers)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers)


if __name__ == "__main__":
    main()

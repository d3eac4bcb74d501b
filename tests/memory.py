"""Memory of processes: the most that each of a stack's roles held, its children included, while something ran."""

import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from noetl_cli.embedded.stack import Stack

EVERY_S = 0.02


class Watch:
    """The most memory that the roles of a stack held, each with its child processes, beside what they held before."""

    def __init__(self, stack: Stack) -> None:
        self._pids = {child.role.name: child.pid for child in stack.children}
        self.idle = held_by(self._pids)
        self.most = dict(self.idle)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def over_idle(self) -> dict[str, int]:
        """Return {role: megabytes}."""
        return {name: (self.most[name] - self.idle[name]) // 1_000_000 for name in self.idle}

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for name, size in held_by(self._pids).items():
                self.most[name] = max(self.most[name], size)


def held_by(pids: Mapping[str, int]) -> dict[str, int]:
    """Return {name: bytes of memory}, of each process with all that it started, directly or not."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        # The name of a program stands before, in parentheses, and may have spaces.
        about = _told(pid, "stat").rpartition(") ")[2].split()
        if about:
            children[int(about[1])].append(pid)
    return {name: _with_children(pid, children) for name, pid in pids.items()}


def _with_children(pid: int, children: Mapping[int, list[int]]) -> int:
    pages = _told(pid, "statm").split()
    own = int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0
    return own + sum(_with_children(child, children) for child in children.get(pid, ()))


def _told(pid: int, name: str) -> str:
    """Return what Linux says of a process, nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""

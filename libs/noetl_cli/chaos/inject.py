"""Do the faults of a schedule to a running stack, and undo those that last."""

import contextlib
import heapq
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count

from noetl_cli.chaos.relay import Mode, Relays
from noetl_cli.chaos.schedule import Fault, Kind
from noetl_cli.embedded.stack import Stack

SLOW_S = 0.03  # added to each piece of data on a slow link
LINK_MODES: dict[Kind, Mode] = {"cut": "cut", "stall": "stalled", "slow": "slow"}


class Injector:
    """Faults as they become due. What died is started again by the stack's own tending."""

    def __init__(self, stack: Stack, relays: Relays, schedule: Iterable[Fault]) -> None:
        self._stack = stack
        self._relays = relays
        self._faults = list(schedule)
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._begun_s = time.monotonic()
        self.done: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        """True when no fault is left and none lasts."""
        return not self._faults and not self._undo

    def tick(self) -> None:
        """Do what is due by now, and undo what has lasted long enough."""
        now_s = time.monotonic() - self._begun_s
        while self._undo and self._undo[0][0] <= now_s:
            heapq.heappop(self._undo)[2]()
        while self._faults and self._faults[0].at_s <= now_s:
            fault = self._faults.pop(0)
            if self._do(fault, now_s):
                self.done[fault.kind] += 1

    def end(self) -> None:
        """Undo everything that lasts."""
        self._faults.clear()
        while self._undo:
            heapq.heappop(self._undo)[2]()

    def _do(self, fault: Fault, now_s: float) -> bool:
        match fault.kind:
            case "kill":
                return _signal(self._pid_of(fault.target), signal.SIGKILL)
            case "stop":
                return _signal(self._pid_of(fault.target), signal.SIGTERM)
            case "pause":
                return self._pause(self._pid_of(fault.target), fault, now_s)
            case "pause_nats":
                return self._pause(self._stack.servers["nats"].pid, fault, now_s)
            case "kill_nats":
                return _signal(self._stack.servers["nats"].pid, signal.SIGKILL)
            case "restart_postgres":
                # SIGQUIT is Postgres' immediate shutdown: as a crash, with recovery from the WAL at the next start.
                return _signal(self._stack.servers["postgres"].pid, signal.SIGQUIT)
            case _:
                self._relays.set(fault.target, LINK_MODES[fault.kind], SLOW_S if fault.kind == "slow" else 0.0)
                self._later(now_s + fault.lasts_s, lambda: self._relays.set(fault.target, "open"))
                return True

    def _pid_of(self, name: str) -> int:
        return next(child.pid for child in self._stack.children if child.role.name == name)

    def _pause(self, pid: int, fault: Fault, now_s: float) -> bool:
        if not _signal(pid, signal.SIGSTOP):
            return False
        self._later(now_s + fault.lasts_s, lambda: _wake(pid))
        return True

    def _later(self, at_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._undo, (at_s, next(self._order), what))


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False  # it died before, and its successor has another number
    return True


def _wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)

"""What goes wrong, where and how often: the plan of one seed, and the counts that show that everything was tried.

A crash point is a place where a process waits: before and behind each statement and each commit, around a request,
a ring of a bell and the effect of a tool. Between two of them nothing leaves a process, so a kill anywhere else is a
kill at the next one.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.connections import Session
from tests.simulation.database import broken
from tests.simulation.loop import RUNNING, Process, SimLoop

KINDS = ("crash", "pause", "cut", "slow")
AIM = 0.045  # share of seeds in which something is meant to happen at a crash point that they reach
RARE_SHARE = 0.3  # of seeds: a point that fewer reach is rare, and mostly stands behind many that are not
AIM_PATIENT = 0.12  # the same of patient seeds, which aim at the rare points; the others aim at the rest
LEADS = ("effect.after",)  # where a patient seed kills to come to what is done with work that was lost
OCCURRENCE_MAX = 3
ROUGH_RATE = 0.01  # of faults where none is planned, in a rough seed
PAUSE_MAX_S = 9.0
ROUGH_PAUSE_MIN_S = 4.5  # longer than any lease
FREEZES = ("read_inputs.after", "move_cursor.before", "effect.after")  # where a rough seed has someone stand still
SLOW_MAX_S = 0.6


class Faults:
    """The faults of one seed. `points`: {crash point: shares of other and of patient seeds that reach it in trouble}.

    Shapes: `counts` {(kind, point): times}; `reached` {point: times}, `in_trouble` those while a fault was possible.
    """

    def __init__(
        self,
        source: random.Random,
        loop: SimLoop,
        *,
        points: Mapping[str, tuple[float, float]],
        is_rough: bool = False,
        is_patient: bool = False,
    ) -> None:
        self.random = source
        self.loop = loop
        self.is_on = True
        self.rate = ROUGH_RATE if is_rough else source.choice([0.0, 0.001, 0.003])
        self.targets: dict[str, tuple[int, str]] = {}
        for point, shares in points.items():
            is_rare = shares[0] < min(RARE_SHARE, shares[1])
            # The fewer seeds of a kind reach it, the more of them aim at it.
            if is_rare is is_patient and source.random() * shares[is_patient] < (AIM_PATIENT if is_rare else AIM):
                kind = "crash" if source.random() < 0.8 else source.choice(KINDS)
                self.targets[point] = (source.randint(1, OCCURRENCE_MAX if shares[0] > 0.9 else 1), kind)
        for point in LEADS if is_patient and points else ():
            self.targets[point] = (source.randint(1, OCCURRENCE_MAX), "crash")
        for point in FREEZES if is_rough and points else ():
            self.targets[point] = (source.randint(1, OCCURRENCE_MAX), "pause")
        self.pause_min_s = ROUGH_PAUSE_MIN_S if is_rough else 0.2
        self.reached: Counter[str] = Counter()
        self.in_trouble: Counter[str] = Counter()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.lost: Callable[[Process], None] = lambda process: None

    @property
    def disruptions(self) -> int:
        """How many faults there were so far."""
        return sum(self.counts.values())

    def travel_s(self) -> float:
        """Return how long a message is under way: mostly a moment, now and then long enough to be overtaken."""
        drawn = self.random.random()
        return 0.0002 + 0.004 * drawn * drawn * drawn + (0.05 if drawn > 0.995 else 0.0)

    def count(self, kind: str, point: str = "") -> None:
        """Note that a fault was done."""
        self.counts[kind, point] += 1

    async def reach(self, point: str, session: Session | None = None) -> None:
        """Return when the process goes on behind this point; it may never."""
        self.reached[point] += 1
        if not self.is_on:
            return
        process = RUNNING.get()
        if process is None or not getattr(process, "is_mortal", False):
            return
        self.in_trouble[point] += 1
        kind = self._due(point)
        if kind is not None:
            await self._do(kind, point, process, session)

    def _due(self, point: str) -> str | None:
        target = self.targets.get(point)
        if target is not None and self.in_trouble[point] == target[0]:
            return target[1]
        if self.random.random() < self.rate:
            return self.random.choice(KINDS)
        return None

    async def _do(self, kind: str, point: str, process: Process, session: Session | None) -> None:
        if kind == "cut" and session is None:
            kind = "crash"
        self.count(kind, point)
        if kind == "crash":
            self.crash(process)
            await self.loop.create_future()
        elif kind == "pause":
            process.pause(self.random.uniform(self.pause_min_s, PAUSE_MAX_S))
            await asyncio.sleep(0)
        elif kind == "slow":
            await asyncio.sleep(self.random.uniform(0.05, SLOW_MAX_S))
        elif session is not None:
            session.cut()
            raise broken()

    def end(self, *, keeps_targets: bool) -> None:
        """Do nothing more; or only what is meant to happen at points that are still to be reached."""
        self.rate = 0.0
        self.is_on = keeps_targets

    def crash(self, process: Process) -> None:
        """Kill a process; another takes its place after a while."""
        process.kill()
        self.lost(process)

    def pick(self, processes: list[Any]) -> Any:
        """Return one of these, None of none."""
        return self.random.choice(processes) if processes else None

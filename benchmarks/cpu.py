"""How much processor time processes took, by /proc: whole families, so that what a worker starts counts for it."""

import time
from collections.abc import Mapping

import msgspec

from benchmarks.proc import family_ms, machine_ms

CLIENT = "client"  # this process: what drives the load, no part of what is measured


class Cpu(msgspec.Struct, frozen=True):
    """Processor time up to a moment, in ms: of each role and of the client, and of the whole machine."""

    by_role: dict[str, float]
    machine: float

    @classmethod
    def now(cls, families: Mapping[str, list[int]]) -> "Cpu":
        """Return what each family ({role: [first process, ...]}) has taken so far, with all its descendants."""
        by_role = {role: sum(family_ms(pid) for pid in pids) for role, pids in families.items()}
        return cls({**by_role, CLIENT: time.process_time() * 1000}, machine_ms())

    def since(self, earlier: "Cpu") -> "Cpu":
        """Return what was taken from an earlier moment to this one."""
        by_role = {role: spent - earlier.by_role.get(role, 0.0) for role, spent in self.by_role.items()}
        return Cpu(by_role, self.machine - earlier.machine)

    def per(self, count: int) -> dict[str, float]:
        """Return ms for one of `count` things: of each role and the client, and `all` roles without the client."""
        shares = {role: round(spent / count, 4) for role, spent in sorted(self.by_role.items())}
        spent = sum(ms for role, ms in self.by_role.items() if role != CLIENT)
        return {**shares, "all": round(spent / count, 4)}

    def others(self) -> float:
        """Return the share of the processor time spent by processes outside the measurement, 0 to 1."""
        return round(max(self.machine - sum(self.by_role.values()), 0.0) / self.machine, 2) if self.machine else 0.0

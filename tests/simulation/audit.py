"""Whether everything was tried: how often each crash point was hit, each fault done, each kind of event seen."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import resources

from tests.simulation.world import Outcome

CRASHES_PER_POINT_MIN = 100  # in 10,000 seeds; in fewer, as many fewer
SEEDS_FULL = 10_000
FAULTS_MIN = {
    "crash": 10_000,
    "pause": 5_000,
    "cut": 5_000,
    "slow": 5_000,
    "stop": 1_000,
    "bells down": 500,
    "bell not rung": 1_000,
    "bell lost": 1_000,
    "bell repeated": 500,
    "request lost": 1_000,
    "request repeated": 500,
    "answer lost": 1_000,
    "database restart": 1_000,
}
KINDS_MIN = 100  # of each kind of event


@cache
def known_points() -> dict[str, tuple[float, float]]:
    """Return {crash point: shares of seeds, and of patient ones, that reach it}: seeds aim at the rare ones more."""
    text = (resources.files("tests.simulation") / "crash_points.json").read_text(encoding="utf-8")
    points: dict[str, tuple[float, float]] = {point: (share, rare) for point, (share, rare) in json.loads(text).items()}
    return points


def summed(outcomes: Sequence[Outcome]) -> tuple[Counter[tuple[str, str]], Counter[str], Counter[str]]:
    """Return the faults, the points and the kinds of events of all seeds together."""
    counts: Counter[tuple[str, str]] = Counter()
    reached: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
        reached.update(outcome.reached)
        kinds.update(outcome.kinds)
    return counts, reached, kinds


def misses(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what was tried too seldom, a line each; empty when the generator is as good as it should be."""
    counts, reached, kinds = summed(outcomes)
    share = min(1.0, len(outcomes) / SEEDS_FULL)
    unknown = sorted(reached.keys() - known_points().keys())
    lines = [f"crash point {point!r} is not known: add it to crash_points.json" for point in unknown]
    for point in sorted(known_points()):
        least = int(CRASHES_PER_POINT_MIN * share)
        if counts["crash", point] < least:
            lines.append(f"crash point {point!r}: expected {least} crashes, found {counts['crash', point]}")
    by_fault: Counter[str] = Counter()
    for (fault, _point), count in counts.items():
        by_fault[fault] += count
    wanted = [(fault, int(least * share), by_fault[fault]) for fault, least in FAULTS_MIN.items()]
    wanted += [(f"event {kind}", int(KINDS_MIN * share), count) for kind, count in sorted(kinds.items())]
    lines += [f"{name}: expected {least}, found {count}" for name, least, count in wanted if count < least]
    return lines


def told(outcomes: Sequence[Outcome], *, seconds: float) -> str:
    """Return what a run of seeds came to, in a few lines."""
    counts, reached, kinds = summed(outcomes)
    by_fault: Counter[str] = Counter()
    for (fault, _point), count in counts.items():
        by_fault[fault] += count
    crashes = [counts["crash", point] for point in known_points()]
    failed = sum(bool(outcome.violations) for outcome in outcomes)
    number = len(outcomes) or 1
    return "\n".join(
        (
            f"{len(outcomes)} seeds, {sum(o.events for o in outcomes)} events,"
            f" {sum(o.commits for o in outcomes)} commits, {sum(o.runs for o in outcomes)} runs,"
            f" {sum(o.simulated_s for o in outcomes):.0f} s simulated",
            f"{seconds:.1f} s, {1000 * seconds / number:.1f} ms a seed; {failed} seeds with violations",
            f"crash points: {len(known_points())} known, {len(reached)} reached, crashes at each: least"
            f" {min(crashes, default=0)}",
            "faults: " + ", ".join(f"{fault} {count}" for fault, count in sorted(by_fault.items())),
            "events: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())),
        )
    )

"""Run seeds: `python -m tests.simulation --seeds 1000`; one again: `--seed 42 [--trace]`; planted bugs: `--mutants`."""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from tests.simulation.audit import known_points, misses, told
from tests.simulation.mutants import BY_NAME, MUTANTS, Mutant
from tests.simulation.world import ROUGH_EVERY, Outcome, World, is_patient

MUTANT_SEEDS_MAX = 2_000


class Found(NamedTuple):
    """How a planted bug was found."""

    seed: int
    count: int
    seen: str


def run_seed(seed: int, mutant: str = "") -> Outcome:
    """Run one seed, with a planted bug or without."""
    return World(seed, points=known_points(), plant=BY_NAME[mutant].plant if mutant else None).run()


def run_seeds(seeds: Iterable[int], *, jobs: int, is_quiet: bool = False) -> tuple[list[Outcome], float]:
    """Run seeds; return what became of them and the seconds of all processes. A seed that fails is told at once."""
    began_s = time.perf_counter()
    found = []
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for outcome in pool.imap_unordered(run_seed, seeds, chunksize=5):
            found.append(outcome)
            if outcome.violations and not is_quiet:
                print(f"seed {outcome.seed}: {outcome.violations[0]}", flush=True)
    return found, time.perf_counter() - began_s


def find_mutant(mutant: Mutant, *, first: int = ROUGH_EVERY - 1, seeds_max: int = MUTANT_SEEDS_MAX) -> Found | None:
    """Return the seed that found a planted bug, how many it took, and what was seen; None when none found it."""
    step = ROUGH_EVERY if mutant.explore is None else 1
    for count, seed in enumerate(range(first, first + seeds_max * step, step), 1):
        seen = mutant.explore(seed) if mutant.explore is not None else run_seed(seed, mutant.name).violations
        if seen:
            return Found(seed, count, seen[0].splitlines()[0])
    return None


def main() -> int:
    """Do what the command line asks for; return 1 when something was violated or a planted bug was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed, and say all that it shows")
    parser.add_argument("--seeds", type=int, default=100, help="run this many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--mutant", default="", help="with a planted bug: M1 to M15")
    parser.add_argument("--mutants", action="store_true", help="find every planted bug")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every commit")
    parser.add_argument(
        "--points", action="store_true", help="print the crash points and the shares of seeds that reach each"
    )
    parser.add_argument("--audit", action="store_true", help="fail when something was tried too seldom")
    asked = parser.parse_args()
    if asked.seed is not None:
        return _show(asked.seed, asked.mutant, is_traced=asked.trace)
    if asked.points:
        return _show_points(asked.seeds)
    if asked.mutants:
        return _show_mutants()
    seeds = range(asked.first, asked.first + asked.seeds)
    found, seconds = run_seeds(seeds, jobs=asked.jobs)
    failed = [outcome for outcome in found if outcome.violations]
    print(told(found, seconds=seconds))
    missed = misses(found) if asked.audit else []
    for line in missed:
        print(f"too seldom: {line}")
    return 1 if failed or missed else 0


def _show(seed: int, mutant: str, *, is_traced: bool) -> int:
    world = World(seed, points=known_points(), plant=BY_NAME[mutant].plant if mutant else None)
    if is_traced:
        world.invariants.tell = partial(print, flush=True)
    outcome = world.run()
    print(f"seed {seed}: {outcome.runs} runs, {outcome.events} events, {outcome.commits} commits")
    print(
        f"{outcome.simulated_s:.1f} s of simulated time, {sum(outcome.counts.values())} faults, digest {outcome.digest}"
    )
    for violation in outcome.violations:
        print(violation)
    return 1 if outcome.violations else 0


def _show_points(count: int) -> int:
    """Print the crash points as crash_points.json has them: who aims at them now changes who reaches them."""
    outcomes = [run_seed(seed) for seed in range(count)]
    kinds = [[one for one in outcomes if is_patient(one.seed) is wanted] for wanted in (False, True)]
    lines = []
    for point in sorted({point for one in outcomes for point in one.reached} | known_points().keys()):
        shares = [round(sum(point in one.in_trouble for one in kind) / len(kind), 3) for kind in kinds]
        lines.append(f" {json.dumps(point)}: {json.dumps(shares)}")
    print("{\n" + ",\n".join(lines) + "\n}")
    return 0


def _show_mutants() -> int:
    lost = 0
    for mutant in MUTANTS:
        began_s = time.perf_counter()
        found = find_mutant(mutant)
        seconds = time.perf_counter() - began_s
        if found is None:
            lost += 1
            print(f"{mutant.name}: NOT FOUND in {MUTANT_SEEDS_MAX} seeds ({mutant.says})", flush=True)
        else:
            print(f"{mutant.name}: seed {found.seed}, {found.count} seeds, {seconds:.1f} s: {found.seen}", flush=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())

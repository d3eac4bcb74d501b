"""The protocol holds under every schedule that a seed draws; and the simulation would see if it did not."""

import os

import pytest

from tests.simulation import audit, files, ranges
from tests.simulation.__main__ import find_mutant, run_seed, run_seeds
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import World

SEEDS = int(os.environ.get("NOETL_SIMULATION_SEEDS", "500"))
PARTS = 19  # each a test of its own, with seeds of every kind: they run side by side
FIRST = 1_000_000
SEARCH_MAX = 600  # seeds behind the recorded one, which another schedule may have spoilt


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_the_protocol(part: int) -> None:
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    outcomes, _seconds = run_seeds(seeds, jobs=1, is_quiet=True)
    assert [(outcome.seed, outcome.violations) for outcome in outcomes if outcome.violations] == []
    assert sum(outcome.events for outcome in outcomes) > 50 * len(seeds)
    unknown = audit.summed(outcomes)[1].keys() - audit.known_points().keys()
    assert not unknown, "new crash points: add them to tests/simulation/crash_points.json"


def test_a_seed_is_the_same_every_time() -> None:
    seeds = (3, 7, 12)
    assert [run_seed(seed).digest for seed in seeds] == [run_seed(seed).digest for seed in seeds]
    assert run_seed(3).digest != run_seed(4).digest


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    found = find_mutant(mutant, first=mutant.seed, seeds_max=SEARCH_MAX)
    assert found is not None, f"{mutant.name}: {mutant.says}, and nobody saw it"


def test_no_power_cut_leaves_half_a_payload_or_loses_an_acknowledged_one() -> None:
    assert [(seed, wrong) for seed in range(2_000) if (wrong := files.run(seed))] == []


def test_no_kill_of_the_compactor_drops_an_event_that_no_manifest_has() -> None:
    assert [(seed, wrong) for seed in range(300) if (wrong := ranges.run(seed))] == []


def test_a_statement_without_a_model_is_named() -> None:
    world = World(0)

    async def unknown() -> None:
        from tests.simulation.connections import SimConnection

        await SimConnection(world.server).execute("SELECT 'nobody modelled this'")

    task = world.loop.world.spawn(unknown())
    world.loop.run(deadline_s=1.0)
    with pytest.raises(AssertionError, match="nobody modelled this"):
        task.result()
    world.loop.close()

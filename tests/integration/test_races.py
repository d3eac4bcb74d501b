"""Races of owners, leaders, workers and the reaper, statement by statement on real connections, in many orders.

Here a sample of each; `python -m tests.races` runs every order.
"""

import pytest

from tests.isolation import Spec, every_order, some_orders, statement
from tests.races import SPECS, arena, run_orders

SAMPLE = 14


@pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])
async def test_a_race_ends_as_it_may_in_any_order(dsn: str, spec: Spec) -> None:
    async with arena(dsn) as ring:
        assert await run_orders(ring, spec, some_orders(spec, SAMPLE, seed=1)) == min(SAMPLE, spec.orders())


def test_there_are_as_many_orders_as_are_counted() -> None:
    assert all(len(set(every_order(spec))) == spec.orders() for spec in SPECS if spec.orders() < 200)
    assert sum(spec.orders() for spec in SPECS) > 1_000 and len(SPECS) >= 15


async def test_an_outcome_that_must_not_be_is_found(dsn: str) -> None:
    """The zombie's race again, its cursor moved without the fence: some order routes the inputs twice."""
    from tests.race_specs import INGEST, ZOMBIE
    from tests.race_world import SHARD

    unfenced = statement("a.move", INGEST["move_cursor_unfenced"], lambda _world: {"shard_id": SHARD, "new_seq": 2})
    first, _move, *rest = ZOMBIE.sessions["a"]
    spec = Spec(
        name="without the fence",
        setup=ZOMBIE.setup,
        sessions={**ZOMBIE.sessions, "a": [first, unfenced, *rest]},
        check=ZOMBIE.check,
    )
    async with arena(dsn) as ring:
        with pytest.raises(AssertionError, match="without the fence, order"):
            await run_orders(ring, spec, some_orders(spec, 40, seed=1))

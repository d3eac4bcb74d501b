"""What a batch costs in statements and rows: bounds that do not depend on how fast the machine is."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noetl_common.core.shard import shard_of
from noetl_common.db import open_pool
from tests.histories import rows
from tests.routing import Bench, register_text
from tests.servers import SHARD_COUNT

ITEMS, BATCH = 600, 100
LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: costs, path: tests/costs}
workflow:
  - step: start
    loop: {in: "{{ items }}", iterator: n, spec: {mode: parallel, max_in_flight: 200}}
    tool: {kind: noop}
"""


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each statement was sent, by its first 40 characters."""
    sent: Counter[str] = Counter()
    execute = psycopg.AsyncConnection.execute

    async def counted(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        sent[str(query)[:40]] += 1
        return await execute(self, query, *args, **more)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", counted)
    yield sent


async def test_a_batch_costs_as_many_statements_whatever_its_size_and_an_item_five_rows(
    dsn: str, tmp_path: Path, statements: Counter[str]
) -> None:
    async with open_pool(dsn, size_max=4, name="test") as pool:
        bench = Bench(pool, tmp_path)
        await register_text(pool, LOOP)
        execution_id = await bench.start("tests/costs", items=ITEMS)
        shard_id = shard_of(execution_id, SHARD_COUNT)
        while await bench.router.route_once(shard_id):
            pass
        costs = set()
        for _ in range(ITEMS // BATCH - 1):
            statements.clear()
            commands = await bench.claim(BATCH)
            assert len(commands) == BATCH and statements.total() == 1, "a claim is one statement"
            await bench.complete(commands)
            appended = statements.total()
            assert await bench.router.route_once(shard_id) == BATCH
            assert await bench.router.route_once(shard_id) == 0
            costs.add((appended - 1, statements.total() - appended))
        await bench.complete(await bench.claim(BATCH))
        assert await bench.router.route_once(shard_id) == BATCH
    # Appended: finish, lock the head, append. Routed: cursor, events, commands, state; none of commands at the end.
    assert costs <= {(3, 4), (3, 2)}, statements
    # The pool is closed, so all of its sessions have told what they wrote.
    async with open_pool(dsn, size_max=1, name="test") as pool:
        found = await rows(
            pool,
            "SELECT sum(n_tup_ins + n_tup_upd)::bigint AS n FROM pg_stat_user_tables"
            " WHERE relname ~ '^(event|command|result_ref)_[0-9]'",
        )
    assert found[0]["n"] / ITEMS < 5.05, "two events, a command, its claim and its end"

"""Databases that earlier releases left behind in the middle of their work: today's code migrates them and goes on."""

from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import psycopg
import pytest

from noetl_common.verify.run import Asked, verify
from tests.builders import disk_store
from tests.histories import rows
from tests.replay.record_database import DATABASES, IN_FLIGHT
from tests.verifying import live

RECORDED = {path.stem: path.read_bytes() for path in sorted(DATABASES.glob("*.sql"))}
ENDS = {
    "replay/loop": ("COMPLETED", {"total": 630, "count": 20}),
    "replay/parent": (
        "COMPLETED",
        {"results": [{"n": n, "doubled": 2 * n, "more": {"doubled": 2 * n}} for n in (11, 12, 13, 14)]},
    ),
    "replay/retry": ("FAILED", None),  # its child fails whenever it is tried
}
RUNS = """
SELECT x.path, x.status, convert_from(r.inline_payload, 'UTF8') AS result FROM noetl.execution x
LEFT JOIN noetl.result_ref r ON r.execution_id = x.execution_id AND r.step = 'end' WHERE x.parent_execution_id IS NULL
"""
TWICE_OR_NEVER = """
SELECT c.command_id FROM noetl.command c JOIN noetl.event e USING (execution_id, command_id)
WHERE e.event_type IN ('command.completed', 'command.failed') GROUP BY 1 HAVING count(*) <> 1
UNION ALL SELECT iter_index FROM noetl.event WHERE step = 'each' AND event_type = 'command.issued' GROUP BY 1
HAVING count(*) <> 1
"""
TRIED = "SELECT count(*) AS n FROM noetl.execution WHERE path = 'replay/child' AND status = 'FAILED'"


def test_there_is_a_database_of_each_schema_before_which_states_had_another_shape() -> None:
    assert {"schema_0001", "schema_0004"} <= RECORDED.keys()


@pytest.mark.parametrize("name", RECORDED)
async def test_runs_that_an_older_release_left_in_flight_are_finished(
    name: str, empty_dsn: str, tmp_path: Path
) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(RECORDED[name])
        assert conn.execute(IN_FLIGHT.encode()).fetchone() == (True,), "nothing is left to be done"
    async with AsyncExitStack() as stack:
        system = await live(stack, empty_dsn, tmp_path)
        await system.ended()
        found = await rows(system.pool, RUNS)
        assert await rows(system.pool, TWICE_OR_NEVER) == []
        assert await rows(system.pool, TRIED) == [{"n": 3}]
    ends = {row["path"]: (row["status"], row["result"] and msgspec.json.decode(row["result"])) for row in found}
    assert ends == ENDS
    report = await verify(empty_dsn, disk_store(tmp_path), Asked(sample=None))
    assert report.violations == []

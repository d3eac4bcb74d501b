"""How Postgres runs the statements of the hot paths: linear in what they are given, whatever was given before."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from noetl_common import event_log
from noetl_common.db import Pool, json_text, open_pool
from noetl_common.sql import load_queries

INGEST = load_queries("services.ingest")
GIVEN: list[dict[str, Any]] = [{"execution_id": 1, "command_id": n, "claim_token": n, "place": n} for n in range(500)]
# What the short way sends holds, but for the locks, nothing that is looked up; its gate is one row.
AT_ONCE = {
    **dict.fromkeys(("shards", "executions", "events", "results", "contexts", "timers", "states"), "[]"),
    "reports": json_text(GIVEN),
    "commands": json_text(GIVEN),
    "ended": [],
    "lease_s": 15.0,
}
STATEMENTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "finish_commands": (INGEST["finish_commands"], {"reports": json_text(GIVEN)}),
    "renew_leases": (INGEST["renew_leases"], {"leases": json_text(GIVEN), "lease_s": 15.0}),
    "append_inputs": (event_log.SQL["append_inputs"], {"shard_id": 0, "events": json_text(GIVEN)}),
    "claim_commands": (
        INGEST["claim_commands"],
        {"pool": "default", "worker_id": "w", "max": 256, "lease_s": 15.0},
    ),
    "commit_at_once": (INGEST["commit_at_once"], AT_ONCE),
}
WRAPPERS = ("Materialize", "Memoize", "Subquery Scan", "Sort", "Unique")
LISTS = ("CTE Scan", "Function Scan")


@pytest.mark.parametrize("name", STATEMENTS)
async def test_what_is_given_is_not_compared_with_all_that_is_given(dsn: str, pool: Pool, name: str) -> None:
    """Sessions for lookups have neither hash nor merge joins: two lists would meet each with each."""
    text, args = STATEMENTS[name]
    async with open_pool(dsn, size_max=1, name="test", only_lookups=True) as lookups, lookups.connection() as conn:
        [row] = await (await conn.execute(b"EXPLAIN (FORMAT JSON) " + text.encode(), args)).fetchall()
    [found] = row["QUERY PLAN"]
    assert list(_lists_inside(found["Plan"])) == []


def _lists_inside(plan: dict[str, Any]) -> Iterator[str]:
    """Yield each list that is walked through once for each row of something else."""
    parts = plan.get("Plans", ())
    if plan["Node Type"] == "Nested Loop":
        inner = parts[1]
        while inner["Node Type"] in WRAPPERS:
            [inner] = inner["Plans"]
        if inner["Node Type"] in LISTS and "gate" not in (parts[0].get("CTE Name"), inner.get("CTE Name")):
            yield f"{inner['Node Type']} of {inner.get('CTE Name', inner.get('Alias'))}"
    for part in parts:
        yield from _lists_inside(part)

"""Where a run stands is read from read models alone, a page at a time, by index, however many runs there are."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.core.shard import event_id
from noetl_common.db import Pool
from services.ingest.asgi import build_asgi
from services.ingest.endpoints import Api
from services.ingest.pages import LOOKED_AT_MAX
from services.ingest.store import SQL
from tests.histories import execute, make_execution, rows
from tests.ingesting import api_on

RUNS, CHILDREN, EVENTS = 30_000, 5_000, 50_000
SHARD = 5
PARENT = 4_000_000_000_000_000_000
LOG = {"event", "command", "result_ref", "execution_state"}
# Rare ones stand where a scan from the newest would come last.
SEED = """
INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, parent_execution_id, status)
SELECT 1000 + n, n %% 16, 7 + n %% 50, 'p/' || n %% 50, 1, CASE WHEN n < %s THEN %s END,
    CASE WHEN n < 20 THEN 'FAILED' WHEN n %% 100 = 0 THEN 'RUNNING' ELSE 'COMPLETED' END
FROM generate_series(0, %s - 1) AS n
"""
SEED_RARE = """
INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, status)
SELECT 10 + n, 0, 9999, 'p/rare', 1, 'CANCELLED' FROM generate_series(0, 4) AS n
"""
SEED_EVENTS = """
INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, status, catalog_id, event_time)
SELECT %s, (5::bigint << 55) | (n << 15), 5, CASE WHEN n = %s THEN 'step.exit' ELSE 'vars.set' END, 's', 'OK', 7, now()
FROM generate_series(1, %s::bigint) AS n
"""
PARAMETER = re.compile(r"%\((\w+)\)s")
EVERY = ["RUNNING", "COMPLETED", "FAILED", "CANCELLED"]
LISTS: dict[str, dict[str, Any]] = {
    "all": {},
    "a status that most have": {"statuses": ["COMPLETED"]},
    "a status that few have": {"statuses": ["FAILED"]},
    "a status that none of a path has": {"by": "path", "path": "p/30", "statuses": ["CANCELLED"]},
    "a path": {"by": "path", "path": "p/30"},
    "a path that few have": {"by": "path", "path": "p/rare"},
    "a catalog entry": {"by": "catalog_id", "catalog_id": 37},
    "a catalog entry that few have": {"by": "catalog_id", "catalog_id": 9999, "statuses": ["CANCELLED"]},
    "a catalog entry of another path": {"by": "catalog_id", "catalog_id": 37, "path": "p/31"},
    "the children of a run": {"by": "parent", "parent": PARENT},
    "the children of a run that failed": {"by": "parent", "parent": PARENT, "statuses": ["FAILED"]},
    "what follows a cursor": {"before": 15_000},
    "a page far behind": {"offset": 1_000},
}
LIST = {"by": "status", "path": None, "catalog_id": None, "parent": None, "statuses": EVERY, "before": (1 << 63) - 1}


@pytest.fixture
async def api(pool: Pool, tmp_path: Path) -> Api:
    return api_on(pool, tmp_path)


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_asgi(api))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as opened:
        yield opened


async def seed_runs(pool: Pool) -> None:
    await execute(pool, SEED, CHILDREN, PARENT, RUNS)
    await execute(pool, SEED_RARE)
    await execute(pool, "ANALYZE noetl.execution")


async def seed_events(pool: Pool, count: int) -> int:
    """Make a run whose history holds so many events, all routed, the last of a type of its own; return its id."""
    execution_id = await make_execution(pool, SHARD)
    await execute(pool, SEED_EVENTS, execution_id, count, count)
    await execute(pool, "UPDATE noetl.shard_cursor SET seq = %s WHERE shard_id = 5", count)
    await execute(pool, "UPDATE noetl.shard_head SET seq = %s WHERE shard_id = 5", count)
    await execute(pool, "ANALYZE noetl.event")
    return execution_id


async def plan_of(pool: Pool, name: str, args: dict[str, Any], *, mode: str = "auto") -> dict[str, Any]:
    """Return the plan of a query of ingest as it ran when asked often enough for Postgres to choose how it plans."""
    names: list[str] = []
    text = PARAMETER.sub(lambda found: _numbered(found[1], names), SQL[name])
    values = ", ".join(_literal(args[one]) for one in names)
    async with pool.connection() as conn, conn.transaction():
        await conn.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        await conn.execute(f"PREPARE explained AS {text}".encode())
        execute_text = f"EXECUTE explained{f'({values})' if values else ''}"
        for _ in range(6 if mode == "auto" else 0):
            await (await conn.execute(execute_text.encode())).fetchall()
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute_text}"
        row = await (await conn.execute(explain.encode())).fetchone()
        await conn.execute(b"DEALLOCATE explained")
    assert row is not None
    return dict(row["QUERY PLAN"][0]["Plan"])


def _numbered(name: str, names: list[str]) -> str:
    if name not in names:
        names.append(name)
    return f"${names.index(name) + 1}"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(_literal(one) for one in value)}]"
    return f"'{value}'" if isinstance(value, str) else str(value)


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each node that reads a relation and was run."""
    if "Relation Name" in plan and plan["Actual Loops"]:
        yield plan
    for child in plan.get("Plans", ()):
        yield from scans(child)


def rows_read(plan: dict[str, Any]) -> int:
    """Return how many rows were looked at, those that a filter took away included."""
    return sum(
        int(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)))
        for node in scans(plan)
    )


def buffers_of(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_a_list_reads_a_page_by_index_whatever_it_is_filtered_by(pool: Pool) -> None:
    await seed_runs(pool)
    for what, changes in LISTS.items():
        args = {**LIST, "limit": 51, "offset": 0, **changes}
        plan = await plan_of(pool, "list_executions", args)
        page = 51 + args["offset"]
        kinds = {(node["Relation Name"], node["Node Type"]) for node in scans(plan)}
        assert {name for name, _kind in kinds} <= {"execution", "catalog"}, what
        assert not any(kind == "Seq Scan" and name == "execution" for name, kind in kinds), (what, kinds)
        # A page once a status, and its rows.
        assert rows_read(plan) <= 4 * page + 51 + 1, what
        assert buffers_of(plan) <= 1_500 + args["offset"] * 8, (what, buffers_of(plan))


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_a_status_reads_three_rows_and_nothing_of_the_log(pool: Pool, mode: str) -> None:
    await seed_runs(pool)
    plan = await plan_of(pool, "read_execution", {"execution_id": 1000 + RUNS // 2}, mode=mode)
    read = {node["Relation Name"]: node for node in scans(plan)}
    assert read.keys() == {"execution", "projection_checkpoint", "shard_head"} and not read.keys() & LOG
    assert read["execution"]["Index Name"] == "execution_pkey"
    # A table of as many rows as there are shards may be read whole.
    assert rows_read(plan) <= 1 + 2 * 16 and buffers_of(plan) <= 40


async def test_a_page_of_a_long_history_reads_a_page_and_its_count_is_bounded(pool: Pool) -> None:
    execution_id = await seed_events(pool, EVENTS)
    args = {"execution_id": execution_id, "since": event_id(SHARD, EVENTS // 2), "event_type": None}
    for mode in ("force_custom_plan", "force_generic_plan"):
        page = {**args, "limit": 101, "offset": 0, "looked_at_max": 101}
        plan = await plan_of(pool, "read_events", page, mode=mode)
        assert rows_read(plan) <= 101 + 20 and buffers_of(plan) <= 300, mode
        plan = await plan_of(pool, "count_events", {**args, "looked_at_max": LOOKED_AT_MAX}, mode=mode)
        assert rows_read(plan) <= LOOKED_AT_MAX + 20, mode
        after = {"shard_id": SHARD, "after": args["since"]}
        plan = await plan_of(pool, "read_oldest_waiting", after, mode=mode)
        assert rows_read(plan) <= 4, mode  # one a partition at most


async def test_a_long_history_tells_what_the_projection_counted_and_ends_where_it_ends(
    client: httpx.AsyncClient, pool: Pool
) -> None:
    execution_id = await seed_events(pool, EVENTS)
    counts = '{"counts": {"events": 49000}}'
    await execute(pool, "UPDATE noetl.execution SET progress = %s::jsonb", counts)
    url = f"/api/executions/{execution_id}/events"
    first = (await client.get(url)).json()["pagination"]
    assert (first["total_events"], first["total_is_exact"], first["has_next"]) == (49_000, False, True)
    whole = (await client.get(f"/api/executions/{execution_id}")).json()["pagination"]
    assert whole == first
    last = {"cursor": event_id(SHARD, EVENTS - 120)}
    near = (await client.get(url, params=last)).json()["pagination"]
    assert (near["total_events"], near["total_is_exact"], near["has_next"]) == (120, True, True)
    end = (await client.get(url, params={"cursor": near["next_cursor"]})).json()
    assert len(end["events"]) == 20 and end["pagination"]["next_cursor"] is None


async def test_events_of_one_type_are_found_at_the_end_of_a_long_history_by_cursor(
    client: httpx.AsyncClient, pool: Pool
) -> None:
    execution_id = await seed_events(pool, EVENTS)
    url, given = f"/api/executions/{execution_id}/events", {"event_type": "step.exit"}
    found, pages, cursor = [], 0, None
    while pages == 0 or cursor is not None:
        page = (await client.get(url, params=given | ({"cursor": cursor} if cursor else {}))).json()
        found += page["events"]
        cursor, pages = page["pagination"]["next_cursor"], pages + 1
    assert [event["seq"] for event in found] == [EVENTS] and pages == EVENTS // LOOKED_AT_MAX + 1
    beyond = await client.get(url, params={**given, "page": 2})
    assert beyond.status_code == 422 and f"cursor={event_id(SHARD, LOOKED_AT_MAX)}" in beyond.json()["detail"]


@pytest.mark.parametrize("filters", [{}, {"status": "completed"}, {"path": "p/3"}, {"parent_execution_id": PARENT}])
async def test_pages_by_cursor_show_each_run_once_whatever_starts_meanwhile(
    client: httpx.AsyncClient, pool: Pool, filters: dict[str, Any]
) -> None:
    await execute(pool, SEED, 400, PARENT, 500)
    found = await rows(pool, "SELECT * FROM noetl.execution ORDER BY execution_id DESC")
    wanted = filters | ({"status": "COMPLETED"} if "status" in filters else {})
    expected = [str(row["execution_id"]) for row in found if all(row[k] == v for k, v in wanted.items())]
    seen: list[str] = []
    cursor: str | None = None
    while not seen or cursor is not None:
        answer = await client.get("/api/executions", params={**filters, "limit": 7, "cursor": cursor or ""})
        seen += [row["execution_id"] for row in answer.json()]
        cursor = answer.headers.get("x-next-cursor")
        newer = 1_000_000 + len(seen)
        await execute(
            pool,
            "INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, parent_execution_id,"
            " status) VALUES (%s, 0, 7, 'p/3', 1, %s, 'COMPLETED')",
            newer,
            PARENT,
        )
    assert seen == expected


async def test_a_wait_ends_as_soon_as_the_bell_rings_for_the_event(
    client: httpx.AsyncClient, api: Api, pool: Pool
) -> None:
    execution_id = await make_execution(pool, SHARD)
    awaited = event_id(SHARD, 3, 1)
    for url in (f"/api/executions/{execution_id}/status", f"/api/executions/{execution_id}"):
        await execute(pool, "UPDATE noetl.projection_checkpoint SET last_projected_event_id = 0")
        asking = asyncio.create_task(client.get(url, params={"wait_for": awaited}))
        await asyncio.sleep(0.7)  # long enough for the pauses between looks to have grown to half a second
        assert not asking.done()
        rung = "UPDATE noetl.projection_checkpoint SET last_projected_event_id = %s WHERE shard_id = 5"
        await execute(pool, rung, awaited)
        api.projected.ring(str(SHARD))
        answer = await asyncio.wait_for(asking, 0.25)
        assert answer.json()["as_of_event_id"] == str(awaited)


async def test_a_wait_without_a_bell_ends_by_looking_and_one_in_vain_after_its_time(
    client: httpx.AsyncClient, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution_id = await make_execution(pool, SHARD)
    url, awaited = f"/api/executions/{execution_id}/status", event_id(SHARD, 3, 1)
    asking = asyncio.create_task(client.get(url, params={"wait_for": awaited}))
    await execute(pool, "UPDATE noetl.projection_checkpoint SET last_projected_event_id = %s", awaited)
    assert (await asyncio.wait_for(asking, 2.0)).json()["as_of_event_id"] == str(awaited)
    monkeypatch.setattr("services.ingest.routes.executions.WAIT_MAX_S", 0.3)
    late = await asyncio.wait_for(client.get(url, params={"wait_for": event_id(SHARD, 9)}), 2.0)
    assert late.status_code == 200 and late.json()["as_of_event_id"] == str(awaited)


@pytest.mark.parametrize(
    ("head", "lag_ms", "ago_s", "expected_ms"),
    [
        (3, 0, 3_600, (0, 0)),  # nothing waits, however long ago that was
        (4, 700, 2, (2_700, 3_700)),  # what waited then waits still
        (4, 0, 0.1, (100, 1_100)),  # came since
        (4, 0, 3_600, (60_000, 61_000)),  # came a minute ago, by the log
    ],
)
async def test_the_lag_is_the_age_of_what_waits_also_when_nobody_projects(
    client: httpx.AsyncClient, pool: Pool, head: int, lag_ms: int, ago_s: float, expected_ms: tuple[int, int]
) -> None:
    execution_id = await seed_events(pool, 4)
    await execute(pool, "UPDATE noetl.event SET created_at = clock_timestamp() - interval '1 minute'")
    await execute(pool, "UPDATE noetl.shard_head SET seq = %s WHERE shard_id = 5", head)
    await execute(
        pool,
        "UPDATE noetl.projection_checkpoint SET last_projected_event_id = %s, lag_ms = %s,"
        " last_projected_at = clock_timestamp() - make_interval(secs => %s) WHERE shard_id = 5",
        event_id(SHARD, 3, 32_767),
        lag_ms,
        ago_s,
    )
    for url in (f"/api/executions/{execution_id}/status", f"/api/executions/{execution_id}"):
        low, high = expected_ms
        assert low <= (await client.get(url)).json()["lag_ms"] <= high


async def test_a_loop_tells_how_far_it_is_and_how_fast(client: httpx.AsyncClient, pool: Pool) -> None:
    execution_id = await make_execution(pool, SHARD)
    steps = """{"steps": {
        "each": {"status": "completed", "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:05Z",
            "items": {"total": 100, "done": 90, "failed": 10, "in_flight": 0, "more": false}},
        "new": {"status": "running", "started_at": "2026-01-01T00:00:05+00:00",
            "items": {"total": 3, "done": 0, "failed": 0, "in_flight": 3, "more": true}}}, "counts": {}}"""
    await execute(pool, "UPDATE noetl.execution SET progress = %s::jsonb", steps)
    status = (await client.get(f"/api/executions/{execution_id}/status")).json()["progress"]["steps"]
    assert status["each"]["items"] == {
        "total": 100,
        "done": 90,
        "failed": 10,
        "in_flight": 0,
        "more": False,
        "rate": 20.0,
    }
    assert status["new"]["items"]["rate"] is None and status["new"]["items"]["more"]
    run = (await client.get(f"/api/executions/{execution_id}")).json()["progress_detail"]["steps"]
    assert run["each"] == status["each"]

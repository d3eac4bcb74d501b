"""Runs of three weeks go through the compactor, killed at each of its steps: every answer about them stays."""

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from noetl_common.clock import SystemClock
from noetl_common.config import load
from noetl_common.core.shard import minted_at_ms, partition_bounds
from noetl_common.db import Pool
from noetl_common.ids import mint_execution_id
from noetl_common.partitions import create_ahead
from noetl_common.secrets import generate_key
from noetl_common.verify.run import Asked, verify
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from services.worker.app import app as worker_app
from services.worker.config import Config as WorkerConfig
from tests.builders import disk_store
from tests.compacting import long_ago_ms
from tests.histories import rows
from tests.killed_compactor import POINTS
from tests.running import start_role, wait_until
from tests.servers import PARTITION_WIDTH_HOURS

ROOT = Path(__file__).parents[2]
RUNS = 200
WEEKS = (2, 1, 0)
LEASE_S = 1.5
STEPS = "SELECT DISTINCT execution_id, step FROM noetl.event WHERE step IS NOT NULL ORDER BY 1, 2"
# Beside the run itself and the lineage of its steps, of every seventh: 7 divides none of the numbers that make kinds.
MORE_PATHS = (
    "?include_events=false",
    "/status",
    "/events?page_size=10&page=2",
    "/events?event_type=command.issued",
    "/events?event_type=command.claimed",
    "/events?limit=7&offset=3",
    "/trace/fin?depth=1",
    "/trace/fin?limit=1",
)
DETACH_PENDING = "SELECT 1 FROM pg_inherits WHERE inhdetachpending"
KILL_TIMEOUT_S = 30.0
LIMIT_WAITS = "SET LOCAL lock_timeout = '100ms'"
INSERT = (
    "INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, catalog_id, event_time)"
    " VALUES (%s, %s, 0, 'vars.set', 7, now())"
)
STATES = "SELECT state FROM noetl.compaction"

CHILD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child, path: tests/drill_child}
workload: {n: 0}
workflow:
  - step: start
    tool: {kind: python, input: {n: "{{ workload.n }}"}, code: "result = {'twice': n * 2}"}
"""
DRILL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: drill, path: tests/drill}
workload: {n: 1, fails: false}
workflow:
  - step: start
    tool:
      - first: {kind: python, input: {n: "{{ workload.n }}"}, code: "result = {'n': n}"}
      - second: {kind: python, input: {p: "{{ _prev }}"}, code: "result = {'items': [1, 2, 3], 'p': p}"}
    next: {arcs: [{step: many}]}
  - step: many
    loop: {in: "{{ workload.items }}", iterator: item, mode: parallel}
    tool: {kind: noop}
    next: {arcs: [{step: child, when: "{{ workload.calls }}"}, {step: large, when: "{{ not workload.calls }}"}]}
  - step: child
    tool: {kind: playbook, path: tests/drill_child, input: {n: "{{ workload.n }}"}}
    next: {arcs: [{step: fin}]}
  - step: large
    tool: {kind: python, input: {n: "{{ workload.n }}"}, code: "result = {'text': str(n) * 20000}"}
    next: {arcs: [{step: fin}]}
  - step: fin
    tool:
      kind: python
      input: {n: "{{ start.items }}", fails: "{{ workload.fails }}"}
      code: "result = {'n': n, 'x': 1 / (0 if fails else 1)}"
"""


class PastClock:
    """A clock that stands in one of the weeks of long ago, another one for each id."""

    def __init__(self) -> None:
        self._weeks = 0

    def unix_ms(self) -> int:
        self._weeks += 1
        return long_ago_ms(WEEKS[self._weeks % len(WEEKS)])

    def monotonic_s(self) -> float:
        return 0.0


class System(msgspec.Struct):
    """A whole system, and its API without a socket between: what is asked is asked thousands of times."""

    api: httpx.AsyncClient
    environ: dict[str, str]
    results: Path


@pytest.fixture
async def system(dsn: str, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[System]:
    """A system whose runs began long ago."""
    clock = PastClock()
    monkeypatch.setattr("noetl_common.ids.SystemClock", lambda: clock)
    async with pool.connection() as conn:
        for weeks in WEEKS:
            await create_ahead(conn, long_ago_ms(weeks), PARTITION_WIDTH_HOURS, ahead=0)
    results = tmp_path / "results"
    environ = {"DATABASE_URL": dsn, "NOETL_STORE_DIR": str(results), "NOETL_PORT": "0"}
    environ |= {"NOETL_ENCRYPTION_KEY": generate_key(), "NOETL_SHARD_LEASE_SEC": str(LEASE_S)}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(start_role(meta_app, load(MetaConfig, environ)))
        ingest = await stack.enter_async_context(start_role(ingest_app, load(IngestConfig, environ)))
        await stack.enter_async_context(start_role(compute_app, load(ComputeConfig, environ)))
        environ["NOETL_SERVER_URL"] = ingest.url
        await stack.enter_async_context(start_role(worker_app, load(WorkerConfig, environ)))
        assert ingest.service.asgi is not None
        transport = httpx.ASGITransport(ingest.service.asgi)
        api = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1"))
        yield System(api=api, environ=environ, results=results)


async def test_every_answer_is_the_same_after_the_log_is_dropped_by_a_compactor_killed_at_each_step(
    system: System, dsn: str, pool: Pool
) -> None:
    run_ids = await run_all(system.api, pool)
    before = await answers(system.api, await places(pool, run_ids))
    _lineage_crosses_steps_and_runs(before)
    async with inserting(dsn), compactors(system) as launcher:
        await kill_at_each_point(launcher, system, pool, before)
        await start_one(launcher, "")
        await wait_until(lambda: _all_dropped(pool), timeout_s=60, what="all three weeks are dropped")
        await wait_until(lambda: _only_kept_payloads(pool, system), timeout_s=30, what="all orphans are collected")
    assert await rows(pool, "SELECT 1 FROM noetl.event LIMIT 1") == []
    assert (await verify(dsn, disk_store(system.results), Asked(sample=None))).findings == []
    after = await answers(system.api, before)
    for place, text in before.items():
        assert after[place] == text.replace('"source":"events"', '"source":"manifest"'), place
    await _results_are_gone_or_kept(system.api, run_ids)


def _lineage_crosses_steps_and_runs(found: dict[str, str]) -> None:
    def links(ending: str) -> list[tuple[str, dict[str, Any]]]:
        traces = [json.loads(text) for place, text in found.items() if place.endswith(ending)]
        return [(trace["execution_id"], link) for trace in traces for link in trace["chain"]]

    other_runs = [link for run_id, link in links("/trace/child") if link["execution_id"] != run_id]
    assert len(other_runs) >= RUNS // 8 and {link["depth"] for link in other_runs} >= {0}
    assert {"start", "fin"} <= {link["source_step"] for _run_id, link in links("/trace/fin")}


async def run_all(api: httpx.AsyncClient, pool: Pool) -> list[int]:
    """Run the drill with and without children, large results and failures; return the ids of all runs."""
    for text in (CHILD, DRILL):
        (await api.post("/api/catalog/register", json={"content": text})).raise_for_status()
    starting = asyncio.Semaphore(16)

    async def run(number: int) -> None:
        payload = {"n": number, "items": [1, 2], "fails": number % 10 == 9, "calls": number % 8 == 0}
        async with starting:
            started = await api.post("/api/execute", json={"path": "tests/drill", "payload": payload})
            if number % 5 == 0:
                await _store(api, int(started.raise_for_status().json()["execution_id"]))

    await asyncio.gather(*(run(number) for number in range(RUNS)))

    async def ended() -> list[dict[str, Any]]:
        if await rows(pool, "SELECT 1 FROM noetl.execution WHERE status = 'RUNNING' LIMIT 1"):
            return []
        return await rows(pool, "SELECT execution_id, status FROM noetl.execution ORDER BY 1")

    found = await wait_until(ended, timeout_s=120, what="the end of every run")
    assert len(found) >= RUNS + RUNS // 8
    assert sum(row["status"] == "FAILED" for row in found) == RUNS // 10
    ids: list[int] = [row["execution_id"] for row in found]
    ranges = {partition_bounds(minted_at_ms(id_), PARTITION_WIDTH_HOURS) for id_ in ids}
    assert len(ranges) == len(WEEKS)
    return ids


async def _store(api: httpx.AsyncClient, run_id: int) -> None:
    for name, scope in (("lasting", "permanent"), ("passing", "execution")):
        body = {"name": name, "data": {"of": name, "run": str(run_id), "text": "x" * 20_000}, "scope": scope}
        (await api.put(f"/api/result/{run_id}", json=body)).raise_for_status()


async def places(pool: Pool, run_ids: list[int]) -> list[str]:
    """Return the addresses of every answer about the runs that must stay."""
    found = [f"/api/executions/{run_id}" for run_id in run_ids]
    found += [f"/api/executions/{row['execution_id']}/trace/{row['step']}" for row in await rows(pool, STEPS)]
    return found + [f"/api/executions/{run_id}{path}" for run_id in run_ids[::7] for path in MORE_PATHS]


async def answers(api: httpx.AsyncClient, asked: Iterable[str]) -> dict[str, str]:
    """Return the answers by their addresses."""
    found: dict[str, str] = {}
    asking = asyncio.Semaphore(8)

    async def ask(place: str) -> None:
        async with asking:
            found[place] = (await api.get(place)).raise_for_status().text

    await asyncio.gather(*(ask(place) for place in asked))
    return found


@asynccontextmanager
async def inserting(dsn: str) -> AsyncIterator[None]:
    """Insert into the live partition all the time, each insert undone; one that waits longer for any lock fails."""
    live_id = mint_execution_id(SystemClock())
    inserted = 0

    async def keep_inserting() -> None:
        nonlocal inserted
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            while True:
                await conn.execute(LIMIT_WAITS)
                await conn.execute(INSERT, [live_id, inserted + 1])
                await conn.rollback()
                inserted += 1
                await asyncio.sleep(0.005)

    task = asyncio.create_task(keep_inserting())
    try:
        yield
        assert not task.done(), task.exception()
        assert inserted > 10 * len(POINTS)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def compactors(system: System) -> AsyncIterator[Process]:
    """Lend what starts compactors that keep nothing and wait for nothing; the last one ends with it."""
    environ = {
        **os.environ,
        **system.environ,
        "NOETL_COMPACTOR_ENABLED": "true",
        "NOETL_RETENTION_DAYS": "0",
        "NOETL_COMPACTOR_SETTLE_SEC": "0",
        "NOETL_COMPACTOR_INTERVAL_SEC": "0.05",
        "NOETL_COMPACTOR_BATCH_EVENTS": "200",
        "NOETL_ORPHAN_AGE_HOURS": "0",
    }
    launcher = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.killed_compactor"),
        cwd=ROOT,
        env=environ,
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,
    )
    try:
        yield launcher
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        await launcher.wait()


async def start_one(launcher: Process, point: str) -> int:
    """Start a compactor that ends at the point; return its process id."""
    assert launcher.stdin is not None
    launcher.stdin.write(f"{point}\n".encode())
    return await _said(launcher)


async def _said(launcher: Process) -> int:
    assert launcher.stdout is not None
    async with asyncio.timeout(KILL_TIMEOUT_S):
        return int(await launcher.stdout.readline())


async def kill_at_each_point(launcher: Process, system: System, pool: Pool, before: dict[str, str]) -> None:
    """Let a compactor after the other come to its point and die there; some answers are compared each time."""
    dice = random.Random(4)
    for point in POINTS:
        await start_one(launcher, point)
        assert await _said(launcher) == -signal.SIGKILL, point
        if point == "range let go":
            await _kill_while_detaching(launcher, system, pool)
        now = await answers(system.api, dice.sample(sorted(before), 12))
        for place, text in now.items():
            assert text.replace('"source":"manifest"', '"source":"events"') == before[place], (point, place)


async def _kill_while_detaching(launcher: Process, system: System, pool: Pool) -> None:
    """Kill the next one while it waits, half-way through a detach, for somebody who reads the log."""
    with psycopg.connect(system.environ["DATABASE_URL"]) as reader:
        reader.execute("SELECT count(*) FROM noetl.event")
        pid = await start_one(launcher, "")
        await wait_until(lambda: rows(pool, DETACH_PENDING), timeout_s=KILL_TIMEOUT_S, what="a detach under way")
        os.kill(pid, signal.SIGKILL)
        assert await _said(launcher) == -signal.SIGKILL


async def _all_dropped(pool: Pool) -> bool:
    return [row["state"] for row in await rows(pool, STATES)] == ["dropped"] * len(WEEKS)


async def _only_kept_payloads(pool: Pool, system: System) -> bool:
    kept = {row["physical_uri"] for row in await rows(pool, "SELECT physical_uri FROM noetl.kept_result")}
    return set(await disk_store(system.results).list_uris("disk", "exec/")) == kept


async def _results_are_gone_or_kept(api: httpx.AsyncClient, run_ids: list[int]) -> None:
    kept = gone = 0
    for run_id in run_ids[::7]:
        chain = (await api.get(f"/api/executions/{run_id}/trace/start")).json()["chain"]
        for link in chain:
            refused = await api.get("/api/result/resolve", params={"ref": link["ref"]})
            assert refused.status_code == 410 and refused.json()["code"] == "RESULT_ARCHIVED"
            gone += 1
    for run_id in run_ids:
        listed = (await api.get(f"/api/result/{run_id}/list")).raise_for_status().json()["results"]
        assert {one["name"] for one in listed} <= {"lasting"}
        for one in listed:
            answer = (await api.get("/api/result/resolve", params={"ref": one["ref"]})).raise_for_status()
            assert (answer.json()["of"], answer.json()["run"]) == ("lasting", str(run_id))
            kept += 1
    assert kept == RUNS // 5 and gone > RUNS // 7

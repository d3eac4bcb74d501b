"""Runs of three weeks go through the compactor, killed again and again on the way: every answer about them stays."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

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
from tests.running import start_role, wait_until
from tests.servers import PARTITION_WIDTH_HOURS

RUNS = 200
WEEKS = (2, 1, 0)
LEASE_S = 1.5
STEPS = ("start", "many", "child", "large", "fin")
KILLED_AT = ("some", "folded", "sealed", "detaching", "detached", "verified", "dropped", "some", "detaching")
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


@pytest.fixture
async def api(
    dsn: str, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A whole system whose runs began long ago."""
    clock = PastClock()
    for place in ("services.ingest.starts", "services.ingest.router"):
        monkeypatch.setattr(f"{place}.mint_execution_id", lambda: mint_execution_id(clock))
    async with pool.connection() as conn:
        for weeks in WEEKS:
            await create_ahead(conn, long_ago_ms(weeks), PARTITION_WIDTH_HOURS, ahead=0)
    environ = {"DATABASE_URL": dsn, "NOETL_STORE_DIR": str(tmp_path / "results"), "NOETL_PORT": "0"}
    environ |= {"NOETL_ENCRYPTION_KEY": generate_key(), "NOETL_SHARD_LEASE_SEC": str(LEASE_S)}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(start_role(meta_app, load(MetaConfig, environ)))
        ingest = await stack.enter_async_context(start_role(ingest_app, load(IngestConfig, environ)))
        await stack.enter_async_context(start_role(compute_app, load(ComputeConfig, environ)))
        environ["NOETL_SERVER_URL"] = ingest.url
        await stack.enter_async_context(start_role(worker_app, load(WorkerConfig, environ)))
        yield await stack.enter_async_context(httpx.AsyncClient(base_url=ingest.url, timeout=30.0))


@pytest.mark.timeout(600)
async def test_every_answer_is_the_same_after_the_log_is_dropped_by_a_compactor_that_is_killed(
    api: httpx.AsyncClient, dsn: str, pool: Pool, tmp_path: Path
) -> None:
    run_ids = await run_all(api, pool)
    before = await answers(api, run_ids)
    _lineage_crosses_steps_and_runs(before)
    seen = await kill_and_kill_again(dsn, pool, tmp_path)
    with compactor(dsn, tmp_path):
        await wait_until(lambda: _all_dropped(pool), timeout_s=90, what="all three weeks are dropped")
    assert await rows(pool, "SELECT 1 FROM noetl.event LIMIT 1") == []
    assert (await verify(dsn, disk_store(tmp_path / "results"), Asked(sample=None))).violations == []
    after = await answers(api, run_ids)
    for place, text in before.items():
        assert after[place] == text.replace('"source":"events"', '"source":"manifest"'), place
    assert len(seen) == len(KILLED_AT)
    await _results_are_gone_or_kept(api, run_ids)


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
    for number in range(RUNS):
        payload = {"n": number, "items": [1, 2], "fails": number % 10 == 9, "calls": number % 8 == 0}
        (await api.post("/api/execute", json={"path": "tests/drill", "payload": payload})).raise_for_status()
        if number % 5 == 0:
            (run,) = await rows(pool, "SELECT max(execution_id) AS id FROM noetl.execution WHERE path = 'tests/drill'")
            await _store(api, run["id"])

    async def ended() -> list[dict[str, Any]]:
        if await rows(pool, "SELECT 1 FROM noetl.execution WHERE status = 'RUNNING' LIMIT 1"):
            return []
        return await rows(pool, "SELECT execution_id, status FROM noetl.execution ORDER BY 1")

    found = await wait_until(ended, timeout_s=240, what="the end of every run")
    assert len(found) >= RUNS + RUNS // 8
    assert sum(row["status"] == "FAILED" for row in found) == RUNS // 10
    ids: list[int] = [row["execution_id"] for row in found]
    ranges = {partition_bounds(minted_at_ms(id_), PARTITION_WIDTH_HOURS) for id_ in ids}
    assert len(ranges) == len(WEEKS)
    return ids


async def _store(api: httpx.AsyncClient, run_id: int) -> None:
    for name, scope in (("lasting", "permanent"), ("passing", "execution")):
        body = {"name": name, "data": {"of": name, "run": str(run_id)}, "scope": scope}
        (await api.put(f"/api/result/{run_id}", json=body)).raise_for_status()


async def answers(api: httpx.AsyncClient, run_ids: list[int]) -> dict[str, str]:
    """Return every answer about the runs that must stay, by its address."""
    paths = ["", "?include_events=false", "/status", "/events?page_size=10&page=2", "/events?event_type=command.issued"]
    paths += ["/events?limit=7&offset=3", "/events?event_type=command.claimed"]
    paths += [f"/trace/{step}" for step in STEPS]
    paths += ["/trace/fin?depth=1", "/trace/fin?limit=1"]
    found: dict[str, str] = {}
    asking = asyncio.Semaphore(8)

    async def ask(place: str) -> None:
        async with asking:
            found[place] = (await api.get(place)).raise_for_status().text

    await asyncio.gather(*(ask(f"/api/executions/{id_}{path}") for id_ in run_ids for path in paths))
    return found


@contextmanager
def compactor(dsn: str, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a compactor that keeps nothing and waits for nothing; it is killed at the end."""
    environ = {
        **os.environ,
        "DATABASE_URL": dsn,
        "NOETL_COMPACTOR_ENABLED": "true",
        "NOETL_RETENTION_DAYS": "0",
        "NOETL_COMPACTOR_SETTLE_SEC": "0",
        "NOETL_COMPACTOR_INTERVAL_SEC": "0.05",
        "NOETL_COMPACTOR_BATCH_EVENTS": "200",
        "NOETL_SHARD_LEASE_SEC": str(LEASE_S),
        "NOETL_STORE_DIR": str(tmp_path / "results"),
    }
    with open(tmp_path / "compactor.log", "ab") as log:
        command = [sys.executable, "-P", "-m", "services.compactor"]
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(10)


async def kill_and_kill_again(dsn: str, pool: Pool, tmp_path: Path) -> list[str]:
    """Kill the compactor as soon as it has come to each phase, or a moment later; return the phases."""
    dice = random.Random(4)
    seen: list[str] = []
    for phase in KILLED_AT:
        with compactor(dsn, tmp_path):
            await _phase_or_time(dsn, pool, phase)
            await asyncio.sleep(dice.choice((0.0, 0.0, 0.01, 0.05)))
        seen.append(phase)
    return seen


async def _phase_or_time(dsn: str, pool: Pool, phase: str) -> None:
    async def reached() -> bool:
        if phase == "some":
            query = "SELECT 1 FROM noetl.execution WHERE compacted_at IS NOT NULL LIMIT 1"
            return bool(await rows(pool, query))
        return phase in {row["state"] for row in await rows(pool, STATES)} or await _all_dropped(pool)

    if phase == "detaching":
        # A reader keeps the detach from ending, so that it is killed half-way.
        with psycopg.connect(dsn) as reader:
            reader.execute("SELECT count(*) FROM noetl.event")
            await wait_until(reached, timeout_s=30, what=f"phase {phase}")
            await asyncio.sleep(0.2)
        return
    await wait_until(reached, timeout_s=30, what=f"phase {phase}")


async def _all_dropped(pool: Pool) -> bool:
    return [row["state"] for row in await rows(pool, STATES)] == ["dropped"] * len(WEEKS)


async def _results_are_gone_or_kept(api: httpx.AsyncClient, run_ids: list[int]) -> None:
    kept = gone = 0
    for run_id in run_ids:
        listed = (await api.get(f"/api/result/{run_id}/list")).raise_for_status().json()["results"]
        assert {one["name"] for one in listed} <= {"lasting"}
        for one in listed:
            answer = (await api.get("/api/result/resolve", params={"ref": one["ref"]})).raise_for_status()
            assert answer.json() == {"of": "lasting", "run": str(run_id)}
            kept += 1
        chain = (await api.get(f"/api/executions/{run_id}/trace/start")).json()["chain"]
        for link in chain:
            refused = await api.get("/api/result/resolve", params={"ref": link["ref"]})
            assert refused.status_code == 410 and refused.json()["code"] == "RESULT_ARCHIVED"
            gone += 1
    assert kept == RUNS // 5 and gone > RUNS

"""What tests of `noetl verify` share: a system that ran playbooks of every kind, some of them folded, some dropped."""

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
import psycopg
from psycopg.rows import dict_row

from noetl_cli.embedded.stack import Stack
from noetl_common.config import load
from noetl_common.db import Pool, open_pool
from noetl_common.secrets import generate_key
from noetl_common.store.results import ResultStore
from noetl_common.verify.report import Finding, Report
from noetl_common.verify.run import Asked, verify
from services.compactor.loops.collect_orphans import collect_orphans_once
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from services.worker.app import app as worker_app
from services.worker.config import Config as WorkerConfig
from tests.builders import disk_store
from tests.compacting import compactor_on, drop_all, fold_all, long_ago_ms, make_range
from tests.histories import rows
from tests.running import start_role, wait_until

CHILD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child, path: verify/child}
workload: {n: 0}
workflow:
  - step: start
    tool: {kind: python, input: {n: "{{ workload.n }}"}, code: "result = {'twice': n * 2}"}
"""
MIXED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: mixed, path: verify/mixed}
workload: {n: 3, fails: false}
workflow:
  - step: start
    tool:
      - first: {kind: python, input: {n: "{{ workload.n }}"}, code: "result = {'n': n}"}
      - call: {kind: playbook, path: verify/child, input: {n: "{{ _prev.n }}"}}
      - last: {kind: python, input: {p: "{{ _prev }}"}, code: "result = {'items': list(range(12)), 'p': p}"}
    next: {arcs: [{step: many}]}
  - step: many
    loop: {in: "{{ start.last['items'] }}", iterator: item, mode: parallel}
    tool: {kind: python, input: {i: "{{ item }}"}, code: "result = {'text': str(i) * 10000}"}
    next: {arcs: [{step: table}]}
  - step: table
    tool:
      kind: python
      code: "result = {'columns': ['a', 'b'], 'rows': [{'a': n, 'b': str(n) * 9} for n in range(3000)]}"
    next: {arcs: [{step: child}]}
  - step: child
    loop: {in: [1, 2], iterator: item}
    tool: {kind: playbook, path: verify/child, input: {n: "{{ item }}"}}
    next: {arcs: [{step: fin}]}
  - step: fin
    tool:
      kind: python
      input: {n: "{{ child }}", fails: "{{ workload.fails }}"}
      code: "result = {'n': n, 'x': 1 / (0 if fails else 1)}"
"""
SLOW = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: slow, path: verify/slow}
workflow:
  - step: start
    loop: {in: "{{ range(40) | list }}", iterator: item, mode: parallel}
    tool: {kind: python, code: "import time; time.sleep(20)"}
"""
WIDE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: wide, path: verify/wide}
workflow:
  - step: start
    loop: {in: "{{ range(3000) | list }}", iterator: item, mode: parallel}
    tool: {kind: noop}
"""


class Made(msgspec.Struct):
    """A system at rest: where it stands, and its runs by what became of them."""

    url: str
    results: Path
    runs: dict[str, int]


class Live:
    """A system at work."""

    def __init__(self, api: httpx.AsyncClient, pool: Pool) -> None:
        self.api = api
        self.pool = pool

    async def execute(self, path: str, **payload: Any) -> int:
        answer = await self.api.post("/api/execute", json={"path": path, "payload": payload})
        return int(answer.raise_for_status().json()["execution_id"])

    async def ended(self, *, timeout_s: float = 90.0) -> None:
        """Return when no run goes on, nothing waits, and all is projected."""
        live = "SELECT 1 FROM noetl.execution WHERE status = 'RUNNING' UNION ALL"
        live += " SELECT 1 FROM noetl.command WHERE status IN ('pending', 'claimed') LIMIT 1"

        async def quiet() -> bool:
            return not await rows(self.pool, live)

        await wait_until(quiet, timeout_s=timeout_s, what="the end of every run")


async def live(stack: AsyncExitStack, dsn: str, folder: Path) -> Live:
    """Start every role on a database and a folder, with the playbooks registered."""
    environ = {"DATABASE_URL": dsn, "NOETL_STORE_DIR": str(folder), "NOETL_PORT": "0"}
    environ |= {"NOETL_ENCRYPTION_KEY": generate_key(), "NOETL_PYTHON_PROCESSES": "2"}
    await stack.enter_async_context(start_role(meta_app, load(MetaConfig, environ)))
    ingest = await stack.enter_async_context(start_role(ingest_app, load(IngestConfig, environ)))
    await stack.enter_async_context(start_role(compute_app, load(ComputeConfig, environ)))
    environ["NOETL_SERVER_URL"] = ingest.url
    await stack.enter_async_context(start_role(worker_app, load(WorkerConfig, environ)))
    api = await stack.enter_async_context(httpx.AsyncClient(base_url=ingest.url, timeout=30.0))
    pool = await stack.enter_async_context(open_pool(dsn, size_max=4, name="test"))
    for text in (CHILD, MIXED, SLOW, WIDE):
        (await api.post("/api/catalog/register", json={"content": text})).raise_for_status()
    return Live(api, pool)


class PastClock:
    """A clock that stands some weeks of long ago."""

    def __init__(self, weeks: int) -> None:
        self.weeks = weeks

    def unix_ms(self) -> int:
        return long_ago_ms(self.weeks)

    def monotonic_s(self) -> float:
        return 0.0


async def make_system(dsn: str, folder: Path) -> Made:
    """Run playbooks of every kind to their ends: now, and long ago; those of long ago are folded, or dropped too."""
    runs: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        runs["dropped"] = await _run_long_ago(await live(stack, dsn, folder), weeks=2)
    async with open_pool(dsn, size_max=4, name="test") as pool:
        compactor = await compactor_on(pool, folder, retention_days=0.0, orphan_age_hours=0.0)
        await fold_all(compactor)
        await drop_all(compactor)
        for _ in ("note", "collect"):
            await collect_orphans_once(compactor)
    async with AsyncExitStack() as stack:
        system = await live(stack, dsn, folder)
        runs["folded"] = await _run_long_ago(system, weeks=0)
        runs["completed"] = await system.execute("verify/mixed")
        runs["failed"] = await system.execute("verify/mixed", fails=True)
        runs["cancelled"] = await system.execute("verify/slow")
        await _cancel(system, runs["cancelled"])
        await system.ended()
    async with open_pool(dsn, size_max=4, name="test") as pool:
        await fold_all(await compactor_on(pool, folder, retention_days=0.0))
    return Made(url=dsn, results=folder, runs=runs)


async def _run_long_ago(system: Live, *, weeks: int) -> int:
    clock = PastClock(weeks)
    await make_range(system.pool, weeks=weeks)
    with patch("noetl_common.ids.SystemClock", lambda: clock):
        run_id = await system.execute("verify/mixed", n=5)
        await system.ended()
    return run_id


async def _cancel(system: Live, run_id: int) -> None:
    query = "SELECT 1 FROM noetl.command WHERE execution_id = %s AND status = 'claimed' LIMIT 1"
    await wait_until(lambda: rows(system.pool, query, run_id), timeout_s=30, what="a claim of the slow run")
    (await system.api.post(f"/api/executions/{run_id}/cancel", json={})).raise_for_status()


def verified(made: Made, *, store: ResultStore | None = None, **asked: Any) -> Report:
    """Verify a system at rest, with every payload."""
    wanted = Asked(**{"sample": None, **asked})
    return asyncio.run(verify(made.url, store or disk_store(made.results), wanted))


def copy_of(made: Made, url: str, folder: Path) -> Made:
    """Return the system again, in a database that is a copy, with a copy of its results."""
    shutil.copytree(made.results, folder)
    return Made(url=url, results=folder, runs=made.runs)


def ask(made: Made, query: str, *args: Any) -> list[dict[str, Any]]:
    """Run a statement on the database of a system; return the rows it gives."""
    with psycopg.connect(made.url, row_factory=dict_row, autocommit=True) as conn:
        cursor = conn.execute(query.encode(), args)
        return cursor.fetchall() if cursor.description else []


def violations_in(stack: Stack) -> list[Finding]:
    """Return what does not hold in a stack that runs, with every payload."""
    assert stack.running is not None
    store = disk_store(stack.state.path / "results")
    return asyncio.run(verify(stack.running.database_url, store, Asked(sample=None))).violations

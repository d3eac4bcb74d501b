"""Playbooks that register and cannot run: each fails with its step and field, what was expected and what was found."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.secrets import generate_key
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from services.worker.app import app as worker_app
from services.worker.config import Config as WorkerConfig
from tests.broken.cases import Case, cases, lacking, name_of
from tests.running import start_role, wait_until

HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: run, path: {path}}}
workload: {{n: 1, none: null, self: {path}}}
keychain:
- {{name: shop, kind: credential, credential: nobody}}
- {{name: odd, kind: magic}}
- {{name: fixed, kind: static, map: {{a: b}}}}
workflow:
"""
# What cases call: a child that fails, and one that does not.
CHILDREN = {
    "tests/broken/child": "- {step: start, tool: {kind: noop, result: '{{ 1 / 0 }}'}}\n",
    "tests/broken/fine": "- {step: start, tool: {kind: noop, result: 1}}\n",
}
LIMITS: dict[str, Any] = {
    "python_processes": 1,
    "python_memory_bytes_max": 1 << 29,
    "pipeline_calls_max": 500,
    "tool_timeout_s": 20.0,
}
RUN_TIMEOUT_S = 120.0


def workflow_of(case: Case) -> str:
    """Return a case's steps: its own, or one step `start` with its tool and further fields."""
    if "steps" in case:
        return str(case["steps"])
    more = f"  {case['step']}\n" if "step" in case else ""
    return f"- step: start\n{more}  tool: {case['tool']}\n"


@pytest.fixture
async def client(dsn: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    store = str(tmp_path / "store")
    ingest = IngestConfig(database_url=dsn, port=0, encryption_key=generate_key(), store_dir=store)
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn)),
        start_role(compute_app, ComputeConfig(database_url=dsn)),
        start_role(ingest_app, ingest) as server,
        start_role(worker_app, WorkerConfig(server_url=server.url, store_dir=store, **LIMITS)),
        httpx.AsyncClient(base_url=server.url, timeout=30) as opened,
    ):
        for name, kind, data in (("own", "postgres", {"dsn": dsn}), ("token", "bearer", {"token": "t"})):
            body = {"name": name, "type": kind, "data": data}
            assert (await opened.post("/api/credentials", json=body)).status_code == 200
        for path, steps in CHILDREN.items():
            await registered(opened, path, steps)
        yield opened


async def registered(client: httpx.AsyncClient, path: str, steps: str) -> None:
    answer = await client.post("/api/catalog/register", json={"content": HEAD.format(path=path) + steps})
    assert answer.status_code == 200, f"{steps}: {answer.text}"


async def started(client: httpx.AsyncClient, case: Case, number: int) -> str:
    path = f"tests/broken/run-{number}"
    await registered(client, path, workflow_of(case))
    answer = await client.post("/api/execute", json={"path": path})
    assert answer.status_code == 200, f"{case['case']}: {answer.text}"
    return str(answer.json()["execution_id"])


async def ended(client: httpx.AsyncClient, execution_id: str) -> dict[str, Any]:
    async def status() -> dict[str, Any] | None:
        found = (await client.get(f"/api/executions/{execution_id}/status")).json()
        return found if found["status"] != "RUNNING" else None

    return dict(await wait_until(status, what="the end of the run", timeout_s=RUN_TIMEOUT_S))


def faults_of(case: Case, status: dict[str, Any]) -> list[str]:
    """Return what a run's end does not tell of what its case expects."""
    if status["status"] != "FAILED":
        return [f"is {status['status']}"]
    error = status["error"]
    message = str(error["message"])
    faults = lacking(case, message)
    faults += [f"names step {error.get('step')!r}"] if error.get("step") != "start" else []
    faults += [f"names task {error.get('task')!r}"] if case.get("task") not in (None, error.get("task")) else []
    faults += [f"names no field {case['field']!r}"] if case.get("field", "") not in message else []
    return [*faults, message] if faults else []


async def test_a_run_that_cannot_go_on_says_where_what_was_expected_and_what_was_found(
    client: httpx.AsyncClient,
) -> None:
    # All of them at once: what they wait for is mostly each other's turn.
    known = cases("runs")
    runs = [await started(client, case, number) for number, case in enumerate(known)]
    faults = []
    for case, execution_id in zip(known, runs, strict=True):
        told = faults_of(case, await ended(client, execution_id))
        if told:
            faults.append(f"{name_of(case)}: {told}")
    assert not faults, "\n".join(faults)
    assert (await client.get("/readyz")).status_code == 200

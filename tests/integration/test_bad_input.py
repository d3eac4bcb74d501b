"""Bad input, end to end on real roles: a clear error, nothing lost, and the service goes on."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from noetl_common.secrets import generate_key
from noetl_common.wire import Claimed, encode
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from services.worker.app import app as worker_app
from services.worker.config import Config as WorkerConfig
from tests.ingesting import report_of
from tests.running import start_role, wait_until

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: bad, path: tests/bad}\nworkflow:\n"
LOOP = "- {step: start, loop: {in: 5, iterator: n, spec: {mode: parallel}}, tool: {kind: noop, result: 1}}\n"

Play = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def client(dsn: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    ingest = IngestConfig(database_url=dsn, port=0, encryption_key=generate_key(), store_dir=str(tmp_path / "store"))
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn)),
        start_role(compute_app, ComputeConfig(database_url=dsn)),
        start_role(ingest_app, ingest) as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as opened,
    ):
        yield opened


@pytest.fixture
async def play(client: httpx.AsyncClient, tmp_path: Path) -> AsyncIterator[Play]:
    """A function that runs steps on a real worker and returns the run's status."""
    limits: dict[str, Any] = {"python_processes": 1, "python_memory_bytes_max": 1 << 29}
    config = WorkerConfig(server_url=str(client.base_url), store_dir=str(tmp_path / "store"), **limits)

    async def run(steps: str, **payload: Any) -> dict[str, Any]:
        return await ended(client, await started(client, steps, **payload))

    async with start_role(worker_app, config):
        yield run


async def started(client: httpx.AsyncClient, steps: str, **payload: Any) -> str:
    registered = await client.post("/api/catalog/register", json={"content": HEAD + steps})
    assert registered.status_code == 200, registered.text
    answer = await client.post("/api/execute", json={"path": "tests/bad", "payload": payload})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["execution_id"])


async def ended(client: httpx.AsyncClient, execution_id: str) -> dict[str, Any]:
    async def status() -> dict[str, Any] | None:
        found = (await client.get(f"/api/executions/{execution_id}/status")).json()
        return found if found["status"] != "RUNNING" else None

    return dict(await wait_until(status, what="the end of the run", timeout_s=30))


async def resolved(client: httpx.AsyncClient, status: dict[str, Any]) -> Any:
    assert status["status"] == "COMPLETED", status["error"]
    return (await client.get("/api/result/resolve", params={"ref": status["result"]["ref"]})).json()


def python(code: str, **fields: Any) -> str:
    tool = {"kind": "python", "code": code, **fields}
    return f"- {{step: start, tool: {msgspec.json.encode(tool).decode()}}}\n"


async def test_a_result_of_10_mb_comes_back_by_reference_and_identical(client: httpx.AsyncClient, play: Play) -> None:
    status = await play(python("result = {'rows': [{'id': n, 'text': 'é\\x00' + 'x' * 990} for n in range(10_000)]}"))
    assert status["result"]["tier"] == "disk"
    rows = [{"id": n, "text": "é\x00" + "x" * 990} for n in range(10_000)]
    assert await resolved(client, status) == {"rows": rows}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import os\nos._exit(3)", "3"),
        ("while True: pass", "within 0.5 s"),
        ("raise ValueError('no\\x00such luck')", "such luck"),
        ("raise ValueError('half \\ud800 a character')", "a character"),
        ("x = bytearray(10 ** 12)", "memory"),
    ],
)
async def test_code_that_goes_wrong_fails_its_run_clearly_and_the_next_one_runs(
    client: httpx.AsyncClient, play: Play, code: str, said: str
) -> None:
    failed = await play(python(code, timeout=0.5))
    assert failed["status"] == "FAILED" and said in failed["error"]["message"] and failed["error"]["step"] == "start"
    assert failed["error"]["code"] != "ENVELOPE_REJECTED"
    assert await resolved(client, await play(python("result = 1"))) == 1
    assert (await client.get("/readyz")).status_code == 200


async def test_100_mb_of_output_and_forks_left_behind_do_not_hold_up_a_run(
    client: httpx.AsyncClient, play: Play
) -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('y' * 100_000_000)\nresult = {'ok': True}"
    assert await resolved(client, await play(python(code))) == {"ok": True}


async def test_a_failing_statement_names_its_code_and_what_was_missing(
    client: httpx.AsyncClient, play: Play, dsn: str
) -> None:
    body = {"name": "own", "type": "postgres", "data": {"dsn": dsn}}
    assert (await client.post("/api/credentials", json=body)).status_code == 200
    failed = await play("- {step: start, tool: {kind: postgres, auth: own, command: 'SELECT * FROM nowhere'}}\n")
    assert failed["status"] == "FAILED" and failed["error"]["pg_code"] == "42P01"
    assert "nowhere" in failed["error"]["message"]


async def test_values_that_jsonb_refuses_go_through_a_run_unchanged(client: httpx.AsyncClient, play: Play) -> None:
    steps = """
- step: start
  tool:
    - name: one
      kind: python
      input: {given: "{{ workload.given }}"}
      code: "result = {'nul': 'a\\\\x00b', 'given': given, 'large': 'x' * 20_000}"
      spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.kept: "{{ output.data.nul }}"}}}}]}}
  next: {arcs: [{step: then}]}
- step: then
  tool: {kind: python, input: {kept: "{{ ctx.kept }}", one: "{{ start.nul }}"}, code: "result = [kept, one]"}
"""
    assert await resolved(client, await play(steps, given="\x00")) == ["a\x00b", "a\x00b"]


async def test_a_batch_reversed_and_repeated_completes_a_loop_once(client: httpx.AsyncClient) -> None:
    execution_id = await started(client, LOOP)
    work = await claimed(client, 5)
    reports = [report_of(command) for command in reversed(work.commands)]
    body = encode({"worker_id": "w1", "events": [*reports, *reports]})
    first = (await client.post("/api/events/batch", content=body)).json()
    again = (await client.post("/api/events/batch", content=body)).json()
    assert first["outcomes"] == ["accepted"] * 5 + ["duplicate"] * 5
    assert again["outcomes"] == ["duplicate"] * 10 and again["event_ids"] == first["event_ids"]
    assert (await ended(client, execution_id))["status"] == "COMPLETED"
    types = await types_of(client, execution_id)
    assert types.count("command.completed") == 5
    assert types.count("loop.done") == types.count("playbook.completed") == 1


async def test_a_report_of_another_attempt_or_token_changes_nothing(client: httpx.AsyncClient) -> None:
    execution_id = await started(client, "- {step: start, tool: {kind: noop}}\n")
    [command] = (await claimed(client, 1)).commands
    other = {"command_id": str(command.command_id), "attempt": command.attempt + 1}
    event = {"execution_id": execution_id, "name": "command.failed", "step": "start", "worker_id": "w1", "meta": other}
    assert (await client.post("/api/events", json=event)).json()["outcome"] == "fenced"
    stale = report_of(command, claim_token=command.claim_token + 1)
    answer = await client.post("/api/events/batch", content=encode({"worker_id": "w1", "events": [stale]}))
    assert answer.json()["outcomes"] == ["fenced"] and answer.json()["event_ids"] == [0]
    assert "command.failed" not in await types_of(client, execution_id)
    body = encode({"worker_id": "w1", "events": [report_of(command)]})
    assert (await client.post("/api/events/batch", content=body)).json()["outcomes"] == ["accepted"]
    assert (await ended(client, execution_id))["status"] == "COMPLETED"


async def claimed(client: httpx.AsyncClient, count: int) -> Claimed:
    """Return a claim of that many commands, once they are there."""

    async def waiting() -> bool:
        types = [row["event_type"] for row in await newest_events(client)]
        return types.count("command.issued") == count

    await wait_until(waiting, what=f"{count} commands")
    answer = await client.post("/api/commands/claim", json={"worker_id": "w1", "max": count, "wait_s": 1})
    work = msgspec.json.decode(answer.content, type=Claimed)
    assert len(work.commands) == count
    return work


async def newest_events(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    [run] = (await client.get("/api/executions?limit=1")).json()
    return list((await client.get(f"/api/executions/{run['execution_id']}/events")).json()["events"])


async def types_of(client: httpx.AsyncClient, execution_id: str) -> list[str]:
    events = (await client.get(f"/api/executions/{execution_id}/events?page_size=500")).json()["events"]
    return [event["event_type"] for event in events]

"""Replay and templates over HTTP: the fold of the log beside the state kept, and what a template sees of a run."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.db import Pool
from services.ingest.asgi import build_asgi
from tests.ingesting import api_on, rows_of
from tests.integration.test_api_fuzz import VALUES, fault_of
from tests.routing import Bench, register_text

STEPS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: replayed, path: tests/replayed}
workload: {region: north}
workflow:
- step: start
  loop: {in: "{{ items }}", iterator: n, spec: {mode: parallel, max_in_flight: 5}}
  tool: {kind: noop}
  set: {ctx.seen: 1, ctx.big: "{{ 'x' * 900 }}"}
  next: {arcs: [{step: end}]}
- step: end
  tool: {kind: noop}
"""


@pytest.fixture
async def bench(pool: Pool, tmp_path: Path) -> Bench:
    await register_text(pool, STEPS)
    return Bench(pool, tmp_path)


@pytest.fixture
async def client(pool: Pool, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_asgi(api_on(pool, tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as opened:
        yield opened


async def replayed(client: httpx.AsyncClient, execution_id: int) -> dict[str, Any]:
    answer = await client.get("/api/replay/state", params={"execution_id": execution_id})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_the_fold_of_the_log_is_the_state_kept_at_every_moment(
    client: httpx.AsyncClient, pool: Pool, bench: Bench
) -> None:
    execution_id = await bench.start("tests/replayed", items=list(range(12)))
    before = await replayed(client, execution_id)
    assert (before["matches"], before["events"], before["state"].get("status", "RUNNING")) == (True, 0, "RUNNING")
    await bench.route()
    middle = await replayed(client, execution_id)
    assert middle["matches"] and middle["state"]["active"]["start"]["loop"]["size"] == 12
    await bench.drive()
    after = await replayed(client, execution_id)
    [counted] = await rows_of(pool, "SELECT count(*) AS n FROM noetl.event WHERE execution_id = %s", execution_id)
    assert after["matches"] and after["state"]["status"] == "COMPLETED" and after["events"] == counted["n"]


async def test_a_state_that_is_not_the_fold_of_its_log_is_told(
    client: httpx.AsyncClient, pool: Pool, bench: Bench
) -> None:
    execution_id = await bench.run("tests/replayed", items=[1])
    async with pool.connection() as conn:
        await conn.execute(
            "UPDATE noetl.execution_state SET state = jsonb_set(state, '{commands_issued}', '99')"
            " WHERE execution_id = %s",
            [execution_id],
        )
    assert (await replayed(client, execution_id))["matches"] is False


async def test_a_replay_of_nothing_is_not_found(client: httpx.AsyncClient) -> None:
    for query in ("", "?execution_id=5"):
        assert (await client.get(f"/api/replay/state{query}")).status_code == 404
    assert (await client.get("/api/replay/state?execution_id=abc")).status_code == 422


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("{{ region }}", "north"),
        ("{{ ctx.seen + 1 }}", 2),
        ("{{ big | length }}", 900),
        ({"a": ["{{ given.deep }}", "text {{ seen }}"]}, {"a": [5, "text 1"]}),
        ("{{ nothing }}", None),
        ("{{ start.count }}", 3),
        ("{{ ''.__class__ }}", None),
        (7, 7),
    ],
)
async def test_a_template_sees_the_names_of_the_run(
    client: httpx.AsyncClient, bench: Bench, template: Any, rendered: Any
) -> None:
    execution_id = await bench.run("tests/replayed", items=[1, 2, 3])
    body = {"template": template, "execution_id": str(execution_id), "context": {"given": {"deep": 5}}}
    answer = await client.post("/api/context/render", json=body)
    assert answer.status_code == 200 and answer.json() == {"status": "ok", "rendered": rendered}, answer.text


@pytest.mark.parametrize(
    ("template", "status"),
    [("{{ 1 / 0 }}", 422), ("{{ x +", 422), ("{{ range(10 ** 9) | list }}", 422), ("{{ 'x' * 10 ** 9 }}", 422)],
)
async def test_a_template_that_fails_says_why(client: httpx.AsyncClient, template: str, status: int) -> None:
    answer = await client.post("/api/context/render", json={"template": template})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"] and answer.headers["content-type"] == "application/problem+json"
    assert (await client.post("/api/context/render", json={"template": "x", "execution_id": 5})).status_code == 404


async def test_no_template_or_context_is_answered_with_an_internal_error(client: httpx.AsyncClient) -> None:
    faults = []
    for value in VALUES:
        for body in (
            f'{{"template": {value}}}',
            f'{{"template": "{{{{ x }}}}", "context": {{"x": {value}}}}}',
            f'{{"template": "{{{{ x * 3 }}}} {{{{ x | tojson }}}}", "context": {{"x": {value}}}}}',
        ):
            fault = fault_of(await client.post("/api/context/render", content=body.encode()))
            faults += [f"{body[:90]}: {fault}"] if fault else []
    assert not faults, "\n".join(faults)

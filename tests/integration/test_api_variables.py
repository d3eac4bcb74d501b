"""Variables of a run over HTTP: the three bodies, values by reference, deletes, and what the next step sees."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.db import Pool
from services.ingest.asgi import build_asgi
from services.ingest.store_state import read_state
from tests.ingesting import api_on
from tests.integration.test_api_fuzz import VALUES, fault_of
from tests.routing import Bench, register_text

STEPS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: vars, path: tests/vars}
workload: {region: north}
workflow:
- step: start
  tool: {kind: noop}
  set: {ctx.seen: 1}
  next: {arcs: [{step: end, when: "{{ color == 'red' and (big | length) == 9000 }}"}]}
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


async def values_of(client: httpx.AsyncClient, execution_id: int) -> dict[str, Any]:
    body = (await client.get(f"/api/vars/{execution_id}")).json()
    assert body["execution_id"] == execution_id and body["count"] == len(body["variables"])
    return {name: one["value"] for name, one in body["variables"].items()}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"variables": {"a": 1, "b": [2]}, "var_type": "user_defined", "source_step": "s"}, ["a", "b"]),
        ({"var_name": "a", "var_value": {"x": 1}, "var_type": "user_defined"}, ["a"]),
        ({"a": 1, "variables": {"no": "body"}}, ["a", "variables"]),
        ({"var_name": "a variable of that name"}, ["var_name"]),
    ],
    ids=["variables", "var_name", "raw map", "raw map with a name of ours"],
)
async def test_the_three_bodies_of_clients_are_taken(
    client: httpx.AsyncClient, bench: Bench, body: dict[str, Any], names: list[str]
) -> None:
    execution_id = await bench.start("tests/vars")
    answer = await client.post(f"/api/vars/{execution_id}", json=body)
    told = answer.json()
    assert (answer.status_code, told["variables_set"], told["var_names"]) == (200, len(names), names)
    assert sorted(await values_of(client, execution_id)) == sorted(names)


async def test_what_is_written_is_read_at_once_and_by_the_next_step(
    client: httpx.AsyncClient, pool: Pool, bench: Bench
) -> None:
    execution_id = await bench.start("tests/vars")
    await bench.route()
    big = "x" * 9000
    await client.post(f"/api/vars/{execution_id}", json={"color": "red", "big": big})
    assert await values_of(client, execution_id) == {"color": "red", "big": big}  # not routed yet
    await bench.drive()
    state = await read_state(pool, execution_id)
    assert state is not None and state.status == "COMPLETED" and state.visits.get("end") == 1
    assert state.ctx["big"].ref is not None and state.ctx["color"].ref is None
    assert await values_of(client, execution_id) == {"color": "red", "big": big, "seen": 1}
    one = (await client.get(f"/api/vars/{execution_id}/big")).json()
    assert one["value"] == one["var_value"] == big and one["type"] == one["var_type"] == "user_defined"
    resolved = await client.get("/api/result/resolve", params={"ref": one["reference"]})
    assert resolved.json() == big


async def test_a_deleted_variable_is_gone_and_not_null(client: httpx.AsyncClient, bench: Bench) -> None:
    execution_id = await bench.start("tests/vars")
    await client.post(f"/api/vars/{execution_id}", json={"region": "south", "nothing": None, "c": 3})
    gone = (await client.delete(f"/api/vars/{execution_id}/region")).json()
    assert gone == {"execution_id": execution_id, "var_name": "region", "deleted": True}
    assert (await client.delete(f"/api/vars/{execution_id}/region")).json()["deleted"] is False
    assert (await client.get(f"/api/vars/{execution_id}/region")).status_code == 404
    assert await values_of(client, execution_id) == {"nothing": None, "c": 3}
    await bench.route()
    assert await values_of(client, execution_id) == {"nothing": None, "c": 3}
    rest = (await client.delete(f"/api/vars/{execution_id}")).json()
    assert (rest["deleted"], rest["deleted_count"]) == (True, 2)
    assert await values_of(client, execution_id) == {}


async def test_a_run_that_is_unknown_or_has_ended_takes_no_variables(client: httpx.AsyncClient, bench: Bench) -> None:
    for method, path in (("GET", "5"), ("GET", "5/a"), ("DELETE", "5"), ("DELETE", "5/a")):
        assert (await client.request(method, f"/api/vars/{path}")).status_code == 404
    assert (await client.post("/api/vars/5", json={"a": 1})).status_code == 404
    execution_id = await bench.run("tests/vars", color="red", big="")
    answer = await client.post(f"/api/vars/{execution_id}", json={"a": 1})
    assert answer.status_code == 409 and answer.json()["code"] == "already_completed"
    assert (await client.delete(f"/api/vars/{execution_id}")).status_code == 409


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "found none"),
        ({"": 1}, 422, "1 to 200 printable"),
        ({"a\x00b": 1}, 422, "printable"),
        ({"x" * 201: 1}, 422, "1 to 200"),
        ({"var_name": 5, "var_value": 1}, 422, "var_name"),
        ({f"n{index}": "x" * 600 for index in range(40)}, 413, "4096 bytes"),
    ],
)
async def test_what_cannot_be_a_variable_is_refused(
    client: httpx.AsyncClient, bench: Bench, body: dict[str, Any], status: int, said: str
) -> None:
    execution_id = await bench.start("tests/vars")
    answer = await client.post(f"/api/vars/{execution_id}", json=body)
    assert answer.status_code == status and said in answer.json()["error"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert await values_of(client, execution_id) == {}


async def test_no_value_written_to_a_run_that_lives_is_an_internal_error(
    client: httpx.AsyncClient, bench: Bench
) -> None:
    execution_id = await bench.start("tests/vars")
    faults = []
    for value in VALUES:
        for body in (f'{{"a": {value}}}', f'{{"variables": {value}}}', f'{{"var_name": {value}, "var_value": 1}}'):
            answer = await client.post(f"/api/vars/{execution_id}", content=body.encode())
            faults += [f"{body[:80]}: {fault}"] if (fault := fault_of(answer)) else []
            if answer.status_code == 200:
                shown = await client.get(f"/api/vars/{execution_id}")
                faults += [f"{body[:80]}: shown as {shown.text[:200]}"] if shown.status_code != 200 else []
        await bench.route()
    assert not faults, "\n".join(faults)
    assert json.loads((await client.get(f"/api/vars/{execution_id}")).content)["count"] > 0

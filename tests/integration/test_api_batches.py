"""Batches of starts: each item by itself, a shard's in one transaction, none twice; and what is refused under load."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from noetl_common.core.shard import shard_of
from noetl_common.db import Pool
from noetl_common.errors import Overloaded
from noetl_common.wire import Claim
from services.ingest import append, claims, store
from services.ingest.admission import Admission
from services.ingest.asgi import build_asgi
from services.ingest.endpoints import Api
from services.ingest.loops.measure_pressure import measure_pressure_once, pressure_loop
from services.ingest.starts import Starter
from tests.ingesting import PLAYBOOK, api_on, issue, rows_of, start_of, started
from tests.servers import SHARD_COUNT


@pytest.fixture
def api(pool: Pool, tmp_path: Path) -> Api:
    return api_on(pool, tmp_path)


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_asgi(api))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as opened:
        answer = await opened.post("/api/catalog/register", json={"content": PLAYBOOK})
        assert answer.status_code == 200
        yield opened


async def batch(client: httpx.AsyncClient, items: list[Any], *, key: str | None = None) -> dict[str, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await client.post("/api/execute/batch", json={"executions": items}, headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def runs_in(pool: Pool) -> int:
    [row] = await rows_of(pool, "SELECT count(*) AS n FROM noetl.execution")
    return int(row["n"])


async def test_a_batch_starts_its_items_with_one_transaction_a_shard(
    client: httpx.AsyncClient, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = []
    append_batch = store.append_batch

    async def counted(pool: Pool, shard_id: int, entries: Any) -> Any:
        batches.append(shard_id)
        return await append_batch(pool, shard_id, entries)

    monkeypatch.setattr(append.store, "append_batch", counted)
    answer = await batch(client, [{"path": "tests/hello", "payload": {"n": n}} for n in range(200)])
    assert (answer["count"], answer["started"], answer["duplicates"], answer["failed"]) == (200, 200, 0, 0)
    assert [one["index"] for one in answer["results"]] == list(range(200))
    ids = [int(one["execution_id"]) for one in answer["results"]]
    rows = await rows_of(pool, "SELECT execution_id, (result #>> '{context,workload,v,n}')::int AS n FROM noetl.event")
    assert {row["execution_id"]: row["n"] for row in rows} == {run: n for n, run in enumerate(ids)}
    assert sorted(batches) == sorted({shard_of(run, SHARD_COUNT) for run in ids})


async def test_an_item_that_cannot_start_fails_alone_and_says_why(client: httpx.AsyncClient, pool: Pool) -> None:
    items: list[Any] = [
        {"path": "tests/hello"},
        {"path": "tests/nowhere"},
        {"payload": {}},
        {"path": "tests/hello", "version": 9},
        {"path": 3},
        {"path": "tests/hello", "priority": 1000},
        {"path": "nul\0"},
        {"path": "tests/hello", "idempotency_key": "nul\0"},
        {"path": "tests/hello", "idempotency_key": "k"},
        {"path": "tests/hello", "idempotency_key": "k"},
        {"path": "tests/hello", "idempotency_key": "k", "payload": {"other": 1}},
    ]
    answer = await batch(client, items)
    assert (answer["started"], answer["duplicates"], answer["failed"]) == (2, 1, 8)
    assert [one["status"][0] for one in answer["results"]] == list("sfffffffsdf")
    problems = {one["index"]: one["problem"] for one in answer["results"] if one["status"] == "failed"}
    assert [problems[index]["status"] for index in sorted(problems)] == [404, 422, 404, 422, 422, 422, 422, 422]
    assert problems[1]["error"] == answer["results"][1]["error"] == "expected a playbook, found none at tests/nowhere"
    assert problems[2]["pointer"] == "/path" and problems[5]["pointer"] == "/priority"
    assert "found another body" in problems[10]["error"]
    assert answer["results"][8]["execution_id"] == answer["results"][9]["execution_id"]
    assert await runs_in(pool) == 2


@pytest.mark.parametrize("items", [[], [{"path": "tests/hello"}] * 1001])
async def test_a_batch_of_none_or_too_many_is_refused(client: httpx.AsyncClient, items: list[Any]) -> None:
    answer = await client.post("/api/execute/batch", json={"executions": items})
    assert answer.status_code == 422 and answer.json()["pointer"] == "/executions"


async def test_a_batch_sent_again_starts_nothing_twice(client: httpx.AsyncClient, pool: Pool) -> None:
    items = [{"path": "tests/hello", "payload": {"n": n}} for n in range(20)]
    first = await batch(client, items, key="b")
    again = await batch(client, items, key="b")
    assert (first["started"], again["started"], again["duplicates"]) == (20, 0, 20)
    assert [one["execution_id"] for one in first["results"]] == [one["execution_id"] for one in again["results"]]
    assert await runs_in(pool) == 20


async def test_a_batch_cut_off_between_its_shards_is_completed_by_sending_it_again(
    client: httpx.AsyncClient, pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some shards have committed, others have not, and nobody was answered: as after a kill."""
    append_batch = store.append_batch
    done = 0

    async def cut(pool: Pool, shard_id: int, entries: Any) -> Any:
        nonlocal done
        done += 1
        number = done
        if number % 3 == 0:
            raise psycopg.OperationalError("cut before")
        written = await append_batch(pool, shard_id, entries)
        if number % 3 == 1:
            raise psycopg.OperationalError("cut behind")
        return written

    items = [{"path": "tests/hello", "payload": {"n": n}} for n in range(60)]
    monkeypatch.setattr(append.store, "append_batch", cut)
    monkeypatch.setattr(append, "CALLER_WAIT_MAX_S", 1.0)
    monkeypatch.setattr(append, "RETRY_PAUSE_S", 60.0)
    first = await batch(client, items, key="b")
    assert 0 < first["failed"] < 60
    assert {one["problem"]["status"] for one in first["results"] if one["status"] == "failed"} == {503}
    assert 0 < await runs_in(pool) < 60
    monkeypatch.setattr(append.store, "append_batch", append_batch)
    transport = httpx.ASGITransport(build_asgi(api_on(pool, tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://another") as another:
        again = await batch(another, items, key="b")
    assert again["started"] + again["duplicates"] == 60 and again["started"] > 0
    kept = {one["index"]: one["execution_id"] for one in first["results"] if one["status"] == "started"}
    assert kept.items() <= {one["index"]: one["execution_id"] for one in again["results"]}.items()
    assert await runs_in(pool) == 60


async def test_starts_are_refused_while_reports_are_still_taken(
    api: Api, client: httpx.AsyncClient, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "QUEUE_BEFORE_STARTS_MAX", 0)
    answer = await client.post("/api/execute", json={"path": "tests/hello"})
    assert (answer.status_code, answer.json()["code"]) == (429, "OVERLOADED")
    assert int(answer.headers["retry-after"]) >= 1
    assert await runs_in(pool) == 0
    monkeypatch.undo()
    run = await started(api.appender)
    monkeypatch.setattr(append, "QUEUE_BEFORE_STARTS_MAX", 0)
    with pytest.raises(Overloaded):
        await api.appender.start(start_of(run + 1))
    await issue(pool, run)
    [command] = (await api.claims.claim(Claim(worker_id="w"))).commands
    report = {**EVENT, "execution_id": run, "command_id": command.command_id, "claim_token": command.claim_token}
    answer = await client.post("/api/events/batch", json={"worker_id": "w", "events": [report]})
    assert answer.json()["outcomes"] == ["accepted"]


EVENT = {
    "event_type": "command.completed",
    "step": "s",
    "attempt": 1,
    "status": "success",
    "result": {"status": "success"},
}


async def test_starts_are_refused_while_more_commands_are_due_than_workers_take(
    api: Api, client: httpx.AsyncClient, pool: Pool
) -> None:
    admission = Admission(shard_count=SHARD_COUNT, commands_due_max=5)
    api.starter = Starter(pool, api.appender, shard_count=SHARD_COUNT, store=api.store, admission=admission)
    run = await started(api.appender)
    await issue(pool, run, count=8)
    async with (
        pool.connection() as conn
    ):  # those of a large loop, whose turn is yet to come, are nothing to worry about
        await conn.execute(
            "UPDATE noetl.command SET turn_at = clock_timestamp() + interval '1 min' WHERE iter_index > 3"
        )
    await measure_pressure_once(pool, admission)
    assert admission.due == {"default": 4}
    assert (await client.post("/api/execute", json={"path": "tests/hello"})).status_code == 200
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.command SET turn_at = available_at")
    await issue(pool, run, step="elsewhere", pool_name="gpu", ord_from=100)
    await measure_pressure_once(pool, admission)
    assert admission.due == {"default": 5, "gpu": 1}
    answer = await client.post("/api/execute", json={"path": "tests/hello"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert "pool 'default': 5 commands or more are due" in answer.json()["error"]
    items = await batch(client, [{"path": "tests/hello"}])
    assert items["results"][0]["problem"]["code"] == "OVERLOADED"


async def test_starts_go_round_shards_whose_routing_is_behind(api: Api, client: httpx.AsyncClient, pool: Pool) -> None:
    admission = Admission(shard_count=SHARD_COUNT, routing_lag_inputs_max=10)
    api.starter = Starter(pool, api.appender, shard_count=SHARD_COUNT, store=api.store, admission=admission)
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.shard_head SET seq = seq + 10 WHERE shard_id <> 3")
    await measure_pressure_once(pool, admission)
    answer = await batch(client, [{"path": "tests/hello"}] * 10)
    placed = [one for one in answer["results"] if one["status"] == "started"]
    assert {shard_of(int(one["execution_id"]), SHARD_COUNT) for one in placed} <= {3}
    async with pool.connection() as conn:
        await conn.execute("UPDATE noetl.shard_head SET seq = seq + 10 WHERE shard_id = 3")
    await measure_pressure_once(pool, admission)
    answer = await batch(client, [{"path": "tests/hello"}])
    assert "routing is behind" in answer["results"][0]["error"]


async def test_pressure_is_measured_while_starts_come_and_seldom_else(pool: Pool) -> None:
    admission = Admission(shard_count=SHARD_COUNT)
    loop = pressure_loop(pool, admission)

    async def is_measured() -> bool:
        admission.lags = {-1: 0}
        await loop.once()
        return -1 not in admission.lags

    assert await is_measured()
    assert not await is_measured()
    with admission.starting(1):
        assert await is_measured()
    assert not await is_measured()


async def test_starts_under_way_are_bounded(pool: Pool) -> None:
    admission = Admission(shard_count=SHARD_COUNT, starts_at_once_max=10)
    with admission.starting(8):
        with pytest.raises(Overloaded, match="8 starts are under way here, at most 10 may be"), admission.starting(3):
            pass
        with admission.starting(2):
            pass
    with admission.starting(100):  # alone, a batch of any size is taken
        pass


async def test_claims_that_are_held_are_bounded(api: Api, client: httpx.AsyncClient, monkeypatch: Any) -> None:
    monkeypatch.setattr(claims, "CLAIMS_HELD_MAX", 1)
    held = asyncio.create_task(api.claims.claim(Claim(worker_id="w", wait_s=1.0)))
    await asyncio.sleep(0)
    answer = await client.post("/api/commands/claim", json={"worker_id": "v"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert (await held).commands == []

"""Runtime state over HTTP and on the command line: who owns which shard; a replica drained, cordoned, uncordoned."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from noetl_cli import main
from noetl_common.secrets import generate_key
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from tests.running import start_role, wait_until
from tests.servers import SHARD_COUNT

ADMIN, READER = "a" * 16, "r" * 16
TOKENS = json.dumps({ADMIN: ["admin"], READER: ["read"]})


def ingest_config(dsn: str, folder: Path, nats_url: str) -> IngestConfig:
    return IngestConfig(
        database_url=dsn,
        nats_url=nats_url,
        port=0,
        encryption_key=generate_key(),
        store_dir=str(folder),
        auth="token",
        auth_tokens=TOKENS,
    )


@pytest.fixture
async def url(dsn: str, tmp_path: Path, nats_url: str) -> AsyncIterator[str]:
    """The address of one of two ingests whose shards are shared out evenly; meta and a compute run too."""
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn, nats_url=nats_url)),
        start_role(compute_app, ComputeConfig(database_url=dsn, nats_url=nats_url)),
        start_role(ingest_app, ingest_config(dsn, tmp_path, nats_url)) as first,
        start_role(ingest_app, ingest_config(dsn, tmp_path, nats_url)),
    ):
        await wait_until(lambda: shares(first.url, "ingest", [8, 8]), what="two ingests with 8 shards each")
        await wait_until(lambda: shares(first.url, "compute", [16]), what="a compute with 16 shards")
        yield first.url


async def ask(url: str, path: str = "shards", *, token: str = ADMIN, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {token}"}) as client:
        return await client.request(method, f"/api/runtime/{path}")


async def state_of(url: str) -> dict[str, Any]:
    answer = await ask(url)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def shares(url: str, role: str, wanted: list[int]) -> bool:
    replicas = (await state_of(url))["replicas"]
    return sorted(one["shards"] for one in replicas if one["role"] == role) == sorted(wanted)


async def ingests_of(url: str) -> list[str]:
    return [one["instance"] for one in (await state_of(url))["replicas"] if one["role"] == "ingest"]


async def test_every_shard_of_every_role_is_shown_with_its_owner(url: str) -> None:
    state = await state_of(url)
    owned = [one for one in state["shards"] if one["role"] != "compactor"]
    assert len(owned) == 2 * SHARD_COUNT and len(state["shards"]) == 3 * SHARD_COUNT
    living = {one["instance"] for one in state["replicas"]}
    for one in owned:
        assert one["owner"] in living and one["epoch"] >= 1 and one["handovers"] == one["epoch"] - 1
        assert 0 < one["leased_ms"] <= 4000 and one["lag_inputs"] == 0 and one["lag_ms"] == 0
    assert all(one["owner"] is None for one in state["shards"] if one["role"] == "compactor")
    assert state["leader"] in living
    assert all(one["holds_lock"] for one in state["replicas"])


async def test_a_drained_replica_is_emptied_and_comes_back(url: str) -> None:
    drained, other = await ingests_of(url)
    answer = await ask(url, f"replicas/{drained}/drain", method="POST")
    assert answer.json() == {"role": "ingest", "instance": drained, "standing": "draining", "shards": 8}
    await wait_until(lambda: shares(url, "ingest", [0, 16]), timeout_s=5, what="all shards with the other one")
    assert {one["owner"] for one in (await state_of(url))["shards"] if one["role"] == "ingest"} == {other}
    await ask(url, f"replicas/{drained}/uncordon", method="POST")
    await wait_until(lambda: shares(url, "ingest", [8, 8]), timeout_s=5, what="its share again")


async def test_a_cordoned_replica_keeps_what_it_has_and_gets_nothing_more(
    url: str, dsn: str, tmp_path: Path, nats_url: str
) -> None:
    cordoned, other = await ingests_of(url)
    await ask(url, f"replicas/{cordoned}/cordon", method="POST")
    async with start_role(ingest_app, ingest_config(dsn, tmp_path, nats_url)):
        await wait_until(lambda: shares(url, "ingest", [8, 4, 4]), timeout_s=5, what="the other 8 shared by two")
        await ask(url, f"replicas/{other}/drain", method="POST")
        await wait_until(lambda: shares(url, "ingest", [8, 0, 8]), timeout_s=5, what="none of them with the cordoned")


async def test_what_is_asked_of_a_replica_needs_admin_and_one_that_is_there(url: str) -> None:
    (first, _) = await ingests_of(url)
    assert (await ask(url, token=READER)).status_code == 200
    assert (await ask(url, f"replicas/{first}/drain", token=READER, method="POST")).status_code == 403
    refused = await ask(url, "replicas/nobody/drain", method="POST")
    assert refused.status_code == 404 and first in refused.json()["error"] and "'nobody'" in refused.json()["error"]
    (leader,) = [one["instance"] for one in (await state_of(url))["replicas"] if one["role"] == "meta"]
    assert (await ask(url, f"replicas/{leader}/drain", method="POST")).status_code == 404


async def test_the_command_shows_and_drains(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_API_TOKEN", ADMIN)
    monkeypatch.setenv("NOETL_SERVER_URL", url)

    async def noetl(*words: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, main.app, ["shards", *words])
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    drained, other = await ingests_of(url)
    table = await noetl()
    assert "handovers" in table.splitlines()[0] and drained in table and other in table
    assert json.loads(await noetl("-o", "json"))["leader"]
    assert f"{drained} is draining and owns 0 shards" in await noetl("drain", drained, "--timeout", "10")
    assert json.loads(await noetl("uncordon", drained, "-o", "json"))["standing"] == "ready"
    assert "cordoned" in await noetl("cordon", other)

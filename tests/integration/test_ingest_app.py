"""Ingest as a process: wired, served over HTTP, routing the shards it owns."""

from pathlib import Path

import httpx
import msgspec

from noetl_common.secrets import generate_key
from noetl_common.wire import Claimed, encode
from services.ingest.app import app
from services.ingest.config import Config
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from tests.ingesting import PLAYBOOK, report_of
from tests.running import start_role, wait_until


def config_on(dsn: str, folder: Path) -> Config:
    return Config(database_url=dsn, port=0, encryption_key=generate_key(), store_dir=str(folder))


async def test_a_run_goes_through_the_server_to_its_end(dsn: str, tmp_path: Path) -> None:
    async with (
        start_role(meta_app, MetaConfig(database_url=dsn)),
        start_role(app, config_on(dsn, tmp_path)) as ingest,
        httpx.AsyncClient(base_url=ingest.url, timeout=10) as client,
    ):
        assert (await client.post("/api/catalog/register", json={"content": PLAYBOOK})).status_code == 200
        execution_id = (await client.post("/api/execute", json={"path": "tests/hello"})).json()["execution_id"]
        claim = {"worker_id": "w1", "max": 1, "wait_s": 1.0}

        async def claimed() -> Claimed | None:
            answer = await client.post("/api/commands/claim", json=claim)
            got = msgspec.json.decode(answer.content, type=Claimed)
            return got if got.commands else None

        work = await wait_until(claimed, what="a command")
        assert work is not None
        report = report_of(work.commands[0])
        answer = await client.post("/api/events/batch", content=encode({"worker_id": "w1", "events": [report]}))
        assert answer.json()["outcomes"] == ["accepted"]

        async def ended() -> list[str]:
            page = (await client.get(f"/api/executions/{execution_id}/events")).json()
            types = [event["event_type"] for event in page["events"]]
            return types if "playbook.completed" in types else []

        types = await wait_until(ended, what="the end of the run")
        assert types.count("playbook.completed") == 1
        assert (await client.get("/readyz")).status_code == 200
        assert "noetl_http_requests_total" in (await client.get("/metrics")).text

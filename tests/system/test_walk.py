"""docs/WALK.md is true: one run of the README's playbook through every role calls each stop that the page names."""

import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from noetl_common.config import load
from noetl_common.secrets import generate_key
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from services.worker.app import app as worker_app
from services.worker.config import Config as WorkerConfig
from tests.running import start_role, wait_until

ROOT = Path(__file__).parents[2]


async def test_one_run_passes_every_stop_of_the_walk(dsn: str, nats_url: str, tmp_path: Path) -> None:
    stops = set(re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs/WALK.md").read_text(encoding="utf-8")))
    assert stops
    with called_functions() as called:
        async with AsyncExitStack() as stack:
            environ = {"DATABASE_URL": dsn, "NATS_URL": nats_url, "NOETL_STORE_DIR": str(tmp_path), "NOETL_PORT": "0"}
            environ["NOETL_ENCRYPTION_KEY"] = generate_key()
            await stack.enter_async_context(start_role(meta_app, load(MetaConfig, environ)))
            ingest = await stack.enter_async_context(start_role(ingest_app, load(IngestConfig, environ)))
            await stack.enter_async_context(start_role(compute_app, load(ComputeConfig, environ)))
            environ["NOETL_SERVER_URL"] = ingest.url
            await stack.enter_async_context(start_role(worker_app, load(WorkerConfig, environ)))
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=ingest.url, timeout=10.0))
            ended = await run_to_its_end(client)
    assert ended["status"] == "COMPLETED", ended
    assert not stops - called, f"docs/WALK.md names stops that the run did not pass: {sorted(stops - called)}"


async def run_to_its_end(client: httpx.AsyncClient) -> dict[str, Any]:
    """Register the README's playbook, run it, and return what the API says about its end."""
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    registered = (await client.post("/api/catalog/register", json={"content": shown[1]})).raise_for_status().json()
    assert registered["warnings"] == []
    answer = (await client.post("/api/execute", json={"path": registered["path"]})).raise_for_status()
    url = f"/api/executions/{answer.json()['execution_id']}"

    async def read_ended() -> dict[str, Any] | None:
        execution: dict[str, Any] = (await client.get(url)).raise_for_status().json()
        return execution if execution["status"] != "RUNNING" else None

    ended = await wait_until(read_ended, timeout_s=30.0, what="the end of the run")
    assert ended is not None
    return ended


@contextmanager
def called_functions() -> Iterator[set[tuple[str, str]]]:
    """Collect (file, function) of the project's functions that are called in this thread."""
    called: set[tuple[str, str]] = set()
    places: dict[Any, tuple[str, str] | None] = {}

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in places:
            return
        path = Path(code.co_filename)
        places[code] = None
        if path.is_relative_to(ROOT) and ".venv" not in path.parts:
            called.add((path.relative_to(ROOT).as_posix(), code.co_name))

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield called
    finally:
        sys.setprofile(before)

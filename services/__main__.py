"""python -m services: every role in one process, for a laptop and for tests.

The only module that may import more than one service.
"""

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager

from noetl_common.config import load
from noetl_common.process import Service, run, serve
from services.compactor.app import app as compactor_app
from services.compactor.config import Config as CompactorConfig
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.config import Config
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from services.worker.app import app as worker_app
from services.worker.config import Config as WorkerConfig

Environ = dict[str, str]


async def everything(stop: asyncio.Event) -> None:
    """Run every role until `stop`, or until one of them ends with a bug, which is raised after the others' stop."""
    environ = dict(os.environ)
    # Only the API needs a port that others know.
    quiet = {**environ, "NOETL_PORT": "0"}
    quiet.pop("PORT", None)
    parts = [
        Part("meta", meta_app(load(MetaConfig, quiet))),
        Part("compute", compute_app(load(ComputeConfig, quiet))),
        Part("ingest", ingest_app(load(IngestConfig, environ))),
    ]
    compacting = load(CompactorConfig, quiet)
    if compacting.enabled:
        parts.insert(2, Part("compactor", compactor_app(compacting)))
    stopping = asyncio.create_task(stop.wait(), name="all.stop")
    try:
        api_url = await _address(parts[-1], parts, stopping)
        if api_url:
            for index in range(load(Config, environ).workers):
                parts.append(Part("worker", worker_app(_worker_config(quiet, api_url, index))))
        await asyncio.wait({stopping, *(part.task for part in parts)}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        for part in reversed(parts):
            part.stop.set()
            await asyncio.wait({part.task})
    for part in parts:
        part.task.result()


class Part:
    """One role in its own task, with its own stop: roles are stopped one after the other."""

    def __init__(self, name: str, app: AbstractAsyncContextManager[Service]) -> None:
        self.stop = asyncio.Event()
        self.started = asyncio.Event()
        self.url = ""
        self.task = asyncio.create_task(self._run(app), name=f"role.{name}")

    async def _run(self, app: AbstractAsyncContextManager[Service]) -> None:
        async with app as service:
            await serve(service, self.stop, started=self._note)

    def _note(self, host: str, port: int) -> None:
        reachable = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        self.url = f"http://{reachable}:{port}"
        self.started.set()


async def _address(part: Part, parts: list[Part], stopping: "asyncio.Task[bool]") -> str:
    """Return the URL of `part` once it listens; empty when something ended before."""
    listening = asyncio.create_task(part.started.wait())
    await asyncio.wait({listening, stopping, *(p.task for p in parts)}, return_when=asyncio.FIRST_COMPLETED)
    listening.cancel()
    return part.url


def _worker_config(environ: Environ, api_url: str, index: int) -> WorkerConfig:
    own = {**environ, "NOETL_SERVER_URL": api_url}
    if own.get("NOETL_INSTANCE"):
        own["NOETL_INSTANCE"] += f"-worker-{index + 1}"
    return load(WorkerConfig, own)


def main() -> int:
    """Run until SIGTERM; return the exit code."""
    return run("all", everything)


if __name__ == "__main__":
    sys.exit(main())

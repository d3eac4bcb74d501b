"""python -m services.worker: one worker until SIGTERM."""

import asyncio
import sys

from noetl_common.config import load
from noetl_common.process import run, serve
from services.worker.app import app
from services.worker.config import Config


async def worker(stop: asyncio.Event) -> None:
    """Run one worker until `stop`."""
    async with app(load(Config)) as service:
        await serve(service, stop)


def main() -> int:
    """Run until SIGTERM; return the exit code."""
    return run("worker", worker)


if __name__ == "__main__":
    sys.exit(main())

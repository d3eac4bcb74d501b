"""Start one compute process: python -m services.compute."""

import asyncio
import sys

from noetl_common import log, process
from noetl_common.config import load
from services.compute.app import app
from services.compute.config import Config


async def main(stop: asyncio.Event) -> None:
    """Serve until `stop`."""
    config = load(Config)
    log.configure(level=config.log_level, fmt=config.log_format, role="compute", instance=config.instance)
    async with app(config) as service:
        await process.serve(service, stop)


if __name__ == "__main__":
    sys.exit(process.run("compute", main))

"""Start ingest: python -m services.ingest."""

import asyncio
import sys

from noetl_common import config, log, process
from services.ingest.app import app
from services.ingest.config import Config


async def main(stop: asyncio.Event) -> None:
    """Serve until `stop`."""
    settings = config.load(Config)
    log.configure(level=settings.log_level, fmt=settings.log_format, role="ingest", instance=settings.instance)
    async with app(settings) as service:
        await process.serve(service, stop)


if __name__ == "__main__":
    sys.exit(process.run("ingest", main))

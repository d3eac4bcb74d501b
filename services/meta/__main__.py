"""Start one meta process: python -m services.meta."""

import asyncio
import sys

from noetl_common import log, process
from noetl_common.config import load
from services.meta.app import app
from services.meta.config import Config


async def main(stop: asyncio.Event) -> None:
    """Serve until `stop`."""
    config = load(Config)
    log.configure(level=config.log_level, fmt=config.log_format, role="meta", instance=config.instance)
    async with app(config) as service:
        await process.serve(service, stop)


if __name__ == "__main__":
    sys.exit(process.run("meta", main))

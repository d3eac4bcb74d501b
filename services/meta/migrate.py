"""Apply the migrations, initialise the cluster, and end: python -m services.meta.migrate."""

import asyncio
import sys

from noetl_common import log, process
from noetl_common.config import load
from services.meta.app import app
from services.meta.config import Config


async def main(_stop: asyncio.Event) -> None:
    """Bring the database to this release; a second run changes nothing."""
    config = load(Config)
    log.configure(level=config.log_level, fmt=config.log_format, role="migrate", instance=config.instance)
    # Entering the app waits for Postgres and prepares it; its loops are not run.
    async with app(config):
        pass


if __name__ == "__main__":
    sys.exit(process.run("migrate", main))

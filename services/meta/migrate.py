"""Apply the migrations, initialise the cluster, and end: python -m services.meta.migrate."""

import asyncio
import sys

from noetl_common import process
from services.meta.app import app
from services.meta.config import Config


async def main(_stop: asyncio.Event) -> None:
    """Bring the database to this release; a second run changes nothing."""
    # Entering the app waits for Postgres and prepares it; its loops are not run.
    async with app(process.prepare("migrate", Config)):
        pass


if __name__ == "__main__":
    sys.exit(process.run("migrate", main))

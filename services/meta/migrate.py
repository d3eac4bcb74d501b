"""Apply the migrations, initialise the cluster, and end: python -m services.meta.migrate, for a job before a release."""

import asyncio
import sys

from noetl_common import log, process
from noetl_common.clock import SystemClock
from noetl_common.config import load
from services.meta import store
from services.meta.config import Config

logger = log.get_logger(__name__)


async def main(_stop: asyncio.Event) -> None:
    """Bring the database to this release; a second run changes nothing."""
    config = load(Config)
    log.configure(level=config.log_level, fmt=config.log_format, role="migrate", instance=config.instance)
    applied = await store.prepare(
        config.database_url,
        shard_count=config.shard_count,
        partition_width_hours=config.partition_width_hours,
        now_ms=SystemClock().unix_ms(),
    )
    logger.info("schema.ready", applied=applied)


if __name__ == "__main__":
    sys.exit(process.run("migrate", main))

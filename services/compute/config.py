"""What compute can be told."""

from typing import Annotated

from noetl_common.config import Common, DeathDetector, env


class Config(Common, frozen=True, kw_only=True):
    """The settings of one compute process."""

    lease_s: Annotated[
        float, env("NOETL_SHARD_LEASE_SEC", unit="s", doc="How long a process owns a shard without a sign of life.")
    ] = 4.0
    death_detector: DeathDetector = True
    batch_window_ms: Annotated[
        int, env("NOETL_PROJECTION_BATCH_WINDOW_MS", unit="ms", doc="Under load, the longest wait between two batches.")
    ] = 60
    batch_events_max: Annotated[
        int, env("NOETL_PROJECTION_BATCH_SIZE", doc="The most events projected in one transaction.")
    ] = 500
    poll_ms: Annotated[
        int, env("NOETL_PROJECTION_POLL_MS", unit="ms", doc="How often to look where nothing rings; idle, up to 1 s.")
    ] = 250
    cached_executions_max: Annotated[
        int, env("NOETL_PROJECTION_CACHE_SIZE", doc="Executions whose state one process keeps in memory.")
    ] = 2000
    pool_size: Annotated[int, env("NOETL_COMPUTE_POOL_SIZE", doc="Postgres connections of one compute process.")] = 4
    start_timeout_s: Annotated[
        float, env("NOETL_START_TIMEOUT_SEC", unit="s", doc="How long a start waits for Postgres and its schema.")
    ] = 60.0

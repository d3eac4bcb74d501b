"""What meta can be told."""

from typing import Annotated

from noetl_common.config import Common, DeathDetector, env


class Config(Common, frozen=True, kw_only=True):
    """The settings of one meta process."""

    shard_count: Annotated[
        int, env("NOETL_SHARD_COUNT", doc="Shards of the log: a power of two up to 256, fixed at the first start.")
    ] = 16
    partition_width_hours: Annotated[
        int,
        env("NOETL_PARTITION_WIDTH_HOURS", unit="hours", doc="Width of a partition of the log, fixed likewise."),
    ] = 168
    partitions_ahead: Annotated[
        int, env("NOETL_PARTITIONS_AHEAD", doc="Partitions kept ready for the time to come.")
    ] = 3
    lease_s: Annotated[
        float, env("NOETL_SHARD_LEASE_SEC", unit="s", doc="How long a process owns a shard without a sign of life.")
    ] = 4.0
    death_detector: DeathDetector = True
    checkpoint_interval_ms: Annotated[
        int, env("NOETL_CHECKPOINT_INTERVAL_MS", unit="ms", doc="How often a shard's progress is recorded.")
    ] = 1000
    checkpoint_keep_hours: Annotated[
        int, env("NOETL_CHECKPOINT_KEEP_HOURS", unit="hours", doc="How long checkpoints are kept.")
    ] = 24
    reap_interval_ms: Annotated[
        int, env("NOETL_REAP_INTERVAL_MS", unit="ms", doc="How often expired command leases are looked for.")
    ] = 500
    command_crashes_max: Annotated[
        int, env("NOETL_COMMAND_CRASHES_MAX", doc="Lost leases after which a command is given up as poison.")
    ] = 3
    pool_size: Annotated[int, env("NOETL_META_POOL_SIZE", doc="Postgres connections of one meta process.")] = 4
    start_timeout_s: Annotated[
        float, env("NOETL_START_TIMEOUT_SEC", unit="s", doc="How long a start waits for Postgres and its schema.")
    ] = 60.0

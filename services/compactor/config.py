"""What the compactor can be told."""

from typing import Annotated

from msgspec import Meta

from noetl_common.config import DeathDetector, env
from noetl_common.store.config import Stores


class Config(Stores, frozen=True, kw_only=True):
    """The settings of one compactor process."""

    enabled: Annotated[
        bool, env("NOETL_COMPACTOR_ENABLED", doc="Fold finished runs into manifests and drop their part of the log.")
    ] = False
    death_detector: DeathDetector = True
    retention_days: Annotated[
        float,
        env("NOETL_RETENTION_DAYS", unit="days", doc="How long after its end a run stays in the log."),
        Meta(ge=0),
    ] = 30.0
    interval_s: Annotated[
        float,
        env("NOETL_COMPACTOR_INTERVAL_SEC", unit="s", doc="How often the compactor looks for work when it has none."),
        Meta(gt=0),
    ] = 60.0
    batch_events_max: Annotated[
        int,
        env("NOETL_COMPACTOR_BATCH_EVENTS", doc="Events folded in one transaction, but one run at least."),
        Meta(ge=1),
    ] = 20_000
    settle_s: Annotated[
        float,
        env("NOETL_COMPACTOR_SETTLE_SEC", unit="s", doc="How long a part of the log waits, folded, before it goes."),
        Meta(ge=0),
    ] = 60.0
    orphan_age_hours: Annotated[
        float,
        env("NOETL_ORPHAN_AGE_HOURS", unit="hours", doc="How long a payload that nothing names is kept."),
        Meta(ge=0),
    ] = 24.0
    lease_s: Annotated[
        float, env("NOETL_SHARD_LEASE_SEC", unit="s", doc="How long a process owns a shard without a sign of life.")
    ] = 4.0
    pool_size: Annotated[
        int, env("NOETL_COMPACTOR_POOL_SIZE", doc="Postgres connections of one compactor process.")
    ] = 2
    start_timeout_s: Annotated[
        float, env("NOETL_START_TIMEOUT_SEC", unit="s", doc="How long a start waits for Postgres and its schema.")
    ] = 60.0

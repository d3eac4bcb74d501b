"""Wire meta: its pool, bus, leadership and loops."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from noetl_common import bus as buses
from noetl_common.bus import Bus
from noetl_common.clock import SystemClock
from noetl_common.db import Pool, is_retryable, open_pool
from noetl_common.errors import Unavailable
from noetl_common.ids import mint_instance
from noetl_common.log import get_logger
from noetl_common.loop import Loop
from noetl_common.process import Service
from noetl_common.session_lock import session_lock, session_name
from noetl_common.subjects import META_WAKE
from services.meta import store
from services.meta.config import Config
from services.meta.loops.assign_shards import assign_shards_once
from services.meta.loops.create_partitions import create_partitions_once
from services.meta.loops.drop_expired import drop_expired_once
from services.meta.loops.elect_leader import Leadership, elect_leader_once, resign
from services.meta.loops.measure_queues import measure_queues_once
from services.meta.loops.reap_commands import reap_commands_once
from services.meta.loops.write_checkpoints import write_checkpoints_once

log = get_logger(__name__)
CHECKPOINT_REST_S = 5.0  # how often the ages of checkpoints are shown while nothing advances
FENCE_WAIT_S = 0.2  # how long giving away one shard waits for its old owner's transaction
SWEEP_PAUSE_S = 60.0
START_PAUSE_S = 0.2
MEASURE_PAUSE_S = 5.0


@asynccontextmanager
async def app(config: Config) -> AsyncIterator[Service]:
    """Migrate and initialise the database, then lend the wired service."""
    clock = SystemClock()
    # Random even under a given name: a restarted process must not pass for its predecessor.
    instance = mint_instance(config.instance or "meta")
    await _prepare(config, clock)
    dsn, name = config.database_url, session_name("noetl-meta", role="meta", instance=instance)
    async with (
        session_lock(dsn, role="meta", instance=instance, is_wanted=config.death_detector) as lock,
        open_pool(dsn, size_max=config.pool_size, name=name) as pool,
        # A frozen owner's transaction must not hold up the shards of others.
        open_pool(dsn, size_max=1, name=name, lock_timeout_s=FENCE_WAIT_S) as lease_pool,
    ):
        leadership = Leadership(instance=instance, lease_s=config.lease_s, clock=clock, lock=lock)
        bus = await buses.connect(config.nats_url)
        try:
            wake = asyncio.Event()
            await bus.subscribe(META_WAKE, _ringing(wake))
            yield Service(
                name="meta",
                loops=[
                    _leading(lease_pool, leadership, bus=bus, wake=wake),
                    *_loops(config, pool, leadership, bus=bus),
                ],
                checks={"postgres": partial(store.ping, pool)},
                host=config.host,
                port=config.port,
                on_stop=[partial(resign, lease_pool, leadership)],
            )
        finally:
            await bus.close()


def _leading(pool: Pool, leadership: Leadership, *, bus: Bus, wake: asyncio.Event) -> Loop:
    """Return the loop that bids, looks and assigns; a leader looks more often while anything runs."""

    async def lead() -> int:
        await elect_leader_once(pool, leadership)
        await assign_shards_once(pool, leadership, bus)
        return 0

    return Loop(name="elect_leader", once=lead, idle_pause_s=lambda _rounds: leadership.pause_s(), wake=wake)


def _loops(config: Config, pool: Pool, leadership: Leadership, *, bus: Bus) -> list[Loop]:
    """Return the loops of what else a leader sees to."""
    reap = partial(reap_commands_once, pool, leadership, bus, crashes_max=config.command_crashes_max)
    partitions = partial(
        create_partitions_once,
        pool,
        leadership,
        width_hours=config.partition_width_hours,
        ahead=config.partitions_ahead,
    )
    drop = partial(drop_expired_once, pool, leadership, keep_hours=config.checkpoint_keep_hours)
    noted, noted_s = "", 0.0

    async def checkpoint() -> int:
        nonlocal noted, noted_s
        progress, now_s = leadership.seen.progress if leadership.seen else "", leadership.clock.monotonic_s()
        if progress != noted or now_s - noted_s >= CHECKPOINT_REST_S:
            noted, noted_s = progress, now_s
            await write_checkpoints_once(pool, leadership)
        return 0

    async def reap_if_leased() -> int:
        seen = leadership.seen
        return await reap() if seen is None or seen.has_claims else 0

    return [
        Loop(name="write_checkpoints", once=checkpoint, idle_pause_s=config.checkpoint_interval_ms / 1000),
        Loop(name="reap_commands", once=reap_if_leased, idle_pause_s=config.reap_interval_ms / 1000),
        Loop(name="create_partitions", once=partitions, idle_pause_s=SWEEP_PAUSE_S),
        Loop(name="drop_expired", once=drop, idle_pause_s=SWEEP_PAUSE_S),
        Loop(name="measure_queues", once=partial(measure_queues_once, pool, leadership), idle_pause_s=MEASURE_PAUSE_S),
    ]


async def _prepare(config: Config, clock: SystemClock) -> None:
    """Migrate and initialise, waiting for Postgres to come up. Errors: Unavailable, ConfigError."""
    deadline_s = clock.monotonic_s() + config.start_timeout_s
    while True:
        try:
            applied = await store.prepare(
                config.database_url,
                shard_count=config.shard_count,
                partition_width_hours=config.partition_width_hours,
                now_ms=clock.unix_ms(),
            )
        except Exception as error:
            if not is_retryable(error):
                raise
            if clock.monotonic_s() >= deadline_s:
                raise Unavailable(f"Postgres does not answer within {config.start_timeout_s:.0f} s: {error}") from error
            log.warning("postgres.not_ready", error=error)
            await asyncio.sleep(START_PAUSE_S)
        else:
            log.info("database.ready", migrations_applied=applied, shard_count=config.shard_count)
            return


def _ringing(wake: asyncio.Event) -> Callable[[str, bytes], Awaitable[None]]:
    async def ring(_subject: str, _payload: bytes) -> None:
        wake.set()

    return ring

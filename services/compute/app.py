"""Wire compute: its pools, bus, leases and loops."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from noetl_common import bus as buses
from noetl_common.clock import Clock, SystemClock
from noetl_common.db import open_pool, wait_until_migrated
from noetl_common.ids import mint_instance
from noetl_common.leases import Leases, renewal_loop
from noetl_common.loop import Loop, poll_pause_s
from noetl_common.process import Service
from noetl_common.session_lock import session_lock, session_name
from noetl_common.subjects import SHARDS, last_token
from services.compute import store
from services.compute.config import Config
from services.compute.loops.project_shards import Projector, Runs, project_shards_once
from services.compute.pace import Pace

LEASE_CONNECTIONS = 1  # of their own: a lease must not run out because a batch holds every connection


@asynccontextmanager
async def app(config: Config) -> AsyncIterator[Service]:
    """Wait for the schema, then lend the wired service."""
    clock = SystemClock()
    # Random even under a given name: a restarted process must not pass for its predecessor.
    instance = mint_instance(config.instance or "compute")
    name = session_name("noetl-compute", role="compute", instance=instance)
    async with (
        session_lock(config.database_url, role="compute", instance=instance, is_wanted=config.death_detector) as lock,
        open_pool(config.database_url, size_max=config.pool_size, name=name, only_lookups=True) as pool,
        open_pool(config.database_url, size_max=LEASE_CONNECTIONS, name=name) as lease_pool,
    ):
        await wait_until_migrated(pool, timeout_s=config.start_timeout_s)
        bus = await buses.connect(config.nats_url)
        try:
            leases = Leases(
                lease_pool,
                role="compute",
                instance=instance,
                lease_s=config.lease_s,
                clock=clock,
                bus=bus,
                lock=lock,
            )
            wake = leases.changed

            async def ring(subject: str, _payload: bytes) -> None:
                if not wake.is_set() and leases.epoch_of(int(last_token(subject))) is not None:
                    wake.set()

            await bus.subscribe(f"{SHARDS}.*", ring)
            projector = Projector(
                pool=pool,
                bus=bus,
                leases=leases,
                clock=clock,
                runs=Runs(config.cached_executions_max),
                batch_events_max=config.batch_events_max,
            )
            yield Service(
                name="compute",
                loops=[
                    renewal_loop(leases),
                    Loop(
                        name="project_shards",
                        once=partial(project_in_turn_once, projector, Pace(config.batch_window_ms / 1000), clock=clock),
                        idle_pause_s=partial(_poll_pause_s, config.poll_ms / 1000, bus),
                        wake=wake,
                    ),
                ],
                checks={"postgres": partial(store.ping, pool)},
                host=config.host,
                port=config.port,
                on_stop=[leases.release_all],
            )
        finally:
            await bus.close()


def _poll_pause_s(first_s: float, bus: buses.Bus, idle: int) -> float:
    return poll_pause_s(idle, first_s=first_s, is_rung=buses.hears_others(bus))


async def project_in_turn_once(projector: Projector, pace: Pace, *, clock: Clock) -> int:
    """Project once; caught up, wait a little, so that small changes gather for the next batch."""
    started_s = clock.monotonic_s()
    done = await project_shards_once(projector)
    if done and not projector.is_behind:
        await asyncio.sleep(pace.pause_s(started_s, clock.monotonic_s()))
    return done

"""Wire the compactor: its pools, store, leases and loops."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from noetl_common import bus as buses
from noetl_common.clock import SystemClock
from noetl_common.db import open_pool, wait_until_migrated
from noetl_common.ids import mint_instance
from noetl_common.leases import Leases, renewal_loop
from noetl_common.log import get_logger
from noetl_common.loop import Loop
from noetl_common.process import Service
from noetl_common.session_lock import session_lock, session_name
from noetl_common.store.config import open_store
from services.compactor import store
from services.compactor.compactor import Compactor
from services.compactor.config import Config
from services.compactor.loops.collect_orphans import collect_orphans_once
from services.compactor.loops.compact_executions import compact_executions_once
from services.compactor.loops.drop_partitions import drop_partitions_once

LEASE_CONNECTIONS = 1  # of their own: a lease must not run out because a batch holds every connection
STATEMENT_TIMEOUT_S = 600.0  # one run of a million events is one statement

log = get_logger(__name__)


@asynccontextmanager
async def app(config: Config) -> AsyncIterator[Service]:
    """Wait for the schema, then lend the wired service; disabled, it answers probes and does nothing else."""
    clock = SystemClock()
    # Random even under a given name: a restarted process must not pass for its predecessor.
    instance = mint_instance(config.instance or "compactor")
    name = session_name("noetl-compactor", role="compactor", instance=instance)
    working = open_pool(
        config.database_url, size_max=config.pool_size, name=name, statement_timeout_s=STATEMENT_TIMEOUT_S
    )
    is_wanted = config.enabled and config.death_detector
    async with (
        session_lock(config.database_url, role="compactor", instance=instance, is_wanted=is_wanted) as lock,
        working as pool,
        open_pool(config.database_url, size_max=LEASE_CONNECTIONS, name=name) as lease_pool,
    ):
        await wait_until_migrated(pool, timeout_s=config.start_timeout_s)
        checks: dict[str, Callable[[], Awaitable[None]]] = {"postgres": partial(store.ping, pool)}
        if not config.enabled:
            log.info("compactor.disabled", variable="NOETL_COMPACTOR_ENABLED")
            yield Service(name="compactor", checks=checks, host=config.host, port=config.port)
            return
        payloads = open_store(config, name=name)
        bus = await buses.connect(config.nats_url)
        try:
            await payloads.start()
            leases = Leases(
                lease_pool,
                role="compactor",
                instance=instance,
                lease_s=config.lease_s,
                clock=clock,
                bus=bus,
                lock=lock,
            )
            compactor = Compactor(
                pool=pool,
                store=payloads,
                leases=leases,
                clock=clock,
                retention_days=config.retention_days,
                batch_events_max=config.batch_events_max,
                settle_s=config.settle_s,
                orphan_age_hours=config.orphan_age_hours,
            )
            onces = (compact_executions_once, drop_partitions_once, collect_orphans_once)
            loops = [
                Loop(
                    name=once.__name__.removesuffix("_once"),
                    once=partial(once, compactor),
                    idle_pause_s=config.interval_s,
                    wake=leases.changed if once is compact_executions_once else None,
                )
                for once in onces
            ]
            yield Service(
                name="compactor",
                loops=[renewal_loop(leases), *loops],
                checks=checks,
                host=config.host,
                port=config.port,
                on_stop=[leases.release_all],
            )
        finally:
            await bus.close()
            await payloads.close()

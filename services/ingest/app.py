"""The wiring of ingest: the only place where settings, pools, the bus, the loops and the API meet."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from noetl_common import bus as buses
from noetl_common.clock import SystemClock
from noetl_common.cluster import read_cluster
from noetl_common.db import Pool, open_pool, wait_until_migrated
from noetl_common.errors import Unavailable
from noetl_common.ids import mint_instance
from noetl_common.leases import Leases, renewal_loop
from noetl_common.process import Service
from noetl_common.secrets import Vault, load_key
from noetl_common.session_lock import session_lock, session_name
from noetl_common.store.config import open_store
from noetl_common.store.results import ResultStore
from noetl_common.subjects import COMMANDS, PROJECTED, SHARDS, last_token
from services.ingest.admission import Admission
from services.ingest.append import Appender
from services.ingest.asgi import build_asgi
from services.ingest.at_once import AtOnce
from services.ingest.auth import guard_of
from services.ingest.bells import Bells, PoolBells
from services.ingest.claims import Claims
from services.ingest.config import Config
from services.ingest.endpoints import Api
from services.ingest.handover import Handover
from services.ingest.loops.measure_pressure import pressure_loop
from services.ingest.loops.route_shards import router_loops
from services.ingest.payloads import PayloadCache
from services.ingest.router import Router
from services.ingest.starts import Starter, environ_of

APPEND_CONNECTIONS = 8  # for appends and claims
LEASE_CONNECTIONS = 1


@asynccontextmanager
async def app(config: Config) -> AsyncIterator[Service]:
    """Yield ingest, ready to be served; on leaving, what it holds is closed.

    Errors: ConfigError; Unavailable when the migrations are not applied in time.
    """
    guard = guard_of(auth=config.auth, tokens=config.auth_tokens, host=config.host, insecure_bind=config.insecure_bind)
    vault = Vault(load_key(config.encryption_key))
    # Random even under a given name: a restarted process must not pass for its predecessor.
    instance = mint_instance(config.instance or "ingest")
    store = open_store(config, name=instance)
    pool_of = partial(_pool, config, instance)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await store.start()
        # Routing has connections of its own, and so have the leases: neither a flood of requests nor a batch that
        # waits for a lock may cost this process its shards.
        pool = await stack.enter_async_context(pool_of(name="ingest", size=config.pool_size))
        appending = await stack.enter_async_context(
            pool_of(name="ingest-append", size=APPEND_CONNECTIONS, only_lookups=True)
        )
        background = await stack.enter_async_context(
            pool_of(name="ingest-background", size=config.background_pool_size)
        )
        await wait_until_migrated(pool, timeout_s=config.start_timeout_s)
        cluster = await read_cluster(pool)
        bus = await buses.connect(config.nats_url, name=instance)
        stack.push_async_callback(bus.close)
        leases = await _leases(config, stack, instance=instance, bus=bus)
        payloads = PayloadCache()
        handover = Handover(payloads)
        bells = PoolBells()
        router = Router(
            background,
            leases,
            handover=handover,
            payloads=payloads,
            bells=bells,
            bus=bus,
            store=store,
            shard_count=cluster.shard_count,
            env=environ_of(config.template_env),
        )
        claims = Claims(appending, bells, lease_s=config.command_lease_s, is_rung=partial(buses.hears_others, bus))
        appender = _appender(appending, router, claims, lease_s=config.command_lease_s)
        starter = _starter(config, pool, appender, store=store, shard_count=cluster.shard_count)
        api = Api(
            pool=pool,
            appender=appender,
            claims=claims,
            starter=starter,
            store=store,
            vault=vault,
            guard=guard,
            shard_count=cluster.shard_count,
        )
        await _answer_bells(bus, instance, bells=bells, projected=api.projected, handover=handover)
        yield Service(
            name="ingest",
            loops=[
                renewal_loop(leases),
                *router_loops(router, shard_count=cluster.shard_count, is_rung=partial(buses.hears_others, bus)),
                pressure_loop(pool, starter.admission),
            ],
            checks={"postgres": lambda: _check_postgres(pool), "leases": lambda: _check_leases(leases)},
            asgi=build_asgi(api),
            host=config.host,
            port=config.port,
            # First the shards: their new owners need not wait for the requests that are being ended here.
            on_stop=[leases.release_all, bells.close, api.projected.close, appender.close],
        )


async def _leases(config: Config, stack: AsyncExitStack, *, instance: str, bus: buses.Bus) -> Leases:
    pool = await stack.enter_async_context(_pool(config, instance, name="ingest-lease", size=LEASE_CONNECTIONS))
    lock = await stack.enter_async_context(
        session_lock(config.database_url, role="ingest", instance=instance, is_wanted=config.death_detector)
    )
    return Leases(
        pool,
        role="ingest",
        instance=instance,
        lease_s=config.shard_lease_s,
        clock=SystemClock(),
        bus=bus,
        lock=lock,
    )


def _appender(pool: Pool, router: Router, claims: Claims, *, lease_s: float) -> Appender:
    return Appender(
        pool,
        shard_count=router.shard_count,
        handover=router.handover,
        leases=router.leases,
        bus=router.bus,
        short_way=AtOnce(pool, router, claims, lease_s=lease_s),
    )


def _starter(config: Config, pool: Pool, appender: Appender, *, store: ResultStore, shard_count: int) -> Starter:
    admission = Admission(
        shard_count=shard_count,
        commands_due_max=config.starts_commands_due,
        routing_lag_inputs_max=config.starts_routing_lag,
        starts_at_once_max=config.starts_at_once,
    )
    return Starter(
        pool,
        appender,
        shard_count=shard_count,
        store=store,
        admission=admission,
        template_env=config.template_env,
    )


def _pool(config: Config, instance: str, *, name: str, size: int, only_lookups: bool = False) -> Pool:
    return open_pool(
        config.database_url,
        size_max=size,
        name=session_name(name, role="ingest", instance=instance),
        statement_timeout_s=config.statement_timeout_s,
        only_lookups=only_lookups,
    )


async def _answer_bells(
    bus: buses.Bus, instance: str, *, bells: PoolBells, projected: Bells, handover: Handover
) -> None:
    async def on_commands(subject: str, payload: bytes) -> None:
        if payload != instance.encode():  # what this process says, it knows
            await bells.on_message(subject, payload)

    async def on_shard(subject: str, payload: bytes) -> None:
        token = last_token(subject)
        if token.isdigit() and payload != instance.encode():
            handover.wake(int(token))

    await bus.subscribe(f"{COMMANDS}.*", on_commands)
    await bus.subscribe(f"{SHARDS}.*", on_shard)
    await bus.subscribe(f"{PROJECTED}.*", projected.on_message)


async def _check_postgres(pool: Pool) -> None:
    await read_cluster(pool)


async def _check_leases(leases: Leases) -> None:
    if not leases.registered:
        raise Unavailable("not yet registered for shards")

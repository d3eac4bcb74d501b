"""The worker's wiring: where its settings, connections, loops and heartbeat meet."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from noetl_common import metrics
from noetl_common.errors import NoetlError, Unavailable
from noetl_common.ids import mint_instance
from noetl_common.log import get_logger
from noetl_common.loop import Loop
from noetl_common.process import Service
from noetl_common.store.config import open_store
from services.worker.api import Api
from services.worker.config import Config
from services.worker.desk import Desk
from services.worker.heartbeat import Heart
from services.worker.ingests import Ingests
from services.worker.loops.report_results import report_results_once, reporting_loops
from services.worker.loops.run_commands import Shop, run_commands_once
from services.worker.outbox import Outbox
from services.worker.payloads import Payloads
from services.worker.pipeline import Machine
from services.worker.tools import container, duckdb, gcs, http, nats, postgres, snowflake
from services.worker.tools.processes import sweep
from services.worker.tools.python_pool import PythonPool

log = get_logger(__name__)

LAST_REPORTS_S = 1.5
REGISTER_PAUSE_S = 1.0


@asynccontextmanager
async def app(config: Config) -> AsyncIterator[Service]:
    """Make one worker; on leaving, end its interpreters, its heartbeat and its connections."""
    worker_id = config.worker_id or config.instance or mint_instance("worker")
    ingests = Ingests(config.server_url)
    api = Api(ingests, worker_id=worker_id, token=config.api_token)
    store = open_store(config, name=worker_id)
    await asyncio.to_thread(sweep)
    processes = PythonPool(config.interpreters, memory_bytes_max=config.python_memory_bytes_max)
    machine = Machine(
        payloads=Payloads(api, bytes_max=config.cache_bytes_max, store=store),
        credential=api.credential,
        reports=api,
        processes=processes,
        calls_max=config.pipeline_calls_max,
        timeouts_s={"": config.tool_timeout_s, "python": config.python_timeout_s},
    )
    desk = Desk(config.slots)
    shop = Shop(machine, store, worker_id=worker_id)
    heart = Heart(desk, ingests, worker_id=worker_id, token=config.api_token, every_s=config.heartbeat_s)
    registration = _Registration(api, config)

    async def claim() -> int:
        return await run_commands_once(desk, api, shop, pool=config.pool, wait_s=config.claim_wait_s)

    async def finish() -> None:
        await _finish(desk, api, grace_s=config.stop_grace_s)

    heart.start()
    try:
        await store.start()
        yield Service(
            name="worker",
            loops=[
                Loop(name="run_commands", once=claim, idle_pause_s=0.02, wake=desk.slot_free),
                *reporting_loops(desk, api),
                Loop(name="register", once=registration.once, idle_pause_s=REGISTER_PAUSE_S),
            ],
            checks={"ingest": registration.check},
            host=config.host,
            port=config.port,
            on_stop=[finish, registration.end],
        )
    finally:
        for running in list(desk.running.values()):
            running.task.cancel()
        await asyncio.gather(*(running.task for running in desk.running.values()), return_exceptions=True)
        await heart.stop()
        await processes.close()
        await http.close()
        await postgres.close()
        await duckdb.close()
        await nats.close()
        await snowflake.close()
        await gcs.close()
        container.close()
        await store.close()
        await api.close()


class _Registration:
    """Makes the worker known once ingest answers; ready means registered."""

    def __init__(self, api: Api, config: Config) -> None:
        self._api = api
        self._config = config
        self._is_known = False

    async def once(self) -> int:
        """Register, if that has not worked yet."""
        if self._is_known:
            return 0
        config = self._config
        await self._api.register(
            {
                "component_type": "worker_pool",
                "runtime": "python",
                "status": "ready",
                "capacity": config.slots,
                "pid": os.getpid(),
                "hostname": socket.gethostname(),
                "labels": {"pool_name": config.pool},
                "meta": {"version": metrics.release()},
            }
        )
        self._is_known = True
        log.info("worker.registered", worker_id=self._api.worker_id, pool=config.pool, slots=config.slots)
        return 0

    async def check(self) -> None:
        """Do nothing for a worker that is known. Errors: Unavailable."""
        if not self._is_known:
            raise Unavailable(f"ingest at {self._config.server_url} has not answered yet")

    async def end(self) -> None:
        """Say goodbye, if ingest is there to hear it."""
        if not self._is_known:
            return
        try:
            await self._api.deregister()
        except NoetlError as exc:
            log.warning("worker.deregister_failed", error=exc)


async def _finish(desk: Desk, api: Api, *, grace_s: float) -> None:
    """Let what is under way come to its end and be reported; what takes longer is left to its lease."""
    tasks = {running.task for running in desk.running.values()}
    late: set[asyncio.Task[None]] = set()
    if tasks:
        _done, late = await asyncio.wait(tasks, timeout=grace_s)
    await asyncio.gather(*(_empty(outbox, api) for outbox in desk.outboxes))
    if late:
        log.warning("worker.commands_left", commands=len(late))


async def _empty(outbox: Outbox, api: Api) -> None:
    try:
        async with asyncio.timeout(LAST_REPORTS_S):
            while await report_results_once(outbox, api):
                pass
    except (NoetlError, TimeoutError) as exc:
        log.warning("worker.reports_left", reports=len(outbox), error=exc)

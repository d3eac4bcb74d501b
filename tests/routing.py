"""What routing tests share: a router on a real database, whose leases are given by hand."""

import hashlib
from pathlib import Path
from typing import Any

from noetl_common.bus import MemoryBus
from noetl_common.clock import SystemClock
from noetl_common.core.events import Envelope
from noetl_common.core.parse import parse
from noetl_common.db import Pool
from noetl_common.leases import Leases
from noetl_common.wire import Claim, Report
from services.ingest import store_claims
from services.ingest.append import Appender
from services.ingest.at_once import AtOnce
from services.ingest.bells import PoolBells
from services.ingest.claims import Claims
from services.ingest.handover import Handover
from services.ingest.payloads import PayloadCache
from services.ingest.router import Router
from services.ingest.starts import Asked, Starter
from services.ingest.store_catalog import CatalogRow, register
from tests.builders import disk_store
from tests.ingesting import report_of
from tests.servers import SHARD_COUNT


class GivenLeases(Leases):
    """Leases that a test gives and takes: {shard: epoch}."""

    def __init__(self, pool: Pool, epochs: dict[int, int]) -> None:
        super().__init__(pool, role="ingest", instance="test", lease_s=60.0, clock=SystemClock())
        self.epochs = epochs

    def owned(self) -> dict[int, int]:
        return dict(self.epochs)

    def epoch_of(self, shard_id: int) -> int | None:
        return self.epochs.get(shard_id)

    def forget(self, shard_id: int) -> None:
        self.epochs.pop(shard_id, None)


class Bench:
    """One ingest without HTTP: appender, router, claims. Owns every shard under `epoch`."""

    def __init__(self, pool: Pool, folder: Path, *, epoch: int = 0, at_once: bool = False) -> None:
        self.pool = pool
        self.store = disk_store(folder)
        self.leases = GivenLeases(pool, dict.fromkeys(range(SHARD_COUNT), epoch))
        self.payloads = PayloadCache()
        self.handover = Handover(self.payloads)
        self.bus = MemoryBus()
        self.bells = PoolBells()
        self.router = Router(
            pool,
            self.leases,
            handover=self.handover,
            payloads=self.payloads,
            bells=self.bells,
            bus=self.bus,
            store=self.store,
            shard_count=SHARD_COUNT,
        )
        self.claims = Claims(pool, self.bells, lease_s=30.0)
        self.appender = Appender(
            pool,
            shard_count=SHARD_COUNT,
            handover=self.handover,
            leases=self.leases,
            bus=self.bus,
            short_way=AtOnce(pool, self.router, self.claims, lease_s=30.0) if at_once else None,
        )
        self.starter = Starter(pool, self.appender, shard_count=SHARD_COUNT, store=self.store)

    async def start(self, path: str, **payload: Any) -> int:
        return (await self.starter.start(Asked(path=path, payload=payload))).execution_id

    async def route(self) -> int:
        """Route every shard until none has anything left; return how many inputs that were."""
        total = 0
        for shard_id in range(SHARD_COUNT):
            self.handover.wake(shard_id)  # others may have appended: the watcher would have seen
        while count := sum([await self.router.route_once(shard_id) for shard_id in range(SHARD_COUNT)]):
            total += count
        return total

    async def claim(self, max_: int = 100) -> list[Any]:
        claim = Claim(worker_id="w", max=max_)
        return await store_claims.claim_commands(
            self.pool, pool_name=claim.pool, worker_id=claim.worker_id, max_=claim.max, lease_s=30.0
        )

    async def complete(self, commands: list[Any], **changes: Any) -> list[Any]:
        reports: list[Report] = [report_of(command, **changes) for command in commands]
        return await self.appender.report("w", reports)

    async def fail(self, commands: list[Any], message: str) -> None:
        error = {"code": "TOOL", "message": message}
        await self.complete(
            commands, event_type="command.failed", result=Envelope(status="FAILED", error=error), status="FAILED"
        )

    async def run(self, path: str, **payload: Any) -> int:
        """Start and drive an execution with commands that all complete, until nothing is left."""
        execution_id = await self.start(path, **payload)
        await self.drive()
        return execution_id

    async def drive(self) -> None:
        while True:
            routed = await self.route()
            commands = await self.claim()
            await self.complete(commands)
            if not routed and not commands:
                return


async def register_text(pool: Pool, text: str) -> None:
    playbook, _warnings = parse(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    row = CatalogRow(catalog_id=0, path=playbook.path, version=0, kind="Playbook", content=text, digest=digest)
    await register(pool, row)

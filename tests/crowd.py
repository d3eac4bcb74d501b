"""A crowd on one database: routers that take shards from each other, reporters, a reaper, and connections cut off."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg

from noetl_common.bus import MemoryBus
from noetl_common.clock import SystemClock
from noetl_common.core.events import Envelope, Event
from noetl_common.core.fold import fold
from noetl_common.core.shard import event_id
from noetl_common.core.state import ExecutionState
from noetl_common.db import Pool
from noetl_common.event_log import event_of
from noetl_common.loop import is_expected
from noetl_common.wire import Heartbeat
from services.ingest import decisions, store_claims
from services.ingest.loops.route_shards import Watcher
from services.meta.loops.elect_leader import Leadership, elect_leader_once
from services.meta.loops.reap_commands import reap_commands_once
from tests.ingesting import report_of, rows_of
from tests.routing import Bench
from tests.servers import SHARD_COUNT

LEASE_S = 1.0
CRASHES_MAX = 1_000
REST_S = 40.0


class Crowd:
    """Two ingests, a meta and some workers, all in this process, each step of each at any moment."""

    def __init__(self, pools: list[Pool], dsn: str, folder: Path, *, seed: int) -> None:
        self.random = random.Random(seed)
        self.pool, self.dsn = pools[0], dsn
        self.benches = [Bench(pool, folder / str(number)) for number, pool in enumerate(pools)]
        self.leadership = Leadership(instance="meta", lease_s=60.0, clock=SystemClock())
        self.epochs = dict.fromkeys(range(SHARD_COUNT), 0)
        self.owners: dict[int, Bench] = {}
        self.runs: list[int] = []
        self.retried = 0
        self.is_troubled = True

    async def rage(self, make_runs: Callable[[Bench], Awaitable[list[int]]], *, for_s: float) -> None:
        """Do everything at once for a while, then let it come to its end in peace."""
        async with asyncio.TaskGroup() as calm:
            halt = asyncio.Event()
            for bench in self.benches:
                for shard_id in range(SHARD_COUNT):
                    calm.create_task(self._repeat(halt, self._routing(bench, shard_id)))
                calm.create_task(self._repeat(halt, self._watching(bench)))
                calm.create_task(self._repeat(halt, self._working(bench)))
            calm.create_task(self._repeat(halt, self._reaping))
            calm.create_task(self._repeat(halt, self._renewing, pause_s=0.2))
            self.runs = await make_runs(self.benches[0])
            async with asyncio.TaskGroup() as trouble:
                stop = asyncio.Event()
                trouble.create_task(self._repeat(stop, self._assigning, pause_s=0.02))
                trouble.create_task(self._repeat(stop, self._cutting, pause_s=0.1))
                trouble.create_task(self._repeat(stop, self._cancelling, pause_s=0.3))
                await asyncio.sleep(for_s)
                stop.set()
            self.is_troubled = False
            for shard_id in range(SHARD_COUNT):
                await self._assign(shard_id)
            try:
                deadline_s = time.monotonic() + REST_S
                while await self._live():
                    assert time.monotonic() < deadline_s, f"the crowd did not come to rest within {REST_S} s"
                    await asyncio.sleep(0.1)
            finally:
                halt.set()

    async def _repeat(self, stop: asyncio.Event, once: Callable[[], Awaitable[Any]], *, pause_s: float = 0.0) -> None:
        while not stop.is_set():
            done = None
            try:
                done = await once()
            except Exception as error:
                if not is_expected(error):
                    raise
                self.retried += 1
            await asyncio.sleep(pause_s * self.random.random() * 2 if done or pause_s else 0.01)

    def _routing(self, bench: Bench, shard_id: int) -> Callable[[], Awaitable[int]]:
        return lambda: bench.router.route_once(shard_id)

    def _watching(self, bench: Bench) -> Callable[[], Awaitable[int]]:
        return Watcher(bench.pool, bench.leases, bench.handover).look_once

    def _working(self, bench: Bench) -> Callable[[], Awaitable[int]]:
        async def once() -> int:
            commands = await store_claims.claim_commands(
                bench.pool, pool_name="default", worker_id="w", max_=self.random.randint(1, 20), lease_s=LEASE_S
            )
            if self.is_troubled and self.random.random() < 0.1:
                await asyncio.sleep(LEASE_S * 1.2)  # the leases run out, and then the reports come
            leases = [(each.execution_id, each.command_id, each.claim_token) for each in commands]
            await store_claims.renew_leases(bench.pool, Heartbeat(worker_id="w", leases=leases), lease_s=LEASE_S)
            lost = self.is_troubled and self.random.random() < 0.1
            again = commands[: self.random.randint(0, 3)]
            reports = [report_of(command) for command in ([] if lost else [*commands, *again])]
            await bench.appender.report("w", reports)
            return len(commands)

        return once

    async def _reaping(self) -> int:
        if self.leadership.leader() is None:
            await elect_leader_once(self.pool, self.leadership)
        return await reap_commands_once(self.pool, self.leadership, MemoryBus(), crashes_max=CRASHES_MAX)

    async def _assigning(self) -> int:
        await self._assign(self.random.randrange(SHARD_COUNT))
        return 1

    async def _assign(self, shard_id: int) -> None:
        """Give a shard to one of the routers; the other one is told nothing."""
        epoch = self.epochs[shard_id] = self.epochs[shard_id] + 1
        await self._execute("UPDATE noetl.shard_cursor SET lease_epoch = %s WHERE shard_id = %s", epoch, shard_id)
        bench = self.owners[shard_id] = self.random.choice(self.benches)
        bench.leases.epochs[shard_id] = epoch

    async def _renewing(self) -> int:
        """Tell the owners again what they own: one may have been fenced under an epoch before."""
        for shard_id, bench in self.owners.items():
            bench.leases.epochs[shard_id] = self.epochs[shard_id]
        return 1

    async def _cutting(self) -> int:
        await self._execute(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND state <> 'idle' ORDER BY random() LIMIT 2) busy"
        )
        return 1

    async def _execute(self, text: str, *args: Any) -> None:
        """Run a statement on a connection of its own: what cuts connections must not be cut off by itself."""
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as conn:
            await conn.execute(text.encode(), args or None)

    async def _cancelling(self) -> int:
        envelope = Envelope(status="REQUESTED", context={"reason": "any"})
        run = self.random.choice(self.runs)
        await self.benches[1].appender.append([Event(execution_id=run, event_type="cancel.requested", result=envelope)])
        return 1

    async def _live(self) -> int:
        found = await rows_of(
            self.pool,
            "SELECT count(*) AS n FROM noetl.execution x WHERE NOT EXISTS (SELECT FROM noetl.event e"
            " WHERE e.execution_id = x.execution_id AND e.dedup_key = 'end')",
        )
        behind = await rows_of(
            self.pool,
            "SELECT count(*) AS n FROM noetl.shard_head h JOIN noetl.shard_cursor c USING (shard_id)"
            " WHERE h.seq > c.seq",
        )
        return int(found[0]["n"] + behind[0]["n"])

    async def check(self) -> None:
        """The log is whole, and says the same as the states and the queue."""
        heads = await rows_of(self.pool, "SELECT shard_id, seq FROM noetl.shard_head")
        events = [event_of(row) for row in await rows_of(self.pool, "SELECT * FROM noetl.event ORDER BY event_id")]
        inputs = {event.event_id for event in events if event.is_input}
        assert inputs == {event_id(h["shard_id"], seq) for h in heads for seq in range(1, h["seq"] + 1)}
        ids = {event.execution_id for event in events}
        states = await decisions.read_states(self.pool, ids)
        folded = {execution_id: ExecutionState(execution_id=execution_id) for execution_id in ids}
        for event in events:
            folded[event.execution_id] = fold(folded[event.execution_id], event)
        for execution_id in ids:
            assert folded[execution_id] == states[execution_id], (folded[execution_id], states[execution_id])
        commands = await rows_of(self.pool, "SELECT command_id, status FROM noetl.command")
        issued = sorted(event.command_id for event in events if event.event_type == "command.issued")
        assert issued == sorted(row["command_id"] for row in commands)
        ended = {
            event.command_id: event.event_type.removeprefix("command.")
            for event in events
            if event.event_type in ("command.completed", "command.failed", "command.cancelled")
        }
        for row in commands:
            assert ended.get(row["command_id"], "claimed") == row["status"]
        [database] = await rows_of(
            self.pool, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        assert database["deadlocks"] == 0

"""Whether the model means what the SQL means: the same calls, drawn by a seed, on the model and on a real Postgres.

Compared are what each call returns and, at the end, every row of every table; but for times, which no two runs share.
"""

import itertools
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import msgspec

import noetl_common.event_log
import services.ingest.admission
import services.ingest.router
import services.ingest.starts
import services.ingest.store_claims
from noetl_common.bus import Bus
from noetl_common.clock import SystemClock
from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import BUCKETS, snowflake
from noetl_common.core.values import TierRule
from noetl_common.db import Pool, json_text
from noetl_common.leases import Leases
from noetl_common.store.results import ResultStore
from noetl_common.wire import ClaimedCommand, Heartbeat, Report
from services.compute.loops.project_shards import Projector, Runs, project_shards_once
from services.ingest import append, decisions, store_claims, works
from services.ingest.append import Appender
from services.ingest.at_once import AtOnce
from services.ingest.bells import PoolBells
from services.ingest.claims import Claims
from services.ingest.handover import Handover
from services.ingest.loops.route_shards import Watcher
from services.ingest.payloads import PayloadCache
from services.ingest.router import Router
from services.ingest.starts import Asked, Starter
from services.meta.loops.assign_shards import assign_shards_once
from services.meta.loops.elect_leader import Leadership, elect_leader_once
from services.meta.loops.reap_commands import reap_commands_once
from services.meta.loops.write_checkpoints import write_checkpoints_once
from tests.ingesting import report_of, result_row
from tests.simulation.connections import Server as DatabaseServer
from tests.simulation.connections import SimConnection, SimPool
from tests.simulation.database import Database, Row
from tests.simulation.loop import SimLoop
from tests.simulation.workload import catalog, parsed
from tests.simulation.world import seed_database

STEPS = 150
MOMENT = "2026-01-02T03:04:05.678901+00:00"  # of every event
# Columns that hold times, or follow from them, and those that only the real tables have.
TIMES = {"created_at", "event_time", "available_at", "turn_at", "due_at", "leased_until", "lease_until", "updated_at"}
TIMES |= {"heartbeat", "last_projected_at", "committed_at", "end_time", "lag_ms"}
JSON = {"result", "meta", "item", "details", "body", "state", "progress", "error", "preview", "extracted", "detail"}
Found = tuple[list[Any], dict[str, list[Row]]]
UNCOMPARED = {"catalog", "checkpoint"}  # given alike; its identity is drawn in no order that is promised


class NoBus:
    """Nobody hears."""

    connected = False

    async def publish(self, subject: str, payload: bytes = b"") -> None:
        """Drop it."""

    async def subscribe(self, subject: str, handler: Any) -> None:
        """Hear nothing."""


class Ingest:
    """One ingest's parts, on a pool."""

    def __init__(self, pool: Pool, name: str, shard_count: int) -> None:
        bus, clock = cast(Bus, NoBus()), SystemClock()
        self.leases = Leases(pool, role="ingest", instance=name, lease_s=60.0, clock=clock)
        self.payloads = PayloadCache()
        self.handover = Handover(self.payloads)
        store = ResultStore([], TierRule(default="db"))
        bells = PoolBells()
        self.router = Router(
            pool,
            self.leases,
            handover=self.handover,
            payloads=self.payloads,
            bells=bells,
            bus=bus,
            store=store,
            shard_count=shard_count,
        )
        short_way = AtOnce(pool, self.router, Claims(pool, bells, lease_s=30.0), lease_s=30.0)
        short_way._now_s = itertools.count(0.0, 0.01).__next__  # each look at the clock takes as long on either
        self.appender = Appender(
            pool,
            shard_count=shard_count,
            handover=self.handover,
            leases=self.leases,
            bus=bus,
            clock=clock,
            short_way=short_way,
        )
        self.starter = Starter(pool, self.appender, shard_count=shard_count, store=store)
        self.watcher = Watcher(pool, self.leases, self.handover)


class Script:
    """A seed's calls on one pool. `said`: what they returned."""

    def __init__(self, pool: Pool, seed: int, *, shard_count: int) -> None:
        self.pool = pool
        self.random = random.Random(seed)
        self.shard_count = shard_count
        self.ingests = [Ingest(pool, name, shard_count) for name in ("a", "b")]
        compute = Leases(pool, role="compute", instance="c", lease_s=60.0, clock=SystemClock())
        self.leases = [*(one.leases for one in self.ingests), compute]
        self.projector = Projector(
            pool=pool, bus=cast(Bus, NoBus()), leases=compute, clock=SystemClock(), runs=Runs(5), batch_events_max=9
        )
        self.leaderships = [Leadership(instance=name, lease_s=60.0, clock=SystemClock()) for name in ("m", "n")]
        self.held: list[ClaimedCommand] = []
        self.runs: list[int] = []
        self.said: list[Any] = []
        shares = {
            self.start: 3,
            self.route: 8,
            self.claim: 5,
            self.report: 6,
            self.beat: 1,
            self.reap: 1,
            self.cancel: 1,
        }
        shares |= {self.renew: 2, self.lead: 2, self.project: 4, self.watch: 2, self.checkpoint: 1, self.release: 1}
        shares |= {self.timer: 1, self.read: 1}
        self.ways = [way for way, share in shares.items() for _ in range(share)]

    async def play(self) -> None:
        """Make all calls."""
        for way in (self.renew, self.lead, self.renew, self.start):
            self.said.append(await way())
        for number in range(STEPS):
            way = self.random.choice(self.ways)
            said = await way()
            self.said.append((number, way.__name__, msgspec.json.decode(msgspec.json.encode(said))))
            await settle(self.pool)

    async def start(self) -> Any:
        key = self.random.choice([None, "one", "two", "three", f"{self.random.random()}"])
        path = self.random.choice(catalog())[0] if key != "one" else catalog()[0][0]
        if key in ("two", "three"):
            path = catalog()[1][0]
        started = await self.random.choice(self.ingests).starter.start(Asked(path=path, idempotency_key=key))
        self.runs.append(started.execution_id)
        return [started.execution_id, started.event_id, started.is_duplicate]

    async def route(self) -> Any:
        ingest = self.random.choice(self.ingests)
        return [await ingest.router.route_once(shard_id) for shard_id in range(self.shard_count)]

    async def claim(self) -> Any:
        found = await store_claims.claim_commands(
            self.pool,
            pool_name="default",
            worker_id=self.random.choice("wv"),
            max_=self.random.randint(1, 6),
            lease_s=self.random.choice([60.0, 60.0, -1.0]),
        )
        self.held += found
        return found[:20]

    async def report(self) -> Any:
        chosen = [self.random.choice(self.held) for _ in range(self.random.randint(1, 4))] if self.held else []
        reports: list[Report] = []
        for command in chosen:
            changes: dict[str, Any] = {}
            if self.random.random() < 0.2:
                changes = {"claim_token": self.random.choice([0, 1, command.claim_token + 1])}
            elif self.random.random() < 0.2:
                failed = Envelope(status="FAILED", error={"code": "T", "message": "m"})
                changes = {"event_type": "command.failed", "status": "FAILED", "result": failed}
            elif self.random.random() < 0.2:
                changes = {"event_type": "call.partial", "task": "t", "chunk": self.random.randint(0, 2)}
            row = result_row(command.execution_id, {"of": command.command_id, "n": command.attempt}, step=command.step)
            row.loop_epoch, row.iter_index = command.loop_epoch, command.iter_index
            reports.append(report_of(command, results=[row], **changes))
        return await self.random.choice(self.ingests).appender.report("w", reports) if reports else None

    async def beat(self) -> Any:
        leases = [(one.execution_id, one.command_id, one.claim_token) for one in self.held[-8:]]
        beat = Heartbeat(worker_id="w", leases=leases, active=1, capacity=2)
        rows = await store_claims.renew_leases(self.pool, beat, lease_s=self.random.choice([90.0, -1.0]))
        return sorted(rows, key=lambda row: str(row))

    async def reap(self) -> Any:
        leadership = self.random.choice(self.leaderships)
        return await reap_commands_once(self.pool, leadership, cast(Bus, NoBus()), crashes_max=2)

    async def cancel(self) -> Any:
        kind = self.random.choice(["cancel.requested", "vars.set"])
        context: dict[str, Any] = {"reason": "any"} if kind == "cancel.requested" else {"set": {"x": {"v": 1}}}
        envelope = Envelope(status="REQUESTED", context=context)
        run = self.random.choice([*self.runs, 1 << 22])
        event = Event(execution_id=run, event_type=kind, status="REQUESTED", result=envelope)
        return await self.random.choice(self.ingests).appender.append([event])

    async def renew(self) -> Any:
        return [[await leases.renew_once(), leases.owned()] for leases in self.leases]

    async def lead(self) -> Any:
        leadership = self.random.choice(self.leaderships)
        won = await elect_leader_once(self.pool, leadership)
        seen = msgspec.to_builtins(leadership.seen)
        looked = [seen["epoch"], _sorted(seen["processes"]), _sorted(seen["holdings"]), seen["has_claims"]]
        looked += [seen["progress"], [{**shard, "unheld_s": 0} for shard in seen["free"]]]
        return [won, looked, await assign_shards_once(self.pool, leadership)]

    async def project(self) -> Any:
        return await project_shards_once(self.projector)

    async def watch(self) -> Any:
        return await self.random.choice(self.ingests).watcher.look_once()

    async def checkpoint(self) -> Any:
        return await write_checkpoints_once(self.pool, self.random.choice(self.leaderships))

    async def release(self) -> Any:
        return await self.random.choice(self.leases).release_all() if self.random.random() < 0.3 else None

    async def timer(self) -> Any:
        if not self.runs:
            return None
        run = self.random.choice(self.runs)
        shard_id = (run >> 12 & (BUCKETS - 1)) % self.shard_count
        row = {"execution_id": run, "timer_id": self.random.getrandbits(40), "kind": "none", "cause_event_id": 0}
        rows = [{**row, "due_s": self.random.choice([-1.0, 3600.0])}]
        async with self.pool.connection() as conn, conn.transaction():
            await conn.execute(decisions.SQL["insert_timers"], {"shard_id": shard_id, "timers": json_text(rows)})
        async with self.pool.connection() as conn, conn.transaction():
            return await decisions.fire_timers(conn, shard_id)

    async def read(self) -> Any:
        found = await store_claims.read_claims(self.pool, "w")
        contexts = await store_claims.read_contexts(self.pool, [(one.execution_id, one.context_id) for one in found])
        epochs = {(one.execution_id, one.loop_epoch) for one in self.held if one.loop_epoch}
        loops = [
            await store_claims.read_loop_results(self.pool, run, epoch, after=-1, limit=10)
            for run, epoch in sorted(epochs)
        ]
        return [found, sorted(str(key[:2]) for key in contexts), loops]


def _sorted(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))


async def settle(pool: Pool) -> None:
    """Have the queue's order follow from ids: clocks differ, and with them whose turn it is."""
    async with pool.connection() as conn:
        if isinstance(conn, SimConnection):
            for entry in conn.server.database.queue.entries.values():
                if entry.now is not None:
                    turn = float(entry.now["issued_event_id"] % 1_000_003) - 2_000_000.0
                    entry.now = {**entry.now, "turn_at": turn, "available_at": turn}
        else:
            moment = "'epoch'::timestamptz + make_interval(secs => issued_event_id % 1000003)"
            text = f"UPDATE noetl.command SET turn_at = {moment}, available_at = {moment}"  # noqa: S608
            await conn.execute(text.encode())


@contextmanager
def drawn_ids(seed: int, now_ms: int) -> Iterator[None]:
    """Have both sides mint the same ids, in the partitions of the present."""
    source, number = random.Random(seed), itertools.count()

    def mint() -> int:
        return snowflake(now_ms + next(number), node=source.randrange(BUCKETS), seq=source.randrange(4096))

    tokens = SimpleNamespace(token_hex=lambda size: f"{source.getrandbits(size * 8):x}")
    patches: list[tuple[Any, str, Any]] = [
        (services.ingest.router, "mint_execution_id", mint),
        (services.ingest.router, "parse", parsed),
        (services.ingest.admission, "mint_execution_id", mint),
        (services.ingest.starts, "secrets", tokens),
        (services.ingest.starts, "parse", parsed),
        (services.ingest.store_claims, "mint_id", mint),
        *(
            (module, "utc_now_text", lambda: MOMENT)
            for module in (noetl_common.event_log, append, works, services.ingest.starts)
        ),
    ]
    with ExitStack() as stack:
        for module, name, stand_in in patches:
            stack.enter_context(mock.patch.object(module, name, stand_in))
        yield


class Calm:
    """No faults and no time (tests.simulation.connections.Points)."""

    async def reach(self, point: str, session: Any = None) -> None:
        """Go on."""

    def travel_s(self) -> float:
        """Nothing is under way for long."""
        return 0.0


def on_model(seed: int, *, shard_count: int, now_ms: int) -> Found:
    """Return what the calls of a seed return on the model, and its tables."""
    loop = SimLoop(random.Random(seed))
    ticks = itertools.count()
    database = Database(lambda: next(ticks) * 1e-6)
    seed_database(database, shard_count=shard_count)
    server = DatabaseServer(database, loop, Calm())
    script = Script(cast(Pool, SimPool(server, "model")), seed, shard_count=shard_count)
    with drawn_ids(seed, now_ms):
        task = loop.world.spawn(script.play())
        task.add_done_callback(lambda _done: loop.halt())
        loop.run(deadline_s=1e9)
    task.result()
    tables = {
        name: [_compared(entry.now) for entry in table.entries.values() if entry.now is not None]
        for name, table in database.tables.items()
        if name not in UNCOMPARED
    }
    loop.close()
    return script.said, {name: _sorted(rows) for name, rows in tables.items()}


async def on_postgres(
    pool: Pool, seed: int, *, shard_count: int, now_ms: int
) -> tuple[list[Any], dict[str, list[Row]]]:
    """Return what the same calls return on a real database, and its tables, with the columns that the model has."""
    async with pool.connection() as conn:
        for number, (path, text) in enumerate(catalog(), 1):
            await conn.execute(
                "INSERT INTO noetl.catalog (catalog_id, path, version, kind, content, digest)"
                " VALUES (%s, %s, 1, 'Playbook', %s, '')",
                [number, path, text],
            )
    script = Script(pool, seed, shard_count=shard_count)
    with drawn_ids(seed, now_ms):
        await script.play()
    tables: dict[str, list[Row]] = {}
    async with pool.connection() as conn:
        for name in Database(float).tables:
            if name not in UNCOMPARED:
                rows = await (await conn.execute(f"SELECT * FROM noetl.{name}".encode())).fetchall()  # noqa: S608
                tables[name] = _sorted([_compared(row) for row in rows])
    return script.said, tables


def _compared(row: Row) -> Row:
    """Return a row without what is told by the clock; of a lease, whether there is one."""
    told = {name: value for name, value in sorted(row.items()) if name not in TIMES}
    for name in JSON & told.keys():
        if isinstance(told[name], bytes):
            told[name] = msgspec.json.decode(told[name])
    if "lease_until" in row:
        told["is_leased"] = row["lease_until"] is not None
    if isinstance(told.get("inline_payload"), memoryview):
        told["inline_payload"] = bytes(told["inline_payload"])
    return told


def differences(model: dict[str, list[Row]], real: dict[str, list[Row]]) -> list[str]:
    """Return in what the tables differ, in the columns that the model knows."""
    found = []
    for name, rows in model.items():
        if len(rows) != len(real[name]):
            found.append(f"{name}: {len(rows)} rows in the model, {len(real[name])} in Postgres")
        if not rows:
            continue
        columns = set.intersection(*(set(row) for row in rows))
        narrowed = _sorted([{key: row.get(key) for key in sorted(columns)} for row in real[name]])
        mine = _sorted([{key: row[key] for key in sorted(columns)} for row in rows])
        for ours, theirs in zip(mine, narrowed, strict=False):
            other = {column: (ours[column], theirs[column]) for column in columns if ours[column] != theirs[column]}
            found += [f"{name}: {column}: {a!r} in the model, {b!r} in Postgres" for column, (a, b) in other.items()]
    return found[:20]

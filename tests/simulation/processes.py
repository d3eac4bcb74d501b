"""The processes of a simulated cluster: the product's own parts, wired as their app.py wires them."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from noetl_common import wire
from noetl_common.core.events import Envelope, Event
from noetl_common.core.values import TierRule
from noetl_common.db import Pool
from noetl_common.leases import Leases, renewal_loop
from noetl_common.loop import Loop, is_expected, run_loop
from noetl_common.session_lock import SessionLock, runtime_id_of
from noetl_common.store.results import ResultStore
from noetl_common.subjects import COMMANDS, META_WAKE, SHARDS, last_token
from noetl_common.wire import Claim, Claimed, Heartbeat, HeartbeatAnswer, Report, ReportBatch, Reported
from services.compute.loops.project_shards import Projector, Runs, project_shards_once
from services.ingest.append import Appender
from services.ingest.at_once import AtOnce
from services.ingest.bells import PoolBells
from services.ingest.claims import Claims
from services.ingest.handover import Handover
from services.ingest.loops.route_shards import router_loops
from services.ingest.payloads import PayloadCache
from services.ingest.router import Router
from services.ingest.starts import Asked, Starter
from services.meta.app import FENCE_WAIT_S
from services.meta.loops.assign_shards import assign_shards_once
from services.meta.loops.elect_leader import Leadership, elect_leader_once, resign
from services.meta.loops.reap_commands import reap_commands_once
from services.meta.loops.write_checkpoints import write_checkpoints_once
from services.worker.desk import Desk
from services.worker.loops.report_results import report_results_once, reporting_loops
from services.worker.loops.run_commands import run_commands_once
from tests.simulation.connections import SimPool
from tests.simulation.loop import RUNNING, Process
from tests.simulation.network import SimBus
from tests.simulation.tools import Tools

if TYPE_CHECKING:
    from tests.simulation.world import World

SHARD_COUNT = 4
LEASE_S = 4.0
COMMAND_LEASE_S = 5.0
BEAT_S = 1.5
START_MS = 1_790_000_000_000
SKEW_MAX_S = 300.0


class ProcessClock:
    """The clocks of the process that asks: one that never goes back, and one that is wrong by up to five minutes."""

    def unix_ms(self) -> int:
        process = RUNNING.get()
        assert process is not None
        return START_MS + int((process.loop.now_s + getattr(process, "skew_s", 0.0)) * 1000)

    def monotonic_s(self) -> float:
        process = RUNNING.get()
        assert process is not None
        return process.loop.now_s + float(getattr(process, "uptime_s", 0.0))


class SimLock:
    """The session lock of one process (noetl_common.session_lock): the server takes it away when the session ends."""

    def __init__(self, process: "Server") -> None:
        self.key = runtime_id_of(process.role, process.name)
        self._process = process
        self._locks = process.world.database.session_locks
        self._locks.add(self.key)
        process.on_death.append(self._end)

    @property
    def is_held(self) -> bool:
        """Whether others see it; one that was lost is taken again after a moment."""
        is_held = self.key in self._locks
        if not is_held and not self._process.is_dead:
            self._process.loop.call_later(0.2, self._retake, context=self._process.context)
        return is_held

    def _retake(self) -> None:
        if not self._process.world.server.is_down:
            self._locks.add(self.key)

    def _end(self) -> None:
        delay_s = 5.0 if self._process.loop.random.random() < 0.2 else 0.001  # a machine that is gone says nothing
        self._process.loop.after(delay_s, self._locks.discard, self.key)


class Server(Process):
    """A process of one of the roles: its loops, and how it stops when it is asked to."""

    role = ""
    is_mortal = True

    def __init__(self, world: "World") -> None:
        super().__init__(world.loop, world.name_of(self.role))
        self.world = world
        self.skew_s = world.random.uniform(-SKEW_MAX_S, SKEW_MAX_S)
        self.uptime_s = world.random.uniform(0.0, 1e6)
        self.clock = ProcessClock()
        self.pool = cast(Pool, SimPool(world.server, self.name))
        self.bus = SimBus(world.network)
        self.stop = asyncio.Event()
        self.is_stopping = False
        self.loops: list[asyncio.Task[Any]] = []
        self.on_stop: list[Callable[[], Any]] = []
        self.leases: Leases | None = None
        self.lock = cast(SessionLock, SimLock(self)) if world.has_detector and self.role != "worker" else None
        self.spawn(self._started())

    async def begin(self) -> list[Loop]:
        """Wire the parts; return the loops."""
        raise AssertionError("each role has its own parts")

    def new_leases(self) -> Leases:
        """Return the leases of this process."""
        return Leases(
            self.pool,
            role=self.role,
            instance=self.name,
            lease_s=LEASE_S,
            clock=self.clock,
            bus=self.bus,
            lock=self.lock,
        )

    async def _started(self) -> None:
        for loop in await self.begin():
            self.loops.append(self.spawn(self._guarded(loop)))

    async def _guarded(self, loop: Loop) -> None:
        try:
            await run_loop(loop, self.stop)
        except Exception as error:  # a bug ends a process, which is then started again
            self.world.bug(f"{self.name}: loop {loop.name}: {type(error).__name__}: {error}", error)
            self.world.faults.crash(self)

    def ask_to_stop(self) -> None:
        """Stop in good order: end what is under way, give back what is owned."""
        if not self.is_stopping and not self.is_dead:
            self.is_stopping = True
            self.spawn(self._stopped())

    async def _stopped(self) -> None:
        self.stop.set()
        await asyncio.gather(*self.loops, return_exceptions=True)
        for work in self.on_stop:
            try:
                await work()
            except Exception as error:
                if not is_expected(error):
                    self.world.bug(f"{self.name}: stopping: {type(error).__name__}: {error}", error)
        self.world.faults.crash(self)


class Ingest(Server):
    """Appends, routes, lends commands."""

    role = "ingest"

    async def begin(self) -> list[Loop]:
        self.leases = self.new_leases()
        payloads = PayloadCache()
        self.handover = Handover(payloads)
        self.bells = PoolBells()
        store = ResultStore([], TierRule(default="db"))
        self.router = Router(
            self.pool,
            self.leases,
            handover=self.handover,
            payloads=payloads,
            bells=self.bells,
            bus=self.bus,
            store=store,
            shard_count=SHARD_COUNT,
        )
        self.claims = Claims(self.pool, self.bells, lease_s=COMMAND_LEASE_S)
        short_way = AtOnce(self.pool, self.router, self.claims, lease_s=COMMAND_LEASE_S)
        self.appender = Appender(
            self.pool,
            shard_count=SHARD_COUNT,
            handover=self.handover,
            leases=self.leases,
            bus=self.bus,
            clock=self.clock,
            short_way=short_way if self.world.takes_short_way else None,
        )
        self.starter = Starter(self.pool, self.appender, shard_count=SHARD_COUNT, store=store)
        self.on_stop = [self.bells.close, self.appender.close, self.leases.release_all]
        await self.bus.subscribe(f"{COMMANDS}.*", self.bells.on_message)
        await self.bus.subscribe(f"{SHARDS}.*", self._on_shard)
        self.methods: dict[str, Callable[[bytes], Any]] = {
            "claim": self._claim,
            "held": self._held,
            "report": self._report,
            "heartbeat": self._heartbeat,
            "start": self._start,
            "cancel": self._cancel,
            "write": self._write,
        }
        return [renewal_loop(self.leases), *router_loops(self.router, shard_count=SHARD_COUNT)]

    async def serve(self, method: str, body: bytes) -> bytes:
        """Answer a request, as the routes of the API do."""
        return wire.encode(await self.methods[method](body))

    async def _on_shard(self, subject: str, _payload: bytes) -> None:
        self.handover.wake(int(last_token(subject)))

    async def _claim(self, body: bytes) -> Claimed:
        return await self.claims.claim(wire.decode(body, Claim))

    async def _held(self, body: bytes) -> Claimed:
        return await self.claims.held(wire.decode(body, str))

    async def _report(self, body: bytes) -> Reported:
        batch = wire.decode(body, ReportBatch)
        answers = await self.appender.report(batch.worker_id, batch.events)
        return Reported(status="ok", event_ids=[id_ for id_, _ in answers], outcomes=[told for _, told in answers])

    async def _heartbeat(self, body: bytes) -> HeartbeatAnswer:
        return await self.claims.heartbeat(wire.decode(body, Heartbeat))

    async def _start(self, body: bytes) -> dict[str, Any]:
        started = await self.starter.start(wire.decode(body, Asked))
        return {"execution_id": started.execution_id, "is_duplicate": started.is_duplicate}

    async def _cancel(self, body: bytes) -> list[int]:
        envelope = Envelope(status="REQUESTED", context={"reason": "the client"})
        return await self.appender.append([_asked(body, "cancel.requested", envelope)])

    async def _write(self, body: bytes) -> list[int]:
        envelope = Envelope(status="REQUESTED", context={"set": {"x": {"v": 1}}})
        return await self.appender.append([_asked(body, "vars.set", envelope)])


def _asked(body: bytes, event_type: str, envelope: Envelope) -> Event:
    id_ = wire.decode(body, int)
    return Event(execution_id=id_, event_type=event_type, status="REQUESTED", result=envelope)


class Meta(Server):
    """Leads or stands by: assigns shards, reaps commands, writes checkpoints."""

    role = "meta"

    async def begin(self) -> list[Loop]:
        leadership = Leadership(instance=self.name, lease_s=LEASE_S, clock=self.clock, lock=self.lock)
        fence_pool = SimPool(self.world.server, self.name)
        fence_pool.lock_timeout_s = FENCE_WAIT_S
        lease_pool = cast(Pool, fence_pool)
        wake = asyncio.Event()

        async def ring(_subject: str, _payload: bytes) -> None:
            wake.set()

        async def lead() -> int:
            await elect_leader_once(lease_pool, leadership)
            await assign_shards_once(lease_pool, leadership, self.bus)
            return 0

        async def checkpoint() -> int:
            await write_checkpoints_once(self.pool, leadership)
            return 0

        await self.bus.subscribe(META_WAKE, ring)
        self.on_stop = [partial(resign, lease_pool, leadership)]
        reap = partial(reap_commands_once, self.pool, leadership, self.bus, crashes_max=self.world.crashes_max)
        return [
            Loop(name="elect_leader", once=lead, idle_pause_s=lambda _rounds: leadership.pause_s(), wake=wake),
            Loop(name="reap_commands", once=reap, idle_pause_s=1.0),
            Loop(name="write_checkpoints", once=checkpoint, idle_pause_s=5.0),
        ]


class Compute(Server):
    """Projects."""

    role = "compute"

    async def begin(self) -> list[Loop]:
        self.leases = self.new_leases()
        wake = self.leases.changed

        async def ring(_subject: str, _payload: bytes) -> None:
            wake.set()

        await self.bus.subscribe(f"{SHARDS}.*", ring)
        batch_max = self.world.random.choice([7, 50, 500])
        projector = Projector(
            pool=self.pool,
            bus=self.bus,
            leases=self.leases,
            clock=self.clock,
            runs=Runs(self.world.random.choice([2, 1000])),
            batch_events_max=batch_max,
        )
        self.on_stop = [self.leases.release_all]
        project = partial(project_shards_once, projector)
        return [renewal_loop(self.leases), Loop(name="project_shards", once=project, idle_pause_s=0.7, wake=wake)]


class Worker(Server):
    """Claims, runs simulated tools, reports."""

    role = "worker"

    async def begin(self) -> list[Loop]:
        self.desk = Desk(self.world.random.choice([1, 3, 8]))
        api = WorkerApi(self)
        tools = Tools(self.world, api)
        machine = SimpleNamespace(payloads=tools, tools=tools)
        shop = SimpleNamespace(machine=machine, scopes=None, store=None)
        claim = partial(run_commands_once, self.desk, cast(Any, api), cast(Any, shop), pool="default", wait_s=2.0)
        self.on_stop = [partial(report_results_once, outbox, cast(Any, api)) for outbox in self.desk.outboxes]
        self.spawn(self._beat(api))
        return [
            Loop(name="run_commands", once=claim, idle_pause_s=0.02, wake=self.desk.slot_free),
            *reporting_loops(self.desk, cast(Any, api)),
        ]

    async def _beat(self, api: "WorkerApi") -> None:
        """What the heartbeat's thread does (services.worker.heartbeat)."""
        while True:
            await asyncio.sleep(min(BEAT_S, self.desk.lease_s / 3))
            sent = self.desk.leases.all()
            beat = Heartbeat(worker_id=self.name, leases=sent, active=len(self.desk.running), capacity=self.desk.slots)
            try:
                found = await api.ask("heartbeat", beat)
            except Exception as error:
                if not is_expected(error):
                    raise
                continue
            answer = wire.decode(found, HeartbeatAnswer)
            self.desk.answer(sent, cancelled=answer.cancelled, lost=answer.lost)


class WorkerApi:
    """The worker's side of ingest's API, over the simulated network (services.worker.api.Api)."""

    def __init__(self, worker: Worker) -> None:
        self.worker_id = worker.name
        self._network = worker.world.network

    async def ask(self, method: str, body: Any) -> bytes:
        """Return the answer of some ingest. Errors: as the network's."""
        return await self._network.ask(method, wire.encode(body), is_repeatable=method == "report")

    async def claim(self, pool: str, *, count: int, wait_s: float) -> Claimed:
        """Lease commands."""
        asked = Claim(worker_id=self.worker_id, pool=pool, max=count, wait_s=wait_s)
        return msgspec.json.decode(await self.ask("claim", asked), type=Claimed, strict=False)

    async def held(self) -> Claimed:
        """Look for commands of a claim whose answer was lost."""
        return msgspec.json.decode(await self.ask("held", self.worker_id), type=Claimed, strict=False)

    async def report(self, reports: list[Report]) -> Reported:
        """Report."""
        batch = ReportBatch(worker_id=self.worker_id, events=reports)
        return msgspec.json.decode(await self.ask("report", batch), type=Reported, strict=False)


ROLES: dict[str, type[Server]] = {kind.role: kind for kind in (Ingest, Meta, Compute, Worker)}

"""One seed: a cluster with its network and database, a time of trouble, and then peace until all is done."""

import gc
import logging
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec

import noetl_common.event_log
import noetl_common.loop
import services.ingest.admission
import services.ingest.append
import services.ingest.router
import services.ingest.starts
import services.ingest.store_claims
import services.ingest.works
import services.worker.loops.run_commands
from noetl_common import metrics
from noetl_common.cluster import SHARDED_ROLES
from noetl_common.core.shard import BUCKETS, snowflake
from tests.simulation import statements_at_once, statements_log, statements_owners, statements_queue, tools
from tests.simulation.connections import Server as DatabaseServer
from tests.simulation.connections import Session
from tests.simulation.database import Database
from tests.simulation.faults import Faults
from tests.simulation.invariants import Invariants
from tests.simulation.loop import Process, SimLoop
from tests.simulation.network import Network
from tests.simulation.processes import ROLES, SHARD_COUNT, START_MS, ProcessClock, Server
from tests.simulation.workload import Client, Workload, catalog, parsed

MODELS = (statements_at_once, statements_log, statements_owners, statements_queue)
TROUBLE_S = (2.0, 9.0)
LONG_TROUBLE_S = (10.0, 16.0)  # long enough for a lease to run out, and its holder to come back
PEACE_MAX_S = 200.0
LOOK_S = 0.25
ROUGH_EVERY = 4  # each so-manieth seed is a rough one: planted bugs are looked for in these
Plant = Callable[["World", ExitStack], None]


def is_patient(seed: int) -> bool:
    """Return whether a seed aims at rare points alone, which are reached by those who live for long."""
    return seed % ROUGH_EVERY == 1


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a seed. `violations` is empty when all was well; the counts are for the audit."""

    seed: int
    violations: list[str]
    events: int
    commits: int
    runs: int
    simulated_s: float
    callbacks: int
    counts: Counter[tuple[str, str]]
    reached: Counter[str]
    in_trouble: frozenset[str]  # crash points that it reached while a fault was possible
    kinds: Counter[str]
    digest: str  # of every commit: the same seed on the same code has the same


class World:
    """Everything there is in one seed."""

    def __init__(
        self, seed: int, *, points: Mapping[str, tuple[float, float]] = {}, plant: Plant | None = None
    ) -> None:
        self.seed = seed
        self.plant = plant
        self.random = random.Random(seed)
        self.loop = SimLoop(self.random)
        self.is_rough = seed % ROUGH_EVERY == ROUGH_EVERY - 1
        self.is_patient = is_patient(seed)
        self.faults = Faults(self.random, self.loop, points=points, is_rough=self.is_rough, is_patient=self.is_patient)
        self.faults.lost = self._lost
        self.network = Network(self.random, self.loop, self.faults)
        self.network.servers = lambda: [one for one in self.servers("ingest") if not one.is_stopping]
        self.database = Database(lambda: self.loop.now_s)
        self.server = DatabaseServer(self.database, self.loop, self.faults)
        self.workload = Workload.drawn(self.random)
        self.invariants = Invariants(self.database, self)
        self.effects: Counter[int] = Counter()  # {command: times its tool ran}
        self.reads: Counter[int] = Counter()  # {input: times a router read it}
        self.found_rows: dict[int, int] = {}
        self.claimed_rows: dict[int, int] = {}
        self.bugs: list[str] = []
        self._names: Counter[str] = Counter()
        self.crashes_max = self.random.choice([1, 1, 2] if self.is_patient else [1, 2, 3])
        self.has_detector = self.random.random() < 0.7
        self.takes_short_way = self.random.random() < 0.7
        self.is_calm = False
        self.is_done = False

    def name_of(self, role: str) -> str:
        """Return the name of a new process: none passes for its predecessor."""
        self._names[role] += 1
        return f"{role}-{self._names[role]}"

    def servers(self, role: str = "") -> list[Any]:
        """Return the living processes of a role, or of all."""
        return [one for one in self.loop.processes if isinstance(one, Server) and role in ("", one.role)]

    def bug(self, message: str, error: BaseException | None = None) -> None:
        """Note what nobody expected."""
        place = "".join(traceback.format_exception(error)[-3:]) if error is not None else ""
        self.violated(f"bug: {message}\n{place}".rstrip())

    def violated(self, message: str) -> None:
        """Note that something was seen that must not be."""
        self.invariants.fail(message)

    def run(self) -> Outcome:
        """Run the seed to its end."""
        seed_database(self.database)
        with simulated(self):
            least = 2 if self.is_rough else 1  # somebody who takes over
            wanted = {"ingest": self.random.randint(least, 3), "meta": self.random.randint(1, 2)}
            wanted |= {"compute": self.random.randint(1, 2), "worker": self.random.randint(least, 3)}
            for role, count in wanted.items():
                for _ in range(count):
                    ROLES[role](self)
            self.client = Client(self)
            trouble_s = self.random.uniform(*(LONG_TROUBLE_S if self.is_rough or self.is_patient else TROUBLE_S))
            self._plan_trouble(trouble_s)
            self.loop.run(deadline_s=trouble_s)
            if not self.invariants.found and not self.loop.failures:
                self._make_peace()
            if self.is_calm and not self.is_done:
                self.loop.run(deadline_s=self.loop.now_s + PEACE_MAX_S)
            self._conclude()
        return Outcome(
            seed=self.seed,
            violations=self.invariants.found,
            events=self.invariants.events,
            commits=self.invariants.commits,
            runs=len(self.database.execution.entries),
            simulated_s=self.loop.now_s,
            callbacks=self.loop.callbacks,
            counts=self.faults.counts,
            reached=self.faults.reached,
            in_trouble=frozenset(self.faults.in_trouble),
            kinds=Counter(entry.now["event_type"] for entry in self.database.event.entries.values() if entry.now),
            digest=self.invariants.digest.hexdigest()[:16],
        )

    def _conclude(self) -> None:
        for bug in self.network.bugs:
            self.violated(f"bug: {bug}")
        for failure in self.loop.failures:
            error = failure.get("exception")
            self.bug(str(failure.get("message")), error)
        if self.invariants.found:
            return
        if not self.is_done:
            self.violated(f"did not come to rest within {PEACE_MAX_S:.0f} s of peace: {self.client.waiting} unanswered")
        self.invariants.check_end()

    def _plan_trouble(self, until_s: float) -> None:
        """Draw what will happen to processes, to the bells and to the database from outside."""
        source = self.random
        troubles = (self._kill, self._kill, self._freeze, self._stop, self._silence, self._crash_database)
        for _ in range(8 if self.is_rough else source.choice([0, 1, 2, 4])):
            self.loop.after(source.uniform(0.2, until_s), source.choice(troubles))
        if source.random() < 0.1:
            self.network.is_down = True  # for the whole seed: bells are only hints

    def _kill(self) -> None:
        process = self.faults.pick(self.servers())
        if process is not None:
            self.faults.count("crash", "outside")
            self.faults.crash(process)

    def _freeze(self) -> None:
        process = self.faults.pick(self.servers())
        if process is not None:
            self.faults.count("pause", "outside")
            process.pause(self.random.uniform(1.0, 9.0))

    def _stop(self) -> None:
        process = self.faults.pick(self.servers())
        if process is not None and not process.is_stopping:
            self.faults.count("stop")
            process.ask_to_stop()

    def _silence(self) -> None:
        if not self.network.is_down:
            self.faults.count("bells down")
            self.network.is_down = True
            self.loop.after(self.random.uniform(0.5, 8.0), self._ring_again)

    def _ring_again(self) -> None:
        self.network.is_down = False

    def _crash_database(self) -> None:
        if not self.server.is_down:
            self.faults.count("database restart")
            self.server.restart(self.random.uniform(0.2, 2.0))

    def _lost(self, process: Process) -> None:
        """A process is gone: start another one in its place after a while."""
        if isinstance(process, Server):
            self.loop.after(self.random.uniform(0.1, 3.0), self._start_again, type(process))

    def _start_again(self, kind: type[Server]) -> None:
        if not self.is_done:
            kind(self)

    def _make_peace(self) -> None:
        self.is_calm = True
        self.faults.end(keeps_targets=self.is_patient)
        self.network.losses = 0.0
        for process in self.loop.processes:
            if process.is_paused:
                process.resume()
        self._look()

    def _look(self) -> None:
        self.is_done = self.client.waiting == 0 and self._is_quiet()
        if self.is_done:
            self.loop.halt()
        else:
            self.loop.after(LOOK_S, self._look)

    def _is_quiet(self) -> bool:
        database = self.database
        if any(entry.now for entry in database.queue.open.values()):
            return False
        if {id_ for (id_,) in database.execution.entries} - self.invariants.over:  # type: ignore[misc]
            return False
        for (shard_id,), entry in database.shard_head.entries.items():  # type: ignore[misc]
            head, cursor = entry.now, database.shard_cursor.entries[shard_id,].now
            position = database.projection_checkpoint.entries[shard_id,].now
            assert head is not None and cursor is not None and position is not None
            routed = shard_id << 55 | cursor["seq"] << 15 | 32767
            if head["seq"] != cursor["seq"] or (cursor["seq"] and position["last_projected_event_id"] < routed):
                return False
        return True


def seed_database(database: Database, *, shard_count: int = SHARD_COUNT) -> None:
    """Make the rows that a cluster starts with, and register the catalog."""
    rows: list[tuple[str, dict[str, Any]]] = []
    for shard_id in range(shard_count):
        rows.append(("shard_head", {"shard_id": shard_id, "seq": 0}))
        rows.append(("shard_cursor", {"shard_id": shard_id, "lease_epoch": 0, "seq": 0}))
        position = {"shard_id": shard_id, "lease_epoch": 0, "last_projected_event_id": 0, "last_projected_at": 0.0}
        rows.append(("projection_checkpoint", {**position, "lag_ms": 0}))
    leases = [(role, shard_id) for role in SHARDED_ROLES for shard_id in range(shard_count)] + [("meta", 0)]
    for role, shard_id in leases:
        row = {"role": role, "shard_id": shard_id, "owner_instance": None, "epoch": 0, "leased_until": None}
        rows.append(("execution_shard", {**row, "updated_at": 0.0}))
    for number, (path, text) in enumerate(catalog(), 1):
        row = {"catalog_id": number, "path": path, "version": 1, "kind": "Playbook", "content": text}
        rows.append(("catalog", {**row, "digest": "", "archived_at": None}))
    for name, row in rows:
        database.tables[name].plant(row)


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Have the product's code see this world: its time, its dice, its tools. Nothing of it is changed."""
    source, clock = world.random, ProcessClock()
    Session.numbers = 0

    def mint() -> int:
        return snowflake(clock.unix_ms(), node=source.randrange(BUCKETS), seq=source.randrange(4096))

    def now_text() -> str:
        return datetime.fromtimestamp(START_MS / 1000 + world.loop.now_s, UTC).isoformat(timespec="microseconds")

    tokens = SimpleNamespace(token_hex=lambda size: f"{source.getrandbits(size * 8):x}")
    patches: list[tuple[Any, str, Any]] = [
        (services.ingest.router, "parse", parsed),
        (services.ingest.router, "mint_execution_id", mint),
        (services.ingest.starts, "parse", parsed),
        (services.ingest.admission, "mint_execution_id", mint),
        (services.ingest.starts, "secrets", tokens),
        (services.ingest.starts, "utc_now_text", now_text),
        (services.ingest.append, "utc_now_text", now_text),
        (services.ingest.works, "utc_now_text", now_text),
        (services.ingest.store_claims, "mint_id", mint),
        (noetl_common.event_log, "utc_now_text", now_text),
        (noetl_common.loop, "random", source),
        (services.worker.loops.run_commands, "perform", tools.perform),
        *((metrics, verb, _no_metric) for verb in ("inc", "observe", "gauge", "forget", "clear")),
    ]
    disabled = logging.root.manager.disable
    was_collecting = gc.isenabled()
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        with ExitStack() as stack:
            for module, name, stand_in in patches:
                stack.enter_context(mock.patch.object(module, name, stand_in))
            if world.plant is not None:
                world.plant(world, stack)
            yield
            world.loop.close()
    finally:
        logging.disable(disabled)
        if was_collecting:
            gc.enable()


def _no_metric(*_args: Any, **_labels: Any) -> None:
    """Count nothing: counting costs more than much of what is counted."""

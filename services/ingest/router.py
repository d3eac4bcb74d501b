"""Route one shard: the caches between batches, and the batch itself in three marked steps."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from noetl_common import metrics, subjects
from noetl_common.bus import Bus
from noetl_common.core import route
from noetl_common.core.events import Event
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Playbook
from noetl_common.core.routing.draft import CatalogEntry, Decision, NeedPlaybook, Wanted, World
from noetl_common.core.scope import NeedPayload
from noetl_common.core.shard import event_id, seq_in, shard_in
from noetl_common.core.state import ExecutionState
from noetl_common.db import Pool, is_refused, is_retryable, lacks_partition, violates
from noetl_common.errors import Fenced, NoetlError, PlaybookError, ReferenceNotAvailable, Unavailable
from noetl_common.ids import mint_execution_id
from noetl_common.leases import Leases
from noetl_common.log import get_logger
from noetl_common.store.results import ResultStore
from noetl_common.wire import ResultRow
from services.ingest import decisions
from services.ingest.bells import STROKE_S, Bells, PoolBells
from services.ingest.decisions import Applied, Batch
from services.ingest.handover import Handover
from services.ingest.payloads import PayloadCache
from services.ingest.read_payloads import read_payloads, store_payloads

log = get_logger(__name__)
T = TypeVar("T")

BATCH_INPUTS_MAX = 500
BATCH_COMMANDS_MAX = 5_000
INPUTS_AT_A_STRETCH = 16  # between them, other requests of this process have their turn
STATES_PER_SHARD_MAX = 2_000
PLAYBOOKS_MAX = 500
LOADS_PER_INPUT_MAX = 50
LOAD_S_MAX = 2.0
LOAD_ATTEMPTS_MAX = 5
NO_EPOCH = -1  # of a shard whose memory is in doubt


class Shard(msgspec.Struct, kw_only=True):
    """What this process remembers of a shard it owns. Dropped whole on any doubt; the database has it all."""

    shard_id: int
    epoch: int
    seq: int
    inputs_max: int = BATCH_INPUTS_MAX  # halved while a poison input is searched for
    states: OrderedDict[int, ExecutionState] = msgspec.field(default_factory=OrderedDict)
    made: list[tuple[int, int]] = []  # (execution_id, ref_id) of payloads in the cache that are not committed yet


class Router:
    """Routes the shards this process owns. One call at a time a shard; different shards side by side."""

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        *,
        handover: Handover,
        payloads: PayloadCache,
        bells: PoolBells,
        bus: Bus,
        store: ResultStore,
        shard_count: int,
        env: Mapping[str, str] = {},
    ) -> None:
        self.pool = pool
        self.leases = leases
        self.handover = handover
        self.payloads = payloads
        self.bells = bells
        self.bus = bus
        self.store = store
        self.shard_count = shard_count
        self.env = env
        self._name = leases.instance.encode()  # goes along with each bell: who rings knows already
        self._shards: dict[int, Shard] = {}
        self._ringing: set[asyncio.Task[None]] = set()
        self._shard_bells = Bells()
        self._quiet_until_s = 0.0  # after a shard's bell; what rings meanwhile rings together
        self._locks: dict[int, asyncio.Lock] = {}
        self._playbooks: OrderedDict[int, Playbook] = OrderedDict()
        self._load_failures: dict[int, int] = {}  # {event id: times its payloads could not be read}

    def lock(self, shard_id: int) -> asyncio.Lock:
        """Return what whoever decides inputs of the shard holds from its first look until the commit."""
        return self._locks.setdefault(shard_id, asyncio.Lock())

    async def route_once(self, shard_id: int) -> int:
        """Route the next batch of a shard; return how many inputs, 0 when there is none or it is not ours."""
        async with self.lock(shard_id):
            return await self._route_once(shard_id)

    async def _route_once(self, shard_id: int) -> int:
        epoch = self.leases.epoch_of(shard_id)
        if epoch is None:
            self._give_up(shard_id)
            return 0
        began_s = time.monotonic()
        try:
            # 1. gather
            shard = await self._shard(shard_id, epoch)
            inputs = self.handover.take(shard_id, after_seq=shard.seq, limit=shard.inputs_max)
            if not inputs and not self.handover.is_whole(shard_id):
                inputs = await self._read_inputs(shard)
            if not inputs:
                return 0
            self._check_no_gap(shard, inputs)
            await self._read_states(shard, inputs)
            # 2. decide
            batch = await self._decide(shard, inputs)
            # 3. apply
            await self._apply(shard, batch)
        except Fenced:
            metrics.inc("noetl_fenced_writes_total", 1, role="ingest")
            log.warning("shard.fenced", shard_id=shard_id, epoch=epoch)
            self._give_up(shard_id)
            self.leases.forget(shard_id)
            return 0
        except BaseException:
            self._doubt(shard_id)
            raise
        metrics.observe("noetl_route_batch_seconds", time.monotonic() - began_s)
        return len(batch.decisions)

    def is_at_rest(self, shard_id: int) -> bool:
        """Return True when, as far as is known, all of an owned shard is routed, and nobody is at it."""
        return self._rests(shard_id) and not self.lock(shard_id).locked()

    def _rests(self, shard_id: int) -> bool:
        shard = self._shards.get(shard_id)
        is_ours = shard is not None and shard.epoch == self.leases.epoch_of(shard_id)
        return is_ours and self.handover.is_at_rest(shard_id)

    async def decide_ahead(
        self, shard_id: int, inputs: Sequence[Event], rows: Sequence[ResultRow], *, commands_max: int
    ) -> Batch | None:
        """Decide what is not in the log yet as the next inputs of a shard at rest.

        None when that takes reading, or when several issue more than `commands_max`.

        Gives them their ids. The caller holds the shard's lock until it has said what became of them: `settle` or
        `withdraw`. `rows`: the small results that they name.
        """
        if not self._rests(shard_id):
            return None
        shard = self._shards[shard_id]
        batch = Batch(shard_id=shard_id, epoch=shard.epoch, old_seq=shard.seq, new_seq=shard.seq, decisions=[])
        for row in rows:
            self.payloads.put_row(row)
            shard.made.append((row.execution_id, row.ref_id))
        states: dict[int, ExecutionState] = {}
        commands = 0
        for number, event in enumerate(inputs):
            if number % INPUTS_AT_A_STRETCH == INPUTS_AT_A_STRETCH - 1:
                await asyncio.sleep(0)  # as in `_decide`
            batch.new_seq += 1
            event.event_id = event_id(shard_id, batch.new_seq)
            decision = self._decided_ahead(shard, states, event)
            if decision is None:
                return None
            commands += len(decision.commands)
            if batch.decisions and commands > commands_max:
                return None
            states[event.execution_id] = decision.state
            self._keep_made(shard, decision)
            batch.decisions.append(decision)
        return batch

    def _decided_ahead(self, shard: Shard, states: Mapping[int, ExecutionState], event: Event) -> Decision | None:
        state = states.get(event.execution_id) or shard.states.get(event.execution_id)
        if event.event_type == "playbook.started":
            state = ExecutionState(execution_id=event.execution_id)
        playbook = self._playbooks.get(event.catalog_id or (state.catalog_id if state else 0))
        if state is None or state.is_terminal or playbook is None:
            return None
        event.catalog_id = event.catalog_id or state.catalog_id
        event.parent_execution_id = event.parent_execution_id or state.parent_execution_id
        world = self._world({})
        try:
            decision = route.decide(playbook, state, event, world=world)
        except Exception:
            return None  # something is to be read first, or it is poison: routing it the long way shows which
        reaches_out = decision.children or decision.inputs or decision.cancels_commands
        is_large = any(payload.ref.tier != "db" for payload in decision.payloads)  # no shard waits for another's store
        return None if reaches_out or is_large or decision.state.group is not None else decision

    async def settle(self, batch: Batch) -> None:
        """Remember decisions that were made ahead and are committed now."""
        shard = self._shards[batch.shard_id]
        shard.states.update({decision.state.execution_id: decision.state for decision in batch.decisions})
        await self._committed(shard, batch, Applied())

    def withdraw(self, shard_id: int, *, in_doubt: bool = False) -> None:
        """Let go of decisions that were made ahead and not committed; `in_doubt`: or perhaps they were."""
        if in_doubt:
            self._doubt(shard_id)
            self.handover.wake(shard_id)
        elif (shard := self._shards.get(shard_id)) is not None:
            self._forget_made(shard)

    async def _shard(self, shard_id: int, epoch: int) -> Shard:
        shard = self._shards.get(shard_id)
        if shard is None or shard.epoch != epoch:
            seq, waiting = await decisions.read_cursor(self.pool, shard_id, epoch=epoch)
            self.leases.recoveries.begin(shard_id, epoch=epoch, waiting=waiting)
            inputs_max = shard.inputs_max if shard is not None else BATCH_INPUTS_MAX
            self.handover.forget(shard_id)  # of an ownership before this one
            shard = self._shards[shard_id] = Shard(shard_id=shard_id, epoch=epoch, seq=seq, inputs_max=inputs_max)
        return shard

    async def _read_inputs(self, shard: Shard) -> list[Event]:
        """Read what follows from the log; once that was all, only what is handed over follows, until a bell rings."""
        limit = shard.inputs_max
        self.handover.set_whole(shard.shard_id, True)
        try:
            inputs = await decisions.read_inputs(self.pool, shard.shard_id, after_seq=shard.seq, limit=limit)
        except BaseException:
            self.handover.set_whole(shard.shard_id, False)
            raise
        if len(inputs) == limit:
            self.handover.set_whole(shard.shard_id, False)
        return inputs

    def _doubt(self, shard_id: int) -> None:
        """Forget all but the batch size: a cache that is ahead of the database would corrupt a loop."""
        shard = self._shards.get(shard_id)
        self._drop(shard_id)
        if shard is not None:
            self._shards[shard_id] = Shard(shard_id=shard_id, epoch=NO_EPOCH, seq=0, inputs_max=shard.inputs_max)

    def _give_up(self, shard_id: int) -> None:
        """Forget a shard that is not ours."""
        self._drop(shard_id)
        for input_id in [input_id for input_id in self._load_failures if shard_in(input_id) == shard_id]:
            del self._load_failures[input_id]

    def _drop(self, shard_id: int) -> None:
        shard = self._shards.pop(shard_id, None)
        if shard is not None:
            self._forget_made(shard)
            self.handover.forget(shard_id)

    def _keep_made(self, shard: Shard, decision: Decision) -> None:
        for payload in decision.payloads:
            place = (payload.ref.execution_id, payload.ref.ref_id)
            self.payloads.put(*place, payload.value, size_bytes=payload.ref.bytes)
            shard.made.append(place)

    def _forget_made(self, shard: Shard) -> None:
        """Let go of payloads of decisions that came to nothing: decided again, the same names may hold other values."""
        for execution_id, ref_id in shard.made:
            self.payloads.forget(execution_id, ref_id)
        shard.made = []

    def _check_no_gap(self, shard: Shard, inputs: list[Event]) -> None:
        first, last = seq_in(inputs[0].event_id), seq_in(inputs[-1].event_id)
        assert first == shard.seq + 1 and last == shard.seq + len(inputs), (
            f"shard {shard.shard_id}: expected {len(inputs)} inputs from {shard.seq + 1} on, found {first} to {last}"
        )

    async def _read_states(self, shard: Shard, inputs: list[Event]) -> None:
        wanted = {event.execution_id for event in inputs}
        missing = wanted - shard.states.keys()
        # A start is the first event of its execution: there is nothing to read.
        missing -= {event.execution_id for event in inputs if event.event_type == "playbook.started"}
        if missing:
            shard.states.update(await decisions.read_states(self.pool, missing))
        for execution_id in wanted:
            shard.states.setdefault(execution_id, ExecutionState(execution_id=execution_id))
            shard.states.move_to_end(execution_id)

    async def _decide(self, shard: Shard, inputs: list[Event]) -> Batch:
        batch = Batch(shard_id=shard.shard_id, epoch=shard.epoch, old_seq=shard.seq, new_seq=shard.seq, decisions=[])
        commands = 0
        for number, event in enumerate(inputs):
            if number % INPUTS_AT_A_STRETCH == INPUTS_AT_A_STRETCH - 1:
                await asyncio.sleep(0)  # deciding is pure computing: who asks for a status must not wait for a batch
            if commands >= BATCH_COMMANDS_MAX:
                self.handover.put_back(shard.shard_id, inputs[number:])
                break
            try:
                decision = await self._decide_one(shard, event)
            except Exception as error:
                if not batch.decisions or not is_retryable(error):
                    raise
                self.handover.put_back(shard.shard_id, inputs[number:])  # what came before it goes first
                break
            self._load_failures.pop(event.event_id, None)
            shard.states[event.execution_id] = decision.state
            self._keep_made(shard, decision)
            commands += len(decision.commands)
            batch.decisions.append(decision)
            batch.new_seq = seq_in(event.event_id)
        return batch

    async def _decide_one(self, shard: Shard, event: Event) -> Decision:
        state = shard.states[event.execution_id]
        playbooks: dict[Wanted, CatalogEntry | tuple[int, ...]] = {}
        world = self._world(playbooks)
        playbook: Playbook | None = None
        try:
            playbook = await self._playbook(event.catalog_id or state.catalog_id)
            for _ in range(LOADS_PER_INPUT_MAX):
                try:
                    return route.decide(playbook, state, event, world=world)
                except NeedPayload as need:
                    await self._load(event, need)
                except NeedPlaybook as need:
                    playbooks[need.wanted] = await self._registered(*need.wanted)
            raise ReferenceNotAvailable(f"a decision named more than {LOADS_PER_INPUT_MAX} payloads, one after another")
        except Exception as error:
            if is_retryable(error):
                raise
            # Only the pure decision, or a payload that stays away, gets here: this input can never be routed.
            log.exception("input.poison", execution_id=event.execution_id, event_id=event.event_id)
            metrics.inc("noetl_poison_inputs_total")
            return route.fail(playbook, state, event, world=world, message=_reason(event, error))

    def _world(self, playbooks: Mapping[Wanted, CatalogEntry | tuple[int, ...]]) -> World:
        return World(
            load=self.payloads.load,
            playbooks=playbooks,
            fresh_ids=_fresh_ids(),
            tiers=self.store.rule,
            env=self.env,
        )

    async def _load(self, event: Event, need: NeedPayload) -> None:
        """Read what a decision needs. A store that is away is asked again a few times, then the execution fails."""
        needs = {(ref.execution_id, ref.ref_id, key): (ref, key) for ref, key in need.needs}
        try:
            async with asyncio.timeout(LOAD_S_MAX):
                await read_payloads(self.pool, self.store, cache=self.payloads, needs=list(needs.values()))
        except (TimeoutError, ReferenceNotAvailable) as error:
            failures = self._load_failures.get(event.event_id, 0) + 1
            self._load_failures[event.event_id] = failures
            if failures < LOAD_ATTEMPTS_MAX:
                raise Unavailable(f"event {event.event_id}: a payload cannot be read yet: {error}") from error
            raise ReferenceNotAvailable(f"a payload could not be read in {failures} attempts: {error}") from error

    async def _playbook(self, catalog_id: int) -> Playbook:
        playbook = self._playbooks.get(catalog_id)
        if playbook is None:
            row = await decisions.read_playbook(self.pool, catalog_id)
            if row is None:
                raise PlaybookError([{"message": f"catalog entry {catalog_id} does not exist"}])
            playbook = self._keep(row.catalog_id, parse(row.content)[0])
        self._playbooks.move_to_end(catalog_id)
        return playbook

    async def _registered(self, path: str, version: int | None) -> CatalogEntry | tuple[int, ...]:
        """Return a playbook of the catalog, or the newest versions that there are instead of it."""
        row = await decisions.read_registered_playbook(self.pool, path, version)
        if row is None:
            return await decisions.list_playbook_versions(self.pool, path) if version else ()
        playbook = self._playbooks.get(row.catalog_id) or self._keep(row.catalog_id, parse(row.content)[0])
        return CatalogEntry(catalog_id=row.catalog_id, version=row.version, playbook=playbook)

    def _keep(self, catalog_id: int, playbook: Playbook) -> Playbook:
        self._playbooks[catalog_id] = playbook
        while len(self._playbooks) > PLAYBOOKS_MAX:
            self._playbooks.popitem(last=False)
        return playbook

    async def _apply(self, shard: Shard, batch: Batch) -> None:
        batch.payload_rows = await store_payloads(self.store, batch.decisions)
        try:
            applied = await decisions.apply(self.pool, batch, shard_count=self.shard_count)
        except Exception as error:
            if violates(error, "execution_pkey"):
                raise Unavailable("a fresh execution id is taken: the next try has another") from error
            if lacks_partition(error):
                raise Unavailable("no partition for a fresh execution id: expected one made ahead by meta") from error
            if not is_refused(error):
                raise
            # Some decision of the batch holds what Postgres refuses. Halve until it stands alone, then fail it.
            log.warning("batch.refused", shard_id=shard.shard_id, inputs=len(batch.decisions), error=error)
            if len(batch.decisions) > 1:
                shard.inputs_max = max(1, len(batch.decisions) // 2)
                raise Unavailable(f"shard {shard.shard_id}: a batch was refused; looking for the input") from error
            applied = await self._fail_alone(shard, batch, error)
        shard.inputs_max = min(BATCH_INPUTS_MAX, shard.inputs_max * 2)
        await self._committed(shard, batch, applied)

    async def _committed(self, shard: Shard, batch: Batch, applied: Applied) -> None:
        shard.seq = batch.new_seq
        shard.made = []  # they are stored now
        self._forget_ended(shard, batch)
        if any(decision.timers for decision in batch.decisions):
            self.leases.changed.set()  # the watcher sleeps until the next timer that it knew of
        for pool, delay_s in {(c.pool, c.delay_s) for d in batch.decisions for c in d.commands if c.delay_s}:
            self.bells.ring_later(pool, delay_s, partial(self._soon, self.ring_pools, [pool]))
        self.leases.recoveries.advance(shard.shard_id, len(batch.decisions))
        _count(batch)
        await self._ring(shard.shard_id, applied)

    async def _fail_alone(self, shard: Shard, batch: Batch, error: Exception) -> Applied:
        execution_id = batch.decisions[0].state.execution_id
        states = await decisions.read_states(self.pool, [execution_id])
        state = states.get(execution_id, ExecutionState(execution_id=execution_id))
        (event,) = await decisions.read_inputs(self.pool, shard.shard_id, after_seq=batch.old_seq, limit=1)
        world = self._world({})
        decision = route.fail(None, state, event, world=world, message=_reason(event, error))
        batch.decisions, batch.payload_rows = [decision], []
        self._forget_made(shard)
        shard.states[execution_id] = decision.state
        return await decisions.apply(self.pool, batch, shard_count=self.shard_count)

    def _forget_ended(self, shard: Shard, batch: Batch) -> None:
        ended = {d.state.execution_id for d in batch.decisions if d.state.is_terminal}
        for execution_id in ended:
            shard.states.pop(execution_id, None)
        while len(shard.states) > STATES_PER_SHARD_MAX:
            shard.states.popitem(last=False)

    async def _ring(self, shard_id: int, applied: Applied) -> None:
        """Wake who has work now. Only hints: a lost one costs a poll interval."""
        for other, events in applied.inputs.items():
            if self.leases.epoch_of(other) is not None:
                self.handover.offer(other, events)
            else:
                await self.bus.publish(subjects.shard_bell(other))
        await self.ring_pools(applied.pools)
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + STROKE_S
            await self._ring_shard(shard_id)
        else:  # a bell costs the projection as much as a few events do
            self._shard_bells.ring_later(str(shard_id), 0.0, partial(self._soon, self._ring_shard, shard_id))

    async def _ring_shard(self, shard_id: int) -> None:
        await self.bus.publish(subjects.shard_bell(shard_id), self._name)

    def _soon(self, ring: Callable[[T], Coroutine[None, None, None]], what: T) -> None:
        ringing = asyncio.create_task(ring(what))
        self._ringing.add(ringing)
        ringing.add_done_callback(self._ringing.discard)

    async def ring_pools(self, pools: Iterable[str]) -> None:
        """Wake the workers of these pools. Only a hint, as above."""
        for pool in sorted(pools):
            self.bells.ring(pool)
            await self.bus.publish(subjects.commands_bell(pool), self._name)


def _count(batch: Batch) -> None:
    metrics.observe("noetl_route_batch_events", len(batch.decisions))
    drawn = Counter(event.event_type for decision in batch.decisions for event in decision.events)
    for event_type, count in drawn.items():
        metrics.inc("noetl_route_consequences_total", count, event_type=event_type)
        if event_type.startswith("playbook."):
            metrics.inc("noetl_executions_ended_total", count, status=event_type.removeprefix("playbook."))


def _fresh_ids() -> Iterator[int]:
    while True:
        yield mint_execution_id()


def _reason(event: Event, error: Exception) -> str:
    kind = "" if isinstance(error, NoetlError) else f"{type(error).__name__}: "
    return f"{event.event_type} of step {event.step!r}: {kind}{error}"

"""Project the routed part of the log into the read models: one fenced transaction for all shards that are behind."""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from noetl_common import metrics
from noetl_common.bus import Bus
from noetl_common.clock import Clock
from noetl_common.core.events import Event
from noetl_common.core.fold import fold
from noetl_common.core.progress import park, project
from noetl_common.core.shard import seq_in, shard_in
from noetl_common.core.state import TERMINAL
from noetl_common.db import Conn, Pool, single, transaction
from noetl_common.errors import Fenced
from noetl_common.leases import Leases
from noetl_common.log import get_logger
from noetl_common.loop import is_expected
from noetl_common.subjects import projected_bell
from services.compute import store
from services.compute.store import Move, Position, Run

log = get_logger(__name__)


class Runs:
    """The executions under way that this process projected last; a shard's are dropped when a batch of it fails."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._runs: OrderedDict[int, Run] = OrderedDict()
        self._positions: dict[int, tuple[int, int]] = {}
        self._shards: defaultdict[int, set[int]] = defaultdict(set)

    def align(self, position: Position, epoch: int) -> None:
        """Forget a shard's executions unless they stand exactly where the shard does."""
        if self._positions.get(position.shard_id) != (epoch, position.projected):
            self.forget(position.shard_id)

    def take(self, executions: Collection[int]) -> dict[int, Run]:
        """Return the executions known, and give them up: folding changes them."""
        return {id_: self._drop(id_) for id_ in executions if id_ in self._runs}

    def keep(self, move: Move, runs: Iterable[Run]) -> None:
        """Keep a shard's executions as of a committed position; the longest unused make room."""
        self._positions[move.shard_id] = (move.epoch, move.new)
        for run in runs:
            if run.progress.status not in TERMINAL:  # hardly anything follows, and then it is read again
                self._runs[run.state.execution_id] = run
                self._shards[move.shard_id].add(run.state.execution_id)
        while len(self._runs) > self._size_max:
            self._drop(next(iter(self._runs)))

    def forget(self, shard_id: int) -> None:
        """Drop a shard's executions."""
        self._positions.pop(shard_id, None)
        for execution_id in self._shards.pop(shard_id, set()):
            del self._runs[execution_id]

    def _drop(self, execution_id: int) -> Run:
        run = self._runs.pop(execution_id)
        self._shards[shard_in(run.last_event_id)].discard(execution_id)
        return run


class Projector(msgspec.Struct, kw_only=True):
    """What projecting works with. `is_behind`: the last batch left something that can be projected at once."""

    pool: Pool
    bus: Bus
    leases: Leases
    clock: Clock
    runs: Runs
    batch_events_max: int = 500
    is_behind: bool = False


async def project_shards_once(projector: Projector) -> int:
    """Project one batch of all owned shards that are behind; return how many events."""
    projector.is_behind = False
    epochs = projector.leases.owned()
    if not epochs:
        return 0
    positions = await store.read_positions(projector.pool, epochs)
    for position in positions:
        metrics.gauge("noetl_projection_lag_seconds", position.lag_s or 0.0, shard=position.shard_id)
        waiting = max(0, position.routed_seq - seq_in(position.projected))
        projector.leases.recoveries.begin(position.shard_id, epoch=epochs[position.shard_id], waiting=waiting)
    owned = projector.leases.owned()
    behind = [one for one in positions if one.is_behind and one.shard_id in owned]
    if not behind:
        return 0
    with ExitStack() as at_work:
        for position in behind:
            at_work.enter_context(projector.leases.at_work(position.shard_id))
        return await _project(projector, behind, epochs)


async def _project(projector: Projector, positions: Sequence[Position], epochs: Mapping[int, int]) -> int:
    """Project one batch of some shards, whatever stands in it; return how many events."""
    try:
        return await project_shards(projector, positions, epochs)
    except Exception as error:
        if is_expected(error):
            raise
        # A run that cannot be read or saved: the other shards, and the other runs of its own, must not wait for it.
        log.exception("projection.apart", shards=[one.shard_id for one in positions])
    if len(positions) == 1:
        return await project_apart(projector, positions[0], epochs[positions[0].shard_id])
    return sum([await _project(projector, [position], epochs) for position in positions])


async def project_shards(projector: Projector, positions: Sequence[Position], epochs: Mapping[int, int]) -> int:
    """Project the next events of some shards, as many of each, in one transaction; return how many.

    A shard that has another owner or another position by now is left out and forgotten. What is read is bounded: so
    many events, of so many runs at most, and an event by the log itself.
    """
    started_s, runs = projector.clock.monotonic_s(), projector.runs
    limit = max(1, projector.batch_events_max // len(positions))
    for position in positions:
        runs.align(position, epochs[position.shard_id])
    try:
        # 1. gather
        events = await store.read_events(projector.pool, positions, limit=limit)
        touched = await _gather_runs(projector, [event for of_shard in events.values() for event in of_shard])
        # 2. decide
        for of_shard in events.values():
            for event in of_shard:
                project_event(touched[event.execution_id], event)
        moves = [_move(one, epochs[one.shard_id], events[one.shard_id], limit=limit) for one in positions]
        # 3. apply
        async with single(projector.pool) as conn:
            moved = await store.save_projection(conn, moves, list(touched.values()))
    except BaseException:
        for position in positions:
            runs.forget(position.shard_id)  # what was folded may not be what was committed
        raise
    by_shard: defaultdict[int, list[Run]] = defaultdict(list)
    for run in touched.values():
        by_shard[shard_in(run.last_event_id)].append(run)
    projected = 0
    for move in moves:
        if move.shard_id not in moved:
            _lose(projector, move)
            continue
        runs.keep(move, by_shard[move.shard_id])
        count = len(events[move.shard_id])
        projector.is_behind |= count == limit
        projected += count
        await _tell(projector, move)
    metrics.observe("noetl_projection_batch_size", projected)
    metrics.observe("noetl_projection_batch_seconds", projector.clock.monotonic_s() - started_s)
    return projected


async def _gather_runs(projector: Projector, events: Sequence[Event]) -> dict[int, Run]:
    """Return {execution: its state so far}. One whose first event is among these has none, and is not asked for."""
    executions = {event.execution_id for event in events}
    touched = projector.runs.take(executions)
    for event in events:
        if event.event_type == "playbook.started" and event.execution_id not in touched:
            touched[event.execution_id] = store.new_run(event.execution_id)
    if missing := executions - touched.keys():
        touched |= await store.read_runs(projector.pool, missing)
    return touched


def _move(position: Position, epoch: int, events: Sequence[Event], *, limit: int) -> Move:
    # Less than the limit is all that is routed: nothing can come to stand before the routed position.
    new = events[-1].event_id if len(events) == limit else position.routed
    return Move(shard_id=position.shard_id, epoch=epoch, old=position.projected, new=new)


def _lose(projector: Projector, move: Move) -> None:
    """Forget a shard that another owner moves."""
    projector.runs.forget(move.shard_id)
    projector.leases.forget(move.shard_id)
    metrics.inc("noetl_fenced_writes_total", 1, role="compute")
    log.warning("shard.fenced", shard_id=move.shard_id, error=Fenced(move.shard_id, move.epoch))


async def _tell(projector: Projector, move: Move) -> None:
    projector.leases.recoveries.advance(move.shard_id, seq_in(move.new) - seq_in(move.old))
    await projector.bus.publish(projected_bell(move.shard_id))


async def project_apart(projector: Projector, position: Position, epoch: int) -> int:
    """Project a batch of one shard run by run: one that cannot be read or saved is parked, and its shard goes on.

    Errors: what a whole loop waits out passes through.
    """
    pool, limit = projector.pool, projector.batch_events_max
    events = (await store.read_events(pool, [position], limit=limit))[position.shard_id]
    by_run: defaultdict[int, list[Event]] = defaultdict(list)
    for event in events:
        by_run[event.execution_id].append(event)
    move = _move(position, epoch, events, limit=limit)
    async with transaction(pool) as conn:
        if not await store.save_projection(conn, [move], []):
            _lose(projector, move)
            return 0
        stay = msgspec.structs.replace(move, old=move.new)
        for execution_id, own in by_run.items():
            try:
                run = (await store.read_runs(pool, [execution_id]))[execution_id]
                for event in own:
                    project_event(run, event)
                await _save_apart(conn, stay, run)
            except Exception as error:
                if is_expected(error):
                    raise
                metrics.inc("noetl_projection_errors_total", 1, event_type=own[0].event_type)
                log.exception("projection.parked", execution_id=execution_id)
                await _save_apart(conn, stay, _parked(execution_id, own, f"{type(error).__name__}: {error}"))
    projector.is_behind |= len(events) == limit
    await _tell(projector, move)
    return len(events)


async def _save_apart(conn: Conn, stay: Move, run: Run) -> None:
    async with conn.transaction():  # a savepoint: what one run's rows break is undone alone
        await store.save_projection(conn, [stay], [run])


def _parked(execution_id: int, events: Sequence[Event], message: str) -> Run:
    """Return a run of which nothing can be shown but why, and its end."""
    run = store.new_run(execution_id)
    for event in events:
        run.progress, run.last_event_id = park(run.progress, event, message), event.event_id
    return run


def project_event(run: Run, event: Event) -> None:
    """Bring one execution up to `event`. One that cannot be read parks its execution, never its shard."""
    if event.event_id <= run.last_event_id:
        return
    try:
        if run.progress.projection_error is None:
            run.state = fold(run.state, event)
            run.progress = project(run.progress, event, run.state)
        else:
            run.progress = park(run.progress, event, "")
    except Exception as error:  # whatever one event raises must not stop the other executions of the shard
        message = f"{type(error).__name__}: {error}"
        run.progress = park(run.progress, event, message)
        metrics.inc("noetl_projection_errors_total", 1, event_type=event.event_type)
        log.exception("projection.parked", execution_id=event.execution_id, event_id=event.event_id)
    run.last_event_id = event.event_id

"""Project the routed part of the log, shard by shard, into the read models; one fenced transaction a batch."""

from collections import OrderedDict
from collections.abc import Collection, Sequence

import msgspec

from noetl_common import metrics
from noetl_common.bus import Bus
from noetl_common.clock import Clock
from noetl_common.core.events import Event
from noetl_common.core.fold import fold
from noetl_common.core.progress import Progress, park, project
from noetl_common.core.shard import seq_in
from noetl_common.core.state import ExecutionState
from noetl_common.db import Conn, Pool, transaction
from noetl_common.errors import Fenced
from noetl_common.leases import Leases
from noetl_common.log import get_logger
from noetl_common.loop import is_expected
from noetl_common.subjects import projected_bell
from services.compute import store
from services.compute.store import Position, Run

log = get_logger(__name__)


class Runs:
    """The executions this process projected last, by shard; a shard's are dropped whenever a batch of it fails."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._runs: OrderedDict[int, Run] = OrderedDict()
        self._positions: dict[int, tuple[int, int]] = {}
        self._shards: dict[int, set[int]] = {}

    def align(self, position: Position, epoch: int) -> None:
        """Forget a shard's executions unless they stand exactly where the shard does."""
        if self._positions.get(position.shard_id) != (epoch, position.projected):
            self.forget(position.shard_id)

    def take(self, shard_id: int, executions: Collection[int]) -> dict[int, Run]:
        """Return the executions known, and give them up: folding changes them."""
        known = self._shards.get(shard_id, set())
        taken = {id_: self._runs.pop(id_) for id_ in executions if id_ in known}
        known.difference_update(taken)
        return taken

    def keep(self, shard_id: int, *, epoch: int, projected: int, runs: dict[int, Run]) -> None:
        """Keep executions as of a committed position; the longest unused make room."""
        self._positions[shard_id] = (epoch, projected)
        self._shards.setdefault(shard_id, set()).update(runs)
        self._runs.update(runs)
        while len(self._runs) > self._size_max:
            oldest, _ = self._runs.popitem(last=False)
            for known in self._shards.values():
                known.discard(oldest)

    def forget(self, shard_id: int) -> None:
        """Drop a shard's executions."""
        self._positions.pop(shard_id, None)
        for execution_id in self._shards.pop(shard_id, set()):
            self._runs.pop(execution_id, None)


class Projector(msgspec.Struct, kw_only=True):
    """What projecting works with."""

    pool: Pool
    bus: Bus
    leases: Leases
    clock: Clock
    runs: Runs
    batch_events_max: int = 500


async def project_shards_once(projector: Projector) -> int:
    """Project one batch of each owned shard that is behind; return how many events."""
    owned = projector.leases.owned()
    if not owned:
        return 0
    projected = 0
    for position in await store.read_positions(projector.pool, owned):
        shard_id, epoch = position.shard_id, owned[position.shard_id]
        metrics.gauge("noetl_projection_lag_seconds", position.lag_s or 0.0, shard=shard_id)
        behind = max(0, position.routed_seq - seq_in(position.projected))
        projector.leases.recoveries.begin(shard_id, epoch=epoch, waiting=behind)
        if position.projected >= position.routed or shard_id not in projector.leases.owned():
            continue
        with projector.leases.at_work(shard_id):
            projected += await _project(projector, position, epoch)
    return projected


async def _project(projector: Projector, position: Position, epoch: int) -> int:
    """Project one batch of a shard, whatever stands in it; return how many events."""
    try:
        return await project_shard(projector, position, epoch)
    except Fenced as fenced:
        projector.leases.forget(position.shard_id)
        metrics.inc("noetl_fenced_writes_total", 1, role="compute")
        log.warning("shard.fenced", shard_id=position.shard_id, error=fenced)
        return 0
    except Exception as error:
        if is_expected(error):
            raise
        # A run that cannot be read or saved: the shard's others must not wait for it.
        log.exception("projection.apart", shard_id=position.shard_id)
        return await project_apart(projector, position, epoch)


async def project_apart(projector: Projector, position: Position, epoch: int) -> int:
    """Project a batch of one shard run by run: one that cannot be read or saved is parked, and its shard goes on.

    Errors: Fenced as for a whole batch; what a whole loop waits out passes through.
    """
    pool = projector.pool
    events = await store.read_events(pool, position, projector.batch_events_max)
    by_run: dict[int, list[Event]] = {}
    for event in events:
        by_run.setdefault(event.execution_id, []).append(event)
    new = events[-1].event_id if len(events) == projector.batch_events_max else position.routed
    async with transaction(pool) as conn:
        if not await store.advance(conn, position, epoch=epoch, new=new):
            raise Fenced(position.shard_id, epoch)
        for execution_id, own in by_run.items():
            try:
                run = (await store.read_runs(pool, [execution_id]))[execution_id]
                for event in own:
                    project_event(run, event)
                await _save_apart(conn, run)
            except Exception as error:
                if is_expected(error):
                    raise
                metrics.inc("noetl_projection_errors_total", 1, event_type=own[0].event_type)
                log.exception("projection.parked", execution_id=execution_id)
                await _save_apart(conn, _parked(execution_id, own, f"{type(error).__name__}: {error}"))
    _note_progress(projector, position, new)
    await projector.bus.publish(projected_bell(position.shard_id))
    return len(events)


async def _save_apart(conn: Conn, run: Run) -> None:
    async with conn.transaction():  # a savepoint: what one run's rows break is undone alone
        await store.save_runs(conn, [run])


def _parked(execution_id: int, events: Sequence[Event], message: str) -> Run:
    """Return a run of which nothing can be shown but why, and its end."""
    run = Run(state=ExecutionState(execution_id=execution_id), progress=Progress())
    for event in events:
        run.progress, run.last_event_id = park(run.progress, event, message), event.event_id
    return run


async def project_shard(projector: Projector, position: Position, epoch: int) -> int:
    """Project one batch of one shard; return how many events.

    Errors: Fenced when the shard has another owner or another position by now: nothing was written.
    """
    started_s = projector.clock.monotonic_s()
    shard_id, runs = position.shard_id, projector.runs
    runs.align(position, epoch)
    try:
        # 1. gather
        events = await store.read_events(projector.pool, position, projector.batch_events_max)
        executions = {event.execution_id for event in events}
        touched = runs.take(shard_id, executions)
        if missing := executions - touched.keys():
            touched |= await store.read_runs(projector.pool, missing)
        # 2. decide
        for event in events:
            project_event(touched[event.execution_id], event)
        # A batch that is not full holds all that is routed: nothing can come to stand before the routed position.
        new = events[-1].event_id if len(events) == projector.batch_events_max else position.routed
        # 3. apply
        await store.save_batch(projector.pool, position, list(touched.values()), epoch=epoch, new=new)
    except BaseException:
        runs.forget(shard_id)  # what was folded may not be what was committed
        raise
    runs.keep(shard_id, epoch=epoch, projected=new, runs=touched)
    _note_progress(projector, position, new)
    metrics.observe("noetl_projection_batch_size", len(events))
    metrics.observe("noetl_projection_batch_seconds", projector.clock.monotonic_s() - started_s)
    await projector.bus.publish(projected_bell(shard_id))
    return len(events)


def _note_progress(projector: Projector, position: Position, new: int) -> None:
    projector.leases.recoveries.advance(position.shard_id, seq_in(new) - seq_in(position.projected))


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

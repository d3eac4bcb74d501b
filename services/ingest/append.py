"""Append by group commit: one flusher a shard takes what has queued up and commits it in one transaction.

A lone input commits at once; under load the batches form by themselves while the last one commits.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from noetl_common import metrics
from noetl_common.clock import Clock, SystemClock
from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import shard_of
from noetl_common.db import Pool, is_poison, is_retryable, lacks_partition, utc_now_text
from noetl_common.errors import Invalid, Overloaded, Unavailable
from noetl_common.log import get_logger
from noetl_common.loop import back_off_s
from noetl_common.subjects import shard_bell
from noetl_common.wire import Outcome, Report, ResultRow
from services.ingest import store
from services.ingest.works import PARTIAL, Start, Work, entry_of, take, work_of_event, work_of_report, work_of_start

log = get_logger(__name__)

QUEUE_INPUTS_MAX = 5_000  # per shard; beyond it callers are told to come back
QUEUE_BEFORE_STARTS_MAX = 1_000  # per shard; beyond it starts are: the rest of the queue is for what finishes work
CALLER_WAIT_MAX_S = 30.0
RETRY_PAUSE_S = 0.02
CLOSE_S = 5.0
SHORT_WAY_SHARDS_MAX = 64  # in one commit


class Owners(Protocol):
    """Which shards are routed by this process (noetl_common.leases.Leases)."""

    def epoch_of(self, shard_id: int) -> int | None:
        """Return the epoch under which it is, None when it is not."""


class Handing(Protocol):
    """Where committed inputs of owned shards go (services.ingest.handover.Handover)."""

    def offer(self, shard_id: int, events: list[Event], rows: list[ResultRow]) -> None:
        """Take numbered events and the small results they name."""

    def wake(self, shard_id: int) -> None:
        """Have the shard's router look at the log."""


class Ringing(Protocol):
    """Who is told of inputs of shards that others route (noetl_common.bus.Bus)."""

    async def publish(self, subject: str, payload: bytes = b"") -> None:
        """Send, best effort."""


class ShortWay(Protocol):
    """What decides inputs before they are appended, and commits both together (services.ingest.at_once.AtOnce)."""

    def takes(self, shard_id: int, works: Collection[Work]) -> bool:
        """Return True when these, all that waits for the shard, may go the short way now."""

    async def may_take(self, shard_id: int, works: Collection[Work]) -> bool:
        """As `takes`, but where only what is not routed yet stands in the way, that is routed first."""

    async def commit(self, parts: Mapping[int, list[Work]]) -> dict[int, list[store.Written]]:
        """Return what became of the works of each shard; a shard that is missing has to go the long way."""


class Appender:
    """The append path of one process. Inputs of one shard commit in the order they were given.

    What comes for shards that this process routes, a little at a time, goes the short way, which one task looks after
    for all of them. All else goes the long way: a flusher a shard, and the router behind it.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        shard_count: int,
        handover: Handing,
        leases: Owners,
        bus: Ringing,
        clock: Clock | None = None,
        short_way: ShortWay | None = None,
    ) -> None:
        self._pool = pool
        self._shard_count = shard_count
        self._handover = handover
        self._leases = leases
        self._bus = bus
        self._clock = clock or SystemClock()
        self._queues: dict[int, deque[Work]] = {}
        self._flushers: dict[int, asyncio.Task[None]] = {}
        self._short_way = short_way
        self._short: dict[int, None] = {}  # shards with work that waits to go the short way, in order
        self._under_way: frozenset[int] = frozenset()  # shards whose work is going it
        self._short_task: asyncio.Task[None] | None = None
        self._closed = False

    async def report(self, worker_id: str, reports: Sequence[Report]) -> list[tuple[int, Outcome]]:
        """Finish commands and append their reports; return (event id, outcome) of each, in order.

        A chunk finishes nothing: it is taken while the claim that it comes from is the current one.
        Errors: Unavailable when the queue is full or Postgres has not answered within 30 s; Invalid for an input
        that the log refuses even in its degraded form.
        """
        works = [work_of_report(worker_id, report) for report in reports]
        return await self._submit(works)

    async def append(self, events: Sequence[Event], *, rows: Sequence[ResultRow] = ()) -> list[int]:
        """Append inputs that finish no command; return their ids, 0 = it stood there already or has no execution.

        `rows`: results that the first of them names, written with it. Errors: as `report`.
        """
        works = [work_of_event(event) for event in events]
        if rows:
            works[0].rows = list(rows)
        return [event_id for event_id, _outcome in await self._submit(works)]

    async def start(self, start: Start) -> int:
        """Create the execution and append its first input in one transaction; return the input's id, 0 = id taken.

        Errors: as `report`; Overloaded while too much waits for the shard.
        """
        [found] = await self.start_many([start])
        if isinstance(found, BaseException):
            raise found
        return found

    async def start_many(self, starts: Sequence[Start]) -> list[int | BaseException]:
        """Start executions, those of a shard in one transaction; return what `start` returns or raises, for each."""
        works = [work_of_start(start) for start in starts]
        for part in self._by_shard(works).values():
            try:
                self._enqueue(part, waiting_max=QUEUE_BEFORE_STARTS_MAX, refusal=Overloaded)
            except Unavailable as refused:
                for work in part:
                    work.done.set_exception(refused)
        answers = await self._settled(works)
        return [answer if isinstance(answer, BaseException) else answer[0] for answer in answers]

    async def close(self) -> None:
        """Let the batches under way finish and refuse new ones."""
        self._closed = True
        deadline_s = asyncio.get_running_loop().time() + CLOSE_S
        while tasks := self._at_work():
            _done, late = await asyncio.wait(tasks, timeout=deadline_s - asyncio.get_running_loop().time())
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _at_work(self) -> list[asyncio.Task[None]]:
        tasks = [*self._flushers.values(), *([self._short_task] if self._short_task else [])]
        return [task for task in tasks if not task.done()]

    async def _submit(self, works: list[Work]) -> list[tuple[int, Outcome]]:
        self._enqueue(works)
        answers = await self._settled(works)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def _settled(self, works: Sequence[Work]) -> list[tuple[int, Outcome] | BaseException]:
        """Return what became of each piece of work, its error included."""
        futures = [work.done for work in works]
        try:
            if futures:
                await asyncio.wait(futures, timeout=CALLER_WAIT_MAX_S)
        finally:
            for future in futures:
                future.cancel()  # who no longer waits was told nothing: the flusher drops what it has not begun
        return [
            Unavailable(f"not committed within {CALLER_WAIT_MAX_S:.0f} s")
            if future.cancelled()
            else future.exception() or future.result()
            for future in futures
        ]

    def _by_shard(self, works: Sequence[Work]) -> dict[int, list[Work]]:
        by_shard: dict[int, list[Work]] = {}
        for work in works:
            by_shard.setdefault(shard_of(work.event.execution_id, self._shard_count), []).append(work)
        return by_shard

    def _enqueue(
        self, works: Sequence[Work], *, waiting_max: int = QUEUE_INPUTS_MAX, refusal: type[Unavailable] = Unavailable
    ) -> None:
        """Queue all of the works or none. Errors: the refusal when one of their shards has too many waiting."""
        if self._closed:
            raise Unavailable("this process is stopping")
        by_shard = self._by_shard(works)
        for shard_id, part in by_shard.items():
            waiting = len(self._queues.get(shard_id, ()))
            if waiting + len(part) > waiting_max:
                raise refusal(f"shard {shard_id}: {waiting} inputs are waiting, at most {waiting_max} may")
        for shard_id, part in by_shard.items():
            self._queues.setdefault(shard_id, deque()).extend(part)
            self._serve(shard_id)

    def _serve(self, shard_id: int) -> None:
        """Have what waits for a shard committed, the short way or the long one."""
        flusher = self._flushers.get(shard_id)
        if shard_id in self._short or shard_id in self._under_way or (flusher is not None and not flusher.done()):
            return  # it is looked after
        if self._short_way is None or not self._short_way.takes(shard_id, self._queues[shard_id]):
            self._flushers[shard_id] = asyncio.create_task(self._flush(shard_id), name=f"ingest.append.{shard_id}")
            return
        self._short[shard_id] = None
        if self._short_task is None or self._short_task.done():
            self._short_task = asyncio.create_task(self._go_short_way(self._short_way), name="ingest.append.at_once")

    async def _go_short_way(self, short_way: ShortWay) -> None:
        """Commit what waits to go the short way, all shards together, again and again until there is none."""
        while self._short:
            waiting, self._short = list(self._short), {}
            parts: dict[int, list[Work]] = {}
            for shard_id in waiting:
                queue = self._queues[shard_id]
                if not short_way.takes(shard_id, queue):
                    self._serve(shard_id)
                elif len(parts) < SHORT_WAY_SHARDS_MAX:
                    if part := take(queue):
                        parts[shard_id] = part
                else:
                    self._short[shard_id] = None
            if not parts:
                continue
            self._under_way = frozenset(parts)
            began_s = self._clock.monotonic_s()
            try:
                written = await short_way.commit(parts)
            except Exception:
                log.exception("append.bug", inputs=sum(map(len, parts.values())))
                written = {}
            finally:
                self._under_way = frozenset()
            metrics.observe("noetl_append_batch_seconds", self._clock.monotonic_s() - began_s)
            for shard_id, part in parts.items():
                if shard_id in written:
                    metrics.observe("noetl_append_batch_events", len(part))
                    _answer(part, written[shard_id])
                else:
                    self._go_long_way(shard_id, part)
                if self._queues[shard_id]:
                    self._serve(shard_id)

    def _go_long_way(self, shard_id: int, part: list[Work]) -> None:
        """Put works that could not go the short way back in front of those that came meanwhile."""
        self._queues[shard_id].extendleft(reversed(part))
        self._flushers[shard_id] = asyncio.create_task(self._flush(shard_id), name=f"ingest.append.{shard_id}")

    async def _flush(self, shard_id: int) -> None:
        """Commit batch after batch until the shard's queue is empty."""
        queue = self._queues[shard_id]
        while queue:
            batch = take(queue)
            if not batch:
                continue
            try:
                await self._commit_or_halve(shard_id, batch)
            except Exception as error:
                log.exception("append.bug", shard_id=shard_id, inputs=len(batch))
                for work in batch:
                    if not work.done.done():
                        work.done.set_exception(error)
            if queue and self._short_way is not None and await self._short_way.may_take(shard_id, queue):
                break
        del self._flushers[shard_id]
        if queue:
            self._serve(shard_id)

    async def _commit_or_halve(self, shard_id: int, batch: list[Work]) -> None:
        """Commit a batch; one that Postgres refuses is halved until the offender stands alone."""
        parts = [batch]
        while parts:
            part = parts.pop(0)
            try:
                await self._commit(shard_id, part)
            except Exception as error:
                if not is_poison(error):
                    raise
                if len(part) > 1:
                    middle = len(part) // 2
                    parts[:0] = [part[:middle], part[middle:]]
                elif _degrade(part[0], error):
                    parts.insert(0, part)
                elif not part[0].done.done():
                    part[0].done.set_exception(_refusal(error))

    async def _commit(self, shard_id: int, batch: list[Work]) -> None:
        """Commit one batch, however often that takes, while anyone waits for it."""
        failures = 0
        while True:
            began_s = self._clock.monotonic_s()
            try:
                written = await store.append_batch(self._pool, shard_id, [entry_of(work) for work in batch])
                break
            except Exception as error:
                if not is_retryable(error):
                    raise
                failures += 1
                log.warning("append.retry", shard_id=shard_id, inputs=len(batch), failures=failures, error=error)
            await self._nudge(shard_id)  # the commit may have happened unseen: its inputs are in nobody's hands
            await asyncio.sleep(back_off_s(RETRY_PAUSE_S, failures))
            batch = [work for work in batch if not work.done.done()]
            if not batch:
                return
        metrics.observe("noetl_append_batch_seconds", self._clock.monotonic_s() - began_s)
        metrics.observe("noetl_append_batch_events", len(batch))
        await self._acknowledge(shard_id, batch, written)

    async def _acknowledge(self, shard_id: int, batch: list[Work], written: list[store.Written]) -> None:
        """Hand the committed inputs to their router, then tell their callers."""
        events: list[Event] = []
        rows: list[ResultRow] = []
        for work, one in zip(batch, written, strict=True):
            if one.is_new:
                work.event.event_id = one.event_id
                events.append(work.event)
                rows += work.rows
        _answer(batch, written)
        if not events:
            return
        if self._leases.epoch_of(shard_id) is not None:
            self._handover.offer(shard_id, events, rows)
        else:
            await self._bus.publish(shard_bell(shard_id))

    async def _nudge(self, shard_id: int) -> None:
        if self._leases.epoch_of(shard_id) is not None:
            self._handover.wake(shard_id)
        else:
            await self._bus.publish(shard_bell(shard_id))


def _answer(batch: list[Work], written: list[store.Written]) -> None:
    """Tell the callers what became of their inputs."""
    for work, one in zip(batch, written, strict=True):
        if not work.done.done():
            work.done.set_result((one.event_id, one.outcome))
    _count(batch, written)


def _degrade(work: Work, error: Exception) -> bool:
    """Replace a refused report by the smallest one that ends its command; False when that was refused as well.

    A chunk is not replaced: its worker is told, and ends the command itself.
    """
    if work.report is None or work.event.meta.get("degraded") or lacks_partition(error):
        return False
    if work.event.event_type == PARTIAL:
        return False
    code = "ENVELOPE_REJECTED"
    log.warning("append.envelope_rejected", execution_id=work.event.execution_id, command_id=work.event.command_id)
    message = f"the log refused the report: {str(error).splitlines()[0][:300]}"
    envelope = Envelope(status="error", error={"code": code, "kind": "schema", "message": message, "retryable": False})
    work.event.event_type, work.event.status, work.event.result = "command.failed", "FAILED", envelope
    work.event.meta = {"degraded": True}
    work.event.event_time = utc_now_text()
    work.rows = []
    return True


def _refusal(error: Exception) -> Exception:
    if lacks_partition(error):
        return Unavailable("no partition for this execution id: expected one made ahead by meta")
    return Invalid(f"the log refuses this input: {str(error).splitlines()[0][:300]}")


def _count(batch: list[Work], written: list[store.Written]) -> None:
    """Count what became of a batch, each kind of answer once."""
    answers = Counter(
        (work.event.event_type, work.report is not None, one.outcome, one.is_new)
        for work, one in zip(batch, written, strict=True)
    )
    for (event_type, is_report, outcome, is_new), count in answers.items():
        if is_new:
            metrics.inc("noetl_events_ingested_total", count, event_type=event_type)
        if not is_report:
            if outcome == "duplicate":
                metrics.inc("noetl_duplicate_suppressed_total", count, guard="dedup_key")
        elif event_type == PARTIAL:
            metrics.inc("noetl_chunks_total", count, outcome=outcome)
        elif outcome == "accepted":
            metrics.inc("noetl_commands_finished_total", count, outcome=event_type.removeprefix("command."))
        elif outcome == "duplicate":
            metrics.inc("noetl_commands_duplicate_total", count)
        else:
            metrics.inc("noetl_commands_fenced_total", count)

"""Append by group commit: one flusher a shard takes what has queued up and commits it in one transaction.

A lone input commits at once; under load the batches form by themselves while the last one commits.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl_common import metrics
from noetl_common.clock import Clock, SystemClock
from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import shard_of
from noetl_common.db import Pool, is_poison, is_retryable, lacks_partition, utc_now_text
from noetl_common.errors import Invalid, Overloaded, Unavailable
from noetl_common.event_log import BATCH_BYTES_MAX, BATCH_EVENTS_MAX
from noetl_common.log import get_logger
from noetl_common.loop import back_off_s
from noetl_common.subjects import shard_bell
from noetl_common.wire import Outcome, Report, ResultRow, encode
from services.ingest import store

log = get_logger(__name__)

QUEUE_INPUTS_MAX = 5_000  # per shard; beyond it callers are told to come back
QUEUE_BEFORE_STARTS_MAX = 1_000  # per shard; beyond it starts are: the rest of the queue is for what finishes work
CALLER_WAIT_MAX_S = 30.0
RETRY_PAUSE_S = 0.02
ROW_BYTES = 400  # of an input beside its result: a batch is limited by bytes, roughly
PARTIAL = "call.partial"
STATUS_OF = {
    "command.completed": "COMPLETED",
    "command.failed": "FAILED",
    "command.cancelled": "CANCELLED",
    PARTIAL: "PARTIAL",
}


class Owners(Protocol):
    """Which shards are routed by this process (noetl_common.leases.Leases)."""

    def owned(self) -> dict[int, int]:
        """Return {shard: epoch}."""


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


class Start(msgspec.Struct, kw_only=True):
    """A new execution: its row, its first input, its workload's row when that is not inline."""

    execution: store.ExecutionRow
    event: Event
    rows: list[ResultRow] = []


class Work(msgspec.Struct, kw_only=True):
    """One input in the queue. Its caller awaits `done`; abandoned work is dropped before it is written."""

    done: asyncio.Future[tuple[int, Outcome]]
    event: Event
    bytes: int
    report: Report | None = None
    worker_id: str = ""
    start: Start | None = None
    rows: list[ResultRow] = []


class Appender:
    """The append path of one process. Inputs of one shard commit in the order they were given."""

    def __init__(
        self,
        pool: Pool,
        *,
        shard_count: int,
        handover: Handing,
        leases: Owners,
        bus: Ringing,
        clock: Clock | None = None,
    ) -> None:
        self._pool = pool
        self._shard_count = shard_count
        self._handover = handover
        self._leases = leases
        self._bus = bus
        self._clock = clock or SystemClock()
        self._queues: dict[int, deque[Work]] = {}
        self._flushers: dict[int, asyncio.Task[None]] = {}
        self._closed = False

    async def report(self, worker_id: str, reports: Sequence[Report]) -> list[tuple[int, Outcome]]:
        """Finish commands and append their reports; return (event id, outcome) of each, in order.

        A chunk finishes nothing: it is taken while the claim that it comes from is the current one.
        Errors: Unavailable when the queue is full or Postgres has not answered within 30 s; Invalid for an input
        that the log refuses even in its degraded form.
        """
        works = [self._work_of(worker_id, report) for report in reports]
        return await self._submit(works)

    async def append(self, events: Sequence[Event], *, rows: Sequence[ResultRow] = ()) -> list[int]:
        """Append inputs that finish no command; return their ids, 0 = it stood there already or has no execution.

        `rows`: results that the first of them names, written with it. Errors: as `report`.
        """
        works = [self._work(event, bytes_=len(encode(event))) for event in events]
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
        works = []
        for start in starts:
            work = self._work(start.event, bytes_=len(encode(start.event)))
            work.start, work.rows = start, start.rows
            works.append(work)
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
        tasks = list(self._flushers.values())
        if tasks:
            _done, late = await asyncio.wait(tasks, timeout=5.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _work(self, event: Event, *, bytes_: int) -> Work:
        event.event_time = event.event_time or utc_now_text()
        done: asyncio.Future[tuple[int, Outcome]] = asyncio.get_running_loop().create_future()
        return Work(done=done, event=event, bytes=bytes_)

    def _work_of(self, worker_id: str, report: Report) -> Work:
        report.result.status = STATUS_OF[report.event_type]
        dedup_key = f"done:{report.command_id}"
        if report.event_type == PARTIAL:
            report.result.context = {"task": report.task, "chunk": report.chunk}
            dedup_key = f"partial:{report.command_id}:{report.task}:{report.chunk}"
        event = Event(
            execution_id=report.execution_id,
            event_type=report.event_type,
            step=report.step,
            command_id=report.command_id,
            attempt=report.attempt,
            loop_epoch=report.loop_epoch,
            iter_index=report.iter_index,
            status=report.result.status,
            result=report.result,
            meta=report.meta,
            dedup_key=dedup_key,
            worker_id=worker_id,
            event_time=report.event_time,
        )
        inline_bytes = sum(memoryview(row.inline).nbytes for row in report.results if row.inline is not None)
        result_bytes = len(encode(report.result))
        metrics.observe("noetl_event_result_bytes", result_bytes)
        work = self._work(event, bytes_=ROW_BYTES + result_bytes + inline_bytes)
        work.report, work.worker_id, work.rows = report, worker_id, report.results
        return work

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
            flusher = self._flushers.get(shard_id)
            if flusher is None or flusher.done():
                self._flushers[shard_id] = asyncio.create_task(self._flush(shard_id), name=f"ingest.append.{shard_id}")

    async def _flush(self, shard_id: int) -> None:
        """Commit batch after batch until the shard's queue is empty."""
        queue = self._queues[shard_id]
        while queue:
            batch = _take(queue)
            if not batch:
                continue
            try:
                await self._commit_or_halve(shard_id, batch)
            except Exception as error:
                log.exception("append.bug", shard_id=shard_id, inputs=len(batch))
                for work in batch:
                    if not work.done.done():
                        work.done.set_exception(error)

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
                written = await store.append_batch(self._pool, shard_id, [_entry(work) for work in batch])
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
            if not work.done.done():
                work.done.set_result((one.event_id, one.outcome))
        _count(batch, written)
        if not events:
            return
        if shard_id in self._leases.owned():
            self._handover.offer(shard_id, events, rows)
        else:
            await self._bus.publish(shard_bell(shard_id))

    async def _nudge(self, shard_id: int) -> None:
        if shard_id in self._leases.owned():
            self._handover.wake(shard_id)
        else:
            await self._bus.publish(shard_bell(shard_id))


def _take(queue: deque[Work]) -> list[Work]:
    """Return the next batch, without what nobody waits for any more."""
    batch: list[Work] = []
    bytes_ = 0
    while queue and len(batch) < BATCH_EVENTS_MAX and (not batch or bytes_ + queue[0].bytes <= BATCH_BYTES_MAX):
        work = queue.popleft()
        if not work.done.done():
            batch.append(work)
            bytes_ += work.bytes
    return batch


def _entry(work: Work) -> store.Entry:
    claim = None
    if work.report is not None:
        token, attempt = work.report.claim_token, work.report.attempt
        claim = store.Finishing(claim_token=token, worker_id=work.worker_id, attempt=attempt)
    execution = work.start.execution if work.start else None
    return store.Entry(event=work.event, rows=work.rows, claim=claim, execution=execution)


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

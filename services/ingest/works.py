"""Works: the inputs that wait to be appended, each with what is written beside it and who waits for it."""

import asyncio
from collections import deque
from collections.abc import Mapping

import msgspec

from noetl_common import metrics
from noetl_common.core.events import Event
from noetl_common.db import utc_now_text
from noetl_common.event_log import BATCH_BYTES_MAX, BATCH_EVENTS_MAX
from noetl_common.wire import Outcome, Report, ResultRow, encode
from services.ingest import store

ROW_BYTES = 400  # of an input beside its result: a batch is limited by bytes, roughly
PARTIAL = "call.partial"
STATUS_OF: Mapping[str, str] = {
    "command.completed": "COMPLETED",
    "command.failed": "FAILED",
    "command.cancelled": "CANCELLED",
    PARTIAL: "PARTIAL",
}


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


def work_of_event(event: Event) -> Work:
    """Return an input that finishes no command."""
    return _work(event, bytes_=len(encode(event)))


def work_of_start(start: Start) -> Work:
    """Return the first input of a new run."""
    work = work_of_event(start.event)
    work.start, work.rows = start, start.rows
    return work


def work_of_report(worker_id: str, report: Report) -> Work:
    """Return the input that a worker's report is."""
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
    work = _work(event, bytes_=ROW_BYTES + result_bytes + inline_bytes)
    work.report, work.worker_id, work.rows = report, worker_id, report.results
    return work


def take(queue: deque[Work]) -> list[Work]:
    """Return the next batch, without what nobody waits for any more."""
    batch: list[Work] = []
    bytes_ = 0
    while queue and len(batch) < BATCH_EVENTS_MAX and (not batch or bytes_ + queue[0].bytes <= BATCH_BYTES_MAX):
        work = queue.popleft()
        if not work.done.done():
            batch.append(work)
            bytes_ += work.bytes
    return batch


def entry_of(work: Work) -> store.Entry:
    """Return the work as its row of the batch."""
    claim = None
    if work.report is not None:
        token, attempt = work.report.claim_token, work.report.attempt
        claim = store.Finishing(claim_token=token, worker_id=work.worker_id, attempt=attempt)
    execution = work.start.execution if work.start else None
    return store.Entry(event=work.event, rows=work.rows, claim=claim, execution=execution)


def _work(event: Event, *, bytes_: int) -> Work:
    event.event_time = event.event_time or utc_now_text()
    done: asyncio.Future[tuple[int, Outcome]] = asyncio.get_running_loop().create_future()
    return Work(done=done, event=event, bytes=bytes_)

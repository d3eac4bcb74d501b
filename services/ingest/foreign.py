"""Reports of workers of the public runtimes, turned into ours: both spellings, ids as numbers or text."""

import re
from typing import Any, Literal, cast

import msgspec

from noetl_common.core.events import COMMAND_TERMINALS, INFORMATIVE, Envelope, canonical
from noetl_common.core.shard import hashed_id
from noetl_common.core.values import printable, reference_of
from noetl_common.errors import Invalid
from noetl_common.store.results import ResultStore
from noetl_common.wire import STREAM_CHUNKS_MAX, TASK_CHARACTERS_MAX, Report, ResultRow, encode, ref_of
from services.ingest.read_payloads import stored_row
from services.ingest.requests import INT64_MAX

# Where the tool's result stands in a foreign payload, by preference.
DATA_KEYS = ("result", "response", "data", "output_result")
# What a foreign payload says about itself, beside the result.
SHELL_KEYS = frozenset(
    {
        *("command_id", "worker_id", "status", "error", "attempt", "call_index", "step", "duration_ms"),
        *("claim_token", "chunk_index", "has_more"),
    }
)
MESSAGE_CHARACTERS_MAX = 2000
NUMBER = re.compile(r"[0-9]{1,19}")
CALL_EVENTS = frozenset({"call.done", "call.error"})
PARTIAL = "call.partial"
# What only a worker that still has the command says: it renews the lease.
SIGNS_OF_LIFE = CALL_EVENTS | {
    *("command.started", "command_started", "command.heartbeat", "command_heartbeat", PARTIAL),
}
WITH_DATA = COMMAND_TERMINALS | CALL_EVENTS | {PARTIAL}
Reporting = Literal["command.completed", "command.failed", "command.cancelled", "call.partial"]


class ForeignEvent(msgspec.Struct, kw_only=True):
    """One event of a public worker: the union of both spellings."""

    execution_id: int | None = None
    name: str = ""
    event_type: str = ""
    step: str = ""
    node_name: str = ""
    payload: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    result: Any = None
    error: Any = None
    status: str | None = None
    worker_id: str | None = None
    meta: dict[str, Any] | None = None
    command_id: int | None = None
    attempt: int | None = None

    @property
    def kind(self) -> str:
        """Its event type, in our spelling."""
        return canonical(self.event_type or self.name)

    def said(self, key: str) -> Any:
        """Return what the event says under `key`, wherever it says it; None when nowhere."""
        for place in (self.meta, self.payload, self.context):
            if place and place.get(key) is not None:
                return place[key]
        return None


class ForeignBatch(msgspec.Struct, kw_only=True):
    """POST /api/events/batch of a public worker."""

    events: list[ForeignEvent]
    execution_id: int | None = None
    worker_id: str = ""


class Converted(msgspec.Struct, kw_only=True):
    """A batch as ours.

    Shapes: `places` holds for each event given the index of its report, None for one that is not to be stored;
    `alive` the (execution id, command id) at work that the others speak of; `called` results that came before the
    report that will name them.
    """

    worker_id: str
    reports: list[Report] = []
    places: list[int | None] = []
    alive: list[tuple[int, int]] = []
    called: dict[tuple[int, int], ResultRow] = {}


async def convert(batch: ForeignBatch, store: ResultStore) -> Converted:
    """Return the reports in a batch. Informative events have none: they are acknowledged and not stored.

    A chunk (`call.partial`) is a report when it says which command streams it and its number, `chunk_index`; it is
    fenced as the command's end is, by token, or by worker and attempt. Any other chunk is informative.
    Errors: Invalid with a JSON pointer; ReferenceNotAvailable when a large result cannot be stored.
    """
    made = Converted(worker_id=batch.worker_id)
    calls: dict[int, ForeignEvent] = {}
    for index, event in enumerate(batch.events):
        pointer = f"/events/{index}"
        made.worker_id = made.worker_id or event.worker_id or str(event.said("worker_id") or "")
        command_id = _command_id(event, pointer, required=event.kind in COMMAND_TERMINALS)
        execution_id = event.execution_id or batch.execution_id or 0
        if event.kind in CALL_EVENTS:
            calls[command_id] = event
        chunk = _chunk_of(event) if command_id and event.kind == PARTIAL else None
        if event.kind in COMMAND_TERMINALS or chunk is not None:
            made.places.append(len(made.reports))
            report = await _report(event, batch, calls, chunk=chunk, store=store, pointer=pointer)
            made.reports.append(report)
            if chunk is None:
                calls.pop(command_id, None)
            elif execution_id:
                made.alive.append((execution_id, command_id))
        elif event.kind in INFORMATIVE or event.kind.startswith(("batch.", "subscription.", "loop.")):
            made.places.append(None)
            if event.kind in SIGNS_OF_LIFE and command_id and execution_id:
                made.alive.append((execution_id, command_id))
        else:
            found = event.event_type or event.name
            raise Invalid(f"expected the name of a worker's event, found {found[:60]!r}", pointer=f"{pointer}/name")
    for command_id, call in calls.items():
        execution_id = call.execution_id or batch.execution_id or 0
        row = await _called(call, (execution_id, command_id), made.worker_id, store) if command_id else None
        if row is not None:
            made.called[execution_id, command_id] = row
    return made


def called_ref_id(execution_id: int, command_id: int, worker_id: str) -> int:
    """Return the id of a result that a worker sent ahead of its report."""
    return hashed_id(execution_id, command_id, worker_id, "called")


def name_result(report: Report, row: ResultRow) -> None:
    """Have a report name the result that came before it.

    It gets a row of its own: which item of a loop it belongs to is known when the report is taken.
    """
    named = msgspec.structs.replace(row, ref_id=hashed_id(row.execution_id, row.ref_id, report.command_id, "named"))
    report.results = [named]
    report.result.reference = reference_of(ref_of(named))


async def _called(call: ForeignEvent, command: tuple[int, int], worker_id: str, store: ResultStore) -> ResultRow | None:
    data = _data_of(call)
    execution_id, command_id = command
    if data is None or not execution_id:
        return None
    ref_id = called_ref_id(execution_id, command_id, worker_id)
    step = call.step or call.node_name or "result"
    return await stored_row(store, encode(data), execution_id=execution_id, step=step, ref_id=ref_id)


async def _report(
    event: ForeignEvent,
    batch: ForeignBatch,
    calls: dict[int, ForeignEvent],
    *,
    chunk: int | None,
    store: ResultStore,
    pointer: str,
) -> Report:
    execution_id = event.execution_id or batch.execution_id
    if not execution_id:
        raise Invalid("expected an execution_id, found none", pointer=f"{pointer}/execution_id")
    command_id = _command_id(event, pointer, required=True)
    call = None if chunk is not None else calls.get(command_id) or calls.get(0)
    attempt = event.attempt or event.said("attempt") or 0
    step = event.step or event.node_name
    envelope = Envelope(status="")
    report = Report(
        execution_id=execution_id,
        event_type=cast(Reporting, event.kind),
        command_id=command_id,
        claim_token=_number(event.said("claim_token")),
        step=step,
        attempt=attempt if isinstance(attempt, int) else 0,
        status="",
        result=envelope,
        meta={"foreign": True},
    )
    if chunk is not None:
        report.task, report.chunk = str(event.said("task") or step or "result")[:TASK_CHARACTERS_MAX], chunk
    data = _data_of(event)
    if data is None and call is not None:
        data = _data_of(call)
    if data is not None:
        text = encode(data)
        # Its number names a chunk: sent again it is the same one, whatever it says then.
        which = (report.attempt, text) if chunk is None else (report.task, chunk)
        ref_id = hashed_id(execution_id, command_id, "foreign", *which)
        row = await stored_row(store, text, execution_id=execution_id, step=step or "result", ref_id=ref_id)
        report.results = [row]
        envelope.reference = reference_of(ref_of(row))
    if event.kind == "command.failed":
        envelope.error = _error_of(event, call)
    return report


def _data_of(event: ForeignEvent) -> Any:
    if event.result is not None:
        return event.result
    for place in (event.payload, event.context):
        if not place:
            continue
        for key in DATA_KEYS:
            if place.get(key) is not None:
                return place[key]
        rest = {key: value for key, value in place.items() if key not in SHELL_KEYS}
        if rest and event.kind in WITH_DATA:
            return rest
    return None


def _error_of(event: ForeignEvent, call: ForeignEvent | None) -> dict[str, Any]:
    error = event.error or event.said("error") or (call and (call.error or call.said("error"))) or "the command failed"
    if isinstance(error, dict):
        known = {key: error[key] for key in ("code", "kind", "retryable", "http_status", "pg_code") if key in error}
        told = {**known, "message": str(error.get("message") or error)[:MESSAGE_CHARACTERS_MAX]}
    else:
        told = {"message": str(error)[:MESSAGE_CHARACTERS_MAX]}
    return {name: printable(value) for name, value in told.items()}


def _command_id(event: ForeignEvent, pointer: str, *, required: bool) -> int:
    given = event.command_id if event.command_id is not None else event.said("command_id")
    found = _number(given)
    if required and not found:
        raise Invalid(f"expected a command_id, found {given!r:.60}", pointer=f"{pointer}/meta/command_id")
    return found


def _chunk_of(event: ForeignEvent) -> int | None:
    given = event.said("chunk_index")
    if isinstance(given, str) and NUMBER.fullmatch(given):
        given = int(given)
    is_number = isinstance(given, int) and not isinstance(given, bool) and 0 <= given < STREAM_CHUNKS_MAX
    return given if is_number else None


def _number(given: Any) -> int:
    """Return an id given as a number or as text, 0 when it is none."""
    if isinstance(given, str) and NUMBER.fullmatch(given):
        given = int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 < given <= INT64_MAX else 0

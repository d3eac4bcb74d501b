"""Reports of workers: one, or a batch. Durable and deduplicated when answered."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common import wire
from noetl_common.db import transaction
from noetl_common.errors import Invalid, NotFound
from noetl_common.wire import (
    BATCH_EVENTS_MAX,
    PAYLOAD_INLINE_BYTES_MAX,
    STREAM_CHUNKS_MAX,
    TASK_CHARACTERS_MAX,
    Report,
    ReportBatch,
    Reported,
    ResultRow,
)
from services.ingest.endpoints import WORKER, Api, Endpoint
from services.ingest.foreign import Converted, ForeignBatch, ForeignEvent, called_ref_id, convert, name_result
from services.ingest.requests import answer, check_nesting, idempotency_key_of, path_id, read_body
from services.ingest.store import insert_results
from services.ingest.store_claims import read_results
from services.ingest.store_executions import find_event

OURS = b'"claim_token"'


class Mark(msgspec.Struct):
    """What tells an event of our own worker from a public one's."""

    claim_token: Any = None


class Marked(msgspec.Struct):
    """A batch, looked at for that only."""

    events: list[Mark]


async def append_batch(api: Api, request: Request) -> Response:
    """Take a batch of reports, ours or a public worker's; answer what became of each."""
    body = await read_body(request)
    check_nesting(body)
    if OURS in body and (batch := _ours(body)) is not None:
        _check_size(len(batch.events))
        for index, report in enumerate(batch.events):
            check_rows(report.results, report.execution_id, f"/events/{index}")
            if report.event_type == "call.partial":
                _check_chunk(report, f"/events/{index}")
        answers = await api.appender.report(batch.worker_id, batch.events)
        event_ids = [event_id for event_id, _outcome in answers]
        outcomes = [outcome for _event_id, outcome in answers]
        return answer(Reported(status="ok", event_ids=event_ids, outcomes=outcomes))
    foreign = wire.decode(body, ForeignBatch)
    _check_size(len(foreign.events))
    reported = await _take_foreign(api, foreign)
    key = idempotency_key_of(request)
    duplicate = bool(reported.outcomes) and all(outcome == "duplicate" for outcome in reported.outcomes)
    return answer(
        {
            **msgspec.to_builtins(reported),
            "status": "accepted",
            "request_id": str(max(reported.event_ids, default=0)),
            "queue_depth": 0,
            "duplicate": duplicate,
            "idempotency_key": key,
        },
        status=202,
    )


def _ours(body: bytes) -> ReportBatch | None:
    """Return a batch of our own worker, None when a public worker only repeats the token of its claim somewhere."""
    try:
        return wire.decode(body, ReportBatch)
    except Invalid:
        # Looked at only now: a good batch of ours, the usual case, is decoded once.
        if any(event.claim_token is not None for event in wire.decode(body, Marked).events):
            raise
        return None


async def read_batch_status(api: Api, request: Request) -> Response:
    """Return what became of an accepted batch: a batch is committed before it is answered, so it is complete."""
    request_id = path_id(request, "request_id", what="batch")
    found = await find_event(api.pool, request_id) if request_id else {"execution_id": 0, "created_at": None}
    if found is None:
        raise NotFound(f"expected the request_id of an accepted batch, found {request_id!r}")
    return answer(
        {
            "request_id": str(request_id),
            "execution_id": str(found["execution_id"]) if found["execution_id"] else None,
            "state": "completed",
            "status": "completed",
            "error_code": None,
            "message": "",
            "commands_generated": 0,
            "idempotency_key": None,
            "updated_at": found["created_at"],
        }
    )


async def append_one(api: Api, request: Request) -> Response:
    """Take one event of a public worker."""
    body = await read_body(request)
    check_nesting(body)
    event = wire.decode(body, ForeignEvent)
    reported = await _take_foreign(api, ForeignBatch(events=[event]))
    return answer(
        {
            "status": "ok",
            "event_id": reported.event_ids[0],
            "outcome": reported.outcomes[0],
            "commands_generated": reported.commands_generated,
        }
    )


async def _take_foreign(api: Api, batch: ForeignBatch) -> Reported:
    """Append a foreign batch; informative events get id 0 and count as accepted."""
    converted = await convert(batch, api.store)
    await _keep_alive(api, converted)
    await _add_called(api, converted)
    answers = await api.appender.report(converted.worker_id, converted.reports) if converted.reports else []
    told: list[tuple[int, wire.Outcome]] = [
        (0, "accepted") if place is None else answers[place] for place in converted.places
    ]
    return Reported(
        status="ok", event_ids=[event_id for event_id, _outcome in told], outcomes=[outcome for _id, outcome in told]
    )


async def _keep_alive(api: Api, converted: Converted) -> None:
    """Renew the leases that the batch speaks of, and keep the results that came with those still held."""
    if not converted.alive:
        return
    held = await api.claims.renew_named(converted.worker_id, converted.alive)
    rows = [row for command, row in converted.called.items() if command in held]
    if rows:
        async with transaction(api.pool) as conn:
            await insert_results(conn, rows)


async def _add_called(api: Api, converted: Converted) -> None:
    """Have reports without a result name the one that a call.done brought in an earlier request."""
    bare = {
        (report.execution_id, called_ref_id(report.execution_id, report.command_id, converted.worker_id)): report
        for report in converted.reports
        if report.result.reference is None
    }
    for row in await read_results(api.pool, list(bare)) if bare else []:
        name_result(bare[row.execution_id, row.ref_id], row)


def _check_size(count: int) -> None:
    if count > BATCH_EVENTS_MAX:
        raise Invalid(f"expected at most {BATCH_EVENTS_MAX} events, found {count}", pointer="/events")


def check_rows(rows: list[ResultRow], execution_id: int, pointer: str) -> None:
    """Refuse what nobody may say of results: another run's rows, a payload that is not what it claims.

    Errors: Invalid with a JSON pointer.
    """
    for index, row in enumerate(rows):
        place = f"{pointer}/results/{index}"
        if row.execution_id != execution_id:
            raise Invalid(
                f"expected execution {execution_id}, found {row.execution_id}", pointer=f"{place}/execution_id"
            )
        if row.inline is None:
            if row.store_tier == "db":
                raise Invalid(
                    "expected the payload inline, or another tier than db, found neither", pointer=f"{place}/inline"
                )
            continue
        payload = bytes(row.inline)
        if len(payload) > PAYLOAD_INLINE_BYTES_MAX or len(payload) != row.bytes:
            expected = f"at most {PAYLOAD_INLINE_BYTES_MAX} bytes, as many as `bytes` says ({row.bytes})"
            raise Invalid(f"expected {expected}, found {len(payload)}", pointer=f"{place}/inline")
        try:
            payload.decode()
        except UnicodeDecodeError as exc:
            raise Invalid("expected UTF-8, found other bytes", pointer=f"{place}/inline") from exc


def _check_chunk(report: Report, pointer: str) -> None:
    if not 0 <= report.chunk < STREAM_CHUNKS_MAX:
        raise Invalid(
            f"expected the number of a chunk from 0 to {STREAM_CHUNKS_MAX - 1}, found {report.chunk}",
            pointer=f"{pointer}/chunk",
        )
    if not 0 < len(report.task) <= TASK_CHARACTERS_MAX:
        raise Invalid(
            f"expected the label of a task, 1 to {TASK_CHARACTERS_MAX} characters, found {len(report.task)}",
            pointer=f"{pointer}/task",
        )


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/events/batch",
        handler=append_batch,
        summary="Report commands' ends and the chunks they stream, up to 256 at once.",
        scopes=WORKER,
        body=ReportBatch,
        answer=Reported,
    ),
    Endpoint(
        method="GET",
        path="/api/events/batch/{request_id}/status",
        handler=read_batch_status,
        summary="Ask what became of an accepted batch.",
        scopes=WORKER,
    ),
    Endpoint(
        method="POST",
        path="/api/events",
        handler=append_one,
        summary="Report one event.",
        scopes=WORKER,
        body=ForeignEvent,
    ),
)

"""End a run from outside: cancel, finalize, and the question whether it is cancelled."""

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.events import Envelope, Event
from noetl_common.core.state import TERMINAL
from noetl_common.errors import Conflict, Invalid, NotFound
from services.ingest import store_executions as store
from services.ingest.endpoints import READ, WRITE, Api, Endpoint
from services.ingest.requests import answer, path_id, read_json

REASON_CHARACTERS_MAX = 1000
MINUTES_MAX = 60 * 24 * 366


class Cancel(msgspec.Struct, kw_only=True):
    """POST /api/executions/{id}/cancel. Children are always cancelled with their parent."""

    reason: str = ""
    cascade: bool = True


class Finalize(msgspec.Struct, kw_only=True):
    """POST /api/executions/{id}/finalize."""

    status: Literal["COMPLETED", "FAILED", "completed", "failed"] = "FAILED"
    error: str | dict[str, Any] | None = None
    reason: str = ""


class Cleanup(msgspec.Struct, kw_only=True):
    """POST /api/executions/cleanup."""

    older_than_minutes: int = 5
    dry_run: bool = False


async def cancel(api: Api, request: Request) -> Response:
    """Ask for the end of a run and its children. Durable when answered; running commands learn of it within 5 s."""
    execution_id = path_id(request, "execution_id", what="execution")
    asked = await read_json(request, Cancel)
    await _running(api, execution_id)
    reason = _short(asked.reason, "/reason") or "cancelled by request"
    await _append(api, execution_id, event_type="cancel.requested", context={"reason": reason})
    family = await store.list_live_family(api.pool, execution_id)
    # Routing cancels the children that a run waits for. Those that it went on without are told here.
    told = Envelope(status="REQUESTED", context={"reason": f"parent: {reason}"})
    await api.appender.append(
        [
            Event(execution_id=member, event_type="cancel.requested", status="REQUESTED", result=told)
            for member in family
            if member != execution_id
        ]
    )
    return answer(
        {
            "status": "cancelled",
            "execution_id": str(execution_id),
            "cancelled_executions": [str(member) for member in family],
            "message": "cancellation is recorded; running commands are told with their next heartbeat",
        }
    )


async def finalize(api: Api, request: Request) -> Response:
    """End a run now, with the status given, whatever it is doing."""
    execution_id = path_id(request, "execution_id", what="execution")
    asked = await read_json(request, Finalize)
    await _running(api, execution_id)
    status = asked.status.upper()
    said = asked.error if isinstance(asked.error, str) else (asked.error or {}).get("message", "")
    message = _short(str(said or asked.reason), "/error")
    context = {"status": status, **({"error": message} if message else {})}
    await _append(api, execution_id, event_type="finalize.requested", context=context)
    told = f"the run is being ended as {status}"
    return answer({"status": "finalized", "execution_id": str(execution_id), "message": told})


async def clean_up(api: Api, request: Request) -> Response:
    """Cancel the runs in which nothing has happened for a while and nothing is under way; `dry_run`: only list them."""
    asked = await read_json(request, Cleanup)
    if not 1 <= asked.older_than_minutes <= MINUTES_MAX:
        raise Invalid(
            f"expected 1 to {MINUTES_MAX} minutes, found {asked.older_than_minutes}", pointer="/older_than_minutes"
        )
    stalled = await store.list_stalled(api.pool, minutes=asked.older_than_minutes)
    reason = f"cleanup: no progress for {asked.older_than_minutes} minutes"
    envelope = Envelope(status="REQUESTED", context={"reason": reason})
    if stalled and not asked.dry_run:
        await api.appender.append(
            [
                Event(execution_id=execution_id, event_type="cancel.requested", status="REQUESTED", result=envelope)
                for execution_id in stalled
            ]
        )
    done = "would be cancelled" if asked.dry_run else "are being cancelled"
    return answer(
        {
            "cancelled_count": 0 if asked.dry_run else len(stalled),
            "execution_ids": [str(execution_id) for execution_id in stalled],
            "message": f"{len(stalled)} runs without progress for {asked.older_than_minutes} minutes {done}",
        }
    )


async def check_cancellation(api: Api, request: Request) -> Response:
    """Return whether a run is, or is being, cancelled."""
    execution_id = path_id(request, "execution_id", what="execution")
    standing = await _standing(api, execution_id)
    status = standing["status"]
    cancelled = status == "CANCELLED" or standing["cancelling"] is not None
    return answer(
        {
            "execution_id": str(execution_id),
            "status": status,
            "event_type": f"playbook.{status.lower()}" if status in TERMINAL else "",
            "cancelled": cancelled,
            "is_cancelled": cancelled,
            "completed": status == "COMPLETED",
            "failed": status == "FAILED",
        }
    )


async def _standing(api: Api, execution_id: int) -> dict[str, Any]:
    standing = await store.read_standing(api.pool, execution_id)
    if standing is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    return standing


async def _running(api: Api, execution_id: int) -> None:
    standing = await _standing(api, execution_id)
    if standing["status"] in TERMINAL:
        raise Conflict(
            f"expected an execution that runs, found {standing['status']}: {execution_id} has ended",
            code="already_completed",
        )


async def _append(api: Api, execution_id: int, *, event_type: str, context: dict[str, Any]) -> None:
    envelope = Envelope(status="REQUESTED", context=context)
    event = Event(execution_id=execution_id, event_type=event_type, status="REQUESTED", result=envelope)
    await api.appender.append([event])


def _short(text: str, pointer: str) -> str:
    if len(text) > REASON_CHARACTERS_MAX:
        raise Invalid(f"expected at most {REASON_CHARACTERS_MAX} characters, found {len(text)}", pointer=pointer)
    return text


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/executions/{execution_id}/cancel",
        handler=cancel,
        summary="Cancel a run and its children.",
        scopes=WRITE,
        body=Cancel,
    ),
    Endpoint(
        method="POST",
        path="/api/executions/{execution_id}/finalize",
        handler=finalize,
        summary="End a run now.",
        scopes=WRITE,
        body=Finalize,
    ),
    Endpoint(
        method="POST",
        path="/api/executions/cleanup",
        handler=clean_up,
        summary="Cancel the runs that have stalled.",
        scopes=WRITE,
        body=Cleanup,
    ),
    Endpoint(
        method="GET",
        path="/api/executions/{execution_id}/cancellation-check",
        handler=check_cancellation,
        summary="Ask whether a run is cancelled.",
        scopes=READ,
    ),
)

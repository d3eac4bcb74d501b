"""The history of a run: its events, and the lineage of a step's results."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.events import canonical
from noetl_common.core.shard import ord_in, seq_in
from noetl_common.errors import Invalid, NotFound
from services.ingest import store_executions as store
from services.ingest.endpoints import READ, Api, Endpoint
from services.ingest.requests import answer, paging, path_id, query_int, query_text

CLAIMED = "command.claimed"
PAGE_SIZE_MIN, PAGE_SIZE_MAX, PAGE_SIZE = 10, 500, 100
TRACE_MAX = 1000


async def list_events(api: Api, request: Request) -> Response:
    """Return a page of a run's events, oldest first. Only what is routed is shown, so a page never changes."""
    execution_id = path_id(request, "execution_id", what="execution")
    standing = await store.read_standing(api.pool, execution_id)
    if standing is None:
        raise NotFound(f"no execution {execution_id}")
    page = await events_page(api, request, execution_id)
    return answer({"execution_id": str(execution_id), "path": standing["path"], "status": standing["status"], **page})


async def events_page(api: Api, request: Request, execution_id: int) -> dict[str, Any]:
    """Return {events, pagination}; derived events (claims) ride behind the one they belong to and are not counted."""
    limit, offset, page = paging(request, size_default=PAGE_SIZE, size_max=PAGE_SIZE_MAX, size_min=PAGE_SIZE_MIN)
    wanted = query_text(request, "event_type")
    event_type = canonical(wanted) if wanted else None
    only_claims = event_type in (CLAIMED, "command_claimed")
    rows, total = await store.read_events(
        api.pool,
        execution_id,
        since=_since(request),
        event_type="command.issued" if only_claims else event_type,
        limit=limit,
        offset=offset,
    )
    events: list[dict[str, Any]] = []
    issued = [row["command_id"] for row in rows if row["event_type"] == "command.issued"]
    show_claims = only_claims or event_type is None
    leases = await store.read_leases(api.pool, execution_id, issued) if show_claims else {}
    for row in rows:
        if not only_claims:
            events.append(_shown(row))
        if row["event_type"] == "command.issued" and row["command_id"] in leases:
            events.append(_claimed(row, leases[row["command_id"]]))
    pages = max(1, -(-total // limit))
    pagination = {
        "page": page,
        "page_size": limit,
        "total_events": total,
        "total_pages": pages,
        "has_next": offset + len(rows) < total,
        "has_prev": offset > 0,
        "last_event_id": str(rows[-1]["event_id"]) if rows else None,
    }
    return {"events": events, "pagination": pagination}


async def trace(api: Api, request: Request) -> Response:
    """Return the results of a step with all they descend from, oldest first."""
    execution_id = path_id(request, "execution_id", what="execution")
    if await store.read_standing(api.pool, execution_id) is None:
        raise NotFound(f"no execution {execution_id}")
    step = request.path_params["step"]
    limit = query_int(request, "limit", TRACE_MAX, low=1, high=TRACE_MAX)
    rows = await store.trace_step(api.pool, execution_id, step, limit=limit)
    chain = [_link(row) for row in rows]
    return answer({"execution_id": str(execution_id), "step": step, "source": "events", "chain": chain})


def _since(request: Request) -> int:
    """Return `since_event_id`; the id of a derived event stands for the one it belongs to."""
    text = request.query_params.get("since_event_id", "").partition(".")[0]
    if not text:
        return 0
    if not re.fullmatch(r"\d{1,19}", text):
        raise Invalid(f"since_event_id: expected an event id, found {text[:40]!r}", pointer="/since_event_id")
    return int(text)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    event_id = row["event_id"]
    result = row["result"] or {}
    parent = row["parent_execution_id"]
    return {
        "event_id": str(event_id),
        "execution_id": str(row["execution_id"]),
        "catalog_id": str(row["catalog_id"]),
        "parent_execution_id": str(parent) if parent else None,
        "event_type": row["event_type"],
        "node_id": row["step"],
        "node_name": row["step"],
        "step": row["step"],
        "status": row["status"],
        "command_id": str(row["command_id"]) if row["command_id"] else None,
        "attempt": row["attempt"],
        "loop_epoch": str(row["loop_epoch"]) if row["loop_epoch"] else None,
        "iter_index": row["iter_index"],
        "seq": seq_in(event_id),
        "ord": ord_in(event_id),
        "result": row["result"],
        "context": result.get("context"),
        "error": result.get("error"),
        "meta": row["meta"] or {},
        "worker_id": row["worker_id"],
        "event_time": row["event_time"],
        "timestamp": row["event_time"],
        "created_at": row["created_at"],
    }


def _claimed(row: dict[str, Any], lease: dict[str, Any]) -> dict[str, Any]:
    """Return the claim that a command's row tells of: a lease is no fact of the run and not in the log."""
    shown = _shown(row)
    return {
        **shown,
        "event_id": f"{shown['event_id']}.claimed",
        "event_type": CLAIMED,
        "status": "RUNNING",
        "attempt": lease["attempt"],
        "worker_id": lease["worker_id"],
        "result": None,
        "context": None,
        "error": None,
        "meta": {"derived": True, "command_id": shown["command_id"], "worker_id": lease["worker_id"]},
    }


def _link(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "ref_id": str(row["ref_id"]),
        "ref": row["ref"],
        "parent_ref_id": str(row["parent_ref_id"]) if row["parent_ref_id"] else None,
        "name": row["task_label"] or row["step"],
        "source_step": row["step"],
        "shape": row["shape"],
        "loop_epoch": str(row["loop_epoch"]) if row["loop_epoch"] else None,
        "iter_index": row["iter_index"] if row["iter_index"] >= 0 else None,
        "store": row["store_tier"],
        "physical_uri": row["physical_uri"],
        "content_type": row["content_type"],
        "bytes": row["bytes"],
        "sha256": row["sha256"],
        "compression": row["compression"],
        "rows": row["rows"],
        "preview": row["preview"],
        "created_at": row["created_at"],
        "status": row["status"],
        "context": row["context"],
        "event_id": str(row["event_id"]) if row["event_id"] else None,
    }


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/executions/{execution_id}/events",
        handler=list_events,
        summary="List a run's events.",
        scopes=READ,
        query={"page": "integer", "page_size": "integer", "since_event_id": "string", "event_type": "string"},
    ),
    Endpoint(
        method="GET",
        path="/api/executions/{execution_id}/trace/{step}",
        handler=trace,
        summary="Trace the results of a step.",
        scopes=READ,
        query={"limit": "integer"},
    ),
)

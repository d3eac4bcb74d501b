"""Runs as people look at them: the list, one run, its status. Read models only, never an inference."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.shard import minted_at_ms, shard_in
from noetl_common.core.state import TERMINAL
from noetl_common.errors import Invalid, NotFound
from services.ingest import store_executions as store
from services.ingest.endpoints import READ, Api, Endpoint
from services.ingest.groups import read_waiting
from services.ingest.requests import Paging, answer, paging, path_id, query_int, query_text
from services.ingest.routes.execution_events import events_page

WAIT_MAX_S = 5.0
WAIT_PAUSE_S = 0.02
WAIT_PAUSE_MAX_S = 0.5
LIST_OFFSET_MAX = 10_000  # further on, a page is asked for by the cursor of the one before
PAGES = Paging(size_default=100, size_max=500, offset_max=LIST_OFFSET_MAX)
NEXT_CURSOR = "x-next-cursor"  # a header: the body is the bare array that clients know
STEP_STATES = ("completed", "running", "failed")
STATUSES = frozenset({"RUNNING", *TERMINAL})


async def list_executions(api: Api, request: Request) -> Response:
    """Return a page of runs, newest first. `cursor`: the id of the last run seen, which no new run can shift."""
    limit, offset, _page = paging(request, PAGES)
    status = query_text(request, "status")
    if status is not None and status.upper() not in STATUSES:
        raise Invalid(f"expected one of {', '.join(sorted(STATUSES))}, found {status[:40]!r}", pointer="/status")
    path, catalog_id = query_text(request, "path"), query_int(request, "catalog_id", 0) or None
    parent = query_int(request, "parent_execution_id", 0) or None
    if parent is not None and (path is not None or catalog_id is not None):
        # No index holds both, and a parent may have a million children.
        found = "path" if path is not None else "catalog_id"
        raise Invalid(f"expected no {found} beside parent_execution_id, found both", pointer=f"/{found}")
    rows = await store.list_executions(
        api.pool,
        path=path,
        status=status.upper() if status else None,
        catalog_id=catalog_id,
        parent=parent,
        before=query_int(request, "cursor", 0) or None,
        limit=limit + 1,
        offset=offset,
    )
    has_next = len(rows) > limit
    now = datetime.now(UTC)
    headers = {NEXT_CURSOR: str(rows[limit - 1]["execution_id"])} if has_next else None
    return answer([_entry(row, now) for row in rows[:limit]], headers=headers)


async def read_execution(api: Api, request: Request) -> Response:
    """Return one run, what it was started with, and a page of its events. `wait_for`: as of its status."""
    execution_id = path_id(request, "execution_id", what="execution")
    row = await _projected(api, request, execution_id)
    started = await store.read_start_input(api.pool, execution_id)
    workload = ((started or {}).get("context") or {}).get("workload") or {}
    is_folded = row["compacted_at"] is not None
    body = {**_entry(row, row["now"]), "workload": workload.get("v"), "workload_ref": workload.get("ref")}
    body |= {"as_of_event_id": str(row["as_of_event_id"]), "lag_ms": row["lag_ms"]}
    body["waiting"] = await _waiting(api, row)
    if request.query_params.get("include_events", "true").lower() in ("false", "0", "no"):
        body |= {"events": [], "events_included": False, "source": "manifest" if is_folded else "events"}
    else:
        seen = ((row["progress"] or {}).get("counts") or {}).get("events", 0)
        page = await events_page(api, request, {**row, "events_projected": seen})
        body |= {**page, "events_included": True}
    return answer({**body, "events_endpoint": f"/api/executions/{execution_id}/events"})


async def read_status(api: Api, request: Request) -> Response:
    """Return where a run stands. `wait_for`: an event id whose projection is waited for, 5 s at most."""
    execution_id = path_id(request, "execution_id", what="execution")
    row = await _projected(api, request, execution_id)
    return answer({**_status(row), "waiting": await _waiting(api, row)})


async def _waiting(api: Api, row: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a run waits for before it begins; most have begun, and are not asked about."""
    if row["status"] in TERMINAL or row["current_step"] is not None:
        return None
    return await read_waiting(api.pool, row["execution_id"])


async def _projected(api: Api, request: Request, execution_id: int) -> dict[str, Any]:
    """Return a run, once the event that `wait_for` names is projected or the wait is over; `as_of_event_id` tells."""
    wait_for = query_int(request, "wait_for", 0)
    row = await _known(api, execution_id)
    if row["as_of_event_id"] >= wait_for:
        return row
    shard_id = row["shard_id"]
    if shard_in(wait_for) != shard_id:
        raise Invalid(f"wait_for: expected an event of execution {execution_id}, found {wait_for}", pointer="/wait_for")
    now_s = asyncio.get_running_loop().time
    deadline_s, pause_s = now_s() + WAIT_MAX_S, WAIT_PAUSE_S
    bell = str(shard_id)
    while True:
        rung = api.projected.mark(bell)
        row = await _known(api, execution_id)
        left_s = deadline_s - now_s()
        if row["as_of_event_id"] >= wait_for or left_s <= 0:
            return row
        # The bell wakes at once; without a bus, and for a bell that was lost, a look now and then does.
        await api.projected.wait(bell, min(pause_s, left_s), since=rung)
        pause_s = min(pause_s * 2, WAIT_PAUSE_MAX_S)


async def _known(api: Api, execution_id: int) -> dict[str, Any]:
    row = await store.read_execution(api.pool, execution_id)
    if row is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    return row


def _entry(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return a run as both public servers show it, each key of either."""
    progress = row["progress"] or {}
    parent = row["parent_execution_id"]
    return {
        "execution_id": str(row["execution_id"]),
        "catalog_id": str(row["catalog_id"]),
        "path": row["path"],
        "version": row["version"],
        "status": row["status"],
        "progress": _percent(row["status"], progress),
        "progress_detail": _with_rates(progress, now),
        "current_step": row["current_step"],
        "result": row["result"],
        "error": row["error"],
        "parent_execution_id": str(parent) if parent else None,
        "started_at": row["start_time"],
        "completed_at": row["end_time"],
        **_times(row, now),
    }


def _status(row: dict[str, Any]) -> dict[str, Any]:
    progress = row["progress"] or {}
    status = row["status"]
    # jsonb keeps no order of its own: as they ended, then as they began.
    progress = _with_rates(progress, row["now"])
    steps = dict(sorted((progress.get("steps") or {}).items(), key=_when))
    named = {state: [name for name, step in steps.items() if step["status"] == state] for state in STEP_STATES}
    counts = {
        "total_steps": len(steps),
        "completed_steps": len(named["completed"]),
        "running_steps": len(named["running"]),
        "failed_steps": len(named["failed"]),
    }
    return {
        "execution_id": str(row["execution_id"]),
        "path": row["path"],
        "version": row["version"],
        "status": status,
        "completed": status == "COMPLETED",
        "failed": status == "FAILED",
        "cancelled": status == "CANCELLED",
        "is_cancelled": status == "CANCELLED",
        "completion_inferred": False,
        "current_step": row["current_step"],
        "completed_steps": named["completed"],
        "progress": {**progress, **counts},
        "variables": {},
        "result": row["result"],
        "error": row["error"],
        **_times(row, row["now"]),
        "last_event_id": str(row["last_event_id"]),
        "as_of_event_id": str(row["as_of_event_id"]),
        "lag_ms": row["lag_ms"],
    }


def _when(named: tuple[str, dict[str, Any]]) -> tuple[str, str]:
    step = named[1]
    return step.get("ended_at") or "~", step.get("started_at") or ""


def _with_rates(progress: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return the progress with how many items a second each loop has ended since its step was entered."""
    steps = progress.get("steps") or {}
    loops = {name: step for name, step in steps.items() if step.get("items")}
    if not loops:
        return progress
    return {**progress, "steps": steps | {name: {**s, "items": _with_rate(s, now)} for name, s in loops.items()}}


def _with_rate(step: dict[str, Any], now: datetime) -> dict[str, Any]:
    items = step["items"]
    began, ended = step.get("started_at"), step.get("ended_at")
    until = datetime.fromisoformat(ended) if ended else now
    seconds = (until - datetime.fromisoformat(began)).total_seconds() if began else 0.0
    count = items["done"] + items["failed"]
    return {**items, "rate": round(count / seconds, 1) if seconds > 0 and count else None}


def _percent(status: str, progress: dict[str, Any]) -> int:
    """Return how much of what has begun is done; a run's whole size is not known before its end."""
    if status == "COMPLETED":
        return 100
    total = done = 0
    for step in (progress.get("steps") or {}).values():
        items = step.get("items") or {"total": 1, "done": int(step["status"] == "completed"), "failed": 0}
        total += items["total"]
        done += items["done"] + items["failed"]
    return min(99, 100 * done // total) if total else 0


def _times(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    start = row["start_time"] or datetime.fromtimestamp(minted_at_ms(row["execution_id"]) / 1000, UTC)
    seconds = max(0.0, ((row["end_time"] or now) - start).total_seconds())
    return {
        "start_time": start,
        "end_time": row["end_time"],
        "duration_seconds": round(seconds, 3),
        "duration_human": _human(seconds),
    }


def _human(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m {rest}s" if hours else f"{minutes}m {rest}s"


PAGE = {"page": "integer", "page_size": "integer", "limit": "integer", "offset": "integer"}

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/executions",
        handler=list_executions,
        summary="List runs, newest first.",
        scopes=READ,
        query={
            **PAGE,
            "cursor": "integer",
            "path": "string",
            "status": "string",
            "catalog_id": "integer",
            "parent_execution_id": "integer",
        },
    ),
    Endpoint(
        method="GET",
        path="/api/executions/{execution_id}",
        handler=read_execution,
        summary="Read a run with a page of its events.",
        scopes=READ,
        query={
            "page": "integer",
            "page_size": "integer",
            "cursor": "string",
            "since_event_id": "string",
            "event_type": "string",
            "include_events": "boolean",
            "wait_for": "integer",
        },
    ),
    Endpoint(
        method="GET",
        path="/api/executions/{execution_id}/status",
        handler=read_status,
        summary="Read where a run stands.",
        scopes=READ,
        query={"wait_for": "integer"},
    ),
)

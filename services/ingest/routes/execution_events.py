"""The history of a run: its events, and the lineage of a step's results."""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.events import canonical
from noetl_common.core.results import merged
from noetl_common.core.shard import ord_in, seq_in
from noetl_common.errors import Invalid, NotFound
from services.ingest import store_claims, store_manifests
from services.ingest import store_executions as store
from services.ingest.endpoints import READ, Api, Endpoint
from services.ingest.lineage import DEPTH_MAX, Key, Walk
from services.ingest.pages import Asked
from services.ingest.requests import INT64_MAX, Paging, answer, paging, path_id, query_int, query_text

CLAIMED = "command.claimed"
EVENTS_OFFSET_MAX = 100_000  # further on, a page is asked for by the cursor of the one before
PAGES = Paging(size_default=100, size_min=10, size_max=500, offset_max=EVENTS_OFFSET_MAX)
TRACE_MAX = 1000
SHOWN_BYTES_MAX = 4096  # a larger result is read by its reference


async def list_events(api: Api, request: Request) -> Response:
    """Return a page of a run's events, oldest first. Only what is routed is shown, so a page never changes."""
    execution_id = path_id(request, "execution_id", what="execution")
    standing = await store.read_standing(api.pool, execution_id)
    if standing is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    page = await events_page(api, request, standing)
    return answer({"execution_id": str(execution_id), "path": standing["path"], "status": standing["status"], **page})


async def events_page(api: Api, request: Request, run: dict[str, Any]) -> dict[str, Any]:
    """Return {events, pagination, source}; derived events (claims) ride behind the one they belong to, uncounted.

    A folded run is read from its manifest, whatever the log still holds of it. A long history is not counted:
    `total_events` is then what the projection has seen of it, and `total_is_exact` false.
    """
    execution_id, is_folded = run["execution_id"], run["compacted_at"] is not None
    limit, offset, page = paging(request, PAGES)
    wanted = query_text(request, "event_type")
    event_type = canonical(wanted) if wanted else None
    only_claims = event_type in (CLAIMED, "command_claimed")
    read = store_manifests.read_events if is_folded else store.read_events
    asked = Asked(
        since=_since(request),
        event_type="command.issued" if only_claims else event_type,
        limit=limit,
        offset=offset,
        projected=run["events_projected"],
    )
    found = await read(api.pool, execution_id, asked)
    rows = found.rows
    events: list[dict[str, Any]] = []
    show_claims = only_claims or event_type is None
    if is_folded:
        leases = _folded_leases(rows) if show_claims else {}
        payloads = {} if only_claims else _folded_payloads(rows)
    else:
        issued = [row["command_id"] for row in rows if row["event_type"] == "command.issued"]
        leases = await store.read_leases(api.pool, execution_id, issued) if show_claims else {}
        payloads = {} if only_claims else await _small_payloads(api, rows)
    for row in rows:
        if not only_claims:
            shown = _shown(row)
            if row["event_id"] in payloads:
                shown["context"] = _beside(shown["context"], payloads[row["event_id"]])
                shown["result"] = {**shown["result"], "context": shown["context"]}
            events.append(shown)
        if row["event_type"] == "command.issued" and row["command_id"] in leases:
            events.append(_claimed(row, leases[row["command_id"]]))
    last = str(found.last_event_id) if found.last_event_id is not None else None
    pagination = {
        "page": page,
        "page_size": limit,
        "total_events": found.total,
        "total_pages": max(1, -(-found.total // limit)),
        "total_is_exact": found.is_exact,
        "has_next": found.has_next,
        "has_prev": offset > 0,
        "last_event_id": last,
        "next_cursor": last if found.has_next else None,
    }
    return {"events": events, "pagination": pagination, "source": _source(is_folded)}


async def trace(api: Api, request: Request) -> Response:
    """Return the results of a step with all they descend from, in this run and others, oldest first, page by page.

    `depth`: how many steps back, 0: the step's own results alone. `cursor`: of the page before.
    """
    execution_id = path_id(request, "execution_id", what="execution")
    standing = await store.read_standing(api.pool, execution_id)
    if standing is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    step = request.path_params["step"]
    walked = await Walk(api.pool).trace(
        execution_id,
        step,
        depth=query_int(request, "depth", DEPTH_MAX, high=DEPTH_MAX),
        after=_cursor(request),
        limit=query_int(request, "limit", TRACE_MAX, low=1, high=TRACE_MAX),
    )
    chain = [_link(row, walked.depths[row["execution_id"], row["ref_id"]]) for row in walked.rows]
    last = chain[-1] if walked.has_more and chain else None
    return answer(
        {
            "execution_id": str(execution_id),
            "step": step,
            "source": _source(standing["compacted_at"] is not None),
            "chain": chain,
            "next_cursor": f"{last['execution_id']}.{last['ref_id']}" if last else None,
            "complete": walked.is_whole,
        }
    )


def _source(is_folded: bool) -> str:
    return "manifest" if is_folded else "events"


def _cursor(request: Request) -> Key | None:
    """Return the result that the page before ended with. Errors: Invalid."""
    text = query_text(request, "cursor")
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,19})\.(\d{1,19})", text)
    if found is None:
        raise Invalid(f"cursor: expected one that a page ended with, found {text[:60]!r}", pointer="/cursor")
    return int(found[1]), int(found[2])


def _folded_leases(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return {command id: its worker and attempt} as the manifest kept it."""
    return {
        row["command_id"]: {"worker_id": row["claim_worker_id"], "attempt": row["claim_attempt"]}
        for row in rows
        if row["claim_attempt"]
    }


def _folded_payloads(rows: list[dict[str, Any]]) -> dict[int, Any]:
    """Return {event id: what its command returned} as the manifest kept it."""
    return {
        row["event_id"]: _as_shown(msgspec.json.decode(row["payload"]), row["shape"])
        for row in rows
        if row["payload"] is not None
    }


async def _small_payloads(api: Api, rows: list[dict[str, Any]]) -> dict[int, Any]:
    """Return {event id: what its command returned, as its step shows it}: of small results only, the log has none."""
    named: dict[int, tuple[int, int]] = {}
    for row in rows:
        reference = (row["result"] or {}).get("reference")
        if reference and row["event_type"] == "command.completed" and reference["bytes"] <= SHOWN_BYTES_MAX:
            named[row["event_id"]] = (reference["execution_id"], reference["ref_id"])
    found = await store_claims.read_results(api.pool, list(named.values())) if named else []
    values = {}
    for one in found:
        if one.inline is not None:
            values[one.execution_id, one.ref_id] = _as_shown(msgspec.json.decode(one.inline), one.shape)
    return {event_id: values[key] for event_id, key in named.items() if key in values}


def _as_shown(payload: Any, shape: str) -> Any:
    return merged(payload) if shape == "pipeline" else payload


def _beside(told: dict[str, Any] | None, payload: Any) -> Any:
    """Return what a command returned with what its event tells besides, such as the variables it wrote."""
    if told is None:
        return payload
    return {**payload, **told} if isinstance(payload, dict) else told


def _since(request: Request) -> int:
    """Return `cursor`, or `since_event_id`; the id of a derived event stands for the one it belongs to."""
    for name in ("cursor", "since_event_id"):
        text = request.query_params.get(name, "").partition(".")[0]
        if not text:
            continue
        if not re.fullmatch(r"\d{1,19}", text) or int(text) > INT64_MAX:
            raise Invalid(f"{name}: expected an event id, found {text[:40]!r}", pointer=f"/{name}")
        return int(text)
    return 0


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    event_id = row["event_id"]
    result = row["result"] or {}
    if "error" in result:
        # Clients look for the error of a run in the context of its events.
        result = {**result, "context": {**(result.get("context") or {}), "error": result["error"]}}
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
        "result": result or None,
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


def _link(row: dict[str, Any], depth: int) -> dict[str, Any]:
    return {
        "execution_id": str(row["execution_id"]),
        "depth": depth,
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
        "made_from": [_named(*source) for source in row["sources"]],
    }


def _named(execution_id: int, ref_id: int, epoch: int) -> dict[str, str]:
    """Return what names a result, or all results of a loop."""
    name = {"loop_epoch": str(epoch)} if epoch else {"ref_id": str(ref_id)}
    return {"execution_id": str(execution_id), **name}


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/executions/{execution_id}/events",
        handler=list_events,
        summary="List a run's events.",
        scopes=READ,
        query={
            "page": "integer",
            "page_size": "integer",
            "cursor": "string",
            "since_event_id": "string",
            "event_type": "string",
        },
    ),
    Endpoint(
        method="GET",
        path="/api/executions/{execution_id}/trace/{step}",
        handler=trace,
        summary="Trace the results of a step.",
        scopes=READ,
        query={"limit": "integer", "depth": "integer", "cursor": "string"},
    ),
)

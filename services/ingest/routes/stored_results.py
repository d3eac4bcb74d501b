"""Results by name: clients put, list, read and delete them; `/api/temp` is their older address."""

import re
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.results import extract
from noetl_common.core.shard import hashed_id
from noetl_common.core.state import TERMINAL
from noetl_common.core.values import NULL_REF_ID, STORE_KINDS, Ref, Value
from noetl_common.errors import Conflict, Invalid, NotFound
from noetl_common.wire import BODY_BYTES_MAX, encode, ref_of
from services.ingest import store_executions, store_state
from services.ingest import store_results as store
from services.ingest.endpoints import EXECUTE, READ, WRITE, Api, Endpoint
from services.ingest.read_payloads import stored_row
from services.ingest.requests import answer, path_id, query_int, read_json
from services.ingest.routes import results
from services.ingest.store import result_record
from services.ingest.store_claims import read_results
from services.ingest.store_manifests import check_not_archived
from services.ingest.variables import whole_value

NAME_CHARACTERS_MAX = 200
TTL_DAYS_MAX = 3650
SHOWN_BYTES_MAX = BODY_BYTES_MAX  # a larger result is named, and read by its reference
PAGE, PAGE_MAX = 100, 1000
TTL = re.compile(r"(\d{1,9})\s*([smhd]?)")
UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Put(msgspec.Struct, kw_only=True):
    """PUT /api/result/{id}. The server chooses tier and compression: `store`, `compress`, `correlation` are noted.

    `scope` workflow or permanent: the result outlives the retention of its run, until its `ttl` ends.
    """

    name: str
    data: Any
    scope: Literal["step", "execution", "workflow", "permanent"] = "execution"
    store: str | None = None
    ttl: str | int | None = None
    source_step: str | None = None
    correlation: dict[str, Any] | None = None
    extracted: dict[str, Any] | None = None
    compress: bool = False


async def put_result(api: Api, request: Request) -> Response:
    """Store a payload under a name; durable when answered. The same payload again is the same result."""
    execution_id = path_id(request, "execution_id", what="execution")
    await store_executions.check_in_log(api.pool, execution_id)
    asked = await read_json(request, Put)
    name = _checked(asked.name, "/name")
    step = _checked(asked.source_step, "/source_step") if asked.source_step else name
    ttl_s = _ttl_s(asked.ttl)
    if asked.store is not None and asked.store not in STORE_KINDS:
        kinds = ", ".join(sorted(STORE_KINDS))
        raise Invalid(f"expected one of {kinds}, found {asked.store[:60]!r}", pointer="/store")
    text = encode(asked.data)
    ref_id = hashed_id(execution_id, "put", step, name, text)
    row = await stored_row(api.store, text, execution_id=execution_id, step=step, ref_id=ref_id)
    row.task_label = name if name != step else ""
    if asked.extracted is not None:
        row.extracted = extract(asked.extracted)
    kept = await store.put_result(api.pool, row, ttl_s=ttl_s, scope=asked.scope)
    return answer(
        {
            "ref": kept["ref"],
            "ref_id": str(row.ref_id),
            "store": row.store_tier,
            "scope": asked.scope,
            "expires_at": kept["expires_at"],
            "bytes": row.bytes,
            "sha256": row.sha256,
        }
    )


async def read_result(api: Api, request: Request) -> Response:
    """Return the result of a step, or the newest one stored under that name, with its payload unless it is large."""
    execution_id = await _known(api, request)
    name = request.path_params["step"]
    state = await store_state.read_state(api.pool, execution_id)
    ref = state.results.get(name) if state is not None else None
    uri = ref.uri if ref is not None else ""
    if ref is None:
        row = await store.find_named_result(api.pool, execution_id, name)
        if row is None:
            await check_not_archived(api.pool, execution_id, name)
            raise NotFound(f"expected a result of execution {execution_id}, found none named {name[:60]!r}")
        ref, uri = ref_of(row), result_record(row)["ref"]
    elif ref.shape != "loop" and ref.ref_id != NULL_REF_ID:
        await _check_kept(api, ref)
    size = ref.bytes
    if ref.shape == "loop":
        size = await store.sum_loop_bytes(api.pool, ref.execution_id, ref.epoch)
    is_shown = size <= SHOWN_BYTES_MAX
    body = {"execution_id": str(execution_id), "step": name, **_about(ref, uri), "bytes": size}
    return answer({**body, "data": await _payload(api, ref) if is_shown else None, "truncated": not is_shown})


async def list_results(api: Api, request: Request) -> Response:
    """Return a page of a run's results without their payloads, in the order of their ids."""
    execution_id = await _known(api, request)
    limit = query_int(request, "limit", PAGE, low=1, high=PAGE_MAX)
    rows = await store.list_results(api.pool, execution_id, after=query_int(request, "cursor", 0), limit=limit)
    cursor = str(rows[-1]["ref_id"]) if len(rows) == limit else None
    found = [_listed(row) for row in rows]
    return answer({"execution_id": str(execution_id), "results": found, "count": len(found), "next_cursor": cursor})


async def delete_results(api: Api, request: Request) -> Response:
    """Delete the results of a run that has ended, with their payloads. Its workload and variables stay."""
    return await _deleted(api, request, step=None)


async def delete_step_results(api: Api, request: Request) -> Response:
    """Delete the results of one step, or under one name, of a run that has ended."""
    return await _deleted(api, request, step=request.path_params["step"])


async def read_stats(api: Api, request: Request) -> Response:
    """Count a run's results by tier; without `execution_id` estimate how many there are in all."""
    execution_id = query_int(request, "execution_id", 0)
    if not execution_id:
        count = await store.estimate_results(api.pool)
        return answer({"execution_id": None, "count": count, "estimated": True, "bytes": None, "by_store": {}})
    rows = await store.count_results(api.pool, execution_id)
    by_store = {row["store_tier"]: {"count": row["count"], "bytes": row["bytes"]} for row in rows}
    totals = {name: sum(one[name] for one in by_store.values()) for name in ("count", "bytes")}
    return answer({"execution_id": str(execution_id), **totals, "estimated": False, "by_store": by_store})


async def _known(api: Api, request: Request) -> int:
    execution_id = path_id(request, "execution_id", what="execution")
    if await store_executions.read_standing(api.pool, execution_id) is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    return execution_id


async def _deleted(api: Api, request: Request, *, step: str | None) -> Response:
    execution_id = path_id(request, "execution_id", what="execution")
    await _check_unread(api, execution_id)
    kept = hashed_id(execution_id, "workload")
    # Payloads first: cut off in between, the rows are still there, and the same request does the rest.
    for uri, is_copied in await store.list_doomed_payloads(api.pool, execution_id, step=step, kept=kept):
        await api.store.delete(uri, is_copied=is_copied)
    count = await store.delete_results(api.pool, execution_id, step=step, kept=kept)
    return answer({"execution_id": str(execution_id), "step": step, "deleted": count > 0, "deleted_count": count})


async def _check_unread(api: Api, execution_id: int) -> None:
    """Return if no run that lives can still read these results. Errors: NotFound, Conflict."""
    standing = await store_executions.read_standing(api.pool, execution_id)
    if standing is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    if standing["status"] not in TERMINAL:
        raise Conflict(
            f"expected an execution that has ended, found {standing['status']}: {execution_id} may still read results",
            code="still_running",
        )
    family = await store_executions.list_live_family(api.pool, execution_id)
    reader = next((member for member in family if member != execution_id), None)
    reader = reader or await store.find_live_ancestor(api.pool, execution_id)
    if reader is not None:
        raise Conflict(
            f"expected no reader of these results, found execution {reader}, which has not ended", code="still_running"
        )


async def _check_kept(api: Api, ref: Ref) -> None:
    """Return if the index still has what the state names. Errors: NotFound, Gone."""
    if not await read_results(api.pool, [(ref.execution_id, ref.ref_id)]):
        await check_not_archived(api.pool, ref.execution_id, ref.uri)
        raise NotFound(f"expected a result, found that {ref.uri} was deleted")


async def _payload(api: Api, ref: Ref) -> Any:
    return None if ref.ref_id == NULL_REF_ID else await whole_value(api.pool, api.store, value=Value(ref=ref))


def _about(ref: Ref, uri: str) -> dict[str, Any]:
    return {
        "ref": uri,
        "ref_id": str(ref.ref_id),
        "store": ref.tier,
        "shape": ref.shape,
        "sha256": ref.sha256,
        "content_type": ref.content_type,
    }


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "ref": row["ref"],
        "ref_id": str(row["ref_id"]),
        "step": row["step"],
        "name": row["task_label"] or row["step"],
        "shape": row["shape"],
        "loop_epoch": str(row["loop_epoch"]) if row["loop_epoch"] else None,
        "iter_index": row["iter_index"] if row["iter_index"] >= 0 else None,
        "store": row["store_tier"],
        "content_type": row["content_type"],
        "bytes": row["bytes"],
        "sha256": row["sha256"],
        "rows": row["rows"],
        "preview": row["preview"],
        "created_at": row["created_at"],
        "expires_at": row["expires_at"],
    }


def _checked(name: str, pointer: str) -> str:
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or "/" in name or not name.isprintable() or name.startswith("ctx."):
        expected = f"1 to {NAME_CHARACTERS_MAX} printable characters without a slash, not beginning with 'ctx.'"
        raise Invalid(f"expected {expected}, found {name[:60]!r}", pointer=pointer)
    return name


def _ttl_s(ttl: str | int | None) -> float | None:
    """Return how long a result is kept, None: for ever. Errors: Invalid."""
    if ttl is None or ttl == "forever":
        return None
    found = TTL.fullmatch(str(ttl))
    seconds = int(found[1]) * UNIT_S[found[2]] if found else 0
    if not 0 < seconds <= TTL_DAYS_MAX * UNIT_S["d"]:
        raise Invalid(
            f"expected a time like 30m, 1h or 1d, up to {TTL_DAYS_MAX} days, or forever, found {str(ttl)[:40]!r}",
            pointer="/ttl",
        )
    return float(seconds)


NAMED = (
    Endpoint(
        method="PUT",
        path="/api/result/{execution_id}",
        handler=put_result,
        summary="Store a payload under a name.",
        scopes=EXECUTE,
        body=Put,
    ),
    Endpoint(
        method="GET",
        path="/api/result/stats",
        handler=read_stats,
        summary="Count results by tier.",
        scopes=READ,
        query={"execution_id": "integer"},
    ),
    Endpoint(
        method="GET",
        path="/api/result/{execution_id}/list",
        handler=list_results,
        summary="List the results of a run.",
        scopes=READ,
        query={"limit": "integer", "cursor": "integer"},
    ),
    Endpoint(
        method="GET",
        path="/api/result/{execution_id}/{step}",
        handler=read_result,
        summary="Read the result of a step.",
        scopes=READ,
    ),
    Endpoint(
        method="DELETE",
        path="/api/result/{execution_id}",
        handler=delete_results,
        summary="Delete the results of a run that has ended.",
        scopes=WRITE,
    ),
    Endpoint(
        method="DELETE",
        path="/api/result/{execution_id}/step/{step}",
        handler=delete_step_results,
        summary="Delete the results of one step of a run that has ended.",
        scopes=WRITE,
    ),
)
RESOLVE = tuple(one for one in results.ENDPOINTS if one.path == "/api/result/resolve")
ENDPOINTS = (
    *NAMED,
    *(
        msgspec.structs.replace(one, path=one.path.replace("/api/result/", "/api/temp/", 1))
        for one in (*RESOLVE, *NAMED)
    ),
)

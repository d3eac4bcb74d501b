"""Payloads: one by its reference, rows by key, the items of a loop."""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from noetl_common.core.tables import TABLE_TYPE
from noetl_common.core.values import Value
from noetl_common.errors import Invalid, NotFound, ReferenceNotAvailable, TooLarge
from noetl_common.wire import BODY_BYTES_MAX, ResultRow
from services.ingest import store_claims as store
from services.ingest import store_state
from services.ingest.endpoints import READ, WORKER, Api, Endpoint
from services.ingest.read_payloads import read_body
from services.ingest.requests import INT64_MAX, answer, query_int, read_json
from services.ingest.store_manifests import check_not_archived
from services.ingest.store_results import sum_loop_bytes
from services.ingest.stream_payloads import payload_parts
from services.ingest.variables import whole_value

REFERENCE = re.compile(r"noetl://execution/(\d{1,19})/result/.*?/?(\d{1,19})")
REFS_MAX = 500
LOOP_PAGE_MAX = 1000
TABLE_PART_BYTES_MAX = 64 * 1024 * 1024


class Wanted(msgspec.Struct, kw_only=True):
    """POST /api/results/read: rows of one execution, by reference id."""

    execution_id: int
    refs: list[int]


async def resolve(api: Api, request: Request) -> Response:
    """Return the payload that a reference names, as it was stored; its digest is checked. A loop's is put together.

    Errors: Gone when it went with the retention of its run.
    """
    uri = request.query_params.get("ref", "")
    execution_id, ref_id = _ids_in(uri)
    rows = await store.read_results(api.pool, [(execution_id, ref_id)])
    if not rows:
        await check_not_archived(api.pool, execution_id, uri)
        return answer(await _loop_payload(api, execution_id=execution_id, epoch=ref_id, uri=uri))
    headers = {"etag": f'"{rows[0].sha256}"'}
    parts = await payload_parts(api.store, rows[0]) if rows[0].physical_uri else None
    if parts is not None:
        return StreamingResponse(parts, media_type="application/json", headers=headers)
    return Response(await _payload(api, rows[0]), media_type="application/json", headers=headers)


async def read_table(api: Api, request: Request) -> Response:
    """Return a part of the Parquet file of a table, as it is stored; of a small one all of it."""
    uri = request.query_params.get("ref", "")
    execution_id, ref_id = _ids_in(uri)
    rows = await store.read_results(api.pool, [(execution_id, ref_id)])
    if not rows or rows[0].content_type != TABLE_TYPE:
        await check_not_archived(api.pool, execution_id, uri)
        raise NotFound(f"expected a table, found none at {uri[:200]}")
    offset = query_int(request, "offset", 0, low=0, high=INT64_MAX)
    length = query_int(request, "length", TABLE_PART_BYTES_MAX, low=1, high=TABLE_PART_BYTES_MAX)
    part = await api.store.read_range(rows[0].physical_uri, offset=offset, length=length)
    return Response(part, media_type=TABLE_TYPE, headers={"x-table-bytes": str(rows[0].bytes)})


async def read_rows(api: Api, request: Request) -> Response:
    """Return the rows of references, small payloads included; an unknown one is left out."""
    asked = await read_json(request, Wanted)
    if len(asked.refs) > REFS_MAX:
        raise Invalid(f"expected at most {REFS_MAX} references, found {len(asked.refs)}", pointer="/refs")
    rows = await store.read_results(api.pool, [(asked.execution_id, ref_id) for ref_id in asked.refs])
    return answer({"rows": rows})


async def read_loop(api: Api, request: Request) -> Response:
    """Return the results of a loop's items behind index `after`, in index order, and where to go on."""
    epoch = query_int(request, "loop_epoch", query_int(request, "epoch", 0))
    limit = query_int(request, "limit", REFS_MAX, low=1, high=LOOP_PAGE_MAX)
    rows = await store.read_loop_results(
        api.pool,
        query_int(request, "execution_id", 0),
        epoch,
        after=query_int(request, "after", -1, low=-1, high=1 << 31),
        limit=limit,
    )
    next_after: Any = rows[-1].iter_index if len(rows) == limit else None
    return answer({"results": rows, "next_after": next_after})


def _ids_in(uri: str) -> tuple[int, int]:
    """Return (execution id, reference id) of a reference. Errors: Invalid."""
    found = REFERENCE.fullmatch(uri)
    if found is None or max(int(found[1]), int(found[2])) > INT64_MAX:
        expected = "noetl://execution/<id>/result/<label>/<ref id>"
        raise Invalid(f"ref: expected {expected}, found {uri[:200]!r}", pointer="/ref")
    return int(found[1]), int(found[2])


async def _loop_payload(api: Api, *, execution_id: int, epoch: int, uri: str) -> Any:
    """Return {results, stats, count} of a loop. Errors: NotFound, TooLarge."""
    state = await store_state.read_state(api.pool, execution_id)
    refs = state.results.values() if state is not None else ()
    ref = next((ref for ref in refs if ref.shape == "loop" and ref.epoch == epoch), None)
    if ref is None:
        raise NotFound(f"expected a result, found none at {uri[:200]}")
    size_bytes = await sum_loop_bytes(api.pool, execution_id, epoch)
    if size_bytes > BODY_BYTES_MAX:
        expected = f"expected a loop's results of at most {BODY_BYTES_MAX} bytes, found {size_bytes}"
        raise TooLarge(f"{expected}: read its items from /api/results/loop")
    return await whole_value(api.pool, api.store, value=Value(ref=ref))


async def _payload(api: Api, row: ResultRow) -> bytes:
    if row.inline is not None:
        return bytes(row.inline)
    if not row.physical_uri:
        raise ReferenceNotAvailable(f"result {row.ref_id}: its row holds neither the payload nor where it is")
    return await read_body(api.store, row)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/result/resolve",
        handler=resolve,
        summary="Read a payload by its reference.",
        scopes=READ,
        query={"ref": "string"},
    ),
    Endpoint(
        method="GET",
        path="/api/results/table",
        handler=read_table,
        summary="Read a part of a table's Parquet file.",
        scopes=READ,
        query={"ref": "string", "offset": "integer", "length": "integer"},
    ),
    Endpoint(
        method="POST",
        path="/api/results/read",
        handler=read_rows,
        summary="Read result rows by reference id.",
        scopes=WORKER,
        body=Wanted,
    ),
    Endpoint(
        method="GET",
        path="/api/results/loop",
        handler=read_loop,
        summary="Read the results of a loop's items.",
        scopes=WORKER,
        query={
            "execution_id": "integer",
            "loop_epoch": "integer",
            "epoch": "integer",
            "after": "integer",
            "limit": "integer",
        },
    ),
)

"""Payloads: one by its reference, rows by key, the items of a loop."""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.errors import Invalid, NotFound, ReferenceNotAvailable
from noetl_common.wire import ResultRow
from services.ingest import store_claims as store
from services.ingest.endpoints import READ, WORKER, Api, Endpoint
from services.ingest.requests import INT64_MAX, answer, query_int, read_json

REFERENCE = re.compile(r"noetl://execution/(\d{1,19})/result/.*?/?(\d{1,19})")
REFS_MAX = 500
LOOP_PAGE_MAX = 1000


class Wanted(msgspec.Struct, kw_only=True):
    """POST /api/results/read: rows of one execution, by reference id."""

    execution_id: int
    refs: list[int]


async def resolve(api: Api, request: Request) -> Response:
    """Return the payload that a reference names, as it was stored; its digest is checked."""
    uri = request.query_params.get("ref", "")
    found = REFERENCE.fullmatch(uri)
    if found is None or max(int(found[1]), int(found[2])) > INT64_MAX:
        expected = "noetl://execution/<id>/result/<label>/<ref id>"
        raise Invalid(f"ref: expected {expected}, found {uri[:200]!r}", pointer="/ref")
    rows = await store.read_results(api.pool, [(int(found[1]), int(found[2]))])
    if not rows:
        raise NotFound(f"no result {uri[:200]}")
    payload = await _payload(api, rows[0])
    return Response(payload, media_type=rows[0].content_type, headers={"etag": f'"{rows[0].sha256}"'})


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


async def _payload(api: Api, row: ResultRow) -> bytes:
    if row.inline is not None:
        return bytes(row.inline)
    if not row.physical_uri:
        raise ReferenceNotAvailable(f"result {row.ref_id}: its row holds neither the payload nor where it is")
    return await api.store.read(row.physical_uri, row.sha256, row.compression)


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

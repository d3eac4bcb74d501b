"""Start a playbook."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.errors import Invalid
from services.ingest.endpoints import EXECUTE, Api, Endpoint
from services.ingest.requests import answer, idempotency_key_of, read_json
from services.ingest.routes.catalog import version_of
from services.ingest.starts import Asked, answer_of


class Execution(msgspec.Struct, kw_only=True):
    """POST /api/execute: path (and version) or catalog_id; `payload`, `workload`, `input` and `args` are one thing."""

    path: str = ""
    version: int | str | None = None
    catalog_id: int | None = None
    payload: dict[str, Any] | None = None
    workload: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    args: dict[str, Any] | None = None
    parent_execution_id: int | None = None


async def execute(api: Api, request: Request) -> Response:
    """Start a playbook; the answer comes when the start is committed. A repeated Idempotency-Key starts nothing."""
    asked = await read_json(request, Execution)
    if not asked.path and asked.catalog_id is None:
        raise Invalid("expected path or catalog_id, found neither", pointer="/path")
    wanted = Asked(
        path=asked.path,
        version=version_of(asked.version),
        catalog_id=asked.catalog_id,
        payload={**(asked.args or {}), **(asked.input or {}), **(asked.workload or {}), **(asked.payload or {})},
        parent_execution_id=asked.parent_execution_id,
        idempotency_key=idempotency_key_of(request),
    )
    started = await api.starter.start(wanted)
    return answer(answer_of(started))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/execute",
        handler=execute,
        summary="Start a playbook.",
        scopes=EXECUTE,
        body=Execution,
    ),
)

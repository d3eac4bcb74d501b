"""Start a run again: the same version of its playbook, its workload with what the caller changes."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.values import Value
from noetl_common.errors import NotFound, ReferenceNotAvailable
from services.ingest import store_executions
from services.ingest.endpoints import EXECUTE, Api, Endpoint
from services.ingest.requests import answer, idempotency_key_of, path_id, read_json
from services.ingest.starts import Asked, answer_of
from services.ingest.store_manifests import check_not_archived
from services.ingest.variables import whole_value


class Rerun(msgspec.Struct, kw_only=True):
    """POST /api/executions/{id}/rerun: keys of the workload to change; `payload` is the same thing."""

    workload: dict[str, Any] | None = None
    payload: dict[str, Any] | None = None
    resource_kind: str = ""


async def rerun(api: Api, request: Request) -> Response:
    """Start a run again, as a new one. A repeated Idempotency-Key starts nothing."""
    execution_id = path_id(request, "execution_id", what="execution")
    asked = await read_json(request, Rerun)
    row = await store_executions.read_execution(api.pool, execution_id)
    envelope = await store_executions.read_start_input(api.pool, execution_id)
    if row is None or envelope is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    given = msgspec.convert(envelope["context"].get("workload", {"v": {}}), Value, strict=False)
    try:
        before = await whole_value(api.pool, api.store, value=given)
    except ReferenceNotAvailable:
        await check_not_archived(api.pool, execution_id, "the workload")
        raise
    started = await api.starter.start(
        Asked(
            catalog_id=row["catalog_id"],
            payload={**(before or {}), **(asked.workload or {}), **(asked.payload or {})},
            idempotency_key=idempotency_key_of(request),
        )
    )
    return answer({**answer_of(started), "rerun_of": str(execution_id)})


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/executions/{execution_id}/rerun",
        handler=rerun,
        summary="Start a run again.",
        scopes=EXECUTE,
        body=Rerun,
    ),
)

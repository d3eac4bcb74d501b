"""Start playbooks: one, or a batch of which each has its own outcome."""

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.parse_run import PRIORITY_MAX, PRIORITY_MIN
from noetl_common.errors import Invalid, NoetlError
from services.ingest.endpoints import EXECUTE, Api, Endpoint
from services.ingest.problems import problem_in
from services.ingest.requests import answer, idempotency_key_of, read_json, within
from services.ingest.routes.catalog import version_of
from services.ingest.starts import Asked, Started, answer_of

BATCH_STARTS_MAX = 1_000


class Execution(msgspec.Struct, kw_only=True):
    """POST /api/execute: path (and version) or catalog_id; `payload`, `workload`, `input` and `args` are one thing.

    `priority`: of its commands, where steps say nothing else. `idempotency_key`: the header's twin, for batches.
    """

    path: str = ""
    version: int | str | None = None
    catalog_id: int | None = None
    payload: dict[str, Any] | None = None
    workload: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    args: dict[str, Any] | None = None
    parent_execution_id: int | None = None
    priority: int | None = None
    idempotency_key: str | None = None


class Executions(msgspec.Struct, kw_only=True):
    """POST /api/execute/batch."""

    executions: list[dict[str, Any]]


class BatchItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of one item. `problem`: of one that failed, {status, code, error, pointer?}."""

    index: int
    status: Literal["started", "duplicate", "failed"]
    execution_id: str = ""
    event_id: str = ""
    commands_generated: int = 0
    error: str = ""
    problem: dict[str, Any] = {}


class BatchAnswer(msgspec.Struct, kw_only=True):
    """What became of a batch, item by item."""

    count: int
    started: int
    duplicates: int
    failed: int
    results: list[BatchItem]


async def execute(api: Api, request: Request) -> Response:
    """Start a playbook; the answer comes when the start is committed. A repeated Idempotency-Key starts nothing."""
    asked = _asked(await read_json(request, Execution), key=idempotency_key_of(request))
    return answer(answer_of(await api.starter.start(asked)))


async def execute_batch(api: Api, request: Request) -> Response:
    """Start playbooks, those of a shard in one transaction; each item succeeds, is a duplicate or fails by itself.

    An Idempotency-Key of the request stands for one of each item that has none: the key and the item's index.
    """
    items = (await read_json(request, Executions)).executions
    if not 1 <= len(items) <= BATCH_STARTS_MAX:
        found = f"expected 1 to {BATCH_STARTS_MAX} executions, found {len(items)}"
        raise Invalid(found, pointer="/executions")
    key = idempotency_key_of(request)
    wishes: dict[int, Asked] = {}
    outcomes: dict[int, Started | BaseException] = {}
    for index, item in enumerate(items):
        try:
            wishes[index] = _asked(_execution(item), key=f"{key}:{index}" if key else None)
        except NoetlError as refusal:
            outcomes[index] = refusal
    if wishes:
        outcomes |= dict(zip(wishes, await api.starter.start_many(list(wishes.values())), strict=True))
    results = [_item(index, outcomes[index]) for index in range(len(items))]
    counts = {status: sum(one.status == status for one in results) for status in ("started", "duplicate", "failed")}
    return answer(
        BatchAnswer(
            count=len(results),
            started=counts["started"],
            duplicates=counts["duplicate"],
            failed=counts["failed"],
            results=results,
        )
    )


def _execution(item: dict[str, Any]) -> Execution:
    try:
        return msgspec.convert(item, Execution)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from error


def _asked(body: Execution, *, key: str | None) -> Asked:
    """Return the wish of a body; `key` is what the header says. Errors: Invalid."""
    if not body.path and body.catalog_id is None:
        raise Invalid("expected path or catalog_id, found neither", pointer="/path")
    if body.priority is not None:
        within(body.priority, "priority", low=PRIORITY_MIN, high=PRIORITY_MAX)
    return Asked(
        path=body.path,
        version=version_of(body.version),
        catalog_id=body.catalog_id,
        payload={**(body.args or {}), **(body.input or {}), **(body.workload or {}), **(body.payload or {})},
        parent_execution_id=body.parent_execution_id,
        priority=body.priority,
        idempotency_key=body.idempotency_key or key,
    )


def _item(index: int, outcome: Started | BaseException) -> BatchItem:
    if isinstance(outcome, Started):
        told = answer_of(outcome)
        return BatchItem(
            index=index,
            status=told["status"],
            execution_id=told["execution_id"],
            event_id=told["event_id"],
            commands_generated=told["commands_generated"],
        )
    problem = problem_in(outcome)
    return BatchItem(index=index, status="failed", error=problem["error"], problem=problem)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/execute",
        handler=execute,
        summary="Start a playbook.",
        scopes=EXECUTE,
        body=Execution,
    ),
    Endpoint(
        method="POST",
        path="/api/execute/batch",
        handler=execute_batch,
        summary="Start up to 1,000 playbooks.",
        scopes=EXECUTE,
        body=Executions,
        answer=BatchAnswer,
    ),
)

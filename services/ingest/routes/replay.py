"""A look behind a run: the fold of its log beside the state that routing keeps, and templates tried on it."""

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core import templates
from noetl_common.core.fold import fold
from noetl_common.core.scope import NeedPayload, Scope, system_names
from noetl_common.core.state import ExecutionState
from noetl_common.core.values import Value
from noetl_common.db import utc_now_text
from noetl_common.errors import Conflict, Invalid, TooLarge
from noetl_common.wire import encode
from services.ingest import store_executions, store_state
from services.ingest.endpoints import ADMIN, READ, Api, Endpoint
from services.ingest.payloads import PayloadCache
from services.ingest.read_payloads import read_payloads
from services.ingest.requests import answer, query_int, read_json

PAGE_EVENTS = 2_000
REPLAY_EVENTS_MAX = 1_000_000
LOADS_MAX = 20
PAYLOADS_BYTES_MAX = 16 * 1024 * 1024


class Rendering(msgspec.Struct, kw_only=True):
    """POST /api/context/render: a template, and what it sees: the run's names, and above them `context`."""

    template: Any
    execution_id: int | None = None
    context: dict[str, Any] = {}


async def read_replay(api: Api, request: Request) -> Response:
    """Fold a run's log from its first event and say whether that is the state that routing keeps."""
    execution_id = query_int(request, "execution_id", 0)
    kept = await _state(api, execution_id)
    state, events = ExecutionState(execution_id=execution_id), 0
    while page := await store_state.read_history(
        api.pool, execution_id, after=state.last_event_id, upto=kept.last_event_id, limit=PAGE_EVENTS
    ):
        events += len(page)
        if events > REPLAY_EVENTS_MAX:
            raise TooLarge(f"execution {execution_id}: expected at most {REPLAY_EVENTS_MAX} events, found more")
        try:
            for event in page:
                state = fold(state, event)
        except (KeyError, ValueError) as exc:
            raise Conflict(
                f"execution {execution_id}: this release cannot fold its log: {exc}", code="REPLAY_FAILED"
            ) from exc
    body = {"execution_id": str(execution_id), "matches": state == kept, "events": events}
    return answer({**body, "last_event_id": str(state.last_event_id), "state": msgspec.to_builtins(state)})


async def render(api: Api, request: Request) -> Response:
    """Render a template as routing would, over a run's names when one is given."""
    asked = await read_json(request, Rendering)
    state = ExecutionState(execution_id=0)
    if asked.execution_id is not None:
        state = await _state(api, asked.execution_id)
    cache = PayloadCache(PAYLOADS_BYTES_MAX)
    now_text = utc_now_text()
    scope = Scope(
        load=cache.load,
        workload=state.workload,
        ctx=state.ctx,
        results=state.results,
        system=system_names(
            execution_id=state.execution_id,
            catalog_id=state.catalog_id,
            path=state.path,
            version=state.version,
            parent_execution_id=state.parent_execution_id,
            now=lambda: now_text,
        ),
        locals={name: Value(value) for name, value in asked.context.items()},
    )
    for _load in range(LOADS_MAX):
        try:
            # In a thread: the sandbox bounds what a template may cost, and that is still too long for the API to hang.
            rendered = await asyncio.to_thread(templates.render, asked.template, scope, where="template")
            return _rendered(rendered)
        except NeedPayload as need:
            size = sum(ref.bytes for ref, _key in need.needs)
            if size > PAYLOADS_BYTES_MAX:
                raise TooLarge(
                    f"template: expected to read at most {PAYLOADS_BYTES_MAX} bytes of results, found {size}"
                ) from need
            await read_payloads(api.pool, api.store, cache=cache, needs=need.needs)
    raise TooLarge(f"template: expected at most {LOADS_MAX} rounds of reading results, found more")


async def _state(api: Api, execution_id: int) -> ExecutionState:
    """Return the state routing keeps, an empty one before it has seen the run. Errors: NotFound."""
    await store_executions.check_in_log(api.pool, execution_id)
    return await store_state.read_state(api.pool, execution_id) or ExecutionState(execution_id=execution_id)


def _rendered(value: Any) -> Response:
    try:
        encode(value)
    except (OverflowError, UnicodeEncodeError) as exc:
        raise Invalid(f"expected a value that JSON can say, found one it cannot: {exc}", pointer="/template") from exc
    return answer({"status": "ok", "rendered": value})


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/replay/state",
        handler=read_replay,
        summary="Fold a run's log and compare it with the state kept.",
        scopes=READ,
        query={"execution_id": "integer"},
    ),
    Endpoint(
        method="POST",
        path="/api/context/render",
        handler=render,
        summary="Try a template on a run.",
        scopes=ADMIN,
        body=Rendering,
    ),
)

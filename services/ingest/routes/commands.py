"""The queue as workers see it: claim, look again, renew, note down; one at a time for public clients."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.commands import CommandContext
from noetl_common.core.values import Ref, Value
from noetl_common.wire import Claim, Claimed, ClaimedCommand, Details, Heartbeat, HeartbeatAnswer
from services.ingest.endpoints import WORKER, Api, Endpoint
from services.ingest.requests import answer, path_id, read_json
from services.ingest.routes.events import check_rows

MAX_ATTEMPTS = 3


class SingleClaim(msgspec.Struct, kw_only=True):
    """POST /api/commands/{event_id}/claim."""

    worker_id: str


async def claim(api: Api, request: Request) -> Response:
    """Lease waiting commands of a pool; while there are none the request is held, `wait_s` at most."""
    wanted = await read_json(request, Claim)
    return answer(await api.claims.claim(wanted, is_gone=request.is_disconnected))


async def read_claims(api: Api, request: Request) -> Response:
    """Return what a worker holds: the answer to a claim that never reached it."""
    return answer(await api.claims.held(request.path_params["worker_id"]))


async def heartbeat(api: Api, request: Request) -> Response:
    """Renew every lease of a worker; answer which commands to abandon."""
    return answer(await api.claims.heartbeat(await read_json(request, Heartbeat)))


async def note_details(api: Api, request: Request) -> Response:
    """Keep what a worker notes down for the attempt after this one; 409 claim_lost when its claim is not current."""
    command_id = path_id(request, "command_id", what="command")
    noted = await read_json(request, Details)
    check_rows(noted.results, noted.execution_id, "")
    await api.claims.note_details(command_id, noted)
    return answer({"status": "noted"})


async def claim_one(api: Api, request: Request) -> Response:
    """Lease the command that a command.issued event announced."""
    event_id = path_id(request, "event_id", what="command")
    asked = await read_json(request, SingleClaim)
    claimed, pool = await api.claims.claim_one(event_id, asked.worker_id)
    return answer({"status": "claimed", **_foreign(claimed, pool)})


async def read_one(api: Api, request: Request) -> Response:
    """Return the command that a command.issued event announced."""
    claimed, pool = await api.claims.look(path_id(request, "event_id", what="command"))
    return answer(_foreign(claimed, pool))


def _foreign(claimed: Claimed, pool: str) -> dict[str, Any]:
    """Return a command in the shape of the public runtime: tools unrendered, with all that templates may name."""
    [command] = claimed.commands
    context = claimed.contexts.get(command.context_id)
    payloads = {(row.execution_id, row.ref_id): row.inline for row in claimed.results if row.inline is not None}
    kinds = [task.kind for task in context.tasks] if context else []
    meta = {
        "command_id": command.command_id,
        "attempt": command.attempt,
        "max_attempts": MAX_ATTEMPTS,
        "step": command.step,
        "tool_kind": kinds[0] if kinds else "",
        "execution_pool": pool,
        "execution_id": command.execution_id,
        "catalog_id": context.catalog_id if context else 0,
        "claim_token": command.claim_token,
    }
    if command.iter_index >= 0:
        meta |= {"loop_iteration_index": command.iter_index, "loop_event_id": str(command.loop_epoch)}
    return {
        "event_id": command.event_id,
        "execution_id": command.execution_id,
        "node_id": command.step,
        "node_name": command.step,
        "action": "pipeline" if context and context.is_pipeline else meta["tool_kind"],
        "context": _context(command, context, payloads) if context else {},
        "meta": meta,
        "claim_token": command.claim_token,
        "attempt": command.attempt,
    }


def _context(command: ClaimedCommand, context: CommandContext, payloads: dict[tuple[int, int], Any]) -> dict[str, Any]:
    def shown(value: Value | Ref | None) -> Any:
        ref = value.ref if isinstance(value, Value) else value
        if ref is None:
            return value.v if isinstance(value, Value) else None
        return payloads.get((ref.execution_id, ref.ref_id), {"reference": ref.uri, "bytes": ref.bytes})

    tools = [{"name": task.label, "kind": task.kind, **task.config} for task in context.tasks]
    inputs = context.tasks[0].input if context.tasks else {}
    results = {name: shown(ref) for name, ref in context.results.items()}
    variables = {name: shown(value) for name, value in context.ctx.items()}
    render = {
        **results,
        "workload": shown(context.workload),
        "ctx": variables,
        "execution_id": str(command.execution_id),
        "catalog_id": str(context.catalog_id),
    }
    item = command.item
    if context.iterator and item is not None:
        render[context.iterator] = item.v if item.ref is None else {"reference": item.ref.uri, "index": item.index}
    return {
        "tool_config": tools if context.is_pipeline else tools[0],
        "args": inputs,
        "input": inputs,
        "render_context": render,
        "case": [],
        "next": [],
    }


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/commands/claim",
        handler=claim,
        summary="Claim waiting commands.",
        scopes=WORKER,
        body=Claim,
        answer=Claimed,
    ),
    Endpoint(
        method="POST",
        path="/api/commands/heartbeat",
        handler=heartbeat,
        summary="Renew leases.",
        scopes=WORKER,
        body=Heartbeat,
        answer=HeartbeatAnswer,
    ),
    Endpoint(
        method="POST",
        path="/api/commands/{command_id}/details",
        handler=note_details,
        summary="Note down what the next attempt must know.",
        scopes=WORKER,
        body=Details,
    ),
    Endpoint(
        method="GET",
        path="/api/workers/{worker_id}/claims",
        handler=read_claims,
        summary="Read again what a worker holds on lease.",
        scopes=WORKER,
        answer=Claimed,
    ),
    Endpoint(
        method="POST",
        path="/api/commands/{event_id}/claim",
        handler=claim_one,
        summary="Claim one named command.",
        scopes=WORKER,
        body=SingleClaim,
    ),
    Endpoint(
        method="GET",
        path="/api/commands/{event_id}",
        handler=read_one,
        summary="Read one named command.",
        scopes=WORKER,
    ),
)

"""Live workers: register, heartbeat, leave, list."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.errors import Invalid
from services.ingest import store_catalog as store
from services.ingest.endpoints import READ, WORKER, Api, Endpoint
from services.ingest.requests import answer, query_text, read_json

KIND = "worker_pool"
NAME_CHARACTERS_MAX = 200


class Registration(msgspec.Struct, kw_only=True):
    """POST /api/worker/pool/register. `runtime`: a name or an object; `kind` is an alias of `component_type`."""

    name: str
    component_type: str = ""
    kind: str = ""
    runtime: str | dict[str, Any] | None = None
    status: str = "ready"
    capacity: int = 1
    uri: str = ""
    hostname: str = ""
    pid: int | None = None
    labels: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    instance: str = ""


class Beat(msgspec.Struct, kw_only=True):
    """POST /api/worker/pool/heartbeat; with `registration` an unknown worker is registered again."""

    name: str
    component_type: str = ""
    registration: Registration | None = None


async def register(api: Api, request: Request) -> Response:
    """Put a worker on the list; one of the same name is taken over."""
    return answer(await _register(api, await read_json(request, Registration), status="ok"))


async def heartbeat(api: Api, request: Request) -> Response:
    """Note that a worker lives."""
    asked = await read_json(request, Beat)
    row = await store.beat_runtime(api.pool, kind=asked.component_type or KIND, name=asked.name)
    if row is not None:
        return answer(_known(row, status="ok"))
    if asked.registration is not None:
        return answer(await _register(api, asked.registration, status="recreated"))
    return answer({"status": "unknown", "name": asked.name, "runtime_id": None, "runtime": None})


async def deregister(api: Api, request: Request) -> Response:
    """Take a worker off the list; one that is not on it has left already."""
    asked = await read_json(request, Beat)
    known = await store.forget_runtime(api.pool, kind=asked.component_type or KIND, name=asked.name)
    return answer({"status": "ok", "name": asked.name, "message": "deregistered" if known else "was not registered"})


async def list_pools(api: Api, request: Request) -> Response:
    """Return the workers, as the public runtime shows them."""
    runtime, status = query_text(request, "runtime"), query_text(request, "status")
    rows = await store.list_runtimes(api.pool, kind=KIND, status=status)
    items = [
        {
            "name": row["name"],
            "runtime": row["runtime"],
            "status": row["status"],
            "capacity": row["capacity"],
            "active": row["active"],
            "labels": row["labels"],
            "heartbeat": row["heartbeat"],
            "created_at": row["created_at"],
            "updated_at": row["updated_at"],
        }
        for row in rows
        if runtime is None or row["runtime"].get("kind") == runtime
    ]
    return answer({"items": items, "count": len(items), "runtime": runtime, "status": status})


async def list_workers(api: Api, _request: Request) -> Response:
    """Return the workers with their capacity."""
    rows = await store.list_runtimes(api.pool, kind=KIND)
    items = [
        {
            "worker_id": row["name"],
            "pool": row["labels"].get("pool") or row["labels"].get("pool_name") or "default",
            "status": row["status"],
            "capacity": row["capacity"],
            "active_tasks": row["active"],
            "available_slots": max(0, row["capacity"] - row["active"]),
            "tool_pools": row["runtime"].get("tools", []),
            "heartbeat": row["heartbeat"],
        }
        for row in rows
    ]
    return answer({"items": items, "count": len(items)})


async def _register(api: Api, asked: Registration, *, status: str) -> dict[str, Any]:
    if not 0 < len(asked.name) <= NAME_CHARACTERS_MAX:
        raise Invalid(f"expected 1 to {NAME_CHARACTERS_MAX} characters, found {len(asked.name)}", pointer="/name")
    runtime = asked.runtime if isinstance(asked.runtime, dict) else {"kind": asked.runtime or "python"}
    about = {"hostname": asked.hostname, "pid": asked.pid, **asked.meta}
    fields = {
        "kind": asked.component_type or asked.kind or KIND,
        "name": asked.name,
        "instance": asked.instance or asked.name,
        "uri": asked.uri,
        "status": asked.status,
        "capacity": asked.capacity,
        "labels": asked.labels,
        "runtime": {**runtime, **{key: value for key, value in about.items() if value not in (None, "")}},
    }
    return _known(await store.register_runtime(api.pool, fields), status=status)


def _known(row: dict[str, Any], *, status: str) -> dict[str, Any]:
    return {
        "status": status,
        "name": row["name"],
        "runtime_id": str(row["runtime_id"]),
        "kind": row["kind"],
        "runtime": row["runtime"],
    }


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/worker/pool/register",
        handler=register,
        summary="Register a worker.",
        scopes=WORKER,
        body=Registration,
    ),
    Endpoint(
        method="POST",
        path="/api/worker/pool/heartbeat",
        handler=heartbeat,
        summary="Note that a worker lives.",
        scopes=WORKER,
        body=Beat,
    ),
    Endpoint(
        method="POST",
        path="/api/worker/pool/deregister",
        handler=deregister,
        summary="Deregister a worker.",
        scopes=WORKER,
        body=Beat,
    ),
    Endpoint(
        method="DELETE",
        path="/api/worker/pool/deregister",
        handler=deregister,
        summary="Deregister a worker.",
        scopes=WORKER,
        body=Beat,
    ),
    Endpoint(
        method="GET",
        path="/api/worker/pools",
        handler=list_pools,
        summary="List workers as the public runtime does.",
        scopes=READ,
        query={"runtime": "string", "status": "string"},
    ),
    Endpoint(
        method="GET",
        path="/api/workers",
        handler=list_workers,
        summary="List workers and their capacity.",
        scopes=READ,
    ),
)

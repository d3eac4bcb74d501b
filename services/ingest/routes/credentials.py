"""Secrets by alias: stored sealed, listed without their data, opened for workers only."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.errors import Invalid, NotFound
from services.ingest import store_catalog as store
from services.ingest.endpoints import READ, WRITE, Api, Endpoint
from services.ingest.requests import answer, query_flag, query_text, read_json
from services.ingest.store_catalog import CredentialRow

NAME_CHARACTERS_MAX = 200
DATA_BYTES_MAX = 256 * 1024


class Credential(msgspec.Struct, kw_only=True):
    """POST /api/credentials: created, or replaced by name."""

    name: str
    type: str
    data: dict[str, Any]
    meta: dict[str, Any] | None = None
    tags: list[str] | None = None
    description: str | None = None


async def write_credential(api: Api, request: Request) -> Response:
    """Store a secret under its name."""
    asked = await read_json(request, Credential, bytes_max=DATA_BYTES_MAX)
    if not 0 < len(asked.name) <= NAME_CHARACTERS_MAX or "/" in asked.name:
        expected = f"1 to {NAME_CHARACTERS_MAX} characters without a slash"
        raise Invalid(f"expected {expected}, found {asked.name[:60]!r}", pointer="/name")
    fields = {
        "name": asked.name,
        "type": asked.type,
        "meta": asked.meta or {},
        "tags": asked.tags or [],
        "description": asked.description or "",
    }
    return answer(_shown(await store.upsert_credential(api.pool, fields, api.vault.seal(asked.name, asked.data))))


async def list_credentials(api: Api, request: Request) -> Response:
    """Return the secrets by name, never their data."""
    type_, q = query_text(request, "type"), query_text(request, "q")
    rows = await store.list_credentials(api.pool, type_=type_, q=q)
    return answer({"items": [_shown(row) for row in rows], "filter": {"type": type_, "q": q}})


async def read_credential(api: Api, request: Request) -> Response:
    """Return one secret; with include_data, for workers, what it holds."""
    include_data = query_flag(request, "include_data")
    if include_data:
        api.guard.check(request.headers.get("authorization", ""), ("worker", "admin"))
    found = await store.read_credential(api.pool, request.path_params["name"])
    if found is None:
        raise NotFound(f"expected a credential, found none named {request.path_params['name'][:NAME_CHARACTERS_MAX]!r}")
    row, sealed = found
    body = _shown(row)
    if include_data:
        body["data"] = api.vault.open(row.name, sealed)
    return answer(body, headers={"cache-control": "no-store"})


async def delete_credential(api: Api, request: Request) -> Response:
    """Forget a secret."""
    name = request.path_params["name"]
    gone = await store.delete_credential(api.pool, name)
    if gone is None:
        raise NotFound(f"expected a credential, found none named {name[:NAME_CHARACTERS_MAX]!r}")
    return answer({"status": "deleted", "id": str(gone["id"]), "name": gone["name"]})


def _shown(row: CredentialRow) -> dict[str, Any]:
    return {**msgspec.structs.asdict(row), "id": str(row.id)}


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/credentials",
        handler=write_credential,
        summary="Store a secret.",
        scopes=WRITE,
        body=Credential,
    ),
    Endpoint(
        method="GET",
        path="/api/credentials",
        handler=list_credentials,
        summary="List secrets, without their data.",
        scopes=READ,
        query={"type": "string", "q": "string"},
    ),
    Endpoint(
        method="GET",
        path="/api/credentials/{name}",
        handler=read_credential,
        summary="Read a secret, by name or id.",
        scopes=READ,
        query={"include_data": "boolean"},
    ),
    Endpoint(
        method="DELETE",
        path="/api/credentials/{name}",
        handler=delete_credential,
        summary="Forget a secret.",
        scopes=WRITE,
    ),
)

"""Documents: register, list, read."""

import base64
import hashlib
import re

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.lint import lint
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Finding
from noetl_common.errors import Invalid, NotFound, TooLarge
from services.ingest import store_catalog as store
from services.ingest.endpoints import READ, WRITE, Api, Endpoint
from services.ingest.requests import answer, query_flag, query_int, query_text, read_json, within
from services.ingest.store_catalog import CatalogRow

CONTENT_BYTES_MAX = 1024 * 1024
KIND = "Playbook"
OFFSET_MAX = 1_000_000
PATH_CHARACTERS_MAX = 500


class Registration(msgspec.Struct, kw_only=True):
    """POST /api/catalog/register. `content`: YAML as it is, or in base64."""

    content: str
    resource_type: str = KIND
    path: str = ""


class Listing(msgspec.Struct, kw_only=True):
    """POST /api/catalog/list."""

    resource_type: str | None = None
    path: str | None = None
    include_archived: bool = False
    limit: int = store.LIST_MAX
    offset: int = 0


class Wanted(msgspec.Struct, kw_only=True):
    """POST /api/catalog/resource."""

    path: str = ""
    version: int | str | None = None
    catalog_id: int | None = None


async def register(api: Api, request: Request) -> Response:
    """Check a playbook and store it as the next version of its path."""
    asked = await read_json(request, Registration)
    if asked.resource_type.lower() != KIND.lower():
        raise Invalid(f"expected {KIND}, found {asked.resource_type[:60]!r}", pointer="/resource_type")
    text = _text(asked.content)
    playbook, findings = parse(text)
    warnings = [msgspec.to_builtins(finding) for finding in (*findings, *lint(text, playbook))]
    path = playbook.path
    if not path:
        path = playbook.name
        missing = Finding(severity="warning", message=f"metadata.path: missing, metadata.name {path!r} is used instead")
        warnings.append(msgspec.to_builtins(missing))
    if not path or len(path) > PATH_CHARACTERS_MAX:
        raise Invalid(
            f"metadata.path: expected 1 to {PATH_CHARACTERS_MAX} characters, found {len(path)}", pointer="/content"
        )
    digest = hashlib.sha256(text.encode()).hexdigest()
    document = CatalogRow(
        catalog_id=0, path=path, version=0, kind=KIND, content=text, digest=digest, meta={"name": playbook.name}
    )
    stored, is_new = await store.register(api.pool, document)
    became = "registered" if is_new else "is registered already"
    return answer(
        {
            "status": "success",
            "message": f"{KIND} {stored.path} version {stored.version} {became}",
            "path": stored.path,
            "version": stored.version,
            "catalog_id": str(stored.catalog_id),
            "kind": KIND,
            "warnings": warnings,
        }
    )


async def list_entries(api: Api, request: Request) -> Response:
    """Return registered documents, without their content."""
    asked = await read_json(request, Listing)
    limit = within(asked.limit, "limit", low=1, high=store.LIST_MAX)
    offset = within(asked.offset, "offset", low=0, high=OFFSET_MAX)
    rows = await store.list_entries(
        api.pool,
        kind=asked.resource_type,
        path=asked.path,
        archived=asked.include_archived,
        limit=limit,
        offset=offset,
    )
    return answer({"entries": [_listed(row) for row in rows]})


async def list_kind(api: Api, request: Request) -> Response:
    """Return registered documents of a kind."""
    limit = query_int(request, "limit", store.LIST_MAX, low=1, high=store.LIST_MAX)
    offset = query_int(request, "offset", 0, high=OFFSET_MAX)
    kind, path = request.path_params["kind"], query_text(request, "path")
    archived = query_flag(request, "include_archived")
    rows = await store.list_entries(api.pool, kind=kind, path=path, archived=archived, limit=limit, offset=offset)
    return answer({"entries": [_listed(row) for row in rows]})


async def read_entry(api: Api, request: Request) -> Response:
    """Return one document with its content."""
    asked = await read_json(request, Wanted)
    version = version_of(asked.version)
    if not asked.path and asked.catalog_id is None:
        raise Invalid("expected path or catalog_id, found neither", pointer="/path")
    row = await store.read_entry(api.pool, path=asked.path, version=version, catalog_id=asked.catalog_id)
    if row is None:
        raise NotFound(f"expected a document, found none at {asked.path or asked.catalog_id}" + of_version(version))
    return answer({**_listed(row), "content": row.content, "digest": row.digest})


def version_of(given: int | str | None) -> int | None:
    """Return a version asked for, None for the newest. Errors: Invalid."""
    if given is None or given == "latest":
        return None
    if isinstance(given, str) and re.fullmatch(r"\d{1,9}", given):
        given = int(given)
    if not isinstance(given, int) or given < 1:
        raise Invalid(f"expected a version from 1 on, or latest, found {given!r}", pointer="/version")
    return given


def of_version(version: int | None) -> str:
    """Return " version n" for a message, nothing for the newest."""
    return f" version {version}" if version else ""


def _text(content: str) -> str:
    """Return the YAML in `content`, which may be base64: no YAML document of ours is a single token."""
    compact = "".join(content.split())
    text = content
    if compact and ":" not in compact:
        try:
            text = base64.b64decode(compact, validate=True).decode()
        except ValueError:
            text = content  # then it is YAML, if a strange one; the parser says what is wrong with it
    if len(text.encode()) > CONTENT_BYTES_MAX:
        raise TooLarge(f"content: expected at most {CONTENT_BYTES_MAX} bytes, found {len(text.encode())}")
    return text


def _listed(row: CatalogRow) -> dict[str, object]:
    return {
        "catalog_id": str(row.catalog_id),
        "path": row.path,
        "version": row.version,
        "kind": row.kind,
        "meta": row.meta,
        "created_at": row.created_at,
        "archived_at": row.archived_at,
    }


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/catalog/register",
        handler=register,
        summary="Register a playbook.",
        scopes=WRITE,
        body=Registration,
    ),
    Endpoint(
        method="POST",
        path="/api/catalog/list",
        handler=list_entries,
        summary="List documents.",
        scopes=READ,
        body=Listing,
    ),
    Endpoint(
        method="GET",
        path="/api/catalog/list/{kind}",
        handler=list_kind,
        summary="List documents of a kind.",
        scopes=READ,
        query={"path": "string", "include_archived": "boolean", "limit": "integer", "offset": "integer"},
    ),
    Endpoint(
        method="POST",
        path="/api/catalog/resource",
        handler=read_entry,
        summary="Read one document.",
        scopes=READ,
        body=Wanted,
    ),
)

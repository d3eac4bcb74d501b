"""Documents in use and out of it: archive, restore, and what a form needs to start a playbook."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.parse import parse
from noetl_common.core.templates import is_template
from noetl_common.errors import Invalid, NotFound
from services.ingest import store_catalog as store
from services.ingest.endpoints import READ, WRITE, Api, Endpoint
from services.ingest.requests import answer, query_text, read_json
from services.ingest.routes.catalog import of_version, version_of

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_LEVELS_MAX = 16


class Named(msgspec.Struct, kw_only=True):
    """POST /api/catalog/archive, delete and restore: a version of a path, or all of them."""

    path: str
    version: int | str | None = None


async def archive(api: Api, request: Request) -> Response:
    """Take a document out of use: it is neither started nor listed; runs under way go on, and nothing is lost."""
    return await _moved(api, request, restored=False)


async def restore(api: Api, request: Request) -> Response:
    """Bring an archived document back into use."""
    return await _moved(api, request, restored=True)


async def read_ui_schema(api: Api, request: Request) -> Response:
    """Return the JSON schema of a playbook's workload, its defaults included, for forms that start it."""
    path, version = request.path_params["path"], version_of(query_text(request, "version"))
    row = await store.read_entry(api.pool, path=path, version=version)
    if row is None:
        raise NotFound(f"expected a document, found none at {path[:200]}" + of_version(version))
    playbook, _findings = parse(row.content)
    schema = {"$schema": SCHEMA_DIALECT, "title": playbook.name, **schema_of(playbook.workload)}
    return answer({"path": row.path, "version": row.version, "catalog_id": str(row.catalog_id), "schema": schema})


def schema_of(value: Any, *, levels: int = SCHEMA_LEVELS_MAX) -> dict[str, Any]:
    """Return a JSON schema that `value` fits, with it as the default. A template may become anything: any type."""
    if isinstance(value, Mapping):
        if levels == 0:
            return {"type": "object"}
        properties = {str(name): schema_of(part, levels=levels - 1) for name, part in value.items()}
        return {"type": "object", "properties": properties, "additionalProperties": True}
    if isinstance(value, list):
        kinds = [schema_of(part, levels=0) for part in value]
        types = list(dict.fromkeys(kind["type"] for kind in kinds if "type" in kind))
        items = {"type": types[0]} if len(types) == 1 and len(kinds) == sum("type" in kind for kind in kinds) else {}
        return {"type": "array", "items": items, "default": value}
    if value is None or is_template(value):
        return {"default": value}
    kinds_of = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": kinds_of.get(type(value), "string"), "default": value}


async def _moved(api: Api, request: Request, *, restored: bool) -> Response:
    asked = await read_json(request, Named)
    if not asked.path:
        raise Invalid("expected the path of a document, found none", pointer="/path")
    version = version_of(asked.version)
    versions = await store.archive(api.pool, path=asked.path, version=version, restored=restored)
    if versions is None:
        raise NotFound(f"expected a document, found none at {asked.path[:200]}" + of_version(version))
    status = "restored" if restored else "archived"
    message = f"{asked.path}: {len(versions)} versions {status}"
    return answer({"status": status, "path": asked.path, "versions": versions, "message": message})


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/catalog/archive",
        handler=archive,
        summary="Take a document out of use.",
        scopes=WRITE,
        body=Named,
    ),
    Endpoint(
        method="POST",
        path="/api/catalog/delete",
        handler=archive,
        summary="Take a document out of use, by its older name.",
        scopes=WRITE,
        body=Named,
    ),
    Endpoint(
        method="POST",
        path="/api/catalog/restore",
        handler=restore,
        summary="Bring an archived document back.",
        scopes=WRITE,
        body=Named,
    ),
    Endpoint(
        method="GET",
        path="/api/catalog/{path:path}/ui_schema",
        handler=read_ui_schema,
        summary="Read the JSON schema of a playbook's workload.",
        scopes=READ,
        query={"version": "string"},
    ),
)

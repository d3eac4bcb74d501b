"""The OpenAPI document, made from the table of routes: it cannot say anything else than the code."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from noetl_common import metrics
from services.ingest.endpoints import Endpoint

PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
REF_TEMPLATE = "#/components/schemas/{name}"
PROBLEM = {
    "type": "object",
    "required": ["title", "status", "code", "detail", "error"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"description": "The message, or an object with code and message."},
        "error": {"type": "string"},
        "pointer": {"type": "string", "description": "JSON pointer to the wrong value."},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these routes."""
    kinds = [kind for endpoint in endpoints for kind in (endpoint.body, endpoint.answer) if kind is not None]
    unique = list(dict.fromkeys(kinds))
    schemas, components = msgspec.json.schema_components(unique, ref_template=REF_TEMPLATE)
    by_kind = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    served = Counter((endpoint.handler, endpoint.method) for endpoint in endpoints)
    for endpoint in endpoints:
        path = PARAMETER.sub(r"{\1}", endpoint.path)
        shared = served[endpoint.handler, endpoint.method] > 1
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, by_kind, shared=shared)
    return {
        "openapi": "3.1.0",
        "info": {"title": "NoETL", "version": metrics.release()},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, by_kind: dict[Any, Any], *, shared: bool) -> dict[str, Any]:
    """Return one operation; `shared`: its handler serves other paths too, so the path is part of its name."""
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in PARAMETER.findall(endpoint.path)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": kind}}
        for name, kind in endpoint.query.items()
    ]
    schema = by_kind[endpoint.answer] if endpoint.answer is not None else {"type": ["object", "array"]}
    problem = {"application/problem+json": {"schema": {"$ref": REF_TEMPLATE.format(name="Problem")}}}
    module = endpoint.handler.__module__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{module}_{endpoint.handler.__name__}_{endpoint.method.lower()}"
        + ("_" + re.sub(r"\W+", "_", endpoint.path).strip("_") if shared else ""),
        "summary": endpoint.summary,
        "tags": [module],
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": schema}}},
            "default": {"description": "A problem.", "content": problem},
        },
        "security": [{"bearer": sorted(endpoint.scopes)}] if endpoint.scopes else [],
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": by_kind[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation

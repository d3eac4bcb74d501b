"""Variables of a run: its `ctx`, read as routing knows it, written as inputs of its log."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noetl_common.core.state import TERMINAL
from noetl_common.core.values import Value
from noetl_common.errors import Conflict, Invalid, NotFound
from services.ingest import store_executions
from services.ingest.endpoints import EXECUTE, READ, Api, Endpoint
from services.ingest.requests import answer, path_id, read_json
from services.ingest.variables import read_variables, shown_values, stored_values, written

KIND = "user_defined"
MANY_KEYS = frozenset(("variables", "var_type", "source_step"))
ONE_KEYS = frozenset(("var_name", "var_value", "var_type", "source_step"))


async def list_variables(api: Api, request: Request) -> Response:
    """Return every variable of a run, what was just written included."""
    execution_id = await _known(api, request)
    found = await read_variables(api.pool, execution_id)
    values = await shown_values(api.pool, api.store, variables=found)
    variables = {name: {"value": value, **_about(found[name])} for name, value in values.items()}
    return answer({"execution_id": execution_id, "variables": variables, "count": len(variables)})


async def read_variable(api: Api, request: Request) -> Response:
    """Return one variable, with the keys of both public servers."""
    execution_id = await _known(api, request)
    name = request.path_params["name"]
    found = await read_variables(api.pool, execution_id)
    if name not in found:
        raise NotFound(f"expected a variable of execution {execution_id}, found none named {name[:60]!r}")
    value = (await shown_values(api.pool, api.store, variables={name: found[name]}))[name]
    shown = {"var_name": name, "value": value, "var_value": value, "var_type": KIND, **_about(found[name])}
    return answer({"execution_id": execution_id, **shown})


async def write_variables(api: Api, request: Request) -> Response:
    """Write variables: {"variables": {...}}, {"var_name", "var_value"}, or the map of names and values itself."""
    values = _asked(await read_json(request, dict[str, Any]))
    execution_id = await _running(api, request)
    named, rows = await stored_values(api.store, execution_id, values)
    [event_id] = await api.appender.append([written(execution_id, {"set": named})], rows=rows)
    body = {"variables_set": len(named), "var_names": list(named), "event_id": str(event_id)}
    return answer({"execution_id": execution_id, **body})


async def delete_variable(api: Api, request: Request) -> Response:
    """Take one variable away; one that is not there is no error."""
    execution_id = await _running(api, request)
    name = request.path_params["name"]
    deleted = name in await read_variables(api.pool, execution_id)
    if deleted:
        await api.appender.append([written(execution_id, {"unset": [name]})])
    return answer({"execution_id": execution_id, "var_name": name, "deleted": deleted})


async def delete_variables(api: Api, request: Request) -> Response:
    """Take all variables of a run away."""
    execution_id = await _running(api, request)
    count = len(await read_variables(api.pool, execution_id))
    if count:
        await api.appender.append([written(execution_id, {"clear": True})])
    return answer({"execution_id": execution_id, "deleted": bool(count), "deleted_count": count})


async def _known(api: Api, request: Request) -> int:
    execution_id = path_id(request, "execution_id", what="execution")
    await store_executions.check_in_log(api.pool, execution_id)
    return execution_id


async def _running(api: Api, request: Request) -> int:
    execution_id = path_id(request, "execution_id", what="execution")
    standing = await store_executions.read_standing(api.pool, execution_id)
    if standing is None:
        raise NotFound(f"expected an execution, found none with the id {execution_id}")
    if standing["status"] in TERMINAL:
        raise Conflict(
            f"expected an execution that runs, found {standing['status']}: {execution_id} has ended",
            code="already_completed",
        )
    return execution_id


def _asked(body: dict[str, Any]) -> dict[str, Any]:
    """Return {name: value} of the three bodies that clients send. Errors: Invalid."""
    given = body.keys()
    if "variables" in given and given <= MANY_KEYS and isinstance(body["variables"], dict):
        return dict(body["variables"])
    if {"var_name", "var_value"} <= given <= ONE_KEYS:
        if not isinstance(body["var_name"], str):
            raise Invalid(f"var_name: expected a name, found {body['var_name']!r:.60}", pointer="/var_name")
        return {body["var_name"]: body["var_value"]}
    if not body:
        raise Invalid("expected variables to write, found none", pointer="/variables")
    return body


def _about(value: Value) -> dict[str, Any]:
    """Return what else the public servers tell of a variable. Nobody counts reads: they leave no trace here."""
    return {
        "type": KIND,
        "source_step": None,
        "reference": value.ref.uri if value.ref is not None else None,
        "created_at": None,
        "accessed_at": None,
        "access_count": 0,
    }


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/vars/{execution_id}",
        handler=list_variables,
        summary="Read the variables of a run.",
        scopes=READ,
    ),
    Endpoint(
        method="POST",
        path="/api/vars/{execution_id}",
        handler=write_variables,
        summary="Write variables of a run.",
        scopes=EXECUTE,
        body=dict[str, Any],
    ),
    Endpoint(
        method="DELETE",
        path="/api/vars/{execution_id}",
        handler=delete_variables,
        summary="Take all variables of a run away.",
        scopes=EXECUTE,
    ),
    Endpoint(
        method="GET",
        path="/api/vars/{execution_id}/{name}",
        handler=read_variable,
        summary="Read one variable of a run.",
        scopes=READ,
    ),
    Endpoint(
        method="DELETE",
        path="/api/vars/{execution_id}/{name}",
        handler=delete_variable,
        summary="Take one variable of a run away.",
        scopes=EXECUTE,
    ),
)

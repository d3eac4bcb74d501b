"""The ASGI application: the table of routes behind one guard, one clock, one way to answer errors."""

import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from noetl_common import metrics
from noetl_common.errors import NotFound
from noetl_common.wire import encode
from services.ingest import openapi
from services.ingest.endpoints import Api, Endpoint
from services.ingest.problems import problem_of
from services.ingest.routes import ENDPOINTS

CLIENT_CLOSED = 499
Answering = Callable[[Request], Awaitable[Response]]


def build_asgi(api: Api, endpoints: Sequence[Endpoint] = ENDPOINTS) -> ASGIApp:
    """Return the application that serves these routes and /openapi.json."""
    described = encode(openapi.document(endpoints))

    async def describe(_request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def not_routed(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 404:
            error = NotFound(f"expected a path of this API, found {request.url.path[:200]!r}")
        elif isinstance(error, HTTPException) and error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            error = HTTPException(405, f"expected {allowed}, found {request.method}", error.headers)
        return problem_of(error)

    # One route a path, for all its methods: so a refused method is told every one that the path has.
    by_path: dict[str, dict[str, Answering]] = {}
    for one in endpoints:
        by_path.setdefault(one.path, {})[one.method] = _answering(api, one)
    # A word that is written out goes before a parameter that would take it, whatever the order of the table.
    paths = sorted(by_path, key=_openness)
    routes = [Route(path, _by_method(by_path[path]), methods=list(by_path[path])) for path in paths]
    routes.append(Route("/openapi.json", describe, methods=["GET"]))
    starlette = Starlette(routes=routes, exception_handlers={HTTPException: not_routed})

    # Starlette tries one pattern after another. The requests that a run is made of have no parameter in their path.
    written_out = {
        (method, path): by_path[path][method] for path in paths if "{" not in path for method in by_path[path]
    }

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        answering = written_out.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if answering is None:
            await starlette(scope, receive, send)
            return
        response = await answering(Request(scope, receive, send))
        await response(scope, receive, send)

    return routed


def _openness(path: str) -> tuple[int, ...]:
    """Return for each part of a path whether it is a word (0), any word (1) or any number of words (2)."""
    return tuple(2 if part.endswith(":path}") else int(part.startswith("{")) for part in path.split("/"))


def _by_method(methods: dict[str, Answering]) -> Answering:
    async def answered(request: Request) -> Response:
        return await methods["GET" if request.method == "HEAD" else request.method](request)

    return answered


def _answering(api: Api, endpoint: Endpoint) -> Answering:
    async def answered(request: Request) -> Response:
        began_s = time.monotonic()
        try:
            api.guard.check_origin(request.headers)
            api.guard.check(request.headers.get("authorization", ""), endpoint.scopes)
            response = await endpoint.handler(api, request)
        except ClientDisconnect:
            response = Response(status_code=CLIENT_CLOSED)
        except Exception as error:  # the edge: every error becomes a problem document, and a bug is logged there
            response = problem_of(error)
        metrics.observe("noetl_http_request_seconds", time.monotonic() - began_s, route=endpoint.path)
        metrics.inc("noetl_http_requests_total", 1, route=endpoint.path, status=response.status_code)
        return response

    return answered

"""The ASGI application: the table of routes behind one guard, one clock, one way to answer errors."""

import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from noetl_common import metrics
from noetl_common.wire import encode
from services.ingest import openapi
from services.ingest.endpoints import Api, Endpoint
from services.ingest.problems import problem_of
from services.ingest.routes import ENDPOINTS

CLIENT_CLOSED = 499


def build_asgi(api: Api, endpoints: Sequence[Endpoint] = ENDPOINTS) -> Starlette:
    """Return the application that serves these routes and /openapi.json."""
    described = encode(openapi.document(endpoints))

    async def describe(_request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def not_routed(_request: Request, error: Exception) -> Response:
        return problem_of(error)

    routes = [Route(one.path, _answering(api, one), methods=[one.method]) for one in endpoints]
    routes.append(Route("/openapi.json", describe, methods=["GET"]))
    return Starlette(routes=routes, exception_handlers={HTTPException: not_routed})


def _answering(api: Api, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        began_s = time.monotonic()
        try:
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

"""What the API says of itself: that it answers, and what it can be asked."""

from starlette.requests import Request
from starlette.responses import Response

from noetl_common import metrics
from services.ingest.endpoints import OPEN, Api, Endpoint
from services.ingest.requests import answer


async def health(_api: Api, _request: Request) -> Response:
    """Answer: the process serves. Whether it can do its work is /readyz's to say."""
    return answer({"status": "ok"})


async def about(_api: Api, _request: Request) -> Response:
    """Say what this is and where to read on."""
    return answer({"name": "noetl", "version": metrics.release(), "docs": "/openapi.json", "health": "/api/health"})


ENDPOINTS = (
    Endpoint(method="GET", path="/", handler=about, summary="Say what this is.", scopes=OPEN),
    Endpoint(method="GET", path="/health", handler=health, summary="Answer while serving.", scopes=OPEN),
    Endpoint(method="GET", path="/api/health", handler=health, summary="Answer while serving.", scopes=OPEN),
)

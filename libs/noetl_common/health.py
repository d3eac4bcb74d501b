"""The routes every role has beside its own: liveness, readiness, metrics, version."""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from noetl_common import metrics
from noetl_common.log import get_logger

CHECK_TIMEOUT_S = 2.0
TICK_S = 1.0
TICK_AGE_MAX_S = 10.0

Check = Callable[[], Awaitable[None]]

log = get_logger(__name__)


class Health:
    """An ASGI application: health routes first, everything else goes to `inner`."""

    def __init__(self, name: str, *, checks: Mapping[str, Check], inner: ASGIApp | None) -> None:
        self.stopping = False
        self._is_cut_off = False
        self._name = name
        self._checks = checks
        self._started = False
        self._answering: set[asyncio.Task[Any]] = set()
        self._failing: dict[str, str] = {}
        self._ticked_s = time.monotonic()
        routes = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/healthz": self._readyz,
            "/startupz": self._startupz,
            "/metrics": self._metrics,
            "/version": self._version,
        }
        self._paths = frozenset(routes)
        self._own: ASGIApp = Starlette(routes=[Route(path, answer, methods=["GET"]) for path, answer in routes.items()])
        self._inner: ASGIApp = inner if inner is not None else self._own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            await (self._own if scope["path"] in self._paths else self._inner)(scope, receive, send)
        except asyncio.CancelledError:
            if not self._is_cut_off:
                raise
            with suppress(RuntimeError):  # an answer that has begun ends with its connection
                await Response(status_code=503, headers={"retry-after": "1"})(scope, receive, send)
        finally:
            self._answering.discard(task)

    def cut_off(self) -> int:
        """Cancel the requests that are still being answered: they get 503; return how many."""
        self._is_cut_off = True
        for task in self._answering:
            task.cancel()
        return len(self._answering)

    async def watch(self) -> None:
        """Note for ever that the event loop turns; /livez looks at how long ago."""
        while True:
            self._ticked_s = time.monotonic()
            await asyncio.sleep(TICK_S)

    async def failing(self) -> dict[str, str]:
        """Run every check side by side, 2 s each at most; return {name: reason} of those that fail."""
        names = list(self._checks)
        reasons = await asyncio.gather(*(_reason(self._checks[name]) for name in names))
        failing = {name: reason for name, reason in zip(names, reasons, strict=True) if reason}
        if failing.keys() != self._failing.keys():
            log.warning("health.changed", failing=failing)
        self._failing = failing
        self._started = self._started or not failing
        return failing

    async def _livez(self, _request: Request) -> Response:
        age_s = time.monotonic() - self._ticked_s
        alive = age_s < TICK_AGE_MAX_S
        return JSONResponse({"alive": alive, "tick_age_s": round(age_s, 3)}, status_code=200 if alive else 503)

    async def _readyz(self, request: Request) -> Response:
        failing = await self.failing()
        ready = not failing and not self.stopping
        body: dict[str, Any] = {"service": self._name, "ready": ready, "failing": failing}
        if self.stopping:
            body["stopping"] = True
        if "verbose" in request.query_params:
            body["checks"] = {name: failing.get(name, "ok") for name in self._checks}
        return JSONResponse(body, status_code=200 if ready else 503)

    async def _startupz(self, _request: Request) -> Response:
        failing = {} if self._started else await self.failing()
        return JSONResponse({"started": self._started, "failing": failing}, status_code=200 if self._started else 503)

    async def _metrics(self, _request: Request) -> Response:
        return Response(metrics.render(), headers={"content-type": metrics.CONTENT_TYPE})

    async def _version(self, _request: Request) -> Response:
        return JSONResponse(
            {"name": "noetl", "service": self._name, "version": metrics.release(), "python": platform.python_version()}
        )


async def _reason(check: Check) -> str:
    """Return why a check fails, or an empty text. The type alone for foreign errors: their text may hold an address."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check()
    except TimeoutError:
        return f"no answer within {CHECK_TIMEOUT_S:.0f} s"
    except Exception as error:
        log.debug("health.check_failed", error=error)
        return f"{type(error).__name__}"
    return ""

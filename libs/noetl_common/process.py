"""Run one service: its loops and its HTTP server side by side, its health, and an orderly stop."""

import asyncio
import gc
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec
import uvloop
from starlette.types import ASGIApp

from noetl_common import log as logs
from noetl_common import tracing
from noetl_common.config import Common, check_unknown, every_known_name, load
from noetl_common.errors import ConfigError, DependencyMissing, Unavailable
from noetl_common.health import Health
from noetl_common.http_server import BACKLOG, serve_http
from noetl_common.loop import Loop, run_loop

STOP_LOOPS_S = 10.0
STOP_CALLBACK_S = 10.0
STOP_REQUESTS_S = 2.0
STOP_HTTP_S = 5.0

EXIT_OK, EXIT_BUG, EXIT_CONFIG, EXIT_DEPENDENCY = 0, 1, 3, 4

log = logs.get_logger(__name__)
C = TypeVar("C", bound=Common)


class Service(msgspec.Struct, kw_only=True):
    """What one role runs. `checks` raise when the role cannot serve; `port` 0 means any free one."""

    name: str
    loops: list[Loop] = []
    checks: dict[str, Callable[[], Awaitable[None]]] = {}
    asgi: ASGIApp | None = None
    host: str = "127.0.0.1"
    port: int = 0
    on_stop: list[Callable[[], Awaitable[None]]] = []


async def serve(service: Service, stop: asyncio.Event, *, started: Callable[[str, int], None] | None = None) -> None:
    """Run `service` until `stop` or until one of its loops ends with a bug, which is raised again after the stop.

    The stop goes: not ready -> loops finish their batch -> `on_stop` in order -> the HTTP server closes. `started` is
    called with the address once connections are accepted. Several services may be served by one process.
    """
    listening = _listen(service)
    address, port = listening.getsockname()[:2]
    health = Health(service.name, checks=service.checks, inner=service.asgi)
    halt, closing = asyncio.Event(), asyncio.Event()
    with logs.bound(service=service.name):
        ticking = asyncio.create_task(health.watch(), name=f"{service.name}.watchdog")
        http = asyncio.create_task(serve_http(health, listening, closing), name=f"{service.name}.http")
        loops = [
            asyncio.create_task(run_loop(loop, halt), name=f"{service.name}.{loop.name}") for loop in service.loops
        ]
        stopping = asyncio.create_task(stop.wait(), name=f"{service.name}.stop")
        try:
            log.info("service.started", host=address, port=port, loops=[loop.name for loop in service.loops])
            if started is not None:
                started(address, port)
            await asyncio.wait({stopping, http, *loops}, return_when=asyncio.FIRST_COMPLETED)
            log.info("service.stopping")
            health.stopping = True
            halt.set()
            await _end_loops(loops)
            await _call_all(service.on_stop)
        finally:
            halt.set()
            closing.set()
            for task in (*loops, stopping, ticking):
                task.cancel()
            await _end_http(http, health)
            await asyncio.gather(*loops, stopping, ticking, return_exceptions=True)
        log.info("service.stopped")
        _raise_first([*loops, http])


def run(name: str, main: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run `main(stop)` until it returns; SIGTERM and SIGINT set `stop`, a second one ends at once.

    Returns the exit code: 0 ok, 1 a bug, 3 a wrong setting, 4 a dependency that is not there.
    """
    logs.configure(role=name)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_signal(main))
    except ConfigError as error:
        log.error("process.config_refused", error=error)
        return EXIT_CONFIG
    except (DependencyMissing, Unavailable) as error:
        log.error("process.dependency_missing", error=error)
        return EXIT_DEPENDENCY
    except (KeyboardInterrupt, asyncio.CancelledError):
        log.warning("process.cut_short")
        return EXIT_BUG
    except Exception:  # the outermost frame: say what the bug was, then end with it
        log.exception("process.bug")
        return EXIT_BUG
    return EXIT_OK


def run_role(name: str, kind: type[C], app: Callable[[C], AbstractAsyncContextManager[Service]]) -> int:
    """Run one role from its environment until SIGTERM: `python -m services.<role>` is this. Returns the exit code."""

    async def main(stop: asyncio.Event) -> None:
        settings = prepare(name, kind)
        async with app(settings) as service:
            # What is loaded stays: each time it is looked all over for garbage, the loop is held up for tens of ms.
            gc.collect()
            gc.freeze()
            # Commands and events make thousands of objects in a breath, hardly any of them garbage in a cycle: looking
            # after every 700 took a third of a worker's time.
            gc.set_threshold(10_000, 10, 10)
            await serve(service, stop)

    return run(name, main)


def prepare(name: str, kind: type[C]) -> C:
    """Return a role's settings, with logs and traces going where they say. Errors: ConfigError."""
    settings = load(kind)
    logs.configure(level=settings.log_level, fmt=settings.log_format, role=name, instance=settings.instance)
    check_unknown(every_known_name())
    tracing.configure(name)
    return settings


async def _until_signal(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await main(stop)


def _listen(service: Service) -> socket.socket:
    """Return the listening socket. Made here, not by the server, because only so is an ephemeral port known.

    Errors: DependencyMissing when the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind((service.host, service.port))
        listening.listen(BACKLOG)
    except OSError as exc:
        listening.close()
        raise DependencyMissing(f"cannot listen on {service.host}:{service.port}: {exc}") from exc
    return listening


async def _end_loops(loops: list[asyncio.Task[None]]) -> None:
    """Wait until each loop has finished its batch; one that takes too long is cut off."""
    if not loops:
        return
    _done, late = await asyncio.wait(loops, timeout=STOP_LOOPS_S)
    for task in late:
        log.warning("loop.cut_off", loop=task.get_name(), after_s=STOP_LOOPS_S)
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=1.0)


async def _call_all(callbacks: list[Callable[[], Awaitable[None]]]) -> None:
    """Call each, whatever the others do: a stop that fails half-way would leave leases behind."""
    for callback in callbacks:
        try:
            async with asyncio.timeout(STOP_CALLBACK_S):
                await callback()
        except Exception:
            log.exception("service.stop_callback_failed")


async def _end_http(http: asyncio.Task[None], health: Health) -> None:
    """Wait until every request is answered; cut off those that take too long, and then the server itself."""
    await asyncio.wait({http}, timeout=STOP_REQUESTS_S)
    if not http.done():
        log.warning("service.requests_cut_off", requests=health.cut_off(), after_s=STOP_REQUESTS_S)
        await asyncio.wait({http}, timeout=STOP_HTTP_S)
    if not http.done():
        log.warning("service.http_cut_off", after_s=STOP_HTTP_S)
        http.cancel()
        await asyncio.wait({http}, timeout=1.0)


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error

"""Run a role inside a test, and wait for what it should bring about."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from noetl_common.process import Service, serve

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02


class Running(msgspec.Struct):
    """A role that serves."""

    url: str
    service: Service
    stop: asyncio.Event
    task: "asyncio.Task[None]"


@asynccontextmanager
async def start_role(app: Callable[[Any], AbstractAsyncContextManager[Service]], config: Any) -> AsyncIterator[Running]:
    """Run a role in this event loop: `async with start_role(services.ingest.app.app, config) as ingest: ingest.url`.

    Leaving stops it in order and raises what its loops raised.
    """
    async with app(config) as service, start_service(service) as running:
        yield running


@asynccontextmanager
async def start_service(service: Service) -> AsyncIterator[Running]:
    """Serve `service` until the block is left."""
    stop = asyncio.Event()
    address: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(service, stop, started=lambda host, port: address.set_result((host, port))))
    try:
        waiting: set[asyncio.Future[Any]] = {task, address}
        await asyncio.wait(waiting, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if not address.done():
            await asyncio.wait_for(task, 1.0)
        host, port = address.result()
        yield Running(url=f"http://{host}:{port}", service=service, stop=stop, task=task)
    finally:
        stop.set()
        await asyncio.wait_for(task, STOP_TIMEOUT_S)


async def wait_until(condition: Callable[[], Any], *, timeout_s: float = 10.0, what: str = "the condition") -> Any:
    """Ask `condition` (plain or async) again until it returns something true; return that.

    Errors: AssertionError after `timeout_s`, naming `what` and the last answer.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        answer = condition()
        value: Any = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"{what} did not hold within {timeout_s:.0f} s; last answer: {value!r}")
        await asyncio.sleep(POLL_S)

"""Run a loop's one batch again and again: pauses, wake-ups, back-off, stop."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import msgspec

from noetl_common import metrics
from noetl_common.db import is_retryable
from noetl_common.errors import NoetlError, Unavailable
from noetl_common.log import get_logger

ERROR_PAUSE_MAX_S = 5.0
RETRY_AFTER_MAX_S = 30.0  # whatever the other side asks for
SAFETY_POLL_S = 5.0  # how often to look although bells ring: one may be lost
QUIET_POLL_MAX_S = 1.0  # how often to look at least where nothing rings

log = get_logger(__name__)


class Loop(msgspec.Struct, kw_only=True):
    """One loop of a service. `once` does one bounded batch and returns how many it did, 0 = idle.

    `wake` ends an idle pause early; it never carries anything, so a lost ring costs `idle_pause_s` at most: seconds, or
    what the function says for the n-th idle batch in a row.
    """

    name: str
    once: Callable[[], Awaitable[int]]
    idle_pause_s: float | Callable[[int], float] = 1.0
    error_pause_s: float = 0.1
    wake: asyncio.Event | None = None


async def run_loop(loop: Loop, stop: asyncio.Event) -> None:
    """Run `loop` until `stop`; the batch under way is finished first.

    Errors: what is expected (NoetlError, retryable SQLSTATE) is logged, counted and waited out; all else is a bug
    and passes through.
    """
    failures = idle = 0
    stopping = asyncio.create_task(stop.wait(), name=f"{loop.name}.stop")
    try:
        while not stop.is_set():
            if loop.wake is not None:
                loop.wake.clear()  # before the batch, so that a ring during it is not lost
            started = time.monotonic()
            try:
                done = await loop.once()
            except Exception as error:
                if not is_expected(error):
                    log.exception("loop.bug", loop=loop.name)
                    raise
                failures += 1
                pause_s = max(back_off_s(loop.error_pause_s, failures), asked_pause_s(error))
                metrics.inc("noetl_loop_errors_total", 1, loop=loop.name)
                log.warning("loop.failed", loop=loop.name, failures=failures, pause_s=round(pause_s, 3), error=error)
                await _pause(stopping, None, pause_s)
                continue
            failures = 0
            if done:
                idle = 0
                metrics.observe("noetl_loop_batch_seconds", time.monotonic() - started, loop=loop.name)
                await asyncio.sleep(0)  # a loop that never waits for IO must let the others run
            else:
                idle += 1
                pause = loop.idle_pause_s
                await _pause(stopping, loop.wake, pause(idle) if callable(pause) else pause)
    finally:
        stopping.cancel()


def poll_pause_s(idle: int, *, first_s: float, is_rung: bool) -> float:
    """Return how long to wait after the n-th idle look in a row: long where bells ring, else longer and longer."""
    return SAFETY_POLL_S if is_rung else min(QUIET_POLL_MAX_S, first_s * 2 ** min(idle - 1, 16))


def is_expected(error: BaseException) -> bool:
    """Return True for what a loop survives."""
    return isinstance(error, NoetlError) or is_retryable(error)


def back_off_s(first_s: float, failures: int) -> float:
    """Return how long to wait after the n-th failure in a row: doubled each time up to 5 s, then spread by half."""
    full_s: float = min(ERROR_PAUSE_MAX_S, first_s * 2 ** min(failures - 1, 16))
    return full_s * (0.5 + random.random() / 2)


def asked_pause_s(error: BaseException) -> float:
    """Return how long whoever refused asked us to stay away, 0 when it did not say."""
    return min(error.retry_after_s, RETRY_AFTER_MAX_S) if isinstance(error, Unavailable) else 0.0


async def _pause(stopping: asyncio.Task[bool], wake: asyncio.Event | None, pause_s: float) -> None:
    """Return at the stop, at the wake-up, or after `pause_s`, whatever comes first."""
    waiting: set[asyncio.Task[bool]] = {stopping}
    ringing = None
    if wake is not None:
        ringing = asyncio.create_task(wake.wait())
        waiting.add(ringing)
    try:
        await asyncio.wait(waiting, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if ringing is not None:
            ringing.cancel()

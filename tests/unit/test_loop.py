"""A loop's pace: at once while there is work, a pause when idle, back-off on errors, the end on a bug."""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from noetl_common import metrics
from noetl_common.errors import Unavailable
from noetl_common.loop import ERROR_PAUSE_MAX_S, Loop, back_off_s, is_expected, run_loop

LONG_S = 60.0


def scripted(stop: asyncio.Event, *steps: int | Exception) -> Callable[[], Awaitable[int]]:
    """Do one step a call: return a number or raise; stop after the last."""
    left = list(steps)

    async def once() -> int:
        step = left.pop(0)
        if not left:
            stop.set()
        if isinstance(step, Exception):
            raise step
        return step

    return once


async def test_batches_follow_each_other_without_a_pause_while_there_is_work() -> None:
    stop = asyncio.Event()
    async with asyncio.timeout(5):
        await run_loop(Loop(name="t", once=scripted(stop, 1, 1, 1, 1), idle_pause_s=LONG_S), stop)


async def test_an_idle_loop_waits_until_it_is_woken() -> None:
    stop, wake, calls = asyncio.Event(), asyncio.Event(), 0
    called = asyncio.Event()

    async def once() -> int:
        nonlocal calls
        calls += 1
        called.set()
        return 0

    task = asyncio.create_task(run_loop(Loop(name="t", once=once, idle_pause_s=LONG_S, wake=wake), stop))
    async with asyncio.timeout(5):
        await called.wait()
        called.clear()
        await asyncio.sleep(0)
        assert calls == 1
        wake.set()
        await called.wait()
        assert calls == 2
        stop.set()
        await task


async def test_a_ring_during_a_batch_is_not_lost() -> None:
    stop, wake, calls = asyncio.Event(), asyncio.Event(), 0

    async def once() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            wake.set()
        else:
            stop.set()
        return 0

    async with asyncio.timeout(5):
        await run_loop(Loop(name="t", once=once, idle_pause_s=LONG_S, wake=wake), stop)
    assert calls == 2


async def test_the_stop_ends_an_idle_pause_at_once() -> None:
    stop = asyncio.Event()
    async with asyncio.timeout(5):
        await run_loop(Loop(name="t", once=scripted(stop, 0), idle_pause_s=LONG_S), stop)


async def test_the_batch_under_way_is_finished_before_the_stop() -> None:
    stop, entered, release, finished = asyncio.Event(), asyncio.Event(), asyncio.Event(), False

    async def once() -> int:
        nonlocal finished
        entered.set()
        await release.wait()
        finished = True
        return 1

    task = asyncio.create_task(run_loop(Loop(name="t", once=once), stop))
    async with asyncio.timeout(5):
        await entered.wait()
        stop.set()
        release.set()
        await task
    assert finished


async def test_expected_errors_are_counted_and_survived() -> None:
    stop = asyncio.Event()
    before = metrics.value("noetl_loop_errors_total", loop="test_survivor")
    steps = (Unavailable("away"), psycopg.errors.DeadlockDetected("deadlock"), psycopg.OperationalError("gone"), 0)
    async with asyncio.timeout(5):
        await run_loop(Loop(name="test_survivor", once=scripted(stop, *steps), error_pause_s=0.001), stop)
    assert metrics.value("noetl_loop_errors_total", loop="test_survivor") == before + 3


@pytest.mark.parametrize("bug", [ValueError("x"), KeyError("k"), psycopg.errors.UndefinedTable("t"), AssertionError()])
async def test_a_bug_passes_through(bug: Exception) -> None:
    stop = asyncio.Event()
    with pytest.raises(type(bug)):
        await run_loop(Loop(name="t", once=scripted(stop, bug)), stop)


def test_only_our_errors_and_passing_database_errors_are_expected() -> None:
    assert is_expected(Unavailable("x")) and is_expected(psycopg.errors.LockNotAvailable("x"))
    assert is_expected(psycopg.errors.DiskFull("x")) and is_expected(psycopg.errors.IoError("x"))
    assert not is_expected(ValueError("x")) and not is_expected(psycopg.errors.UniqueViolation("x"))


def test_the_back_off_doubles_up_to_its_limit_and_is_spread() -> None:
    for failures, full_s in ((1, 0.1), (2, 0.2), (5, 1.6), (10, ERROR_PAUSE_MAX_S), (10_000, ERROR_PAUSE_MAX_S)):
        drawn = [back_off_s(0.1, failures) for _ in range(50)]
        assert all(full_s / 2 <= pause_s <= full_s for pause_s in drawn)
        assert len(set(drawn)) > 1

"""An event loop on simulated time: which process runs next is the seed's choice, and nothing else decides anything.

Within a process callbacks run in the order of asyncio's own loop; between processes any order may happen. A process
can be killed (nothing of it runs again) or paused (it goes on later, with all that came meanwhile).
"""

import asyncio
import heapq
import random
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

RUNNING: ContextVar["Process | None"] = ContextVar("simulated_process", default=None)
CALLBACKS_MAX = 3_000_000  # of one seed: more is a loop that never rests


class Process:
    """One operating system process: a queue of callbacks that is served, stands still, or is gone."""

    def __init__(self, loop: "SimLoop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.ready: deque[asyncio.Handle] = deque()
        self.on_death: list[Callable[[], None]] = []
        self.on_pause: list[Callable[[], None]] = []
        self.context = copy_context()
        self.context.run(RUNNING.set, self)
        loop.processes.append(self)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine in this process."""
        return self.loop.create_task(work, context=self.context.copy())

    def kill(self) -> None:
        """End it here and now: what it was about to do does not happen."""
        if self.is_dead:
            return
        self.is_dead = True
        self.ready.clear()
        self.loop.rest(self)
        self.loop.processes.remove(self)
        for callback in self.on_death:
            callback()

    def pause(self, for_s: float) -> None:
        """Stop it for a while: time goes on without it."""
        if self.is_dead or self.is_paused:
            return
        self.is_paused = True
        self.loop.rest(self)
        self.loop.after(for_s, self.resume)
        for callback in self.on_pause:
            callback()

    def resume(self) -> None:
        """Let it go on: it does not know that it stood still."""
        self.is_paused = False
        if self.ready and not self.is_dead:
            self.loop.wake(self)


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one seed. Units: seconds of simulated time, from 0."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.now_s = 0.0
        self.processes: list[Process] = []
        self.world = Process(self, "world")  # the database server, the network, the faults
        self.failures: list[dict[str, Any]] = []  # what callbacks raised and nobody caught
        self.callbacks = 0
        self._runnable: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._is_halted = False
        self._tasks: list[asyncio.Task[Any]] = []  # kept alive: a killed process cleans nothing up

    # What the simulation calls.

    def after(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Call back in the world: no process has to live for it."""
        return self.call_at(self.now_s + delay_s, callback, *args, context=self.world.context)

    def run(self, *, deadline_s: float) -> None:
        """Run until `halt` is called, or until nothing can happen before the deadline."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._is_halted = False
        try:
            while not self._is_halted and self._step(deadline_s):
                pass
        finally:
            asyncio._set_running_loop(before)

    def halt(self) -> None:
        """Have `run` return."""
        self._is_halted = True

    def wake(self, process: Process) -> None:
        """Put a process among those that may run."""
        self._runnable.append(process)

    def rest(self, process: Process) -> None:
        """Take a process away from those that may run."""
        if process in self._runnable:
            self._runnable.remove(process)

    def close(self) -> None:
        """Close what has not come to its end: nothing of it may run later, when another seed does."""
        for process in list(self.processes):
            process.kill()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what had not begun was never awaited
            for task in self._tasks:
                coroutine = task.get_coro()
                if not task.done() and coroutine is not None:
                    with suppress(RuntimeError):  # it waits for something on its way out, in vain
                        coroutine.close()
        self._tasks.clear()
        self._timers.clear()

    def _step(self, deadline_s: float) -> bool:
        runnable = self._runnable
        if not runnable:
            if not self._timers or self._timers[0][0] > deadline_s:
                self.now_s = max(self.now_s, min(deadline_s, self._timers[0][0] if self._timers else deadline_s))
                return False
            when_s, _number, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self.now_s = max(self.now_s, when_s)
                self._enqueue(timer)
            return True
        place = int(self.random.random() * len(runnable)) if len(runnable) > 1 else 0
        process = runnable[place]
        handle = process.ready.popleft()
        if not process.ready:
            runnable[place] = runnable[-1]
            runnable.pop()
        self.callbacks += 1
        assert self.callbacks < CALLBACKS_MAX, f"the simulation does not rest: {process.name}, {handle}"
        if not handle.cancelled():
            handle._run()
        return True

    def _enqueue(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(RUNNING) or self.world
        if process.is_dead:
            return
        if not process.ready and not process.is_paused:
            self._runnable.append(process)
        process.ready.append(handle)

    # What asyncio calls.

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        return timer

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> "asyncio.Task[Any]":
        task = asyncio.Task(coro, loop=self, name=name or "t", context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > 2_000:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)
        self.halt()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a cancelled timer is skipped when its time comes."""

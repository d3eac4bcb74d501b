"""The warm interpreters that python tools run in. Quick tasks of one program go to one of them many at a time."""

import asyncio
from collections import OrderedDict, deque
from typing import Any

import msgspec

from noetl_common.errors import Invalid
from noetl_common.wire import encoded
from services.worker.tools import Partial
from services.worker.tools.python_process import RESULT_BYTES_MAX, Program, PythonProcess, Reply, Task

BATCH_TASKS_MAX = 64  # in one interpreter at a time
BATCH_BYTES_MAX = 256 * 1024
AHEAD_S = 0.02  # of work that may stand in an interpreter behind the task that runs: another one may come free
PROGRAMS_MAX = 1024


class PythonPool:
    """At most `processes_max` interpreters, started when first needed and kept warm.

    Tasks wait by program, and programs take turns. An interpreter is given as many tasks of a program as it does in
    AHEAD_S, so one whose tasks take longer, or that is new, gets them one by one. When an interpreter dies or is
    killed, the task that it was at is lost with it; those it has answered are done, those behind go to another one.
    """

    def __init__(self, processes_max: int, *, memory_bytes_max: int) -> None:
        self.memory_bytes_max = memory_bytes_max
        self._processes_max = max(1, processes_max)
        self._processes: list[PythonProcess] = []
        self._programs: OrderedDict[bytes, Program] = OrderedDict()
        self._numbers = 0
        self._waiting: OrderedDict[Program, deque[Task]] = OrderedDict()
        self._is_due = False

    async def run(
        self, program: dict[str, Any], task: dict[str, Any], *, timeout_s: float, partial: Partial | None = None
    ) -> Reply:
        """Return the reply to `task` of `program`; the time spent waiting for its turn does not count.

        `partial` takes each chunk that the code emits, which waits until it returns. Errors: those of `partial`.
        """
        limits = {"result_bytes_max": RESULT_BYTES_MAX, "memory_bytes_max": self.memory_bytes_max}
        known = self._program(encoded({**program, **limits}))
        turn = Task(known, encoded({"run": known.number, **task}), timeout_s=timeout_s)
        self._waiting.setdefault(known, deque()).append(turn)
        self._look_soon()
        try:
            reply = await turn.answer
            while reply.header.get("partial"):
                reply = await self._recorded(turn, reply, partial)
        except BaseException:
            turn.is_given_up = True
            if turn.process is not None:
                await turn.process.give_up(turn)
            raise
        return reply

    async def close(self) -> None:
        """End every interpreter, at work or idle."""
        await asyncio.gather(*(process.end() for process in list(self._processes)))
        self._processes.clear()
        self._waiting.clear()

    async def _recorded(self, turn: Task, reply: Reply, partial: Partial | None) -> Reply:
        """Hand on a chunk, and return what comes next. A time limit that ends meanwhile ends this, too."""
        following = turn.renew()
        if partial is not None:
            recording = asyncio.ensure_future(partial(_chunk_in(reply.body)))
            try:
                waiting: set[asyncio.Future[Any]] = {recording, following}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if not recording.done():
                    return await following
            finally:
                recording.cancel()
            recording.result()
        if turn.process is not None:
            turn.process.go_on()
        return await following

    def _program(self, given: bytes) -> Program:
        program = self._programs.get(given)
        if program is None:
            self._numbers += 1
            program = self._programs[given] = Program(self._numbers, given)
            if len(self._programs) > PROGRAMS_MAX:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(given)
        return program

    def _look_soon(self) -> None:
        # Once for all that begin to wait in one turn of the event loop: so they can go together.
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        self._is_due = False
        while self._waiting:
            program, turns = next(iter(self._waiting.items()))
            while turns and turns[0].is_given_up:
                turns.popleft()
            if not turns:
                del self._waiting[program]
                continue
            here = [process for process in self._processes if process.tasks and process.tasks[0].program is program]
            # As many for each interpreter, when all work on this program.
            fair = -(-(len(turns) + sum(len(process.tasks) for process in here)) // self._processes_max)
            most = min(fair, _ahead(program))
            process = self._process_for(here, most)
            if process is None:
                return
            process.take(_batch(turns, min(most - len(process.tasks), process.room)))
            if turns:
                self._waiting.move_to_end(program)

    def _process_for(self, here: list[PythonProcess], most: int) -> PythonProcess | None:
        """Return an idle interpreter, else a new one, else one of those at work on the program that is half done."""
        idle = next((process for process in self._processes if process.room and not process.tasks), None)
        if idle is not None:
            return idle
        if len(self._processes) < self._processes_max:
            process = PythonProcess(self.memory_bytes_max, on_room=self._look_soon, on_end=self._on_end)
            self._processes.append(process)
            return process
        return next((process for process in here if process.room and len(process.tasks) <= most // 2), None)

    def _on_end(self, process: PythonProcess, behind: list[Task]) -> None:
        if process in self._processes:
            self._processes.remove(process)
        for turn in reversed(behind):
            self._waiting.setdefault(turn.program, deque()).appendleft(turn)
        self._look_soon()


def _ahead(program: Program) -> int:
    """Return how many tasks of a program an interpreter may have."""
    if program.pace_s is None:
        return 1
    return max(1, min(BATCH_TASKS_MAX, int(AHEAD_S / max(program.pace_s, 1e-6))))


def _batch(turns: deque[Task], count: int) -> list[Task]:
    batch: list[Task] = []
    size = 0
    while turns and len(batch) < count:
        size += len(turns[0].frame)
        if batch and size > BATCH_BYTES_MAX:
            break
        turn = turns.popleft()
        if not turn.is_given_up:
            batch.append(turn)
    return batch


def _chunk_in(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Invalid(f"emit: expected a chunk that is readable as JSON: {exc}") from exc

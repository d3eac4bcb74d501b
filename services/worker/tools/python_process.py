"""One warm interpreter: a killable process with limits that runs one task after the other, and answers each."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from noetl_common.log import get_logger
from services.worker.tools.processes import FOLDER_PREFIX, INHERITED, MARK, Drain, end_marked

log = get_logger(__name__)

RESULT_BYTES_MAX = 64 * 1024 * 1024
TASKS_MAX = 10_000  # per process: what authors' code leaks in modules and threads ends with it
PROGRAMS_MAX = 256  # that a process keeps: as many as python_child.py says
HEADER_BYTES_MAX = 1 << 20
CHILD = Path(__file__).with_name("python_child.py")
LENGTHS = struct.Struct("!QQ")
READ_PAUSE_S = 0.002
DEATH_S = 2.0  # for a process that closed its socket to end


class Reply(msgspec.Struct, kw_only=True):
    """What a process made of one task: its header and body, or `ended` saying how the process ended instead.

    A header with `partial` is not the end: the body is a chunk, and the code waits until it is recorded.
    """

    header: dict[str, Any] = {}
    body: bytes = b""
    stdout: str = ""
    stderr: str = ""
    ended: str = ""
    timed_out: bool = False


class Program:
    """Code with all that its tasks share. `pace_s`: what a task of it took lately, None before the first."""

    def __init__(self, number: int, given: bytes) -> None:
        self.number = number
        text = b'{"program":%d,' % number + given[1:]
        self.frame = LENGTHS.pack(len(text), 0) + text
        self.pace_s: float | None = None

    def took(self, seconds: float) -> None:
        """Learn from one task."""
        self.pace_s = seconds if self.pace_s is None else 0.8 * self.pace_s + 0.2 * seconds


class Task:
    """One task: waiting, or in a process, or answered."""

    def __init__(self, program: Program, given: bytes, *, timeout_s: float) -> None:
        self.program = program
        self.frame = LENGTHS.pack(len(given), 0) + given
        self.timeout_s = timeout_s
        self.process: PythonProcess | None = None
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.is_given_up = False

    def resolve(self, reply: Reply) -> None:
        """Hand the reply to who waits for it."""
        if not self.answer.done():
            self.answer.set_result(reply)

    def renew(self) -> "asyncio.Future[Reply]":
        """Return the future of the next reply, behind a chunk."""
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer


class PythonProcess(asyncio.Protocol):
    """One interpreter in a session of its own. Several tasks may be in it; it runs them in order, one at a time.

    `on_room` is called when it can take more; `on_end` when it has ended, with what it had not begun.
    """

    def __init__(
        self,
        memory_bytes_max: int,
        *,
        on_room: Callable[[], None],
        on_end: Callable[["PythonProcess", list[Task]], None],
    ) -> None:
        self.tasks: deque[Task] = deque()  # the first is the one that runs
        self.usable = True
        self._memory_bytes_max = memory_bytes_max
        self._on_room, self._on_end = on_room, on_end
        self._loop = asyncio.get_running_loop()
        self._mark = secrets.token_hex(12)
        self._process: asyncio.subprocess.Process | None = None
        self._folder = ""
        self._transport: asyncio.Transport | None = None
        self._outputs: list[Drain] = []
        self._read = bytearray()
        self._known: dict[int, None] = {}
        self._taken = 0
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._is_paused = False

    @property
    def room(self) -> int:
        """How many tasks it takes before it is replaced."""
        return TASKS_MAX - self._taken if self.usable else 0

    def take(self, tasks: list[Task]) -> None:
        """Run these behind those it has. It is started with the first."""
        is_idle = not self.tasks
        for task in tasks:
            task.process = self
        self.tasks.extend(tasks)
        self._taken += len(tasks)
        if self._transport is not None:
            self._write(tasks)
            if is_idle:
                self._watch()
        elif is_idle:
            self._starting = self._loop.create_task(self._start())

    def go_on(self) -> None:
        """Let the code go on that waits for its chunk."""
        if self._transport is not None and self.usable:
            self._transport.write(_GO)

    async def give_up(self, task: Task) -> None:
        """Forget a task. One that runs is killed before this returns; one that waits in here, when its turn comes."""
        task.is_given_up = True
        if self.tasks and self.tasks[0] is task:
            self._finish()
            assert self._ending is not None
            await asyncio.shield(self._ending)

    async def end(self) -> None:
        """Kill the process with all it started, and remove its folder."""
        self.usable = False
        if self._timer is not None:
            self._timer.cancel()
        await self._kill()
        if self._transport is not None:
            self._transport.abort()
        for output in self._outputs:
            output.close()
        self._outputs = []
        if self._folder:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = ""

    # What the socket says.

    def data_received(self, data: bytes) -> None:
        """Take the answers that have come."""
        self._read += data
        try:
            self._take_answers()
        except (msgspec.DecodeError, _NoFrame):
            self._read.clear()
            self._finish(Reply())
            return
        if len(self.tasks) > 1 and self.usable and self._transport is not None:
            # More will follow at once: to be woken for each would cost more than the tasks do.
            self._transport.pause_reading()
            self._is_paused = True
            self._loop.call_later(READ_PAUSE_S, self._read_again)
        self._on_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is gone, or will be: what it was at has ended with it."""
        if not self._closed.done():
            self._closed.set_result(None)
        self._finish(Reply())

    def _read_again(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    def _take_answers(self) -> None:
        place, read = 0, self._read
        while len(read) - place >= LENGTHS.size:
            header_bytes, body_bytes = LENGTHS.unpack_from(read, place)
            if header_bytes > HEADER_BYTES_MAX or body_bytes > RESULT_BYTES_MAX or not self.tasks:
                raise _NoFrame
            middle = place + LENGTHS.size + header_bytes
            if len(read) < middle + body_bytes:
                break
            with memoryview(read) as view:
                header = msgspec.json.decode(view[place + LENGTHS.size : middle], type=dict[str, Any])
                body = bytes(view[middle : middle + body_bytes])
            place = middle + body_bytes
            self._answered(header, body)
        del read[:place]

    def _answered(self, header: dict[str, Any], body: bytes) -> None:
        task = self.tasks[0]
        reply = Reply(header=header, body=body)
        if header.get("partial"):
            task.resolve(reply)
            return
        self.tasks.popleft()
        task.program.took(float(header["seconds"]))
        if header.get("output"):
            reply.stdout, reply.stderr = self._texts()
            self.go_on()
        task.resolve(reply)
        following = self.tasks[0] if self.tasks else None
        is_used_up = following.is_given_up if following is not None else self._taken >= TASKS_MAX
        if is_used_up or header.get("recycle"):
            self._finish()
        elif following is not None and self.usable:
            self._watch()

    # Time limits: one timer for all; it is set again when it is early for the task that runs by then.

    def _watch(self) -> None:
        self._deadline_s = self._loop.time() + self.tasks[0].timeout_s
        if self._timer is None or self._timer.when() > self._deadline_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._deadline_s, self._look_at_time)

    def _look_at_time(self) -> None:
        self._timer = None
        if not self.usable or not self.tasks:
            return
        if self._is_paused:
            self._timer = self._loop.call_later(READ_PAUSE_S, self._look_at_time)  # its answer may be there, unread
        elif self._loop.time() >= self._deadline_s:
            self._finish(Reply(timed_out=True))
        else:
            self._timer = self._loop.call_at(self._deadline_s, self._look_at_time)

    # Beginning and end.

    def _write(self, tasks: list[Task]) -> None:
        assert self._transport is not None
        frames: list[bytes] = []
        for task in tasks:
            number = task.program.number
            if number not in self._known:
                if len(self._known) >= PROGRAMS_MAX:
                    self._known.pop(next(iter(self._known)))
                self._known[number] = None
                frames.append(task.program.frame)
            frames.append(task.frame)
        self._transport.write(b"".join(frames))

    async def _start(self) -> None:
        try:
            await self._spawn()
        except OSError as exc:
            self._finish(Reply(ended=f"could not be started: {exc}"))
            return
        if self.usable:
            self._write(list(self.tasks))
            self._watch()

    async def _spawn(self) -> None:
        self._folder = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
        environ = {name: os.environ[name] for name in INHERITED if name in os.environ}
        limits = {MARK: self._mark, "NOETL_PYTHON_LIMIT_BYTES": str(self._memory_bytes_max)}
        ours, theirs = socket.socketpair()
        self._outputs = [Drain(), Drain()]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", str(CHILD), str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._outputs[0].write_end,
                stderr=self._outputs[1].write_end,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd=self._folder,
                env={"LANG": "C.UTF-8", **environ, **limits, "HOME": self._folder, "TMPDIR": self._folder},
            )
        finally:
            theirs.close()
            for output in self._outputs:
                output.started()
        transport, _ = await self._loop.create_connection(lambda: self, sock=ours)
        self._transport = transport
        log.debug("python.process_started", pid=self._process.pid)

    def _finish(self, reply: Reply | None = None) -> None:
        """End this process. The task that it is at gets `reply`; those behind go to another process.

        What it answers before it is dead counts: such a task has ended.
        """
        if not self.usable:
            return
        self.usable = False
        blamed = self.tasks[0] if self.tasks and reply is not None else None
        self._ending = self._loop.create_task(self._finished(blamed, reply or Reply()))

    async def _finished(self, blamed: Task | None, reply: Reply) -> None:
        if blamed is not None and not reply.timed_out and not reply.ended:
            reply.ended = await self._how_it_ended()
        await self._kill()
        if self._transport is not None:
            self._read_again()
            await asyncio.wait({self._closed}, timeout=DEATH_S)
        if blamed is not None and self.tasks and self.tasks[0] is blamed:
            self.tasks.popleft()
            reply.stdout, reply.stderr = self._texts()
            blamed.resolve(reply)
        await self.end()
        behind = [task for task in self.tasks if not task.is_given_up]
        self.tasks.clear()
        for task in behind:
            task.process = None
        self._on_end(self, behind)

    def _texts(self) -> tuple[str, str]:
        return (self._outputs[0].text(), self._outputs[1].text()) if self._outputs else ("", "")

    async def _how_it_ended(self) -> str:
        # A process that closed its socket but lives on counts as ended; two seconds are enough for a dying one.
        assert self._process is not None
        try:
            code = await asyncio.wait_for(self._process.wait(), DEATH_S)
        except TimeoutError:
            return "closed its connection"
        if code >= 0:
            return f"exited with code {code}"
        with contextlib.suppress(ValueError):
            return f"was ended by signal {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"

    async def _kill(self) -> None:
        if self._starting is not None:
            await asyncio.wait({self._starting})
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await asyncio.to_thread(end_marked, self._mark)


class _NoFrame(Exception):
    """What came is no frame that a child of ours sends."""


_GO_TEXT = b'{"go":true}'
_GO = LENGTHS.pack(len(_GO_TEXT), 0) + _GO_TEXT

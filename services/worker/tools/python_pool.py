"""The warm interpreters that python tools run in: each a killable process with limits, replaced when it dies."""

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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from noetl_common.errors import Invalid
from noetl_common.log import get_logger
from noetl_common.wire import encoded
from services.worker.tools import Partial

log = get_logger(__name__)

OUTPUT_BYTES_MAX = 64 * 1024
RESULT_BYTES_MAX = 64 * 1024 * 1024
TASKS_MAX = 1000  # per process: what authors' code leaks in modules and threads ends with it
DRAIN_BYTES_MAX = 1 << 20
CHILD = Path(__file__).with_name("python_child.py")
LENGTHS = struct.Struct("!QQ")
MARK = "NOETL_PYTHON_PROCESS"
RECORDED = b'{"recorded":true}'
FOLDER_PREFIX = "noetl-python-"
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH")


class Reply(msgspec.Struct, kw_only=True):
    """What a process made of one task: its header and body, or `ended` saying how the process ended instead."""

    header: dict[str, Any] = {}
    body: bytes = b""
    stdout: str = ""
    stderr: str = ""
    ended: str = ""
    timed_out: bool = False


class PythonPool:
    """At most `processes_max` interpreters, started when first needed and kept warm."""

    def __init__(self, processes_max: int, *, memory_bytes_max: int) -> None:
        self.memory_bytes_max = memory_bytes_max
        self._free = asyncio.Semaphore(max(1, processes_max))
        self._idle: list[PythonProcess] = []
        self._all: set[PythonProcess] = set()

    async def run(self, task: dict[str, Any], *, timeout_s: float, partial: Partial | None = None) -> Reply:
        """Return the reply to `task`; the time spent waiting for a free interpreter does not count.

        `partial` takes each chunk that the code emits, which waits until it returns. Errors: those of `partial`.
        """
        limits = {"result_bytes_max": RESULT_BYTES_MAX, "memory_bytes_max": self.memory_bytes_max}
        frame = encoded({**task, **limits})
        async with self._free, self._process() as process:
            return await process.run(frame, timeout_s=timeout_s, partial=partial)

    async def close(self) -> None:
        """End every interpreter, at work or idle."""
        await asyncio.gather(*(process.end() for process in list(self._all)))
        self._all.clear()
        self._idle.clear()

    @asynccontextmanager
    async def _process(self) -> AsyncIterator["PythonProcess"]:
        process = self._idle.pop() if self._idle else None
        if process is None or not process.usable:
            if process is not None:
                await self._discard(process)
            process = PythonProcess(self.memory_bytes_max)
            self._all.add(process)
        try:
            yield process
        except BaseException:
            await asyncio.shield(self._discard(process))
            raise
        if process.usable:
            self._idle.append(process)
        else:
            await self._discard(process)

    async def _discard(self, process: "PythonProcess") -> None:
        self._all.discard(process)
        await process.end()


class PythonProcess:
    """One interpreter in a session of its own: one task at a time."""

    def __init__(self, memory_bytes_max: int) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._mark = secrets.token_hex(12)
        self._process: asyncio.subprocess.Process | None = None
        self._folder = ""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._outputs: list[Drain] = []
        self._tasks = 0
        self.usable = True

    async def run(self, frame: bytes, *, timeout_s: float, partial: Partial | None = None) -> Reply:
        """Return the reply to one encoded task; on a timeout, or when the process dies, it is not usable again.

        Errors: those of `partial`.
        """
        if self._process is None:
            await self._start()
        for output in self._outputs:
            output.forget()
        self._tasks += 1
        exchange = asyncio.ensure_future(self._exchange(frame, partial))
        try:
            done, _ = await asyncio.wait({exchange}, timeout=timeout_s)
        except asyncio.CancelledError:
            self.usable = False
            exchange.cancel()
            raise
        reply = Reply(timed_out=True)
        if done:
            try:
                header, body = exchange.result()
                reply = Reply(header=header, body=body)
                self.usable = self._tasks < TASKS_MAX and not header.get("recycle")
            except (OSError, EOFError, msgspec.DecodeError):
                reply = Reply(ended=await self._how_it_ended())
        else:
            exchange.cancel()
        if reply.ended or reply.timed_out:
            self.usable = False
            await self._kill()
        reply.stdout, reply.stderr = (output.text() for output in self._outputs)
        return reply

    async def end(self) -> None:
        """Kill the process with all it started, and remove its folder."""
        self.usable = False
        await self._kill()
        if self._writer is not None:
            self._writer.close()
        for output in self._outputs:
            output.close()
        self._outputs = []
        if self._folder:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
            self._folder = ""

    async def _start(self) -> None:
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
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        log.debug("python.process_started", pid=self._process.pid)

    async def _exchange(self, frame: bytes, partial: Partial | None) -> tuple[dict[str, Any], bytes]:
        while True:
            header, body = await self._sent(frame)
            if not header.get("partial"):
                return header, body
            if partial is not None:
                await partial(_chunk_in(body))
            frame = RECORDED

    async def _sent(self, frame: bytes) -> tuple[dict[str, Any], bytes]:
        assert self._reader is not None and self._writer is not None
        self._writer.write(LENGTHS.pack(len(frame), 0) + frame)
        await self._writer.drain()
        header_bytes, body_bytes = LENGTHS.unpack(await self._reader.readexactly(LENGTHS.size))
        if header_bytes > 1 << 20 or body_bytes > RESULT_BYTES_MAX:
            raise EOFError("a frame that no child of ours sends")
        header = msgspec.json.decode(await self._reader.readexactly(header_bytes), type=dict[str, Any])
        return header, await self._reader.readexactly(body_bytes)

    async def _how_it_ended(self) -> str:
        # A process that closed its socket but lives on counts as ended; two seconds are enough for a dying one.
        assert self._process is not None
        try:
            code = await asyncio.wait_for(self._process.wait(), 2.0)
        except TimeoutError:
            return "closed its connection"
        if code >= 0:
            return f"exited with code {code}"
        with contextlib.suppress(ValueError):
            return f"was ended by signal {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"

    async def _kill(self) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await asyncio.to_thread(end_marked, self._mark)


def _chunk_in(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Invalid(f"emit: expected a chunk that is readable as JSON: {exc}") from exc


def end_marked(mark: str) -> int:
    """Kill every process that carries `mark` in its environment, wherever it moved; return how many were found."""
    wanted, found = f"{MARK}={mark}".encode(), 0
    for _ in range(20):
        marked = [pid for pid in map(int, filter(str.isdigit, _listed("/proc"))) if wanted in _environ(pid)]
        if not marked:
            break
        found += len(marked)
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return found


def sweep() -> int:
    """Remove the folders that workers which were killed left behind; return how many there were."""
    gone = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if pid.isdecimal() and not _lives(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
            gone += not folder.exists()
    return gone


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is someone else's, as its folder is
    return True


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _environ(pid: int) -> bytes:
    # A zombie's environment reads as empty, so what was killed is not found again.
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


class Drain:
    """One output of a process: read as it comes, so that it never blocks; only the first 64 KiB a task are kept."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._kept = bytearray()
        self._total = 0
        asyncio.get_running_loop().add_reader(self._read_end, self._read)

    def started(self) -> None:
        """Close the process's end in this process."""
        os.close(self.write_end)

    def forget(self) -> None:
        """Drop what came so far: a new task begins."""
        self._read()
        self._kept.clear()
        self._total = 0

    def text(self) -> str:
        """Return what came since the task began, with a mark where it was cut."""
        self._read()
        text = self._kept.decode("utf-8", errors="replace")
        if self._total > len(self._kept):
            text += f"\n[truncated: {len(self._kept)} of {self._total} bytes are shown]"
        return text

    def close(self) -> None:
        """Stop reading."""
        if self._read_end >= 0:
            asyncio.get_running_loop().remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1

    def _read(self) -> None:
        # Bounded, so that a process that prints without end cannot hold the event loop.
        budget = DRAIN_BYTES_MAX
        while budget > 0 and self._read_end >= 0:
            try:
                chunk = os.read(self._read_end, 65536)
            except BlockingIOError:
                return
            if not chunk:
                self.close()
                return
            budget -= len(chunk)
            self._total += len(chunk)
            if len(self._kept) < OUTPUT_BYTES_MAX:
                self._kept += chunk[: OUTPUT_BYTES_MAX - len(self._kept)]

"""What processes that run tools have in common: their bounded output, their folders, their certain end."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import termios
import time
from pathlib import Path

OUTPUT_BYTES_MAX = 64 * 1024
MARK = "NOETL_PYTHON_PROCESS"
FOLDER_PREFIX = "noetl-python-"
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH")
READ_BYTES = 64 * 1024
LITTLE_BYTES = 4096
PAUSE_MIN_S, PAUSE_MAX_S = 0.001, 0.1
DEATHS_S = 2.0


def end_marked(mark: str) -> int:
    """Kill every process that carries `mark` in its environment, wherever it moved; return how many were found."""
    wanted = f"{MARK}={mark}".encode()
    found: set[int] = set()
    deadline = time.monotonic() + DEATHS_S
    while time.monotonic() < deadline:
        marked = [pid for pid in map(int, filter(str.isdigit, _listed("/proc"))) if wanted in _environ(pid)]
        if not marked:
            break
        found.update(marked)
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_MIN_S)  # the killed need the processor to die
    return len(found)


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
    """One output of a process: read as it comes, so that it never blocks; only the first 64 KiB are kept.

    Until `text` is asked for, one byte always stays in the pipe: so the process, too, can tell whether anything
    was written to it since.
    """

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._kept = bytearray()
        self._total = 0
        self._pause_s = PAUSE_MIN_S
        self._resuming: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._on_readable)

    def started(self) -> None:
        """Close the process's end in this process."""
        os.close(self.write_end)

    def text(self) -> str:
        """Return what came since this was asked last, with a mark where it was cut."""
        self._read(READ_BYTES)  # all that a pipe holds
        text = self._kept.decode("utf-8", errors="replace")
        if self._total > len(self._kept):
            text += f"\n[truncated: {len(self._kept)} of {self._total} bytes are shown]"
        self._kept.clear()
        self._total = 0
        self._pause_s = PAUSE_MIN_S
        return text

    def close(self) -> None:
        """Stop reading."""
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
        if self._resuming is not None:
            self._resuming.cancel()

    def _on_readable(self) -> None:
        waiting = _readable_bytes(self._read_end)
        self._read(min(max(waiting - 1, 0), READ_BYTES))
        if waiting > LITTLE_BYTES:
            self._pause_s = PAUSE_MIN_S
            return
        # The byte that stays makes the pipe readable for ever, as does its end: look again after a while.
        self._loop.remove_reader(self._read_end)
        self._resuming = self._loop.call_later(self._pause_s, self._resume)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)

    def _resume(self) -> None:
        if self._read_end >= 0:
            self._loop.add_reader(self._read_end, self._on_readable)

    def _read(self, bytes_max: int) -> None:
        if self._read_end < 0 or not bytes_max:
            return
        try:
            chunk = os.read(self._read_end, bytes_max)
        except BlockingIOError:
            return
        self._total += len(chunk)
        if len(self._kept) < OUTPUT_BYTES_MAX:
            self._kept += chunk[: OUTPUT_BYTES_MAX - len(self._kept)]


def _readable_bytes(descriptor: int) -> int:
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)

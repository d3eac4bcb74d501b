"""One child server process: spawn it so that it ends with its parent, find a port for it, stop it."""

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
PORT_MIN, PORT_MAX = 20_000, 32_768
PORTS_TRIED_MAX = 100
LOG_BYTES_MAX = 16 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec nothing may be imported or allocated carelessly.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Server:
    """A running child server and the URL that clients use."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, url: str, stop_signal: int, home: Path) -> None:
        self.process = process
        self.url = url
        self.home = home
        self._stop_signal = stop_signal

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    def alive(self) -> bool:
        """Return True while the process runs."""
        return self.process.poll() is None

    def stop(self, *, timeout_s: float = 15.0) -> None:
        """Stop it cleanly and wait; kill it when it takes longer than `timeout_s`."""
        if self.alive():
            self.process.send_signal(self._stop_signal)
        wait_or_kill(self.process, timeout_s=timeout_s)


def spawn(
    command: Sequence[str],
    *,
    log_path: Path,
    death_signal: int = signal.SIGTERM,
    environ: Mapping[str, str] | None = None,
    user_id: int | None = None,
    cwd: Path | None = None,
) -> "subprocess.Popen[bytes]":
    """Start `command` with its output in `log_path`, in a session of its own.

    The kernel sends it `death_signal` when the thread that called this ends, so call it from the main thread.
    An own session keeps a terminal's Ctrl-C from reaching it before its parent has stopped what depends on it.
    """
    owner: dict[str, Any] = {}
    if user_id is not None:
        owner = {"user": user_id, "group": user_id, "extra_groups": []}
    keep_log_small(log_path)
    with open(log_path, "ab") as log_file:
        if user_id is not None:
            os.fchown(log_file.fileno(), user_id, user_id)
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            env=dict(environ) if environ is not None else None,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_tied_to_parent(death_signal),
            **owner,
        )


def wait_or_kill(process: "subprocess.Popen[bytes]", *, timeout_s: float) -> None:
    """Wait for a process that was asked to end; after `timeout_s` kill it."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port(preferred: int | None = None) -> int:
    """Return `preferred` when nobody listens there, else a port drawn from those that nobody does.

    Drawn below what systems give to outgoing connections: one of those might take it before it is listened on.
    """
    draw = random.SystemRandom()  # not what a program may have seeded
    for port in filter(None, (preferred, *(draw.randrange(PORT_MIN, PORT_MAX) for _ in range(PORTS_TRIED_MAX)))):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {LOOPBACK}")


def accepts(port: int, *, timeout_s: float = 0.2) -> bool:
    """Return True when something accepts connections on the loopback port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def keep_log_small(log_path: Path) -> None:
    """Move a log that has grown over LOG_BYTES_MAX aside, replacing the one moved before."""
    if log_path.exists() and log_path.stat().st_size > LOG_BYTES_MAX:
        log_path.replace(log_path.with_name(log_path.name + ".1"))


def log_tail(log_path: Path, *, lines_max: int = 8) -> str:
    """Return the last lines of a log, for an error message."""
    try:
        text = log_path.read_bytes()[-8192:].decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines_max:])


def _tied_to_parent(death_signal: int) -> Callable[[], None] | None:
    """Return what the child runs before exec; None where the kernel has no parent-death signal."""
    libc = _libc
    if libc is None:
        return None
    parent = os.getpid()

    def tie() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the parent ended between fork and prctl, so the signal will never come

    return tie

"""The stack's own processes: one of all roles together, or one of each; restarted when they die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from noetl_cli.embedded.server import log_tail, spawn, wait_or_kill
from noetl_common.errors import ConfigError

# Started in this order, stopped in the reverse: what others depend on goes last.
START_ORDER = ("all", "meta", "compute", "compactor", "ingest", "worker")
STOP_TIMEOUT_S = 15.0
RESTART_PAUSE_MIN_S = 0.2
RESTART_PAUSE_MAX_S = 5.0
STEADY_S = 30.0
# What the command itself reads; a role would report it as unknown.
OWN_VARIABLES = frozenset({"NOETL_HOME", "NOETL_SERVER_URL", "NOETL_PORT", "PORT"})
# Given to the roles as plain values, whichever way they came.
URL_FILES = frozenset({"DATABASE_URL_FILE", "NATS_URL_FILE"})


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One process to run. `role` "all" is every role in one process, whose API listens on `port`."""

    role: str
    index: int
    port: int
    environ: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        """Return what its log file is called."""
        return self.role if self.role == "all" else f"{self.role}-{self.index}"

    @property
    def command(self) -> list[str]:
        """Return its command line. -P: a folder `services` where the user stands must not be taken for ours."""
        module = "services" if self.role == "all" else f"services.{self.role}"
        return [sys.executable, "-P", "-m", module]


class Child:
    """One role's process and its restarts."""

    def __init__(self, role: Role, *, environ: Mapping[str, str], log_dir: Path) -> None:
        self.role = role
        self.restarts = 0
        self._environ = {**environ, **role.environ, "NOETL_PORT": str(role.port)}
        self.log_path = log_dir / f"{role.name}.log"
        self._pause_s = RESTART_PAUSE_MIN_S
        self._due_s: float | None = None
        self._start()

    @property
    def pid(self) -> int:
        """Return the present process id."""
        return self._process.pid

    def exit_status(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._process.poll()

    def tend(self) -> bool:
        """Start it again when it has died and its pause is over; return True when that was done."""
        if self._process.poll() is None:
            if time.monotonic() - self._started_s > STEADY_S:
                self._pause_s = RESTART_PAUSE_MIN_S
            return False
        now = time.monotonic()
        if self._due_s is None:
            self._due_s = now + self._pause_s
            self._pause_s = min(self._pause_s * 2, RESTART_PAUSE_MAX_S)
        if now < self._due_s:
            return False
        self._due_s = None
        self.restarts += 1
        self._start()
        return True

    def ask_to_stop(self) -> None:
        """Send SIGTERM, without waiting."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self) -> None:
        """Wait until it has ended; kill it after STOP_TIMEOUT_S. A second SIGTERM would cut its orderly stop short."""
        wait_or_kill(self._process, timeout_s=STOP_TIMEOUT_S)

    def _start(self) -> None:
        self._started_s = time.monotonic()
        self._process: subprocess.Popen[bytes] = spawn(
            self.role.command, log_path=self.log_path, death_signal=signal.SIGTERM, environ=self._environ
        )


def stop_in_order(children: list[Child]) -> None:
    """Stop workers first, then ingest, compute, meta; those of one role together."""
    for role in reversed(START_ORDER):
        of_role = [child for child in children if child.role.role == role]
        for child in of_role:
            child.ask_to_stop()
        for child in of_role:
            child.wait_stopped()


def last_words(log_path: Path) -> str:
    """Return what a role's log says last: its last error in a sentence, else its last lines as they are."""
    tail = log_tail(log_path)
    for line in reversed(tail.splitlines()):
        try:
            said = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
        if said.get("level") in ("error", "critical") and said.get("error"):
            return str(said["error"])
    return tail


def base_environ() -> dict[str, str]:
    """Return this process's environment without what only the command reads."""
    return {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES | URL_FILES}


def given_url(name: str) -> str:
    """Return the URL in the variable `name`, or in the file that `<name>_FILE` names; empty when neither is set."""
    file = os.environ.get(f"{name}_FILE", "")
    if os.environ.get(name) or not file:
        return os.environ.get(name, "")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise ConfigError(f"{name}_FILE: expected a readable file, found: {exc}") from exc

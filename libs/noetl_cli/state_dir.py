"""The state directory of a stack: `.noetl/` here, or NOETL_HOME; who runs it, and what others need to reach it."""

import fcntl
import os
import time
from pathlib import Path
from typing import IO

import msgspec

from noetl_common.errors import ConfigError, Conflict


class RunningRole(msgspec.Struct):
    """One role's process."""

    role: str
    pid: int
    port: int


class Running(msgspec.Struct, kw_only=True):
    """What stack.json says of a stack that is ready. `owner`: the verb that started it, `up` or `run`."""

    pid: int
    owner: str
    api_url: str
    database_url: str
    nats_url: str
    roles: list[RunningRole] = []


class StateDir:
    """One state directory; at most one process holds its lock, and that one runs the stack."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_file: IO[str] | None = None

    @classmethod
    def chosen(cls) -> "StateDir":
        """Return the one the environment names, else `.noetl` in the current folder."""
        return cls(Path(os.environ.get("NOETL_HOME") or ".noetl").expanduser().absolute())

    @property
    def log_dir(self) -> Path:
        """Return where the roles' logs go."""
        return self.path / "logs"

    def lock(self) -> None:
        """Take the lock, which the kernel drops when this process ends, however it ends.

        Errors: Conflict naming the process that has it.
        """
        try:
            self.log_dir.mkdir(parents=True, exist_ok=True)
            file = open(self.path / "lock", "a+", encoding="utf-8")  # noqa: SIM115 - held until unlock
        except OSError as exc:
            raise ConfigError(f"state directory {self.path}: expected a writable folder, found: {exc}") from exc
        if not _locked(file):
            holder = _text_of(file)
            file.close()
            raise Conflict(f"state directory {self.path} is in use by process {holder}")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._lock_file = file

    def is_mine(self) -> bool:
        """Return True while this process holds the lock."""
        return self._lock_file is not None

    def unlock(self) -> None:
        """Drop the lock."""
        if self._lock_file is not None:
            self._lock_file.truncate(0)
            self._lock_file.close()
            self._lock_file = None

    def holder_pid(self) -> int | None:
        """Return the process that holds the lock, None when nobody does."""
        try:
            with open(self.path / "lock", "r+", encoding="utf-8") as file:
                if not _probe(file):
                    return int(_text_of(file) or 0)
        except FileNotFoundError:
            pass
        return None

    def publish(self, running: Running) -> None:
        """Write stack.json, readable by its owner alone: the database URL carries a password."""
        partial = self.path / "stack.json.new"
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(running)))
        partial.replace(self.path / "stack.json")

    def withdraw(self) -> None:
        """Remove stack.json."""
        (self.path / "stack.json").unlink(missing_ok=True)

    def running(self) -> Running | None:
        """Return the stack that is ready here, None when there is none."""
        try:
            text = (self.path / "stack.json").read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(text, type=Running) if self.holder_pid() is not None else None


def _locked(file: IO[str]) -> bool:
    """Take the lock; try for a moment longer than a probe of another process holds its own."""
    for _ in range(20):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False


def _probe(file: IO[str]) -> bool:
    """Return True when nobody holds the lock; shared, so that probes do not see each other."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _text_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip()

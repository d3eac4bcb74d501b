"""The death detector's one end: a session lock that Postgres takes away the moment this process is gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from noetl_common.core.shard import hashed_id
from noetl_common.db import open_session
from noetl_common.log import get_logger
from noetl_common.sql import load_queries

log = get_logger(__name__)
SQL = load_queries("noetl_common")

RETRY_PAUSE_MIN_S = 0.05  # back before anybody has looked twice
RETRY_PAUSE_MAX_S = 2.0
LISTEN_S = 60.0


class SessionLock:
    """The lock of one process. `is_held`: as far as this process knows, others see it in pg_locks now."""

    def __init__(self, dsn: str, *, key: int, name: str) -> None:
        self.is_held = False
        self._dsn = dsn
        self._key = key
        self._name = name

    async def keep(self) -> None:
        """Hold the lock until cancelled, in a new session whenever the old one is lost."""
        pause_s = RETRY_PAUSE_MIN_S
        while True:
            try:
                async with await open_session(self._dsn, name=self._name) as conn:
                    row = await (await conn.execute(SQL["take_session_lock"], {"key": self._key})).fetchone()
                    # Taken still: the server has not noticed the end of the session before this one.
                    self.is_held = row is not None and row["taken"]
                    while self.is_held:
                        pause_s = RETRY_PAUSE_MIN_S
                        async for _ in conn.notifies(timeout=LISTEN_S):
                            pass  # nobody notifies: this waits for the end of the session, without a statement
            except (psycopg.Error, OSError) as error:
                log.warning("session_lock.lost", error=error, was_held=self.is_held)
            finally:
                self.is_held = False
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_PAUSE_MAX_S)


def runtime_id_of(role: str, instance: str) -> int:
    """Return the number of a process in `noetl.runtime`, which is its session lock's key too."""
    return hashed_id("runtime", role, instance)


def session_name(name: str, *, role: str, instance: str) -> str:
    """Return what a process calls its sessions, so that they can be ended from outside when it stands still."""
    return f"{name} {runtime_id_of(role, instance):x}"


@asynccontextmanager
async def session_lock(dsn: str, *, role: str, instance: str, is_wanted: bool) -> AsyncIterator[SessionLock | None]:
    """Hold the process's lock in the background while the block runs; None when it is not wanted."""
    if not is_wanted:
        yield None
        return
    lock = SessionLock(dsn, key=runtime_id_of(role, instance), name=f"noetl-{role}-alive")
    keeping = asyncio.create_task(lock.keep(), name=f"{role}.session_lock")
    try:
        yield lock
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

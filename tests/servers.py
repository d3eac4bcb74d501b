"""The real servers tests use: one Postgres for all workers of a run, and a NATS each."""

import asyncio
import ctypes
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import msgspec
import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from noetl_cli.embedded import discard_postgres, start_nats, start_postgres
from noetl_cli.embedded.server import Server
from noetl_common.clock import SystemClock
from noetl_common.cluster import initialise
from noetl_common.db import Conn, migrate

SHARD_COUNT = 16
PARTITION_WIDTH_HOURS = 168
# Without fsync a test server still survives kill -9: what is committed stands in the system's page cache.
TEST_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "300", "shared_buffers": "64MB"}
FOLDER_PREFIX = "noetl-test-"
USERS_WAIT_S = 1800.0  # a killed worker holds no lock, so this only bounds what no one foresaw
PR_SET_PDEATHSIG = 1


class Postgres(msgspec.Struct, frozen=True):
    """A server tests may create databases in, and the migrated database they clone."""

    url: str
    template: str


def end_with_parent() -> None:
    """Make the kernel end this xdist worker when its controller is gone; its servers then end with it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


@contextmanager
def shared_postgres(meeting_place: Path) -> Iterator[Postgres]:
    """Lend the run's one server: the first worker to come starts it, and stops it when nobody uses it any more.

    Each user holds a shared lock on a file, which a killed worker's end releases. The server ends with its starter.
    """
    note, users_path = meeting_place / "postgres.note", meeting_place / "postgres.users"
    with open(users_path, "a") as users:
        with _locked(meeting_place / "postgres.lock"):
            found = _noted(note)
            if found is not None:
                fcntl.flock(users, fcntl.LOCK_SH)
                owned = None
            else:
                owned = _start()
                found = owned[1]
                note.write_bytes(msgspec.json.encode(found))
        try:
            yield found
        finally:
            if owned is not None:
                _stop_when_unused(meeting_place, note=note, users=users, owned=owned)


def clone(server: Postgres) -> str:
    """Return the URL of a new database, a copy of the migrated template."""
    name = f"test_{os.urandom(6).hex()}"
    with psycopg.connect(_database(server.url, "postgres"), autocommit=True) as conn:
        conn.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(server.template))
        )
    return _database(server.url, name)


def create_empty(server: Postgres) -> str:
    """Return the URL of a new database without any table."""
    return clone(Postgres(url=server.url, template="template0"))


def drop(server: Postgres, url: str) -> None:
    """Drop a database, whoever is still connected to it."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(_database(server.url, "postgres"), autocommit=True) as conn:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(str(name))))


@contextmanager
def nats_server(*, port: int | None = None) -> Iterator[Server]:
    """Run a NATS server of one's own, with JetStream, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-") as folder:
        server = start_nats(Path(folder), port=port)
        try:
            yield server
        finally:
            server.stop()


class _Owned(msgspec.Struct):
    server: Server | None
    folder: Path | None


def _start() -> tuple[_Owned, Postgres]:
    """Start a server, or take the one of TEST_DATABASE_URL, and make the template in it."""
    given = os.environ.get("TEST_DATABASE_URL", "")
    if given:
        return _Owned(server=None, folder=None), _with_template(given)
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))
    folder.chmod(0o755)  # the server may run as another user, who must be able to enter
    server = start_postgres(folder, settings=TEST_SETTINGS)
    return _Owned(server=server, folder=folder), _with_template(server.url)


def _with_template(url: str) -> Postgres:
    name = f"noetl_template_{os.urandom(4).hex()}"
    with psycopg.connect(_database(url, "postgres"), autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    asyncio.run(_migrate(_database(url, name)))
    return Postgres(url=url, template=name)


async def _migrate(url: str) -> None:
    connection: Conn
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row) as connection:
        await migrate(connection)
        await initialise(
            connection,
            shard_count=SHARD_COUNT,
            partition_width_hours=PARTITION_WIDTH_HOURS,
            now_ms=SystemClock().unix_ms(),
        )


def _stop_when_unused(meeting_place: Path, *, note: Path, users: IO[str], owned: tuple[_Owned, Postgres]) -> None:
    deadline = time.monotonic() + USERS_WAIT_S
    while True:
        with _locked(meeting_place / "postgres.lock"):
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                unused = True
            except BlockingIOError:
                unused = False
            if unused or time.monotonic() > deadline:
                note.unlink(missing_ok=True)
                fcntl.flock(users, fcntl.LOCK_UN)
                break
        time.sleep(0.05)
    kept, server = owned
    if kept.server is None:
        drop(server, _database(server.url, server.template))
        return
    kept.server.stop()
    if kept.folder is not None:
        discard_postgres(kept.folder)
        shutil.rmtree(kept.folder, ignore_errors=True)


def _noted(note: Path) -> Postgres | None:
    """Return the server another worker started, if it still answers."""
    try:
        found = msgspec.json.decode(note.read_bytes(), type=Postgres)
        with psycopg.connect(found.url, connect_timeout=5):
            return found
    except (FileNotFoundError, psycopg.OperationalError):
        return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep() -> None:
    """Remove what runs that were killed left behind: folders named after a process that is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
            discard_postgres(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _database(url: str, name: str) -> str:
    """Return `url` with another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()

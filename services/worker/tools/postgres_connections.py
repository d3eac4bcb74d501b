"""The postgres tool's connections: a few per database, kept while they are in use, and what their values become."""

import asyncio
import base64
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import psycopg
from psycopg import pq
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.rows import TupleRow
from psycopg.types.string import ByteaLoader

from noetl_common.sql import load_queries

SQL = load_queries("services.worker")
SIZE_MAX = 8  # connections to one database
IDLE_S = 30.0
CONNECT_TIMEOUT_S = 10

Conn = psycopg.AsyncConnection[TupleRow]
Prepare = Callable[[Conn], Awaitable[object]]


class Connections:
    """The connections of one event loop: at most `size_max` to a database; one idle for `idle_s` is closed."""

    def __init__(self, *, size_max: int = SIZE_MAX, idle_s: float = IDLE_S) -> None:
        self._size_max = size_max
        self._idle_s = idle_s
        self._lanes: dict[str, _Lane] = {}
        self._sweeps: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def borrow(self, conninfo: str, prepare: Prepare) -> AsyncIterator[Conn]:
        """Lend a connection in autocommit mode on which `prepare` has run; wait while all are lent.

        Errors: psycopg errors pass through.
        """
        lane = self._lanes.get(conninfo)
        if lane is None:
            lane = self._lanes[conninfo] = _Lane(self._size_max)
        lane.users += 1
        try:
            async with lane.slots:
                conn = await self._prepared(lane, conninfo, prepare)
                try:
                    yield conn
                except asyncio.CancelledError:
                    await conn.close()
                    raise
                finally:
                    await self._give_back(lane, conn)
        finally:
            lane.users -= 1

    async def close(self) -> None:
        """Close all that is idle; what is lent is closed when it comes back."""
        self._idle_s = 0.0
        await self._close_idle()

    async def _prepared(self, lane: "_Lane", conninfo: str, prepare: Prepare) -> Conn:
        while lane.idle:
            conn, _since = lane.idle.pop()
            try:
                await prepare(conn)
                return conn
            except (psycopg.OperationalError, psycopg.InterfaceError):
                await conn.close()  # the server went away meanwhile: this says nothing about a new connection
        conn = await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None, context=ADAPTERS, connect_timeout=CONNECT_TIMEOUT_S
        )
        try:
            await prepare(conn)
        except BaseException:
            await conn.close()
            raise
        return conn

    async def _give_back(self, lane: "_Lane", conn: Conn) -> None:
        try:
            if not conn.closed:
                if conn.info.transaction_status != pq.TransactionStatus.IDLE:
                    await conn.rollback()
                await conn.execute(SQL["close_session"])
                lane.idle.append((conn, asyncio.get_running_loop().time()))
        except psycopg.Error:
            await conn.close()  # what the script did stands; only the connection is of no more use
        except asyncio.CancelledError:
            await conn.close()
            raise
        if self._idle_s:
            asyncio.get_running_loop().call_later(self._idle_s, self._sweep)
        else:
            await self._close_idle()

    def _sweep(self) -> None:
        task = asyncio.get_running_loop().create_task(self._close_idle())
        self._sweeps.add(task)
        task.add_done_callback(self._sweeps.discard)

    async def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for conninfo, lane in list(self._lanes.items()):
            while lane.idle and now - lane.idle[0][1] >= self._idle_s:
                conn, _since = lane.idle.popleft()
                await conn.close()
            if not lane.idle and not lane.users:
                self._lanes.pop(conninfo, None)


class _Lane:
    """The connections to one database with one login."""

    def __init__(self, size_max: int) -> None:
        self.slots = asyncio.Semaphore(size_max)
        self.idle: deque[tuple[Conn, float]] = deque()
        self.users = 0


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Connections] = WeakKeyDictionary()


def connections() -> Connections:
    """Return the running event loop's connections."""
    loop = asyncio.get_running_loop()
    if loop not in _by_loop:
        _by_loop[loop] = Connections()
    return _by_loop[loop]


class _Text(Loader):
    """Postgres' own text: exact for numeric, and readable for uuid, inet, ranges, records and all else."""

    def load(self, data: Buffer) -> Any:
        return bytes(data).decode()


class _Moment(Loader):
    """A timestamp as ISO 8601: a T between date and time, and the offset with minutes."""

    def load(self, data: Buffer) -> Any:
        text = bytes(data).decode().replace(" ", "T", 1)
        return f"{text}:00" if text[-3:-2] in ("+", "-") and ":" in text else text


class _Bytes(Loader):
    """bytea as base64."""

    def load(self, data: Buffer) -> Any:
        text = bytes(data).decode()
        return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()


class _Number(Loader):
    """A float; what JSON cannot say (NaN, Infinity) is text."""

    def load(self, data: Buffer) -> Any:
        value = float(bytes(data))
        return value if math.isfinite(value) else bytes(data).decode()


class _Json(Loader):
    """json and jsonb as what they say."""

    def load(self, data: Buffer) -> Any:
        return msgspec.json.decode(data)


def _json_adapters() -> AdaptContext:
    """Return psycopg's adapters with loaders that give only what JSON can say; arrays follow their elements."""
    adapters = AdaptersMap(psycopg.adapters)
    ranges = [name for name in ("int4", "int8", "num", "date", "ts", "tstz")]
    loaders: dict[type[Loader], list[str]] = {
        _Text: ["numeric", "date", "time", "timetz", "interval", "uuid", "inet", "cidr", "record"],
        _Moment: ["timestamp", "timestamptz"],
        _Bytes: ["bytea"],
        _Number: ["float4", "float8"],
        _Json: ["json", "jsonb"],
    }
    loaders[_Text] += [f"{name}{kind}" for name in ranges for kind in ("range", "multirange")]
    for loader, names in loaders.items():
        for name in names:
            adapters.register_loader(name, loader)
    return _Context(adapters)


class _Context:
    """psycopg's AdaptContext for a connection that does not exist yet."""

    connection = None

    def __init__(self, adapters: AdaptersMap) -> None:
        self.adapters = adapters


def exact_adapters() -> AdaptContext:
    """Return adapters whose values another table takes as they are: as ADAPTERS, but bytea bytes and json text."""
    adapters = AdaptersMap(ADAPTERS.adapters)
    adapters.register_loader("bytea", ByteaLoader)
    for name in ("json", "jsonb"):
        adapters.register_loader(name, _Text)
    return _Context(adapters)


ADAPTERS = _json_adapters()

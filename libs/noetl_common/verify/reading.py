"""Read one snapshot of the database as streams: a few rows at a time, whatever there is of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import psycopg
from psycopg.rows import dict_row

from noetl_common.db import Conn
from noetl_common.sql import load_queries

SQL = load_queries("noetl_common.verify")
CONNECT_TIMEOUT_S = 10
# Waits for nothing for long, is cut off by nothing, plans cursors for all of their rows, sorts beyond this on disk.
OPTIONS = (
    "-c timezone=UTC -c lock_timeout=10000 -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c jit=off"
    " -c cursor_tuple_fraction=1.0 -c work_mem=64MB"
)
FETCH_ROWS = 1_000
ID_MAX = (1 << 63) - 1
Row = dict[str, Any]


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to look at, by id, and which of them are on their way out of the log (an int8multirange)."""

    low: int = 0
    high: int = ID_MAX
    leaving: str = "{}"

    @property
    def is_all(self) -> bool:
        """True when every run is looked at."""
        return self.low == 0 and self.high == ID_MAX

    @property
    def ids(self) -> dict[str, Any]:
        """The arguments of a query that looks at all of these runs."""
        return {"low": self.low, "high": self.high}

    @property
    def held(self) -> dict[str, Any]:
        """The arguments of a query that looks at those of them that the log holds."""
        return {**self.ids, "leaving": self.leaving}


class Snapshot:
    """One moment of the database."""

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        self._numbers = count(1)

    async def rows(self, name: str, **args: Any) -> list[Row]:
        """Return all rows of a query that has few."""
        return await (await self._conn.execute(SQL[name], args)).fetchall()

    async def stream(self, name: str, *, fetch_rows: int = FETCH_ROWS, **args: Any) -> AsyncIterator[Row]:
        """Yield the rows of a query through a cursor of its own; several may be open."""
        async with self._conn.cursor(name=f"verify_{next(self._numbers)}") as cursor:
            await cursor.execute(SQL[name], args)
            while rows := await cursor.fetchmany(fetch_rows):
                for row in rows:
                    yield row


@asynccontextmanager
async def one_moment(dsn: str) -> AsyncIterator[Snapshot]:
    """Lend a snapshot. Errors: psycopg errors pass through."""
    async with await _connect(dsn) as conn:
        await conn.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await conn.set_read_only(True)
        async with conn.transaction():
            await conn.execute(SQL["hold_tables"])
            yield Snapshot(conn)


@asynccontextmanager
async def the_present(dsn: str) -> AsyncIterator[Snapshot]:
    """Lend a view of what is committed at each query."""
    async with await _connect(dsn) as conn:
        await conn.set_read_only(True)
        await conn.set_autocommit(True)
        yield Snapshot(conn)


async def _connect(dsn: str) -> Conn:
    return await psycopg.AsyncConnection.connect(
        dsn,
        row_factory=dict_row,
        options=OPTIONS,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="noetl verify",
    )


class ByRun:
    """A stream in the order of execution ids, read run by run."""

    def __init__(self, rows: AsyncIterator[Row]) -> None:
        self._rows = rows
        self._next: Row | None = None

    async def first(self) -> int | None:
        """Return the execution id of the next row, None at the end."""
        if self._next is None:
            self._next = await anext(self._rows, None)
        return None if self._next is None else int(self._next["execution_id"])

    async def of(self, execution_id: int) -> AsyncIterator[Row]:
        """Yield the rows of a run; they come next, or there are none."""
        if await self.first() != execution_id:
            return
        row = self._next
        self._next = None
        while row is not None and row["execution_id"] == execution_id:
            yield row
            row = await anext(self._rows, None)
        self._next = row

"""The rows of a query as Postgres sends them: a few at a time, however many there are."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.generators import fetch
from psycopg.pq.abc import PGresult

from services.worker.tables import Sink, Tables
from services.worker.tools.postgres_connections import Conn

SENT_ROWS = 100  # that are in memory before they are weighed
CANCEL_S_MAX = 2.0
# {type's number: what a column of a table of it holds}; the values of all others are text, but for arrays
KINDS = {16: "bool", 20: "int64", 21: "int64", 23: "int64", 700: "double", 701: "double", 114: "json", 3802: "json"}
_ROWS = (pq.ExecStatus.SINGLE_TUPLE, pq.ExecStatus.TUPLES_CHUNK)
_END = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


async def query_result(conn: Conn, text: str, values: list[Any], *, tables: Tables) -> dict[str, Any]:
    """Return {status, rows, row_count, columns} of a query; many rows stand in a file of `tables`.

    Errors: psycopg errors; TooLarge.
    """
    sink: Sink | None = None
    async with _Streaming(conn) as cursor:
        async with aclosing(cursor.parts(text, values)) as parts:
            async for rows in parts:
                if sink is None:
                    sink = tables.sink(*_columns_of(cursor))
                if sink.hold(rows):
                    await asyncio.to_thread(sink.write)
        columns = [column.name for column in cursor.description or ()]
        if not columns:
            return {"status": "success", "rows": [], "row_count": cursor.changed, "columns": []}
    found: Any = []
    if sink is not None:
        found = await asyncio.to_thread(sink.finish) if sink.is_spilled else sink.finish()
    return {"status": "success", "rows": found, "row_count": len(found), "columns": columns}


class _Streaming(psycopg.AsyncRawCursor[tuple[Any, ...]]):
    """A cursor whose rows are taken by parts. psycopg's own `stream` forgets the columns of a result without rows."""

    changed = 0  # rows, by a statement that returned none

    async def parts(self, text: str, values: list[Any]) -> AsyncGenerator[list[tuple[Any, ...]]]:
        """Yield the rows, up to SENT_ROWS at a time; the connection is closed when they are not taken to the end."""
        async with self._conn.lock:
            try:
                await self._conn.wait(self._stream_send_gen(text.encode(), values or None, size=_part_size()))
                is_first = True
                while (sent := await self._conn.wait(self._next_part(is_first))) is not None:
                    is_first = False
                    yield self._tx.load_rows(0, sent.ntuples, self._make_row)
            finally:
                if self._pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                    with suppress(psycopg.Error, TimeoutError):
                        await self._conn.cancel_safe(timeout=CANCEL_S_MAX)
                    self._pgconn.finish()

    def _next_part(self, is_first: bool) -> PQGen[PGresult | None]:
        found: PGresult | None = yield from fetch(self._pgconn)
        if found is None:
            return None
        if is_first and found.status in (*_ROWS, *_END):
            self.pgresult = found
            self._tx.set_pgresult(found, set_loaders=True)
            self._make_row = self._make_row_maker()
        if found.status in _ROWS:
            self._tx.set_pgresult(found, set_loaders=False)
            return found
        if found.status not in _END:
            self._raise_for_result(found)
        self.changed = found.command_tuples or 0
        rest: PGresult | None = found
        while rest is not None:
            rest = yield from fetch(self._pgconn)
        return None


def _part_size() -> int:
    return SENT_ROWS if psycopg.capabilities.has_stream_chunked() else 1


def _columns_of(cursor: _Streaming) -> tuple[list[str], list[str]]:
    columns = cursor.description or ()
    types = cursor.connection.adapters.types
    kinds = []
    for column in columns:
        found = types.get(column.type_code)
        is_array = found is not None and found.array_oid == column.type_code
        kinds.append("json" if is_array else KINDS.get(column.type_code, "string"))
    return [column.name for column in columns], kinds

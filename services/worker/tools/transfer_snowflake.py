"""Snowflake as an end of a transfer: a query's rows in chunks, or a table that is written in one transaction."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from noetl_common.db import json_text
from services.worker.tools import Call
from services.worker.tools.duckdb_values import json_value
from services.worker.tools.snowflake_session import Session, bindable, columns_of, numbered, open_session
from services.worker.tools.sql_statements import bind_all, split
from services.worker.tools.transfer_endpoints import (
    Insert,
    Row,
    Source,
    Table,
    Target,
    Writing,
    check_columns,
    key_of,
    kinds_of,
    own_insert,
    query_of,
    quoted,
    text_of,
    words,
)

BINDS_MAX = 10_000  # values that one statement carries
STAGE = "NOETL_STAGE"  # a table of this session alone, where an upsert gathers its rows
PLACE = "NOETL_PLACE"  # of a row in the source: the last of several with one key wins
JSON_TYPES = ("VARIANT", "OBJECT", "ARRAY")
BOUND = (str, int, float, bool, bytes, Decimal, date, datetime, time)


class SnowflakeSource:
    """The rows of a query."""

    is_json = False

    def __init__(self, session: Session, text: str, values: list[Any]) -> None:
        self._session = session
        self._text = text
        self._values = values

    async def chunks(self, rows: int) -> AsyncIterator[list[Row]]:
        """Yield the rows of the query."""
        cursor = await self._session.call(lambda: self._session.do(*numbered(self._text, self._values)))
        columns = columns_of(cursor)
        while found := await self._session.call(lambda: cursor.fetchmany(rows)):
            yield [dict(zip(columns, row, strict=True)) for row in found]


class SnowflakeTarget:
    """A table of Snowflake, or an INSERT of the author's own."""

    def __init__(self, session: Session, config: dict[str, Any]) -> None:
        self._session = session
        self._config = config
        self._own: Insert | None = None
        self._table = Table(name="", columns={}, key=())
        self._writing = Writing(columns=[], mode="append", key=(), is_json=False)
        self._places = itertools.count()

    async def begin(self, writing: Writing) -> None:
        """Find the table; delete its rows in mode replace, make the stage of an upsert."""
        self._own = own_insert(self._config, writing)
        self._writing = writing
        await self._session.call(self._begin)

    async def write(self, rows: list[tuple[Any, ...]]) -> None:
        """Insert the rows, those of an upsert into the stage."""
        await self._session.call(lambda: self._write(rows))

    async def commit(self) -> None:
        """Merge what an upsert gathered; commit."""
        await self._session.call(self._commit)

    def _begin(self) -> None:
        if self._own is None:
            self._find()
        if self._writing.mode == "upsert":
            # One MERGE writes all that the stage gathered, so it needs no transaction round it.
            columns = ", ".join(map(quoted, self._writing.columns))
            made = ["CREATE OR REPLACE TEMPORARY TABLE", STAGE, "AS SELECT", columns, f", 0 AS {PLACE} FROM"]
            self._session.do(words(*made, self._table.name, "WHERE FALSE"))
            return
        self._session.do("BEGIN")
        if self._writing.mode == "replace":
            self._session.do(words("DELETE FROM", self._table.name))

    def _find(self) -> None:
        parts = text_of(self._config, "table", "target").split(".")
        name = ".".join(quoted(part if part != part.lower() else part.upper()) for part in parts)
        cursor = self._session.do(words("DESCRIBE TABLE", name))
        names = [column.lower() for column in columns_of(cursor)]
        described = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        self._table = Table(
            name=name,
            columns={row["name"]: str(row["type"]).upper().startswith(JSON_TYPES) for row in described},
            key=tuple(row["name"] for row in described if row.get("primary key") == "Y"),
        )
        self._writing = msgspec.structs.replace(
            self._writing,
            columns=[self._spelled(column) for column in self._writing.columns],
            key=tuple(self._spelled(column) for column in self._writing.key),
        )
        check_columns(self._table, self._writing.columns)
        if self._writing.mode == "upsert":
            key_of(self._table, self._writing)

    def _spelled(self, column: str) -> str:
        """Return a column as the table has it: what is written without quotes is upper case there."""
        return column if column in self._table.columns else column.upper()

    def _write(self, rows: list[tuple[Any, ...]]) -> None:
        if self._own is not None:
            for row in rows:
                self._session.do(*numbered(self._own.text, [_bound(value) for value in self._own.values(row)]))
            return
        kinds = kinds_of(self._table, self._writing)
        for part in _parts(rows, max(1, BINDS_MAX // (len(kinds) + 1))):
            values = [[_bound(kind(value)) for kind, value in zip(kinds, row, strict=True)] for row in part]
            self._session.do(*self._statement(values))

    def _statement(self, rows: list[list[Any]]) -> tuple[str, list[Any]]:
        columns = list(map(quoted, self._writing.columns))
        is_json = [self._table.columns[name] for name in self._writing.columns]
        target = self._table.name
        if self._writing.mode == "upsert":
            target, columns, is_json = STAGE, [*columns, PLACE], [*is_json, False]
            rows = [[*row, next(self._places)] for row in rows]
        places = ", ".join(["(" + ", ".join("?" * len(columns)) + ")"] * len(rows))
        insert = ["INSERT INTO", target, f"({', '.join(columns)})"]
        picked = [f"PARSE_JSON(column{n})" if as_json else f"column{n}" for n, as_json in enumerate(is_json, 1)]
        body = ["SELECT", ", ".join(picked), "FROM VALUES"] if any(is_json) else ["VALUES"]
        return words(*insert, *body, places), [value for row in rows for value in row]

    def _commit(self) -> None:
        if self._writing.mode == "upsert" and self._own is None:
            self._session.do(self._merge())
        else:
            self._session.do("COMMIT")

    def _merge(self) -> str:
        columns, key = self._writing.columns, key_of(self._table, self._writing)
        names = ", ".join(map(quoted, columns))
        keys = ", ".join(map(quoted, key))
        last = f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {PLACE} DESC) = 1"
        on = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in key)
        others = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in columns if name not in key)
        values = ", ".join(f"s.{quoted(name)}" for name in columns)
        parts = ["MERGE INTO", self._table.name, "t USING (SELECT", names, "FROM", STAGE, last, ") s ON", on]
        parts += ["WHEN MATCHED THEN UPDATE SET", others] if others else []
        return words(*parts, "WHEN NOT MATCHED THEN INSERT", f"({names}) VALUES ({values})")


@asynccontextmanager
async def snowflake_source(call: Call, config: dict[str, Any]) -> AsyncIterator[Source]:
    """Open a session for the source of a transfer."""
    inner = msgspec.structs.replace(call, kind="snowflake", config=config)
    ((text, values),) = bind_all(split(query_of(config)), config.get("params"), value=bindable)
    async with open_session(inner, timeout_s=call.timeout_s) as session:
        yield SnowflakeSource(session, text, values)


@asynccontextmanager
async def snowflake_target(call: Call, config: dict[str, Any]) -> AsyncIterator[Target]:
    """Open a session for the target of a transfer."""
    inner = msgspec.structs.replace(call, kind="snowflake", config=config)
    async with open_session(inner, timeout_s=call.timeout_s) as session:
        yield SnowflakeTarget(session, config)


def _parts(rows: list[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _bound(value: Any) -> Any:
    """Return what the connector can bind: of all else, how it looks as JSON."""
    if value is None or isinstance(value, BOUND):
        return value
    plain = json_value(value)
    return plain if isinstance(plain, str) else json_text(plain)

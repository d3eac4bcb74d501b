"""The endpoints of a transfer: for each kind a source that yields rows in chunks, or a target that writes them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal, Protocol

import msgspec
import psycopg

from noetl_common.db import json_text
from noetl_common.errors import Invalid, ToolFailed
from services.worker.tables import Tables
from services.worker.tools import Call, dispatch, duckdb, postgres
from services.worker.tools.duckdb_session import MEMORY, Session, open_session
from services.worker.tools.duckdb_values import json_value
from services.worker.tools.postgres_connections import CONNECT_TIMEOUT_S, SQL, Conn, exact_adapters
from services.worker.tools.sql_statements import Binder, split

Mode = Literal["append", "replace", "upsert"]
Row = dict[str, Any]
HTTP_FIELDS = frozenset(
    ("url", "endpoint", "method", "headers", "params", "json", "payload", "data", "body", "form", "auth", "credential")
) | {"verify_ssl", "follow_redirects", "timeout"}


class Writing(msgspec.Struct, kw_only=True):
    """What a target is to write. `is_json`: the values are JSON, so a text for a column of JSON is a JSON string."""

    columns: list[str]
    mode: Mode
    key: tuple[str, ...]
    is_json: bool


class Table(msgspec.Struct, kw_only=True):
    """A table of a target. `name` is quoted; `columns` say which hold JSON."""

    name: str
    columns: dict[str, bool]
    key: tuple[str, ...]


class Source(Protocol):
    """Where rows come from."""

    is_json: bool

    def chunks(self, rows: int) -> AsyncIterator[list[Row]]:
        """Yield the rows, so many at a time; never an empty list."""
        ...


class Target(Protocol):
    """Where rows go to. Nothing is there before `commit`; leaving without it undoes all."""

    async def begin(self, writing: Writing) -> None:
        """Prepare what writes; mode `replace` deletes the rows that are there."""
        ...

    async def write(self, rows: list[tuple[Any, ...]]) -> None:
        """Write rows whose values are in the order of the columns."""
        ...

    async def commit(self) -> None:
        """Make it so."""
        ...


class HttpSource:
    """The rows of one answer: a list of mappings, at `data_path` of its body."""

    is_json = True

    def __init__(self, call: Call, config: dict[str, Any]) -> None:
        self._call = call
        self._config = config

    async def chunks(self, rows: int) -> AsyncIterator[list[Row]]:
        """Ask, and yield the rows of the answer."""
        fields = {name: value for name, value in self._config.items() if name in HTTP_FIELDS}
        outcome = await dispatch(msgspec.structs.replace(self._call, kind="http", config=fields))
        if not outcome.ok:
            raise ToolFailed(outcome.error or {})
        path = str(self._config.get("data_path") or "")
        found = _at_path(outcome.data["data"], path)
        what = f"source.data_path {path!r}" if path else "source: the body"
        if not isinstance(found, list):
            raise Invalid(f"{what}: expected a list of rows, found {type(found).__name__}")
        for index, row in enumerate(found):
            if not isinstance(row, dict):
                raise Invalid(f"{what}: row {index}: expected a mapping, found {type(row).__name__}")
        for start in range(0, len(found), rows):
            yield found[start : start + rows]


class PostgresSource:
    """The rows of a query, read through a cursor of the server."""

    is_json = False

    def __init__(self, conn: Conn, text: str, values: list[Any]) -> None:
        self._conn = conn
        self._text = text
        self._values = values

    async def chunks(self, rows: int) -> AsyncIterator[list[Row]]:
        """Yield the rows of the query."""
        async with psycopg.AsyncRawServerCursor(self._conn, "noetl_transfer") as cursor:
            await cursor.execute(self._text.encode(), self._values or None)
            columns = [column.name for column in cursor.description or ()]
            while found := await cursor.fetchmany(rows):
                yield [dict(zip(columns, row, strict=True)) for row in found]


class PostgresTarget:
    """A table of Postgres, or an INSERT of the author's own."""

    def __init__(self, conn: Conn, config: dict[str, Any]) -> None:
        self._conn = conn
        self._config = config
        self._insert = Insert("", [], [])

    async def begin(self, writing: Writing) -> None:
        """Find the table; delete its rows in mode replace."""
        if own := own_insert(self._config, writing):
            self._insert = own
            return
        name = text_of(self._config, "table", "target")
        described = await (await self._conn.execute(SQL["describe_table"], {"table_name": name})).fetchall()
        if not described:
            raise Invalid(f"target.table: expected a table that exists, found none named {name!r}")
        table = Table(
            name=described[0][0],
            columns={column: is_json for _name, column, is_json, _key in described},
            key=tuple(column for _name, column, _json, is_key in described if is_key),
        )
        if writing.mode == "replace":
            await self._conn.execute(words("DELETE FROM", table.name))
        self._insert = _insert_into(table, writing)

    async def write(self, rows: list[tuple[Any, ...]]) -> None:
        """Insert the rows, or update those whose key is there."""
        async with psycopg.AsyncRawCursor(self._conn) as cursor:
            await cursor.executemany(self._insert.text.encode(), [self._insert.values(row) for row in rows])

    async def commit(self) -> None:
        """Commit."""
        await self._conn.commit()


class DuckdbSource:
    """The rows of a query of DuckDB."""

    is_json = False

    def __init__(self, session: Session, text: str, values: list[Any]) -> None:
        self._session = session
        self._text = text
        self._values = values

    async def chunks(self, rows: int) -> AsyncIterator[list[Row]]:
        """Yield the rows of the query."""
        done = await self._session.call(lambda: self._session.do(self._text, self._values or None))
        columns = [str(column[0]) for column in done.description or ()]
        while found := await self._session.call(lambda: done.fetchmany(rows)):
            yield [dict(zip(columns, row, strict=True)) for row in found]


class DuckdbTarget:
    """A table of DuckDB, or an INSERT of the author's own."""

    def __init__(self, session: Session, config: dict[str, Any]) -> None:
        self._session = session
        self._config = config
        self._insert = Insert("", [], [])

    async def begin(self, writing: Writing) -> None:
        """Find the table; delete its rows in mode replace."""
        await self._session.call(lambda: self._session.do("BEGIN"))
        if own := own_insert(self._config, writing):
            self._insert = own
            return
        name = ".".join(quoted(part) for part in text_of(self._config, "table", "target").split("."))
        described = await self._session.call(lambda: self._session.result(words("DESCRIBE", name), [], Tables()))
        rows = described["rows"]
        table = Table(
            name=name,
            columns={row["column_name"]: row["column_type"] == "JSON" for row in rows},
            key=tuple(row["column_name"] for row in rows if row["key"] == "PRI"),
        )
        if writing.mode == "replace":
            await self._session.call(lambda: self._session.do(words("DELETE FROM", name)))
        self._insert = _insert_into(table, writing)

    async def write(self, rows: list[tuple[Any, ...]]) -> None:
        """Insert the rows, or update those whose key is there."""
        values = [self._insert.values(row) for row in rows]
        await self._session.call(lambda: self._session.many(self._insert.text, values))

    async def commit(self) -> None:
        """Commit."""
        await self._session.call(lambda: self._session.do("COMMIT"))


class Insert:
    """A statement that writes one row; `order` the places of its values in a row, `kinds` how each is written."""

    def __init__(self, text: str, order: list[int], kinds: Sequence[Callable[[Any], Any]]) -> None:
        self.text = text
        self._places = list(zip(order, kinds, strict=True))

    def values(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what is bound to the statement for a row."""
        return tuple(kind(row[place]) for place, kind in self._places)


def _insert_into(table: Table, writing: Writing) -> Insert:
    columns = writing.columns
    check_columns(table, columns)
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    parts = ["INSERT INTO", table.name, f"({', '.join(map(quoted, columns))})", f"VALUES ({places})"]
    if writing.mode == "upsert":
        key = key_of(table, writing)
        others = [f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in columns if name not in key]
        parts.append(f"ON CONFLICT ({', '.join(map(quoted, key))})")
        parts.append(f"DO UPDATE SET {', '.join(others)}" if others else "DO NOTHING")
    return Insert(words(*parts), list(range(len(columns))), kinds_of(table, writing))


def check_columns(table: Table, columns: list[str]) -> None:
    """Do nothing when the table has these columns.

    Errors: Invalid.
    """
    if unknown := [name for name in columns if name not in table.columns]:
        known = ", ".join(table.columns)
        raise Invalid(f"target.table: expected one of its columns ({known}), found {unknown[0]!r}")


def key_of(table: Table, writing: Writing) -> tuple[str, ...]:
    """Return the columns that say which rows are the same.

    Errors: Invalid when there are none, or none that are written.
    """
    key = writing.key or table.key
    if not key or (writing.columns and not set(key) <= set(writing.columns)):
        raise Invalid(f"key: expected columns that are written ({', '.join(writing.columns)}), found {list(key)}")
    return key


def kinds_of(table: Table, writing: Writing) -> list[Callable[[Any], Any]]:
    """Return how the values of each column are written."""
    as_json = _as_json(writing)
    return [as_json if table.columns[name] else _plain for name in writing.columns]


def own_insert(config: dict[str, Any], writing: Writing) -> Insert | None:
    """Return the INSERT that `query` of a target is, None when it has none.

    Errors: Invalid.
    """
    query = config.get("query") or config.get("command")
    if not query:
        return None
    if writing.mode != "append":
        raise Invalid(f"mode: expected append with target.query, found {writing.mode}")
    if not isinstance(query, str) or len(statements := split(query)) != 1:
        raise Invalid("target.query: expected one statement with %(column)s for each column")
    # Each name stands for itself, so that what is bound says which column goes where.
    text, bound = Binder({name: name for name in writing.columns}).bind(statements[0].text)
    order = [writing.columns.index(parameter.value) for parameter in bound]
    return Insert(text, order, [_as_json(writing) if parameter.is_json else _plain for parameter in bound])


def _as_json(writing: Writing) -> Callable[[Any], Any]:
    return _json_of_json if writing.is_json else _json_of_sql


def _json_of_json(value: Any) -> Any:
    return None if value is None else json_text(value)


def _json_of_sql(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json_text(json_value(value))


def _plain(value: Any) -> Any:
    nested = isinstance(value, list) and any(isinstance(element, dict | list) for element in value)
    return json_text(json_value(value)) if isinstance(value, dict) or nested else value


@asynccontextmanager
async def _http_source(call: Call, config: dict[str, Any]) -> AsyncIterator[Source]:
    yield HttpSource(call, config)


@asynccontextmanager
async def _postgres(call: Call, config: dict[str, Any]) -> AsyncIterator[Conn]:
    inner = msgspec.structs.replace(call, kind="postgres", config=config)
    conninfo = await postgres.conninfo_of(inner)
    # Connections of its own: both ends wait for each other, which must not meet the limit of the shared ones.
    conn = await psycopg.AsyncConnection.connect(
        conninfo, prepare_threshold=None, context=exact_adapters(), connect_timeout=CONNECT_TIMEOUT_S
    )
    try:
        await conn.execute(SQL["open_session"], postgres.session_of(inner, call.timeout_s))
        await conn.execute(SQL["write_intervals_plainly"])
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def _postgres_source(call: Call, config: dict[str, Any]) -> AsyncIterator[Source]:
    inner = msgspec.structs.replace(call, config=config)
    ((text, values),) = postgres.bound(inner, split(query_of(config)))
    async with _postgres(call, config) as conn:
        yield PostgresSource(conn, text, values)


@asynccontextmanager
async def _postgres_target(call: Call, config: dict[str, Any]) -> AsyncIterator[Target]:
    async with _postgres(call, config) as conn:
        yield PostgresTarget(conn, config)


@asynccontextmanager
async def _duckdb_source(call: Call, config: dict[str, Any]) -> AsyncIterator[Source]:
    inner = msgspec.structs.replace(call, config=config)
    ((text, values),) = duckdb.bound(inner, split(query_of(config)))
    async with open_session(_database(config), idempotency_key=call.idempotency_key) as session:
        yield DuckdbSource(session, text, values)


@asynccontextmanager
async def _duckdb_target(call: Call, config: dict[str, Any]) -> AsyncIterator[Target]:
    async with open_session(_database(config), idempotency_key=call.idempotency_key) as session:
        yield DuckdbTarget(session, config)


SOURCES: dict[str, Callable[[Call, dict[str, Any]], AbstractAsyncContextManager[Source]]] = {
    "http": _http_source,
    "postgres": _postgres_source,
    "duckdb": _duckdb_source,
}
TARGETS: dict[str, Callable[[Call, dict[str, Any]], AbstractAsyncContextManager[Target]]] = {
    "postgres": _postgres_target,
    "duckdb": _duckdb_target,
}


def query_of(config: dict[str, Any]) -> str:
    """Return the query of a source, or that of its whole table.

    Errors: Invalid.
    """
    query = config.get("query") or config.get("command")
    if not query and isinstance(config.get("table"), str):
        return words("SELECT * FROM", config["table"])
    if not isinstance(query, str) or len(split(query)) != 1:
        raise Invalid("source.query: expected one statement that returns rows, or source.table")
    return query


def _database(config: dict[str, Any]) -> str:
    return text_of(
        {"database": config.get("database") or config.get("db_path") or MEMORY}, "database", "source or target"
    )


def text_of(config: dict[str, Any], name: str, side: str) -> str:
    """Return a field that must be a text.

    Errors: Invalid names it.
    """
    value = config.get(name)
    if not isinstance(value, str) or not value:
        raise Invalid(f"{side}.{name}: expected text, found {value!r}")
    return value


def _at_path(value: Any, path: str) -> Any:
    for name in filter(None, path.removeprefix("$").split(".")):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise Invalid(f"source.data_path: expected {path!r} in the body, found no {name!r}")
    return value


def words(*parts: str) -> str:
    """Return SQL made of parts that are quoted already."""
    return " ".join(parts)


def quoted(name: str) -> str:
    """Return an identifier as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'

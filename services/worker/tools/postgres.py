"""The postgres tool: run a script of SQL statements and return what the last row-returning one brought.

All statements of a script are one transaction: after an error none of them happened. Only a script with a
statement that cannot stand in a transaction (VACUUM, CREATE INDEX CONCURRENTLY, CREATE DATABASE, ...), or that
begins or ends transactions itself, runs statement by statement, each committed at once unless the script says BEGIN.
With `once: true` the script and its entry in a ledger commit together, so that a second run of it applies nothing.
With `chunk_size` the rows of the last statement are handed on in chunks of so many, from a cursor of the server.
The session's setting `noetl.idempotency_key` names the task's pass, the same at every run of it.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from noetl_common.core.duration import seconds_in
from noetl_common.core.outcome import Outcome
from noetl_common.db import json_text
from noetl_common.errors import Invalid, NoetlError, NotFound, TooLarge, Unavailable
from services.worker.tables import Tables
from services.worker.tools import Call, failed
from services.worker.tools.postgres_connections import SQL, Conn, connections
from services.worker.tools.postgres_once import apply_once, is_once
from services.worker.tools.postgres_rows import query_result
from services.worker.tools.script_source import read_source
from services.worker.tools.sql_statements import Parameter, Statement, bind_all, split
from services.worker.tools.streaming import check_streams, chunk_size_of, send_chunks

ROWS_MAX = 1_000_000  # of a statement that is no query but returns rows
STREAMED = (("SELECT",), ("WITH",), ("VALUES",), ("TABLE",))
COMMAND_FIELDS = ("command", "query", "sql", "commands")
DSN_FIELDS = ("dsn", "url", "connection_string")
# {libpq's name: the spellings accepted in credentials and tool fields}
CONNECTION_FIELDS = {
    "host": ("db_host", "host", "hostname"),
    "port": ("db_port", "port"),
    "user": ("db_user", "user", "username"),
    "password": ("db_password", "password"),
    "dbname": ("db_name", "database", "dbname", "db"),
    "sslmode": ("sslmode", "ssl_mode"),
    "sslrootcert": ("sslrootcert",),
}
# (SQLSTATE prefix, kind of the error, may succeed when tried again), first match wins
KINDS = (
    ("40", "db_deadlock", True),
    ("57014", "db_timeout", True),
    ("55P03", "db_timeout", True),
    ("57", "db_connection", True),
    ("53", "db_connection", True),
    ("08", "db_connection", True),
    ("28", "db_connection", False),
    ("3D", "db_connection", False),
    ("23", "db_constraint", False),
    ("", "sql", False),
)
REFUSED_LOGIN = re.compile(r"authentication failed|no password supplied|does not exist")


async def run(call: Call) -> Outcome:
    """Return {columns, rows, row_count} of the last statement that returned rows, else {affected_rows}.

    There is also `command_<i>` {status, rows, row_count, columns} for each statement, a single one too. With
    `chunk_size` it is {row_count, chunks, columns}, and each chunk {columns, rows, row_count, chunk_index}.
    Shapes: numeric is text, timestamps ISO 8601, jsonb JSON, bytea base64, arrays lists, uuid and others text.
    Errors: none is raised; error.kind is db_connection, db_constraint, db_deadlock, db_timeout, sql or config.
    """
    timeout_s = call.timeout_s
    try:
        timeout_s = _timeout_s(call)
        # The server's own statement_timeout comes first; this one covers waiting for a connection and many statements.
        async with asyncio.timeout(timeout_s + 0.5):
            return Outcome(data=await _perform(call, timeout_s))
    except TimeoutError:
        return failed("db_timeout", f"postgres: no result within {timeout_s:g} s", code="DB_TIMEOUT", retryable=True)
    except psycopg.Error as exc:
        return failure_of(exc)
    except Unavailable as exc:
        return failed("db_connection", f"postgres: {exc}", code=exc.code, retryable=True)
    except NoetlError as exc:
        code = "CREDENTIAL_NOT_FOUND" if isinstance(exc, NotFound) else exc.code
        return failed("config" if isinstance(exc, NotFound | Invalid) else "sql", f"postgres: {exc}", code=code)


async def close() -> None:
    """Close the idle connections; the worker calls this when it stops."""
    await connections().close()


async def _perform(call: Call, timeout_s: float) -> dict[str, Any]:
    script = await read_source(call) if call.config.get("script") else script_of(call.config)
    _refuse_nul(script, "the SQL text")
    statements = split(script)
    if not statements and not script.strip(" \t\r\n;"):
        raise Invalid("no SQL command provided: expected a statement, found only blanks")
    if not statements:
        # Comments alone are what the author has written so far, and no mistake; psql takes them too.
        return summary_of([])
    queries = bound(call, statements)
    chunk_size = chunk_size_of(call.config)
    once = is_once(call, statements)
    conninfo = await conninfo_of(call)

    async def prepare(conn: Conn) -> None:
        await conn.execute(SQL["open_session"], session_of(call, timeout_s))

    async with connections().borrow(conninfo, prepare) as conn:
        if chunk_size:
            return await _streamed(conn, call, script, statements, queries=queries, chunk_size=chunk_size)
        if once:

            async def apply() -> dict[str, Any]:
                return summary_of(await execute(conn, script, statements, queries=queries))

            return await apply_once(conn, call, apply)
        if len(statements) == 1 or any(statement.runs_alone for statement in statements):
            results = await execute(conn, script, statements, queries=queries, tables=call.tables)
            if conn.info.transaction_status != pq.TransactionStatus.IDLE:
                raise Invalid("command: expected COMMIT or ROLLBACK at its end, found a transaction left open")
        else:
            async with conn.transaction():
                results = await execute(conn, script, statements, queries=queries, tables=call.tables)
    return summary_of(results)


async def _streamed(
    conn: Conn,
    call: Call,
    script: str,
    statements: list[Statement],
    *,
    queries: list[tuple[str, list[Any]]],
    chunk_size: int,
) -> dict[str, Any]:
    check_streams(statements)
    if any(statement.runs_alone for statement in statements):
        raise Invalid("chunk_size: expected statements of one transaction, found one that cannot stand in it")
    (text, values), last = queries[-1], len(statements) - 1
    async with conn.transaction():
        await execute(conn, script, statements, queries=queries[:-1])
        async with psycopg.AsyncRawServerCursor(conn, "noetl_chunks") as cursor:
            with _placing(script, statements, last):
                await cursor.execute(text.encode(), values or None)
            columns = [column.name for column in cursor.description or ()]

            async def fetch() -> list[dict[str, Any]]:
                with _placing(script, statements, last):
                    return [dict(zip(columns, row, strict=True)) for row in await cursor.fetchmany(chunk_size)]

            return await send_chunks(fetch, columns, call.partial)


async def execute(
    conn: Conn,
    script: str,
    statements: list[Statement],
    *,
    queries: list[tuple[str, list[Any]]],
    tables: Tables | None = None,
) -> list[dict[str, Any]]:
    """Return {status, rows, row_count, columns} of each query; `script` and `statements` say where one failed.

    The rows of a query that are many stand in a file of `tables`, if it is given.

    Errors: psycopg errors with a note of the place; TooLarge.
    """
    results = []
    for index, (text, values) in enumerate(queries):
        with _placing(script, statements, index):
            if tables is not None and statements[index].words[:1] in STREAMED:
                results.append(await query_result(conn, text, values, tables=tables))
            else:
                results.append(await _result(conn, text, values))
    return results


@contextmanager
def _placing(script: str, statements: list[Statement], index: int) -> Iterator[None]:
    """Have what Postgres raises say which statement it was."""
    try:
        yield
    except psycopg.Error as exc:
        line = script.count("\n", 0, statements[index].start) + 1
        exc.add_note(f"statement {index + 1} of {len(statements)}, line {line}")
        raise


async def _result(conn: Conn, text: str, values: list[Any]) -> dict[str, Any]:
    async with psycopg.AsyncRawCursor(conn) as cursor:
        await cursor.execute(text.encode(), values or None)
        if cursor.description is None:
            return {"status": "success", "rows": [], "row_count": max(cursor.rowcount, 0), "columns": []}
        if cursor.rowcount > ROWS_MAX:
            raise TooLarge(f"a result has {cursor.rowcount} rows, expected at most {ROWS_MAX}")
        columns = [column.name for column in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in await cursor.fetchall()]
        return {"status": "success", "rows": rows, "row_count": len(rows), "columns": columns}


def summary_of(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a script's result: the last rows, or how many rows changed, and `command_<i>` of each statement."""
    with_rows = [result for result in results if result["columns"]]
    if with_rows:
        top = {name: with_rows[-1][name] for name in ("columns", "rows", "row_count")}
    else:
        top = {"affected_rows": sum(result["row_count"] for result in results)}
    return {**top, **{f"command_{index}": result for index, result in enumerate(results)}}


def script_of(config: Mapping[str, Any]) -> str:
    """Return the SQL of `command`, `query`, `sql` or `commands`, a text or a list.

    Errors: Invalid.
    """
    given = next((config[name] for name in COMMAND_FIELDS if config.get(name)), None)
    if given is None:
        raise Invalid("no SQL command provided: expected `command`, `query` or `script`, found none of them")
    parts = given if isinstance(given, list) else [given]
    if not all(isinstance(part, str) for part in parts):
        raise Invalid(f"command: expected SQL text, found {type(given).__name__}")
    return ";\n".join(parts)


def bound(call: Call, statements: list[Statement]) -> list[tuple[str, list[Any]]]:
    """Return each statement with placeholders $1, $2, ... and what `params` binds to them.

    Errors: Invalid.
    """
    return bind_all(statements, call.config.get("params"), value=_value)


def _value(parameter: Parameter) -> Any:
    """Return what psycopg binds: mappings, lists of mappings and all that is cast to jsonb go as JSON text."""
    value, is_json = parameter
    if isinstance(value, str) or value is None:
        _refuse_nul(value or "", "a parameter")
        return value
    is_nested = isinstance(value, list) and any(isinstance(element, dict | list) for element in value)
    if is_json or isinstance(value, dict) or is_nested:
        return json_text(value)
    for element in value if isinstance(value, list) else []:
        if isinstance(element, str):
            _refuse_nul(element, "a parameter")
    return value


def _refuse_nul(text: str, what: str) -> None:
    if "\0" in text:
        raise Invalid(f"{what}: expected text that Postgres can store, found a NUL character; replace it before")


def session_of(call: Call, timeout_s: float) -> dict[str, Any]:
    """Return the parameters of the query `open_session`."""
    schema = call.config.get("schema")
    return {
        "application_name": f"noetl/{call.execution_id}/{call.step}"[:63],
        "idempotency_key": call.idempotency_key,
        "statement_timeout": f"{max(int(timeout_s * 1000), 1)}ms",
        "search_path": schema if isinstance(schema, str) and schema else None,
    }


def _timeout_s(call: Call) -> float:
    given = call.config.get("timeout", call.config.get("timeout_seconds"))
    if given in (None, ""):
        return call.timeout_s
    timeout_s = seconds_in(given, 0.0)
    if not timeout_s > 0:
        raise Invalid(f"timeout: expected seconds above 0, found {given!r}")
    return min(timeout_s, call.timeout_s)


async def conninfo_of(call: Call) -> str:
    """Return libpq's connection string; explicit fields of the task win over those of the credential.

    Errors: Invalid, NotFound for an unknown credential.
    """
    auth = call.config.get("auth") or call.config.get("credential")
    fields: dict[str, Any] = {}
    if isinstance(auth, dict):
        alias = auth.get("credential") or auth.get("alias")
        fields, auth = (fields, alias) if isinstance(alias, str) else (auth, None)
    if isinstance(auth, str):
        credential = await call.credential(auth)
        kind = str(credential.get("type", "postgres")).lower()
        if kind not in ("postgres", "postgresql"):
            raise Invalid(f"credential {auth!r}: expected type postgres, found {kind}")
        fields = credential.get("data") or {}
    found = {**_connection_fields(fields), **_connection_fields(call.config)}
    if not found:
        raise Invalid(
            "expected `auth` naming a postgres credential, or host, port, user, password and database, found neither"
        )
    dsn = str(found.pop("dsn", ""))
    try:
        conninfo_to_dict(dsn)
        return make_conninfo(dsn, **found)
    except psycopg.ProgrammingError:
        # libpq's message quotes the string, and with it the password.
        raise Invalid(
            "expected a connection string as postgresql://user:password@host:port/database, found another text"
        ) from None


def _connection_fields(source: Mapping[str, Any]) -> dict[str, Any]:
    dsn = next((source[name] for name in DSN_FIELDS if source.get(name)), None)
    found = {"dsn": dsn} if dsn else {}
    for libpq_name, spellings in CONNECTION_FIELDS.items():
        value = next((source[name] for name in spellings if source.get(name) not in (None, "")), None)
        if value is not None:
            found[libpq_name] = value
    return found


def failure_of(exc: psycopg.Error) -> Outcome:
    """Return the outcome of an error of Postgres: its kind by SQLSTATE, and the notes that say where it happened."""
    state = exc.sqlstate or ""
    if state:
        kind, retryable = next((kind, again) for prefix, kind, again in KINDS if state.startswith(prefix))
    else:
        is_lost = isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError)
        kind = "db_connection" if is_lost else "sql"
        retryable = is_lost and not REFUSED_LOGIN.search(str(exc))
    place = "".join(f" ({note})" for note in getattr(exc, "__notes__", ()))
    parts = [exc.diag.message_primary, exc.diag.message_detail, exc.diag.message_hint]
    text = "; ".join(part for part in parts if part) or " ".join(str(exc).split())
    message = f"postgres: {state + ' ' if state else ''}{text}{place}"
    code = state or ("DB_CONNECTION" if kind == "db_connection" else "SQL")
    outcome = failed(kind, message, code=code, retryable=retryable, **({"pg_code": state} if state else {}))
    outcome.pg = {"code": state, "sqlstate": state} if state else {}
    return outcome

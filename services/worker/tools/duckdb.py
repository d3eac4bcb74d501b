"""The duckdb tool: run a script of SQL statements in a database file, or in memory, and return what it brought.

All statements of a script are one transaction, unless one of them begins or ends transactions itself or cannot stand in
one (ATTACH, CHECKPOINT, ...): then each is committed at once. With `chunk_size` the rows of the last statement are
handed on in chunks of so many, as DuckDB finds them. `tables` are stored results that the SQL sees as views.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.db import json_text
from noetl_common.errors import DependencyMissing, Invalid, NoetlError, NotFound, ToolFailed, Unavailable
from services.worker.tables import Tables
from services.worker.tools import Call, failed
from services.worker.tools.duckdb_session import MEMORY, Rows, Session, close_threads, open_session
from services.worker.tools.duckdb_tables import table_views
from services.worker.tools.postgres import script_of, summary_of
from services.worker.tools.script_source import read_source
from services.worker.tools.sql_statements import Parameter, Statement, bind_all, split, tokens
from services.worker.tools.streaming import check_streams, chunk_size_of, send_chunks

T = TypeVar("T")
ALONE = frozenset(
    (
        *("BEGIN", "START", "COMMIT", "END", "ABORT", "ROLLBACK", "ATTACH", "DETACH", "CHECKPOINT", "FORCE"),
        *("VACUUM", "INSTALL", "LOAD", "USE"),
    )
)


class Script(msgspec.Struct, kw_only=True):
    """What one call does: first `setup`, whose texts no error shows, then the statements with what is bound to them."""

    database: str
    text: str
    statements: list[Statement]
    queries: list[tuple[str, list[Any]]]
    setup: list[tuple[str, str]] = []  # (SQL, what to say when it fails)
    lock_name: str = ""
    chunk_size: int = 0


async def run(call: Call) -> Outcome:
    """Return {columns, rows, row_count} of the last statement that returned rows, else {affected_rows}.

    There is also `command_<i>` for each statement, as the postgres tool has it. In SQL, `getvariable(
    'noetl_idempotency_key')` names the command, the same at every run of it.
    Errors: none is raised; error.kind is db_connection, db_constraint, db_deadlock, db_timeout, memory, sql or config.
    """
    return await outcome_of(call, lambda text: script_for(call, text))


async def close() -> None:
    """End the threads; the worker calls this when it stops."""
    close_threads()


async def outcome_of(call: Call, plan: Any) -> Outcome:
    """Return the outcome of the script that `plan` makes of the call's SQL."""
    kind = call.kind
    try:
        async with asyncio.timeout(call.timeout_s):
            text = await read_source(call) if call.config.get("script") else script_of(call.config)
            script: Script = plan(text)
            names = {"idempotency_key": call.idempotency_key, "lock_name": script.lock_name}
            async with table_views(call) as views, open_session(script.database, **names) as session:
                script.setup = [*script.setup, *views]
                if script.chunk_size:
                    return Outcome(data=await _streamed(session, script, call))
                return Outcome(data=summary_of(await session.call(lambda: execute(session, script, call.tables))))
    except TimeoutError:
        message = f"{kind}: no result within {call.timeout_s:g} s"
        return failed("db_timeout", message, code="DB_TIMEOUT", retryable=True)
    except ToolFailed as exc:
        place = "".join(f" ({note})" for note in getattr(exc, "__notes__", ()))
        return Outcome(status="error", error={**exc.error, "message": f"{kind}: {exc}{place}"})
    except Unavailable as exc:
        return failed("db_connection", f"{kind}: {exc}", code=exc.code, retryable=True)
    except NoetlError as exc:
        is_config = isinstance(exc, NotFound | Invalid | DependencyMissing)
        return failed("config" if is_config else "sql", f"{kind}: {exc}", code=exc.code)


def script_for(call: Call, text: str) -> Script:
    """Return what the call's fields ask for.

    Errors: Invalid names the field.
    """
    if call.config.get("auth") or call.config.get("credential") or call.config.get("gcs_credential"):
        raise Invalid("auth: expected none, found a credential; a duckdb tool reads what its worker's machine can read")
    database = call.config.get("database") or call.config.get("db_path") or MEMORY
    if not isinstance(database, str):
        raise Invalid(f"database: expected a path or {MEMORY}, found {type(database).__name__}")
    statements = split(text)
    if not statements:
        raise Invalid("no SQL command provided: expected a statement, found only blanks and comments")
    chunk_size = chunk_size_of(call.config)
    if chunk_size:
        check_streams(statements)
    queries = bound(call, statements)
    return Script(database=database, text=text, statements=statements, queries=queries, chunk_size=chunk_size)


def execute(session: Session, script: Script, tables: Tables) -> list[dict[str, Any]]:
    """Return the result of each statement. Runs in the session's thread."""
    together = _begin(session, script)
    results = [_result(session, script, index, tables) for index in range(len(script.queries))]
    _end(session, script, together=together)
    return results


async def _streamed(session: Session, script: Script, call: Call) -> dict[str, Any]:
    last = len(script.queries) - 1

    def begin() -> tuple[bool, Rows]:
        together = _begin(session, script)
        for index in range(last):
            _result(session, script, index, call.tables)
        return together, _placed(script, last, lambda: session.rows(*script.queries[last]))

    together, rows = await session.call(begin)

    async def fetch() -> list[dict[str, Any]]:
        return await session.call(lambda: _placed(script, last, lambda: rows.fetch(script.chunk_size)))

    told = await send_chunks(fetch, rows.columns, call.partial)
    await session.call(lambda: _end(session, script, together=together))
    return told


def _begin(session: Session, script: Script) -> bool:
    """Do the setup; return whether the statements are one transaction, which then is open."""
    for text, blame in script.setup:
        try:
            session.do(text)
        except Exception as exc:
            kind = DependencyMissing if text.startswith("LOAD") else Invalid
            raise kind(f"{blame} ({type(exc).__name__})") from None
    words = {statement.words[0] for statement in script.statements if statement.words}
    together = len(script.statements) > 1 and not words & ALONE
    if together:
        session.do("BEGIN")
    return together


def _end(session: Session, script: Script, *, together: bool) -> None:
    words = {statement.words[0] for statement in script.statements if statement.words}
    if together:
        session.do("COMMIT")
    elif words & {"BEGIN", "START"} and session.in_transaction():
        raise Invalid("command: expected COMMIT or ROLLBACK at its end, found a transaction left open")


def _result(session: Session, script: Script, index: int, tables: Tables) -> dict[str, Any]:
    text, values = script.queries[index]
    return _placed(script, index, lambda: session.result(text, values, tables))


def _placed(script: Script, index: int, work: Callable[[], T]) -> T:
    """Return what `work` returns; what it raises says which statement did."""
    try:
        return work()
    except Exception as exc:
        line = script.text.count("\n", 0, script.statements[index].start) + 1
        exc.add_note(f"statement {index + 1} of {len(script.statements)}, line {line}")
        raise


def bound(call: Call, statements: list[Statement]) -> list[tuple[str, list[Any]]]:
    """Return each statement with placeholders $1, $2, ... and what `params` binds to them.

    Errors: Invalid.
    """
    params = call.config.get("params")
    return bind_all(statements, params, value=_value, spelled=lambda text: _percent_style(text, params or []))


def _percent_style(text: str, params: list[Any] | Mapping[str, Any]) -> str:
    """Return `text` with DuckDB's own placeholders, `?` and `$name`, in the spelling that all SQL tools share."""
    parts: list[str] = []
    for token in tokens(text):
        if token.kind == "other" and token.text == "?" and isinstance(params, list):
            parts.append("%s")
        elif token.kind == "word" and parts and parts[-1] == "$" and isinstance(params, Mapping):
            parts[-1] = f"%({token.text})s"
        else:
            parts.append(token.text)
    return "".join(parts)


def _value(parameter: Parameter) -> Any:
    value, is_json = parameter
    if is_json and value is not None and not isinstance(value, str):
        return json_text(value)
    return value

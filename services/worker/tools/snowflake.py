"""The snowflake tool: run a script of SQL statements and return what the last row-returning one brought.

Several statements are one transaction, unless one of them begins or ends transactions itself; Snowflake commits at
every DDL statement. The session's QUERY_TAG ends with the idempotency key, the same at every run of the command.
"""

import asyncio
from typing import Any

from noetl_common.core.duration import seconds_in
from noetl_common.core.outcome import Outcome
from noetl_common.errors import DependencyMissing, Invalid, NoetlError, NotFound, ToolFailed
from services.worker.tables import Tables
from services.worker.tools import Call, failed
from services.worker.tools.postgres import script_of, summary_of
from services.worker.tools.script_source import read_source
from services.worker.tools.snowflake_session import Session, bindable, close_threads, numbered, open_session
from services.worker.tools.sql_statements import Statement, bind_all, split

OWN_TRANSACTION = frozenset(("BEGIN", "START", "COMMIT", "ROLLBACK"))


async def run(call: Call) -> Outcome:
    """Return {columns, rows, row_count} of the last statement that returned rows, else {affected_rows}.

    There is also `command_<i>` {status, rows, row_count, columns} for each statement, as the postgres tool has it.
    Errors: none is raised; error.kind is db_connection, db_constraint, db_deadlock, db_timeout, sql, dependency or
    config.
    """
    timeout_s = min(seconds_in(call.config.get("timeout"), call.timeout_s), call.timeout_s)
    try:
        async with asyncio.timeout(timeout_s + 0.5):
            return Outcome(data=await _perform(call, timeout_s))
    except TimeoutError:
        return failed("db_timeout", f"snowflake: no result within {timeout_s:g} s", code="DB_TIMEOUT", retryable=True)
    except ToolFailed as exc:
        place = "".join(f" ({note})" for note in getattr(exc, "__notes__", ()))
        return Outcome(status="error", error={**exc.error, "message": f"snowflake: {exc}{place}"})
    except DependencyMissing as exc:
        return failed("dependency", f"snowflake: {exc}", code=exc.code)
    except NoetlError as exc:
        code = "CREDENTIAL_NOT_FOUND" if isinstance(exc, NotFound) else exc.code
        return failed("config" if isinstance(exc, NotFound | Invalid) else "sql", f"snowflake: {exc}", code=code)


async def close() -> None:
    """End the threads; the worker calls this when it stops."""
    close_threads()


async def _perform(call: Call, timeout_s: float) -> dict[str, Any]:
    script = await read_source(call) if call.config.get("script") else script_of(call.config)
    statements = split(script)
    if not statements:
        raise Invalid("no SQL command provided: expected a statement, found only blanks and comments")
    queries = bind_all(statements, call.config.get("params"), value=bindable)
    async with open_session(call, timeout_s=timeout_s) as session:
        return summary_of(
            await session.call(lambda: _executed(session, script, statements, queries=queries, tables=call.tables))
        )


def _executed(
    session: Session, script: str, statements: list[Statement], *, queries: list[tuple[str, list[Any]]], tables: Tables
) -> list[dict[str, Any]]:
    words = [statement.words[0] if statement.words else "" for statement in statements]
    together = len(statements) > 1 and not OWN_TRANSACTION & set(words)
    if together:
        session.do("BEGIN")
    results = []
    for index, (text, values) in enumerate(queries):
        try:
            results.append(session.result(*numbered(text, values), words[index], tables=tables))
        except Exception as exc:
            line = script.count("\n", 0, statements[index].start) + 1
            exc.add_note(f"statement {index + 1} of {len(statements)}, line {line}")
            raise
    if together:
        session.do("COMMIT")
    return results

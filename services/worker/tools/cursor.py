"""The claim of a cursor loop: run the author's SQL and hand its rows on, each exactly once.

The rows are noted down with ingest, under the number of the transaction that claimed them, before that transaction
commits. Whoever runs the command again asks Postgres what became of it: committed, the noted rows are the claim's;
undone, it claims anew. So no row is lost and none is handed on twice, wherever a worker dies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

import msgspec
import psycopg

from noetl_common.core.duration import seconds_in
from noetl_common.core.outcome import Outcome
from noetl_common.core.values import Ref
from noetl_common.errors import Invalid, NoetlError, NotFound, TooLarge, Unavailable
from noetl_common.loop import back_off_s
from services.worker.tools import Call, failed
from services.worker.tools.postgres import bound, conninfo_of, execute, failure_of, session_of
from services.worker.tools.postgres_connections import SQL, Conn, connections
from services.worker.tools.sql_statements import Statement, split

CLAIM_ROWS_MAX = 10_000
CLAIM_ATTEMPTS_MAX = 10  # of one command, when Postgres says that a later try may succeed
RETRY_PAUSE_S = 0.1
ASK_PAUSE_S = 0.1  # between two questions what became of a transaction
# Open transactions of a worker that is frozen or cut off end after this, and with them what they had locked.
IDLE_S_MAX = 30
IDLE_TOO_LONG = "25P03"


async def run(call: Call) -> Outcome:
    """Return the list of rows that the last row-returning statement of `claim` brought; None when there are none.

    Fields: `claim`, `params`, `timeout` and those of a connection, as the postgres tool has them.
    Errors: none is raised; error.kind as of the postgres tool.
    """
    kind = str(call.config.get("kind") or "postgres").lower()
    if kind not in ("postgres", "postgresql"):
        return failed("config", f"cursor: kind: expected postgres, found {kind!r}", code="CONFIG_INVALID")
    timeout_s = min(seconds_in(call.config.get("timeout"), call.timeout_s), call.timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            conninfo = await conninfo_of(call)
            return Outcome(data=await _with_patience(lambda: _claimed(call, conninfo, timeout_s)))
    except TimeoutError:
        open_claim = f"; transaction {call.details['xid']} may have claimed rows" if call.details else ""
        message = f"cursor.claim: no result within {timeout_s:g} s{open_claim}"
        return failed("db_timeout", message, code="DB_TIMEOUT", retryable=True)
    except psycopg.Error as exc:
        outcome = failure_of(exc)
        outcome.error = {**(outcome.error or {}), "message": f"cursor.claim: {(outcome.error or {}).get('message')}"}
        return outcome
    except Unavailable as exc:
        return failed("db_connection", f"cursor.claim: {exc}", code=exc.code, retryable=True)
    except NoetlError as exc:
        code = "CREDENTIAL_NOT_FOUND" if isinstance(exc, NotFound) else exc.code
        return failed("config" if isinstance(exc, NotFound | Invalid) else "sql", f"cursor.claim: {exc}", code=code)


async def _with_patience(claim: Callable[[], Awaitable[list[Any] | None]]) -> list[Any] | None:
    """Return the claim, tried again after deadlocks and lost connections; each try asks first what the last one did."""
    failures = 0
    while True:
        try:
            return await claim()
        except psycopg.Error as exc:
            failures += 1
            if failures >= CLAIM_ATTEMPTS_MAX or not _may_succeed(exc):
                raise
        await asyncio.sleep(back_off_s(RETRY_PAUSE_S, failures))


def _may_succeed(exc: psycopg.Error) -> bool:
    error = failure_of(exc).error or {}
    return exc.sqlstate == IDLE_TOO_LONG or (bool(error.get("retryable")) and error.get("kind") != "db_timeout")


async def _claimed(call: Call, conninfo: str, timeout_s: float) -> list[Any] | None:
    noted = call.details
    if noted is not None and await _fate(call, conninfo, timeout_s) == "committed":
        reference = msgspec.convert(noted["reference"], Ref, strict=False)
        return cast(list[Any], call.scope.result(reference))
    return await _claim(call, conninfo, timeout_s)


async def _claim(call: Call, conninfo: str, timeout_s: float) -> list[Any] | None:
    script, statements, queries = _planned(call)
    async with connections().borrow(conninfo, _prepare(call, timeout_s)) as conn:
        await conn.execute(SQL["begin_claim"])
        await conn.execute(SQL["guard_claim"], {"idle": f"{IDLE_S_MAX}s", "idempotency_key": call.idempotency_key})
        rows = _rows_of(await execute(conn, script, statements, queries=queries))
        if rows:
            found = await (await conn.execute(SQL["read_claim_number"])).fetchone()
            assert found is not None, "a SELECT of one row returns it"
            call.details = await call.note({"xid": str(found[0]), "rows": len(rows)}, rows)
        await conn.execute(SQL["commit_claim"])
    return rows or None


async def _fate(call: Call, conninfo: str, timeout_s: float) -> Literal["committed", "aborted"]:
    """Return what became of the noted claim. While it is open, wait: it is a frozen worker's, and ends by its limit.

    One that Postgres has forgotten is very old; it counts as committed, since its rows must not be claimed twice.
    """
    assert call.details is not None, "only a noted claim has a fate"
    xid = str(call.details["xid"])
    while True:
        try:
            async with connections().borrow(conninfo, _prepare(call, timeout_s)) as conn:
                row = await (await conn.execute(SQL["read_claim_fate"], {"xid": xid})).fetchone()
        except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
            if not _may_succeed(exc):
                raise
        else:
            fate = row[0] if row is not None else None
            if fate != "in progress":
                return "aborted" if fate == "aborted" else "committed"
        await asyncio.sleep(ASK_PAUSE_S)


def _prepare(call: Call, timeout_s: float) -> Callable[[Conn], Awaitable[object]]:
    async def prepare(conn: Conn) -> None:
        await conn.execute(SQL["open_session"], session_of(call, timeout_s))

    return prepare


def _planned(call: Call) -> tuple[str, list[Statement], list[tuple[str, list[Any]]]]:
    script = call.config.get("claim")
    if not isinstance(script, str) or not script.strip():
        raise Invalid(f"expected the SQL that claims the next rows, found {type(script).__name__}")
    if "\0" in script:
        raise Invalid("the SQL text holds a NUL character, which Postgres cannot store")
    statements = split(script)
    alone = next((statement for statement in statements if statement.runs_alone), None)
    if alone is not None:
        words = " ".join(alone.words[:2])
        raise Invalid(f"expected statements of one transaction, found {words}; the claim is committed by the worker")
    return script, statements, bound(call, statements)


def _rows_of(results: list[dict[str, Any]]) -> list[Any]:
    with_rows = [result for result in results if result["columns"]]
    rows: list[Any] = with_rows[-1]["rows"] if with_rows else []
    if len(rows) > CLAIM_ROWS_MAX:
        hint = "end the claim with LIMIT {{ __frame_max_rows }}"
        raise TooLarge(f"expected at most {CLAIM_ROWS_MAX} rows a claim, found {len(rows)}; {hint}")
    return rows

"""Effects that happen once: a script and its entry in a ledger commit together in the target database.

A worker that dies between an effect and its report has it run again; the ledger `public.noetl_effect` then has the
key, the script is left out, and what it returned the first time is the result. A run of the same key that is still
open is waited for.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from psycopg import errors

from noetl_common import metrics
from noetl_common.db import json_text
from noetl_common.errors import Invalid, TooLarge
from services.worker.tools import Call
from services.worker.tools.postgres_connections import SQL, Conn
from services.worker.tools.sql_statements import Statement

ONCE_RESULT_BYTES_MAX = 1_048_576


def is_once(call: Call, statements: list[Statement]) -> bool:
    """Return True when the task says `once: true`. Errors: Invalid for what cannot be done once."""
    once = call.config.get("once", False)
    if not isinstance(once, bool):
        raise Invalid(f"once: expected true or false, found {once!r}")
    if once and call.config.get("chunk_size"):
        raise Invalid("once: expected no chunk_size beside it, found one; stream the rows in a task of its own")
    if once and (alone := next((each for each in statements if each.runs_alone), None)) is not None:
        words = " ".join(alone.words[:2])
        raise Invalid(f"once: expected statements of one transaction, found {words}, which cannot stand in it")
    return once


async def apply_once(conn: Conn, call: Call, script: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Return what `script` returns, in one transaction with its entry; of one applied before, what it returned then.

    Errors: psycopg errors pass through; TooLarge for a result that the ledger does not keep: nothing has happened then.
    """
    await _ensure_ledger(conn)
    effect = {"key": call.idempotency_key, "execution_id": call.execution_id, "step": call.step}
    async with conn.transaction():
        if await (await conn.execute(SQL["begin_effect"], effect)).fetchone() is None:
            metrics.inc("noetl_effects_repeated_total")
            row = await (await conn.execute(SQL["read_effect"], effect)).fetchone()
            assert row is not None, "what conflicts is committed, and nobody deletes it under a run"
            found: dict[str, Any] = msgspec.json.decode(row[0])
            return found
        result = await script()
        text = json_text(result)
        if len(text) > ONCE_RESULT_BYTES_MAX:
            raise TooLarge(
                f"once: expected a result of at most {ONCE_RESULT_BYTES_MAX} bytes, found {len(text)}; "
                "nothing was applied: read the rows in a task of its own"
            )
        await conn.execute(SQL["end_effect"], {**effect, "result": text})
    return result


async def _ensure_ledger(conn: Conn) -> None:
    row = await (await conn.execute(SQL["find_effects"])).fetchone()
    if row is not None and row[0]:
        return
    try:
        async with conn.transaction():
            await conn.execute(SQL["lock_effects_table"])
            await conn.execute(SQL["make_effects"])
    except errors.InsufficientPrivilege as exc:
        exc.add_note("once: expected the table public.noetl_effect or the right to make it; docs/HOWTO.md has the DDL")
        raise

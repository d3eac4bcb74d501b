"""Queries of the results that clients store, look up and delete. Rows in, records out, nothing decided."""

from typing import Any

from noetl_common.db import Pool, transaction
from noetl_common.wire import ResultRow
from services.ingest.store import SQL, insert_results, result_of

Row = dict[str, Any]


async def put_result(pool: Pool, row: ResultRow, *, ttl_s: float | None, scope: str) -> Row:
    """Index a stored payload; return its {ref, expires_at}."""
    args = {"execution_id": row.execution_id, "ref_id": row.ref_id, "ttl_s": ttl_s, "scope": scope}
    async with transaction(pool) as conn:
        await insert_results(conn, [row])
        kept = await (await conn.execute(SQL["keep_result_until"], args)).fetchone()
    assert kept is not None
    return kept


async def find_named_result(pool: Pool, execution_id: int, name: str) -> ResultRow | None:
    """Return the newest result of a step or under a name, None when there is none."""
    rows = await _all(pool, "find_named_result", {"execution_id": execution_id, "name": name})
    return result_of(rows[0]) if rows else None


async def sum_loop_bytes(pool: Pool, execution_id: int, epoch: int) -> int:
    """Return how large the results of a loop's items are together."""
    rows = await _all(pool, "sum_loop_bytes", {"execution_id": execution_id, "epoch": epoch})
    return int(rows[0]["bytes"])


async def list_results(pool: Pool, execution_id: int, *, after: int, limit: int) -> list[Row]:
    """Return a page of a run's results, in the order of their ids."""
    return await _all(pool, "list_results", {"execution_id": execution_id, "after": after, "limit": limit})


async def list_doomed_payloads(pool: Pool, execution_id: int, *, step: str | None, kept: int) -> list[tuple[str, bool]]:
    """Return (uri, is it copied) of the payloads that go with the results of a step (or of all) but the one kept."""
    args = {"execution_id": execution_id, "step": step, "kept": kept}
    return [(row["physical_uri"], row["is_copied"]) for row in await _all(pool, "list_doomed_payloads", args)]


async def delete_results(pool: Pool, execution_id: int, *, step: str | None, kept: int) -> int:
    """Forget the results of a step (or of all) but the one kept; return how many."""
    args = {"execution_id": execution_id, "step": step, "kept": kept}
    async with transaction(pool) as conn:
        outlived = await conn.execute(SQL["delete_kept_results"], args)
        done = await conn.execute(SQL["delete_results"], args)
    return max(done.rowcount, outlived.rowcount)  # until its part of the log goes, a result that outlives it is in both


async def find_live_ancestor(pool: Pool, execution_id: int) -> int | None:
    """Return a run above this one that has not ended."""
    rows = await _all(pool, "find_live_ancestor", {"execution_id": execution_id})
    return rows[0]["execution_id"] if rows else None


async def count_results(pool: Pool, execution_id: int) -> list[Row]:
    """Return {store_tier, count, bytes} of a run's results."""
    return await _all(pool, "count_results", {"execution_id": execution_id})


async def estimate_results(pool: Pool) -> int:
    """Return how many results there are in all, as the planner last saw it."""
    return int((await _all(pool, "estimate_results", {}))[0]["count"])


async def _all(pool: Pool, name: str, args: Row) -> list[Row]:
    async with pool.connection() as conn:
        return await (await conn.execute(SQL[name], args)).fetchall()

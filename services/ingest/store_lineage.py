"""Queries of lineage in the log: what each result of a run came from. Rows in, records out, nothing decided."""

from collections.abc import Collection
from typing import Any

from noetl_common.db import Pool, single
from services.ingest.store import SQL

Row = dict[str, Any]


async def read_edges(pool: Pool, execution_id: int) -> tuple[list[Row], dict[str, list[tuple[int, int, int]]]]:
    """Return what each result of a run came from, and {step: (execution, result, loop) of other runs}.

    Shapes: {ref_id, parent_ref_id, step, loop_epoch, created_at, inputs}; inputs [[execution, result, loop]].
    """
    named = {"execution_id": execution_id}
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["read_edges"], named)).fetchall()
        given = {
            row["context_id"]: row["inputs"] for row in await (await conn.execute(SQL["read_given"], named)).fetchall()
        }
        named_elsewhere = await (await conn.execute(SQL["read_links"], named)).fetchall()
    links: dict[str, list[tuple[int, int, int]]] = {}
    for row in named_elsewhere:
        links.setdefault(row["step"], []).append((row["execution_id"], row["ref_id"], row["epoch"]))
    return [{**row, "inputs": given.get(row["context_id"])} for row in rows], links


async def read_traced(pool: Pool, execution_id: int, ref_ids: Collection[int]) -> list[Row]:
    """Return results of a run in full, without their payloads."""
    args = {"execution_id": execution_id, "ref_ids": list(ref_ids)}
    async with single(pool) as conn:
        return await (await conn.execute(SQL["read_traced"], args)).fetchall()

"""The queue's queries: claim, read back, note down, renew. Rows in, records out, nothing decided."""

from collections.abc import Sequence
from typing import Any

import msgspec

from noetl_common.core.commands import CommandContext, Item
from noetl_common.core.shard import shard_in
from noetl_common.db import Pool, json_text, transaction
from noetl_common.ids import mint_id
from noetl_common.wire import ClaimedCommand, Details, Heartbeat, ResultRow
from services.ingest.store import SQL, insert_results, result_of
from services.ingest.store_manifests import read_kept, read_kept_loop

CLAIMS_MAX = 1000


class QueuedCommand(msgspec.Struct, kw_only=True):
    """A command's row, with where it stands in its life."""

    claimed: ClaimedCommand
    pool: str
    status: str
    worker_id: str
    lease_left_s: float = 0.0


async def claim_commands(
    pool: Pool, *, pool_name: str, worker_id: str, max_: int, lease_s: float
) -> list[ClaimedCommand]:
    """Lease up to `max_` waiting commands to a worker, most urgent first."""
    args = {"pool": pool_name, "worker_id": worker_id, "max": max_, "lease_s": lease_s}
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["claim_commands"], args)).fetchall()
    return [command_of(row) for row in rows]


async def claim_one(pool: Pool, command: ClaimedCommand, *, worker_id: str, lease_s: float) -> ClaimedCommand | None:
    """Lease one named command, or return None when it does not wait."""
    args = {
        "execution_id": command.execution_id,
        "command_id": command.command_id,
        "worker_id": worker_id,
        "lease_s": lease_s,
    }
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL["claim_one_command"], args)).fetchone()
    return command_of(row) if row is not None else None


async def read_command(pool: Pool, event_id: int) -> QueuedCommand | None:
    """Return the command that a command.issued event announced."""
    args = {"shard_id": shard_in(event_id), "event_id": event_id}
    async with pool.connection() as conn:
        row = await (await conn.execute(SQL["read_command_by_event"], args)).fetchone()
    if row is None:
        return None
    return QueuedCommand(
        claimed=command_of(row),
        pool=row["pool"],
        status=row["status"],
        worker_id=row["worker_id"] or "",
        lease_left_s=row["lease_left_s"] or 0.0,
    )


async def read_claims(pool: Pool, worker_id: str) -> list[ClaimedCommand]:
    """Return what a worker holds on lease."""
    async with pool.connection() as conn:
        args = {"worker_id": worker_id, "limit": CLAIMS_MAX}
        rows = await (await conn.execute(SQL["read_claims"], args)).fetchall()
    return [command_of(row) for row in rows]


async def read_contexts(pool: Pool, keys: Sequence[tuple[int, int]]) -> list[tuple[int, int, CommandContext]]:
    """Return (execution id, context id, context) of each key that exists."""
    records = [{"execution_id": execution_id, "context_id": context_id} for execution_id, context_id in keys]
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["read_contexts"], {"keys": json_text(records)})).fetchall()
    return [
        (row["execution_id"], row["context_id"], msgspec.convert(row["body"], CommandContext, str_keys=True))
        for row in rows
    ]


async def read_results(pool: Pool, keys: Sequence[tuple[int, int]]) -> list[ResultRow]:
    """Return the result rows of (execution id, reference id) keys that exist, small payloads included.

    Those that outlived their run are looked for last.
    """
    records = [{"execution_id": execution_id, "ref_id": ref_id} for execution_id, ref_id in keys]
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["read_results"], {"keys": json_text(records)})).fetchall()
    found = [result_of(row) for row in rows]
    if missing := set(keys) - {(row.execution_id, row.ref_id) for row in found}:
        found += await read_kept(pool, missing)
    return found


async def read_loop_results(pool: Pool, execution_id: int, epoch: int, *, after: int, limit: int) -> list[ResultRow]:
    """Return the results of a loop's items beyond index `after`, in index order."""
    args = {"execution_id": execution_id, "epoch": epoch, "after": after, "limit": limit}
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["read_loop_results"], args)).fetchall()
    if not rows:
        return await read_kept_loop(pool, execution_id, epoch, after=after, limit=limit)
    return [result_of(row) for row in rows]


async def renew_leases(pool: Pool, beat: Heartbeat, *, lease_s: float) -> list[dict[str, Any]]:
    """Renew a worker's leases and note that it lives; return {command_id, cancelled, lost} of each lease given."""
    records = [
        {"execution_id": execution_id, "command_id": command_id, "claim_token": token}
        for execution_id, command_id, token in beat.leases
    ]
    alive = {
        "runtime_id": mint_id(),
        "worker_id": beat.worker_id,
        "capacity": beat.capacity,
        "active": beat.active,
    }
    rows: list[dict[str, Any]] = []
    async with transaction(pool) as conn:
        if records:
            args = {"leases": json_text(records), "lease_s": lease_s}
            rows = await (await conn.execute(SQL["renew_leases"], args)).fetchall()
        await conn.execute(SQL["beat_worker"], alive)
    return rows


async def note_details(pool: Pool, command_id: int, noted: Details) -> bool:
    """Keep what an attempt notes down, with the results that it names; return False when its claim is not current.

    Errors: psycopg errors pass through (23514 or class 22: details that the table refuses).
    """
    args = {
        "execution_id": noted.execution_id,
        "command_id": command_id,
        "claim_token": noted.claim_token,
        "details": json_text(noted.details),
    }
    async with transaction(pool) as conn:
        if await (await conn.execute(SQL["note_details"], args)).fetchone() is None:
            return False
        await insert_results(conn, noted.results)
    return True


async def renew_named(
    pool: Pool, commands: Sequence[tuple[int, int]], *, worker_id: str, lease_s: float
) -> set[tuple[int, int]]:
    """Renew the leases of (execution id, command id) that the worker holds; return those."""
    records = [{"execution_id": execution_id, "command_id": command_id} for execution_id, command_id in commands]
    args = {"commands": json_text(records), "worker_id": worker_id, "lease_s": lease_s}
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["renew_named_leases"], args)).fetchall()
    return {(row["execution_id"], row["command_id"]) for row in rows}


def command_of(row: dict[str, Any]) -> ClaimedCommand:
    """Return a command's row as it travels."""
    return ClaimedCommand(
        execution_id=row["execution_id"],
        command_id=row["command_id"],
        event_id=row["issued_event_id"],
        step=row["step"],
        attempt=row["attempt"],
        claim_token=row["claim_token"],
        context_id=row["context_id"],
        loop_epoch=row["loop_epoch"],
        iter_index=row["iter_index"],
        item=msgspec.convert(row["item"], Item) if row["item"] is not None else None,
        details=row["details"],
    )

"""What tests of the compactor share: finished runs of long ago, made by hand in ranges of their own."""

import asyncio
import hashlib
import secrets
from pathlib import Path
from typing import Any

from noetl_common.clock import SystemClock
from noetl_common.core.shard import hashed_id, partition_bounds, snowflake
from noetl_common.db import Pool
from noetl_common.leases import Leases
from noetl_common.partitions import create_ahead
from noetl_common.wire import encode
from services.compactor.compactor import Compactor
from services.compactor.loops.compact_executions import compact_executions_once
from services.compactor.loops.drop_partitions import drop_partitions_once
from services.compactor.store import Range
from tests.builders import disk_store
from tests.histories import event, execute, routed, rows, start
from tests.servers import PARTITION_WIDTH_HOURS

DAY_MS = 86_400_000
LONG_AGO_DAYS = 60


def long_ago_ms(weeks: int = 0) -> int:
    """Return a moment two months and some weeks ago, the same one for all of a test."""
    return SystemClock().unix_ms() - (LONG_AGO_DAYS + 7 * weeks) * DAY_MS


async def make_range(pool: Pool, *, weeks: int = 0) -> Range:
    """Make the tables of a range of long ago."""
    moment_ms = long_ago_ms(weeks)
    async with pool.connection() as conn:
        names = await create_ahead(conn, moment_ms, PARTITION_WIDTH_HOURS, ahead=0)
    low, high = partition_bounds(moment_ms, PARTITION_WIDTH_HOURS)
    return Range(low=low, high=high, suffix=names[0].removeprefix("event_"))


async def make_run(
    pool: Pool, *, shard_id: int = 5, weeks: int = 0, steps: int = 3, parent: int | None = None, **columns: Any
) -> int:
    """Make a run that completed long ago, with a chain of results; return its id."""
    run_id = snowflake(long_ago_ms(weeks), node=shard_id, seq=secrets.randbelow(4096))
    given = {"status": "COMPLETED", "ended_days_ago": LONG_AGO_DAYS - 1.0, **columns}
    await execute(
        pool,
        "INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version, parent_execution_id)"
        " VALUES (%s, %s, 7, 'p', 1, %s)",
        run_id,
        shard_id,
        parent,
    )
    await routed(pool, shard_id, start(run_id), event(run_id, "step.enter", "s0"))
    before: int | None = None
    for number in range(steps):
        before = await _add_step(pool, run_id, shard_id=shard_id, number=number, before=before)
    if given["status"] != "RUNNING":
        reference = _reference(run_id, before) if before is not None else None
        end = event(run_id, "playbook.completed", status="COMPLETED", reference=reference, dedup_key="end")
        await routed(pool, shard_id, event(run_id, "vars.set", dedup_key="test"), end)
        await execute(
            pool,
            "UPDATE noetl.execution SET status = %s, end_time = clock_timestamp() - make_interval(secs => %s)"
            " WHERE execution_id = %s",
            given["status"],
            given["ended_days_ago"] * 86_400,
            run_id,
        )
    await project_all(pool)
    return run_id


async def _add_step(pool: Pool, run_id: int, *, shard_id: int, number: int, before: int | None) -> int:
    """Issue, claim and complete the command of one step, whose result comes from the step before."""
    step, command_id = f"s{number}", hashed_id(run_id, number)
    text = encode({"step": number, "text": "x" * 50})
    ref_id = hashed_id(run_id, "result", number)
    await execute(
        pool,
        "INSERT INTO noetl.command (execution_id, command_id, shard_id, step, status, attempt, worker_id, context_id,"
        " issued_event_id) VALUES (%s, %s, %s, %s, 'completed', 1, 'w', 1, 1)",
        run_id,
        command_id,
        shard_id,
        step,
    )
    await execute(
        pool,
        "INSERT INTO noetl.result_ref (execution_id, ref_id, ref, step, parent_ref_id, store_tier, bytes, sha256,"
        " inline_payload) VALUES (%s, %s, %s, %s, %s, 'db', %s, %s, %s)",
        run_id,
        ref_id,
        f"noetl://execution/{run_id}/result/{step}/{ref_id}",
        step,
        before,
        len(text),
        hashlib.sha256(text).hexdigest(),
        text,
    )
    issued = event(run_id, "command.issued", step, command_id=command_id, dedup_key=f"issued:{command_id}")
    await routed(pool, shard_id, event(run_id, "vars.set", dedup_key=f"before:{number}"), issued)
    done = event(
        run_id,
        "command.completed",
        step,
        command_id=command_id,
        dedup_key=f"done:{command_id}",
        worker_id="w",
        attempt=1,
        reference={**_reference(run_id, ref_id), "bytes": len(text)},
    )
    await routed(pool, shard_id, done, event(run_id, "step.exit", step))
    return ref_id


def _reference(run_id: int, ref_id: int) -> dict[str, Any]:
    return {"kind": "result_ref", "execution_id": run_id, "ref_id": ref_id}


async def project_all(pool: Pool) -> None:
    """Say that compute has projected all that is routed; of a shard without events it has projected nothing."""
    await execute(
        pool,
        "UPDATE noetl.projection_checkpoint p SET last_projected_event_id = (c.shard_id::bigint << 55) | (c.seq << 15)"
        " | 32767 FROM noetl.shard_cursor c WHERE c.shard_id = p.shard_id AND c.seq > 0",
    )


async def compactor_on(pool: Pool, folder: Path, **settings: Any) -> Compactor:
    """Return a compactor that owns every shard."""
    await execute(
        pool,
        "UPDATE noetl.execution_shard SET owner_instance = 'c', epoch = epoch + 1,"
        " leased_until = clock_timestamp() + interval '60 s' WHERE role = 'compactor'",
    )
    await execute(
        pool,
        "UPDATE noetl.compaction_cursor k SET lease_epoch = s.epoch FROM noetl.execution_shard s"
        " WHERE s.role = 'compactor' AND s.shard_id = k.shard_id",
    )
    clock = SystemClock()
    leases = Leases(pool, role="compactor", instance="c", lease_s=60.0, clock=clock)
    await leases.renew_once()
    given = {"retention_days": 30.0, "settle_s": 0.0, **settings}
    return Compactor(pool=pool, store=disk_store(folder), leases=leases, clock=clock, **given)


async def fold_all(compactor: Compactor) -> None:
    """Fold until a round brings nothing more."""
    while await compact_executions_once(compactor):
        pass


async def drop_all(compactor: Compactor, *, patience_s: float = 20.0) -> None:
    """Take ranges out of the log until no step is due.

    A transaction of another test, on the same server, may stand in the way for a while: it is waited for.
    """
    deadline_s = compactor.clock.monotonic_s() + patience_s
    waits = "SELECT 1 FROM noetl.compaction WHERE state = 'sealed' AND heads IS NULL"
    while await drop_partitions_once(compactor) or await rows(compactor.pool, waits):
        if compactor.clock.monotonic_s() > deadline_s:
            return
        await asyncio.sleep(0.005)

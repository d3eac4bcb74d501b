"""Take ranges out of the log once all their runs are folded: seal, detach, verify against the manifests, drop.

Each step is a transaction of its own that moves the range's row on, or a statement that may be repeated. A kill
anywhere leaves a range at the step before.
"""

from noetl_common import metrics
from noetl_common.db import Conn, is_retryable, transaction
from noetl_common.errors import Fenced
from noetl_common.log import get_logger
from services.compactor import store
from services.compactor.compactor import SHARD_OF_PARTITIONS, Compactor
from services.compactor.store import Leaving, Range, Table

log = get_logger(__name__)
LOCK_TIMEOUT_MS = 2_000
DETACH_TIMEOUT_S = 600.0
REPAIRED_AT_ONCE = 200


async def drop_partitions_once(compactor: Compactor) -> int:
    """Take each range one step on if this process may; return how many steps were taken."""
    epoch = compactor.epoch_of_partitions()
    if epoch is None:
        return 0
    steps = 0
    try:
        for range_ in await store.find_ranges(compactor.pool, compactor.closed_before):
            steps += await begin(compactor, range_, epoch)
        for leaving in await store.read_leaving(compactor.pool):
            steps += await advance(compactor, leaving, epoch)
    except Fenced as fenced:
        compactor.leases.forget(SHARD_OF_PARTITIONS)
        metrics.inc("noetl_fenced_writes_total", 1, role="compactor")
        log.warning("shard.fenced", shard_id=SHARD_OF_PARTITIONS, error=fenced)
    return steps


async def begin(compactor: Compactor, range_: Range, epoch: int) -> int:
    """Put a range on its way out if all its runs are folded; return 1 when it was. Errors: Fenced."""
    async with transaction(compactor.pool) as conn:
        await _check_fence(conn, epoch)
        found = await store.count_unfolded(conn, range_)
        metrics.gauge("noetl_compactor_pinned", found.unfolded, partition=range_.suffix)
        if found.unfolded:
            log.info("range.pinned", partition=range_.suffix, executions=found.unfolded, first=found.first)
            return 0
        await store.begin_range(conn, range_)
    log.info("range.folded", partition=range_.suffix)
    return 1


async def advance(compactor: Compactor, leaving: Leaving, epoch: int) -> int:
    """Take a range one step on; return 1 when it was taken, 0 when it is not due. Errors: Fenced."""
    range_ = Range(low=leaving.low, high=leaving.high, suffix=leaving.suffix)
    if leaving.state == "detaching":
        return await _detach(compactor, range_, epoch)
    async with transaction(compactor.pool) as conn:
        await _check_fence(conn, epoch)
        match leaving.state:
            case "folded":
                return int(await store.step(conn, "seal_range", range_.low))
            case "sealed":
                noted = await store.step(conn, "note_heads", range_.low, settle_s=compactor.settle_s)
                return int(await store.step(conn, "leave_range", range_.low) or noted)
            case "detached":
                return await _verify(conn, range_)
            case _:
                return await _drop(compactor, conn, range_)


async def _detach(compactor: Compactor, range_: Range, epoch: int) -> int:
    """Detach the range's tables one after the other; what does not come free in time is tried again later."""
    for table in await store.find_tables(compactor.pool, range_.suffix):
        if table.standing == "alone":
            continue
        try:
            await store.detach(
                compactor.pool, table, lock_timeout_ms=LOCK_TIMEOUT_MS, statement_timeout_s=DETACH_TIMEOUT_S
            )
        except Exception as error:
            if not is_retryable(error):
                raise
            # A reader stands in the way: the next attempt finishes what this one began.
            metrics.inc("noetl_compactor_retries_total", 1, phase="detach")
            log.info("range.detach_waits", table=table.name, error=error)
            return 0
    async with transaction(compactor.pool) as conn:
        await _check_fence(conn, epoch)
        return int(await store.move(conn, range_.low, from_="detaching", to="detached"))


async def _verify(conn: Conn, range_: Range) -> int:
    """Compare the detached tables with the manifests; fold again what came late, or put the range back into use."""
    late = await store.find_late(conn, range_)
    unfolded = [one.execution_id for one in late if one.is_unfolded] or await store.find_unfolded(conn, range_)
    if unfolded:
        await _take_back(conn, range_, unfolded)
        return 1
    ids = [one.execution_id for one in late]
    for place in range(0, len(ids), REPAIRED_AT_ONCE):
        part = ids[place : place + REPAIRED_AT_ONCE]
        await store.unfold(conn, part)
        await store.fold(conn, range_.suffix, part)
    if ids:
        metrics.inc("noetl_compactor_repaired_total", len(ids))
        log.warning("range.repaired", partition=range_.suffix, executions=ids[:20], count=len(ids))
    return int(await store.move(conn, range_.low, from_="detached", to="verified", repaired=len(ids)))


async def _take_back(conn: Conn, range_: Range, unfolded: list[int]) -> None:
    for table in await store.find_tables_in(conn, range_.suffix):
        if table.standing == "alone":
            await store.attach(conn, table, range_)
    await store.forget_range(conn, range_.low)
    log.warning("range.taken_back", partition=range_.suffix, executions=unfolded[:20])


async def _drop(compactor: Compactor, conn: Conn, range_: Range) -> int:
    started_s = compactor.clock.monotonic_s()
    tables: list[Table] = await store.find_tables_in(conn, range_.suffix)
    assert all(table.standing == "alone" for table in tables), f"range {range_.suffix} is still part of the log"
    if not await store.move(conn, range_.low, from_="verified", to="dropped"):
        return 0
    for table in tables:
        await store.drop(conn, table)
    await store.drop_states(conn, range_)
    metrics.inc("noetl_partitions_dropped_total", 1)
    log.info("range.dropped", partition=range_.suffix, seconds=round(compactor.clock.monotonic_s() - started_s, 3))
    return 1


async def _check_fence(conn: Conn, epoch: int) -> None:
    """Hold the fence until commit. Errors: Fenced when another process takes partitions away now."""
    if not await store.hold_fence(conn, shard_id=SHARD_OF_PARTITIONS, epoch=epoch):
        raise Fenced(SHARD_OF_PARTITIONS, epoch)

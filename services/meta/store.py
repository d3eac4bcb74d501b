"""What meta reads and writes, one function a query."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from noetl_common import event_log
from noetl_common.cluster import SHARDED_ROLES, initialise
from noetl_common.core.events import Event
from noetl_common.core.shard import hashed_id
from noetl_common.db import Conn, Pool, is_retryable, json_text, migrate, open_pool, transaction
from noetl_common.partitions import count_ahead, create_ahead
from noetl_common.sql import load_queries

SQL = load_queries("services.meta")


class Leader(NamedTuple):
    """The fence of a leader's writes."""

    instance: str
    epoch: int

    @property
    def fence(self) -> dict[str, Any]:
        """Return the parameters every leader-only statement has."""
        return {"leader": self.instance, "leader_epoch": self.epoch}


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One shard in one role; `holder` is its owner, if the lease has not run out, else it is unheld for `unheld_s`."""

    role: str
    shard_id: int
    epoch: int
    holder: str | None
    unheld_s: float


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """A command whose worker showed no sign of life within its lease."""

    execution_id: int
    command_id: int
    step: str
    pool: str
    attempt: int
    crash_count: int
    cancel_requested: bool
    worker_id: str | None
    loop_epoch: int
    iter_index: int


async def prepare(dsn: str, *, shard_count: int, partition_width_hours: int, now_ms: int) -> list[str]:
    """Migrate and initialise the database; return the migrations applied. Errors: ConfigError."""
    # A pool of its own: migrating changes the session, and may take longer than a batch is allowed to.
    migrating = open_pool(dsn, size_max=1, name="noetl-meta-migrate", statement_timeout_s=600)
    async with migrating as pool, pool.connection() as conn:
        applied = await migrate(conn)
        await initialise(conn, shard_count=shard_count, partition_width_hours=partition_width_hours, now_ms=now_ms)
        return applied


async def ping(pool: Pool) -> None:
    """Return when the database answers."""
    async with transaction(pool) as conn:
        await conn.execute(SQL["ping"])


async def lead(pool: Pool, instance: str, lease_s: float) -> int | None:
    """Take or keep the leadership; return its epoch, or None when another process holds it."""
    args = {"runtime_id": hashed_id("runtime", "meta", instance), "instance": instance, "lease_s": lease_s}
    async with transaction(pool) as conn:
        row = await (await conn.execute(SQL["lead"], args)).fetchone()
    return None if row is None else int(row["epoch"])


async def resign(pool: Pool, instance: str) -> None:
    """Give the leadership back, if it is held."""
    async with transaction(pool) as conn:
        await conn.execute(SQL["resign"], {"instance": instance})


async def read_assignment(pool: Pool, lease_s: float) -> tuple[list[Shard], dict[str, set[str]]]:
    """Return every shard of the sharded roles, and {role: instances alive}."""
    args = {"roles": list(SHARDED_ROLES), "lease_s": lease_s}
    async with transaction(pool) as conn:
        shards = await (await conn.execute(SQL["read_shards"], args)).fetchall()
        living = await (await conn.execute(SQL["read_living"], args)).fetchall()
    alive: dict[str, set[str]] = {role: set() for role in SHARDED_ROLES}
    for row in living:
        alive[row["role"]].add(row["instance"])
    return msgspec.convert(shards, list[Shard]), alive


async def assign(pool: Pool, leader: Leader, shard: Shard, *, owner: str, lease_s: float) -> bool:
    """Give a shard to `owner` and move its fence, in one transaction; False when that must wait."""
    args = {**msgspec.structs.asdict(shard), **leader.fence, "owner": owner, "lease_s": lease_s}
    try:
        async with transaction(pool) as conn:
            await conn.execute(SQL["limit_lock_wait"])
            await conn.execute(SQL[f"lock_fence_{shard.role}"], args)
            row = await (await conn.execute(SQL["assign_shard"], args)).fetchone()
            if row is None:
                return False
            await conn.execute(SQL[f"fence_{shard.role}"], {"shard_id": shard.shard_id, "epoch": row["epoch"]})
            return True
    except Exception as error:
        if is_retryable(error):
            return False  # an old owner's transaction holds the row; the next tick tries again
        raise


async def write_checkpoints(pool: Pool, leader: Leader) -> list[int]:
    """Record the progress of the shards that advanced; return them."""
    async with transaction(pool) as conn:
        rows = await (await conn.execute(SQL["write_checkpoints"], leader.fence)).fetchall()
    return [row["shard_id"] for row in rows]


async def read_checkpoint_ages(pool: Pool) -> dict[int, float]:
    """Return {shard: seconds since its last checkpoint}."""
    async with transaction(pool) as conn:
        rows = await (await conn.execute(SQL["read_checkpoint_ages"])).fetchall()
    return {row["shard_id"]: row["age_s"] for row in rows}


async def shards_with_expired(pool: Pool, limit: int) -> list[int]:
    """Return the shards in which command leases have run out, ascending."""
    async with transaction(pool) as conn:
        rows = await (await conn.execute(SQL["shards_with_expired"], {"limit": limit})).fetchall()
    return [row["shard_id"] for row in rows]


async def lock_expired(conn: Conn, leader: Leader, shard_id: int, *, limit: int) -> list[Expired]:
    """Lock and return some of a shard's expired commands; none when this process leads no more."""
    args = {**leader.fence, "shard_id": shard_id, "limit": limit}
    return msgspec.convert(await (await conn.execute(SQL["lock_expired"], args)).fetchall(), list[Expired])


async def reissue(conn: Conn, commands: Sequence[dict[str, Any]]) -> None:
    """Put locked commands back in the queue: {execution_id, command_id, delay_s} each."""
    if commands:
        await conn.execute(SQL["reissue_commands"], {"commands": json_text(commands)})


async def end(conn: Conn, commands: Sequence[dict[str, Any]]) -> None:
    """Close locked commands: {execution_id, command_id, status} each."""
    if commands:
        await conn.execute(SQL["end_commands"], {"commands": json_text(commands)})


async def bury(conn: Conn, commands: Sequence[dict[str, Any]]) -> None:
    """Write dead letters: {execution_id, command_id, step, detail} each."""
    if commands:
        await conn.execute(SQL["bury_commands"], {"commands": json_text(commands)})


async def append(conn: Conn, shard_id: int, inputs: Sequence[Event]) -> list[int]:
    """Append inputs to the log; last, because it takes the shard's head."""
    return await event_log.append(conn, shard_id, inputs)


async def make_partitions(pool: Pool, *, now_ms: int, width_hours: int, ahead: int) -> tuple[list[str], dict[str, int]]:
    """Make missing partitions; return the names made, and {table: partitions ahead}."""
    async with pool.connection() as conn:
        made = await create_ahead(conn, now_ms, width_hours, ahead=ahead)
        return made, await count_ahead(conn, now_ms, width_hours)


async def drop_expired(pool: Pool, *, runtime_dead_s: float, keep_hours: int, limit: int) -> tuple[int, int]:
    """Drop dead processes' rows and old checkpoints; return how many were dropped and the depth of dead letters."""
    async with transaction(pool) as conn:
        runtimes = await conn.execute(SQL["drop_dead_runtimes"], {"dead_s": runtime_dead_s})
        checkpoints = await conn.execute(SQL["drop_old_checkpoints"], {"keep_hours": keep_hours, "limit": limit})
        row = await (await conn.execute(SQL["count_dead_letters"])).fetchone()
    assert row is not None
    return runtimes.rowcount + checkpoints.rowcount, row["depth"]


class Queue(NamedTuple):
    """One pool's commands that wait and that are on lease."""

    pool: str
    pending: int
    inflight: int


async def measure_queues(pool: Pool) -> list[Queue]:
    """Return the queue of each pool that has commands."""
    async with pool.connection() as conn:
        rows = await (await conn.execute(SQL["measure_queues"])).fetchall()
    return [Queue(row["pool"], row["pending"], row["inflight"]) for row in rows]

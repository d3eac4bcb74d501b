"""What meta reads and writes, one function a query."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from noetl_common import event_log
from noetl_common.cluster import LEADER_ROLE, SHARDED_ROLES, initialise
from noetl_common.core.events import Event
from noetl_common.db import Conn, Pool, is_retryable, json_text, migrate, open_pool, single, transaction
from noetl_common.partitions import count_ahead, create_ahead
from noetl_common.session_lock import runtime_id_of
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


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One living process. `is_missing`: it said that it holds its session lock, and nobody holds it."""

    role: str
    instance: str
    status: str
    is_missing: bool


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """How many shards of a role one holder has; `holder` None: those whose lease nobody has."""

    role: str
    holder: str | None
    shards: int


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One shard in one role. `owner` had the last lease, `holder` is it while that runs; unheld for `unheld_s`."""

    role: str
    shard_id: int
    epoch: int
    owner: str | None
    holder: str | None
    unheld_s: float


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one statement saw. `epoch`: of the leadership, None when another has it; `progress`: of all shards.

    `silent`: instances whose leases ran out within the last minute.
    """

    epoch: int | None
    processes: list[Process]
    holdings: list[Holding]
    free: list[Shard]
    silent: list[str]
    postgres_age_s: float
    has_claims: bool
    progress: str


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
    async with single(pool) as conn:
        await conn.execute(SQL["ping"])


async def look(
    pool: Pool, instance: str, *, lease_s: float, silent_s: float, holds_lock: bool, dead: Collection[str]
) -> Look:
    """Take or keep the leadership, also from one of the `dead`, and return what there is to see.

    A process that was silent for `silent_s` does not count as living.
    """
    args = {
        "runtime_id": runtime_id_of("meta", instance),
        "instance": instance,
        "lease_s": lease_s,
        "silent_s": silent_s,
        "holds_lock": holds_lock,
        "dead": list(dead),
        "roles": [*SHARDED_ROLES, LEADER_ROLE],
    }
    async with single(pool) as conn:
        row = await (await conn.execute(SQL["look"], args)).fetchone()
    return msgspec.convert(row, Look)


async def cut_off(pool: Pool, instances: Collection[str]) -> int:
    """End the sessions of these processes; return how many there were."""
    async with single(pool) as conn:
        row = await (await conn.execute(SQL["cut_off"], {"instances": list(instances)})).fetchone()
    assert row is not None
    return int(row["ended"])


async def resign(pool: Pool, instance: str) -> None:
    """Give the leadership back, if it is held."""
    async with single(pool) as conn:
        await conn.execute(SQL["resign"], {"instance": instance})


async def assign(
    pool: Pool, leader: Leader, shard: Shard, *, owner: str, lease_s: float, dead: Collection[str]
) -> bool:
    """Give a shard to `owner` and move its fence, in one transaction; False when that must wait."""
    args = {**msgspec.structs.asdict(shard), **leader.fence, "owner": owner, "lease_s": lease_s, "dead": list(dead)}
    try:
        async with single(pool) as conn:
            return (await conn.execute(SQL[f"assign_{shard.role}"], args)).rowcount == 1
    except Exception as error:
        if is_retryable(error):
            return False  # an old owner's transaction holds the row; the next look tries again
        raise


async def write_checkpoints(pool: Pool, leader: Leader) -> list[int]:
    """Record the progress of the shards that advanced; return them."""
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["write_checkpoints"], leader.fence)).fetchall()
    return [row["shard_id"] for row in rows]


async def read_checkpoint_ages(pool: Pool) -> dict[int, float]:
    """Return {shard: seconds since its last checkpoint}."""
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["read_checkpoint_ages"])).fetchall()
    return {row["shard_id"]: row["age_s"] for row in rows}


async def shards_with_expired(pool: Pool, limit: int) -> list[int]:
    """Return the shards in which command leases have run out, ascending."""
    async with single(pool) as conn:
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
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["measure_queues"])).fetchall()
    return [Queue(row["pool"], row["pending"], row["inflight"]) for row in rows]

"""The cluster's constants, and the rows every shard starts with. Fixed when the database is initialised."""

import msgspec

from noetl_common.core.shard import check_shard_count
from noetl_common.db import Conn, Pool
from noetl_common.errors import ConfigError, Unavailable
from noetl_common.partitions import create_ahead
from noetl_common.sql import load_queries

SQL = load_queries("noetl_common")
SHARDED_ROLES = ("ingest", "compute", "compactor")
OPTIONAL_ROLES = frozenset({"compactor"})  # a cluster without a process of it lacks nothing
LEADER_ROLE, LEADER_SHARD = "meta", 0


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed for the life of a database."""

    cluster_id: str
    shard_count: int
    partition_width_hours: int


async def initialise(conn: Conn, *, shard_count: int, partition_width_hours: int, now_ms: int) -> None:
    """Make the rows and partitions a cluster starts with; a second call finds them and changes nothing.

    Errors: ConfigError when the shard count is impossible, or the database was initialised with other constants.
    """
    try:
        check_shard_count(shard_count)
    except ValueError as exc:
        raise ConfigError(f"NOETL_SHARD_COUNT: {exc}") from exc
    given = {"shard_count": shard_count, "partition_width_hours": partition_width_hours}
    row = await (await conn.execute(SQL["read_cluster"])).fetchone()
    for name, wanted in given.items():
        _check_same(name, wanted=wanted, found=wanted if row is None else row[name])
    # The cluster's row comes last: who waits for it finds partitions to write to.
    await create_ahead(conn, now_ms, partition_width_hours)
    async with conn.transaction():
        await conn.execute(SQL["found_cluster"], given)
        for query in ("seed_heads", "seed_cursors", "seed_projection_checkpoints", "seed_compaction_cursors"):
            await conn.execute(SQL[query], given)
        await conn.execute(SQL["seed_leases"], {**given, "roles": list(SHARDED_ROLES)})


async def read_cluster(pool: Pool) -> Cluster:
    """Return the cluster's constants. Errors: Unavailable when the database is not initialised yet."""
    async with pool.connection() as conn:
        return await _read(conn)


async def _read(conn: Conn) -> Cluster:
    row = await (await conn.execute(SQL["read_cluster"])).fetchone()
    if row is None:
        raise Unavailable("the database is not initialised: noetl.cluster has no row")
    return msgspec.convert(row, Cluster)


def _check_same(name: str, *, wanted: int, found: int) -> None:
    if wanted != found:
        raise ConfigError(
            f"NOETL_{name.upper()}: the database was initialised with {found}, the configuration says {wanted};"
            f" it cannot be changed, set it to {found}"
        )

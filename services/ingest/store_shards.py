"""Queries of shard ownership: what the watcher of the owned shards looks at, and what operators see and ask for."""

from collections.abc import Iterable
from typing import Any

import msgspec

from noetl_common.db import Pool, single
from services.ingest.store import SQL

Row = dict[str, Any]


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """One owned shard. Units: `due_in_s` until its next timer, not above 0 when one is due, None without any."""

    shard_id: int
    is_behind: bool
    due_in_s: float | None


async def look_at_shards(pool: Pool, shard_ids: Iterable[int]) -> list[Glance]:
    """Return what there is to do in these shards."""
    async with single(pool) as conn:
        rows = await (await conn.execute(SQL["look_at_shards"], {"shard_ids": list(shard_ids)})).fetchall()
    return msgspec.convert(rows, list[Glance])


async def read_shards(pool: Pool) -> list[Row]:
    """Return every shard of every role: its owner, epoch and how far it is behind."""
    async with single(pool) as conn:
        return await (await conn.execute(SQL["read_shard_owners"])).fetchall()


async def read_replicas(pool: Pool) -> list[Row]:
    """Return the processes of the roles that share shards, and meta's, that have not been forgotten yet."""
    async with single(pool) as conn:
        return await (await conn.execute(SQL["read_replicas"])).fetchall()


async def set_standing(pool: Pool, instance: str, *, standing: str) -> Row | None:
    """Say what is wanted with a replica; return its role and shards, None when there is no such replica."""
    async with single(pool) as conn:
        return await (await conn.execute(SQL["set_standing"], {"instance": instance, "standing": standing})).fetchone()

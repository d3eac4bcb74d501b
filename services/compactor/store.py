"""What the compactor reads and writes, one function a query. Tables of one range of the log are named by its suffix."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Literal

import msgspec
from psycopg import sql

from noetl_common.db import Conn, Pool, json_text, transaction
from noetl_common.partitions import PARENTS
from noetl_common.sql import load_queries

SQL = load_queries("services.compactor")
SHOWN_BYTES_MAX = 4096  # of a result that the list of events shows: ingest's SHOWN_BYTES_MAX
CHAIN_MAX = 100_000
FOLDED = ("fold_events", "fold_results", "fold_links", "keep_results", "fold_manifests")
STRAGGLERS_SHOWN = 20

State = Literal["folded", "sealed", "detaching", "detached", "verified", "dropped"]


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """One range of the log. Units: [low, high) are execution ids; `suffix` is how its tables' names end."""

    low: int
    high: int
    suffix: str


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """A range on its way out, and how far it is."""

    low: int
    high: int
    suffix: str
    state: State
    executions: int
    age_s: float


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was looked at. `waits_for`: what keeps it in the log, None when it may be folded."""

    execution_id: int
    waits_for: str | None
    events: int


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a range, and how it hangs together with its parent."""

    parent: str
    name: str
    standing: Literal["alone", "pending", "attached"]


class Unfolded(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs keep a range in the log, and the first of them."""

    unfolded: int
    first: list[int] | None


class Late(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose detached rows are more than its manifest says, or that has none."""

    execution_id: int
    is_unfolded: bool


async def ping(pool: Pool) -> None:
    """Return when the database answers."""
    async with transaction(pool) as conn:
        await conn.execute(SQL["ping"])


async def find_ranges(pool: Pool, closed_before: int) -> list[Range]:
    """Return the ranges whose time is over and that are still part of the log, oldest first."""
    async with transaction(pool) as conn:
        rows = await (await conn.execute(SQL["find_ranges"], {"closed_before": closed_before})).fetchall()
    return msgspec.convert(rows, list[Range])


async def choose(
    pool: Pool, range_: Range, *, shard_id: int, after: int, cutoff: datetime, limit: int
) -> list[Candidate]:
    """Return the next runs of a shard in a range behind `after`."""
    args = {"shard_id": shard_id, "after": after, "low": range_.low, "high": range_.high}
    query = _of(range_.suffix, "choose_executions")
    async with transaction(pool) as conn:
        rows = await (await conn.execute(query, {**args, "cutoff": cutoff, "limit": limit})).fetchall()
    return msgspec.convert(rows, list[Candidate])


@asynccontextmanager
async def one_moment(pool: Pool) -> AsyncIterator[Conn]:
    """Lend a connection in one transaction that sees one state of the database throughout."""
    async with transaction(pool) as conn:
        await conn.execute(SQL["see_one_moment"])
        yield conn


async def hold_fence(conn: Conn, *, shard_id: int, epoch: int) -> bool:
    """Hold a shard's fence until commit; False when another process compacts it now."""
    args = {"shard_id": shard_id, "epoch": epoch}
    return (await (await conn.execute(SQL["hold_fence"], args)).fetchone()) is not None


async def fold(conn: Conn, suffix: str, ids: Sequence[int]) -> None:
    """Write the manifests of runs from the tables of their range, in the caller's transaction."""
    args = {"ids": list(ids), "shown_bytes_max": SHOWN_BYTES_MAX, "chain_max": CHAIN_MAX}
    await conn.execute(SQL["plan_lookups"])
    for name in FOLDED:
        await conn.execute(_of(suffix, name), args)


async def unfold(conn: Conn, ids: Sequence[int]) -> None:
    """Forget the manifests of runs, to write them again in the same transaction."""
    await conn.execute(SQL["unfold"], {"ids": list(ids)})


async def read_leaving(pool: Pool) -> list[Leaving]:
    """Return the ranges on their way out, oldest first."""
    async with transaction(pool) as conn:
        rows = await (await conn.execute(SQL["read_ranges"])).fetchall()
    return msgspec.convert(rows, list[Leaving])


async def count_unfolded(conn: Conn, range_: Range) -> Unfolded:
    """Return how many runs keep a range in the log."""
    row = await (await conn.execute(SQL["count_unfolded"], _ends(range_))).fetchone()
    return msgspec.convert(row, Unfolded)


async def begin_range(conn: Conn, range_: Range) -> None:
    """Put a range on its way out."""
    await conn.execute(SQL["begin_range"], {**_ends(range_), "suffix": range_.suffix})


async def step(conn: Conn, name: Literal["seal_range", "note_heads", "leave_range"], low: int, **more: Any) -> bool:
    """Do one step of a range's way out; False when it is not due."""
    return (await conn.execute(SQL[name], {"low": low, **more})).rowcount == 1


async def move(conn: Conn, low: int, *, from_: State, to: State, repaired: int = 0) -> bool:
    """Take a range from one state to the next; False when another process did."""
    args = {"low": low, "from": from_, "to": to, "repaired": repaired}
    return (await conn.execute(SQL["move_range"], args)).rowcount == 1


async def forget_range(conn: Conn, low: int) -> None:
    """Take a range back into use."""
    await conn.execute(SQL["forget_range"], {"low": low})


async def find_tables(pool: Pool, suffix: str) -> list[Table]:
    """Return the tables of a range that exist."""
    async with transaction(pool) as conn:
        return await find_tables_in(conn, suffix)


async def find_tables_in(conn: Conn, suffix: str) -> list[Table]:
    """Return the tables of a range that exist, as the caller's transaction sees them."""
    args = {"parents": list(PARENTS), "suffix": suffix}
    rows = await (await conn.execute(SQL["find_tables"], args)).fetchall()
    return msgspec.convert(rows, list[Table])


async def detach(pool: Pool, table: Table, *, lock_timeout_ms: int, statement_timeout_s: float) -> None:
    """Take a table out of the log, or finish what an interrupted attempt began. Errors: psycopg's pass through."""
    query = "finalize_table" if table.standing == "pending" else "detach_table"
    text = _named(query, parent=table.parent, name=table.name)
    async with pool.connection() as conn:  # in no transaction: concurrently is not possible inside one
        try:
            await _limit(conn, lock_timeout_ms=lock_timeout_ms, statement_timeout_s=statement_timeout_s)
            await conn.execute(text)
        finally:
            await _unlimit(conn)


async def attach(conn: Conn, table: Table, range_: Range) -> None:
    """Put a table back into the log, in the caller's transaction."""
    text = SQL["attach_table"]
    names = {"parent": sql.Identifier(table.parent), "name": sql.Identifier(table.name)}
    ends = {"low": sql.Literal(range_.low), "high": sql.Literal(range_.high)}
    await conn.execute(sql.SQL(text).format(**names, **ends))


async def drop(conn: Conn, table: Table) -> None:
    """Drop a table that stands alone, in the caller's transaction."""
    await conn.execute(_named("drop_table", name=table.name))


async def drop_states(conn: Conn, range_: Range) -> None:
    """Drop what else was kept of a range's runs."""
    await conn.execute(SQL["drop_states"], _ends(range_))


async def find_late(conn: Conn, range_: Range) -> list[Late]:
    """Return the runs of a detached range that hold more than their manifests say."""
    rows = await (await conn.execute(_of(range_.suffix, "find_late"))).fetchall()
    return msgspec.convert(rows, list[Late])


async def find_unfolded(conn: Conn, range_: Range) -> list[int]:
    """Return some runs of a range that have no manifest."""
    args = {**_ends(range_), "limit": STRAGGLERS_SHOWN}
    return [row["execution_id"] for row in await (await conn.execute(SQL["find_unfolded"], args)).fetchall()]


async def name_payloads(pool: Pool, uris: Collection[str]) -> set[str]:
    """Return those payloads that some result's row names."""
    return {row["uri"] for row in await _all(pool, "name_payloads", {"uris": list(uris)})}


async def judge_executions(pool: Pool, ids: Collection[int], cutoff: datetime) -> set[int]:
    """Return those runs that may still come to name a payload."""
    return {row["origin"] for row in await _all(pool, "judge_executions", {"ids": list(ids), "cutoff": cutoff})}


async def mark_orphans(pool: Pool, uris: Collection[str], *, age_s: float) -> list[str]:
    """Note payloads that nothing names; return those that were noted long enough ago to be deleted."""
    async with transaction(pool) as conn:
        taken = await (await conn.execute(SQL["take_orphans"], {"uris": list(uris), "age_s": age_s})).fetchall()
        await conn.execute(SQL["mark_orphans"], {"uris": list(uris)})
    return [row["uri"] for row in taken]


async def clear_orphans(pool: Pool, uris: Collection[str]) -> None:
    """Forget the notes of payloads."""
    async with transaction(pool) as conn:
        await conn.execute(SQL["clear_orphans"], {"uris": list(uris)})


async def read_expired(pool: Pool, limit: int) -> list[dict[str, Any]]:
    """Return {execution_id, ref_id} of kept results whose time is over."""
    return await _all(pool, "take_expired", {"limit": limit})


async def drop_kept(pool: Pool, keys: Sequence[dict[str, Any]]) -> None:
    """Forget kept results: {execution_id, ref_id} each. Their payloads are orphans then."""
    async with transaction(pool) as conn:
        await conn.execute(SQL["drop_kept"], {"keys": json_text(keys)})


def _of(suffix: str, name: str) -> sql.Composed:
    """Return a query on the tables of one range."""
    tables = {parent: sql.Identifier("noetl", f"{parent}_{suffix}") for parent in PARENTS}
    return sql.SQL(SQL[name]).format(**tables)


def _named(query: str, **names: str) -> sql.Composed:
    return sql.SQL(SQL[query]).format(**{key: sql.Identifier(name) for key, name in names.items()})


def _ends(range_: Range) -> dict[str, int]:
    return {"low": range_.low, "high": range_.high}


async def _limit(conn: Conn, *, lock_timeout_ms: int, statement_timeout_s: float) -> None:
    args = {"lock_timeout": f"{lock_timeout_ms}ms", "statement_timeout": f"{int(statement_timeout_s * 1000)}ms"}
    await conn.execute(SQL["limit_waits"], args)


async def _unlimit(conn: Conn) -> None:
    """Give the pool its connection back as it was; one that is broken is thrown away by the pool."""
    if not conn.closed:
        await conn.execute(SQL["reset_waits"])


async def _all(pool: Pool, name: str, args: dict[str, Any]) -> list[dict[str, Any]]:
    async with transaction(pool) as conn:
        return await (await conn.execute(SQL[name], args)).fetchall()

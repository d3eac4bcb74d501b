"""Postgres: pools, transactions, migrations. The queries live beside the code that owns their tables."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import msgspec
import psycopg
from psycopg import errors as pg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from noetl_common.errors import ConfigError, NoetlError, Unavailable

Conn = psycopg.AsyncConnection[DictRow]
Pool = AsyncConnectionPool[Conn]

# Any session may take this lock to migrate; the number is arbitrary and fixed.
MIGRATION_LOCK = 7_240_115

# What may be tried again as it is: deadlock, serialization, lock timeout, shutdown, connection, resources, errors of
# the server's disk, and a transaction cut off because this process stood still in it.
RETRYABLE_SQLSTATES = ("40P01", "40001", "55P03", "57", "58", "08", "53", "25P03", "25P04")
# What makes one input poison: the data itself is refused.
POISON_SQLSTATES = ("22", "23514")
NO_PARTITION = "no partition of relation"  # 23514 as well; only the text tells it from a CHECK

_encoder = msgspec.json.Encoder(enc_hook=str)


def _dumps(value: Any) -> bytes:
    return _encoder.encode(value)


set_json_dumps(_dumps)
set_json_loads(msgspec.json.decode)


def json_text(value: Any) -> str:
    """Return `value` as JSON text: the one-parameter form of a batch for json_to_recordset."""
    return _encoder.encode(value).decode()


def open_pool(
    dsn: str,
    *,
    size_max: int,
    name: str,
    statement_timeout_s: float = 30.0,
    lock_timeout_s: float = 2.0,
    only_lookups: bool = False,
) -> Pool:
    """Return a pool, not yet opened: `async with open_pool(...) as pool`.

    Each session is in UTC, gives up a lock after 2 s and is cut off after 3 s idle in a transaction: a frozen
    owner would otherwise block its own takeover (docs/adr/0010-leases.md). A statement outside `transaction` is one
    of its own, in one round trip.
    `only_lookups`: every statement is planned by key lookups; a plan cached while the tables were still empty would
    scan them for ever. There is no join but by an index then: two lists that a statement is given, or makes, would be
    compared each with each.
    """
    kwargs = _session_of(name, statement_timeout_s=statement_timeout_s, lock_timeout_s=lock_timeout_s)
    if only_lookups:
        kwargs["options"] += " -c enable_hashjoin=off -c enable_mergejoin=off -c enable_seqscan=off"
    return AsyncConnectionPool(
        dsn, min_size=1, max_size=size_max, open=False, kwargs=kwargs, name=name, timeout=10, max_idle=300
    )


async def open_session(dsn: str, *, name: str) -> Conn:
    """Return a connection of one's own, in autocommit; one whose other end is gone is noticed within seconds."""
    settings = _session_of(name, statement_timeout_s=30.0, lock_timeout_s=2.0)
    settings["options"] += " -c tcp_keepalives_idle=2 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3"
    return await psycopg.AsyncConnection[DictRow].connect(dsn, **settings)


def _session_of(name: str, *, statement_timeout_s: float, lock_timeout_s: float) -> dict[str, Any]:
    options = (
        f"-c timezone=UTC -c lock_timeout={int(lock_timeout_s * 1000)} -c idle_in_transaction_session_timeout=3000"
        f" -c statement_timeout={int(statement_timeout_s * 1000)} -c jit=off"
    )
    return {
        "autocommit": True,
        "row_factory": dict_row,
        "options": options,
        "application_name": name,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "connect_timeout": 5,
    }


@asynccontextmanager
async def single(pool: Pool) -> AsyncIterator[Conn]:
    """Lend a connection on which each statement is a transaction of its own, and one message to the server.

    Errors: Unavailable when the pool or the server does not answer; other psycopg errors pass through.
    """
    try:
        async with pool.connection() as conn:
            yield conn
    except PoolTimeout as exc:
        raise Unavailable(f"no Postgres connection within {pool.timeout:.0f} s ({pool.name})") from exc


@asynccontextmanager
async def transaction(pool: Pool) -> AsyncIterator[Conn]:
    """Lend a connection inside one transaction: committed on leaving, rolled back on any exception.

    Errors: Unavailable when the pool or the server does not answer; other psycopg errors pass through.
    """
    try:
        async with pool.connection() as conn, conn.transaction():
            yield conn
    except PoolTimeout as exc:
        raise Unavailable(f"no Postgres connection within {pool.timeout:.0f} s ({pool.name})") from exc


@asynccontextmanager
async def pipelined(pool: Pool) -> AsyncIterator[Conn]:
    """Lend a connection in one transaction whose statements are sent without waiting for each other.

    `round_trip` waits for them, before their results are fetched. Errors: as `transaction`.
    """
    try:
        async with pool.connection() as conn, conn.pipeline(), conn.transaction():
            yield conn
    except PoolTimeout as exc:
        raise Unavailable(f"no Postgres connection within {pool.timeout:.0f} s ({pool.name})") from exc


async def round_trip(conn: Conn) -> None:
    """Return when Postgres has run the statements that `pipelined` sent so far.

    From then on it counts the session as idle in its transaction, and cuts off a process that stands still there.
    After a fetch alone it would wait for ever, and the locks with it: a fetch sends a Flush, and only a Sync that
    nothing follows starts that clock. Leaving a nested pipeline sends a Flush too, so this one is not nested.
    """
    pipeline = conn._pipeline
    if pipeline is not None:
        await pipeline.sync()


def is_retryable(error: BaseException) -> bool:
    """Return True when the same work may succeed later: connection, lock, deadlock, resources, shutdown."""
    if isinstance(error, Unavailable | PoolTimeout | psycopg.InterfaceError):
        return True
    if isinstance(error, psycopg.Error):
        if error.sqlstate is None:
            return isinstance(error, psycopg.OperationalError)
        return error.sqlstate.startswith(RETRYABLE_SQLSTATES)
    return False


def is_poison(error: BaseException) -> bool:
    """Return True when the data itself is refused, so the same work can never succeed."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(POISON_SQLSTATES)


def is_refused(error: BaseException) -> bool:
    """Return True when Postgres will never take these rows: poison, a constraint they break, text that is no UTF-8."""
    return is_poison(error) or isinstance(error, psycopg.IntegrityError | UnicodeEncodeError)


def lacks_partition(error: BaseException) -> bool:
    """Return True when rows were refused because no partition holds their execution id (yet)."""
    return isinstance(error, pg.CheckViolation) and NO_PARTITION in str(error)


def violates(error: BaseException, constraint: str) -> bool:
    """Return True when `error` is a unique violation of the named constraint (or of a partition's copy of it)."""
    return isinstance(error, pg.UniqueViolation) and constraint in (error.diag.constraint_name or "")


def utc_now_text(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> str:
    """Return the present in RFC 3339, microseconds, UTC."""
    return now().isoformat(timespec="microseconds")


async def migrate(conn: Conn) -> list[str]:
    """Apply, in order, each migration not yet applied; return their file names.

    One process at a time: the others wait. A file is one transaction.
    Errors: ConfigError when the database has a migration this code does not know (a newer release ran).
    """
    await conn.set_autocommit(True)
    await conn.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
    try:
        await conn.execute("CREATE SCHEMA IF NOT EXISTS noetl")
        await conn.execute(
            "CREATE TABLE IF NOT EXISTS noetl.migration"
            " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        rows = await (await conn.execute("SELECT name FROM noetl.migration")).fetchall()
        done = {row["name"] for row in rows}
        known = migration_names()
        unknown = sorted(done - set(known))
        if unknown:
            raise ConfigError(f"the database has migrations this release does not know: {', '.join(unknown)}")
        todo = [name for name in known if name not in done]
        for name in todo:
            text = (resources.files("noetl_common.migrations") / name).read_text(encoding="utf-8")
            async with conn.transaction():
                await conn.execute(text.encode())
                await conn.execute("INSERT INTO noetl.migration (name) VALUES (%s)", [name])
        return todo
    finally:
        await conn.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])


def migration_names() -> list[str]:
    """Return the file names of all migrations, in order."""
    files = resources.files("noetl_common.migrations").iterdir()
    return sorted(f.name for f in files if f.name.endswith(".sql"))


async def wait_until_migrated(pool: Pool, *, timeout_s: float) -> None:
    """Return once every known migration is applied; roles other than meta start with this.

    Errors: Unavailable when that did not happen within `timeout_s`.
    """
    wanted = set(migration_names())
    deadline = asyncio.get_running_loop().time() + timeout_s
    missing = sorted(wanted)
    while asyncio.get_running_loop().time() < deadline:
        try:
            async with pool.connection() as conn:
                rows = await (await conn.execute("SELECT name FROM noetl.migration")).fetchall()
                ready = await (await conn.execute("SELECT 1 FROM noetl.cluster")).fetchone()
            missing = sorted(wanted - {row["name"] for row in rows})
            if not missing and ready:
                return
        except (psycopg.Error, PoolTimeout, NoetlError):
            pass  # not there yet: the server or its schema is still coming up
        await asyncio.sleep(0.05)
    raise Unavailable(f"migrations not applied within {timeout_s:.0f} s, missing: {', '.join(missing) or 'cluster'}")

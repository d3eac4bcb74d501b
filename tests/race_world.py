"""What the races are run for: an emptied database with a run, leases and commands, made with few statements."""

import secrets
from typing import Any

from noetl_common import event_log
from noetl_common.clock import SystemClock
from noetl_common.core.shard import event_id, snowflake
from noetl_common.db import Conn
from tests.histories import event

SHARD = 3
RESET = b"""
DELETE FROM noetl.event; DELETE FROM noetl.command; DELETE FROM noetl.timer; DELETE FROM noetl.execution;
DELETE FROM noetl.dead_letter; DELETE FROM noetl.runtime;
UPDATE noetl.shard_head SET seq = 0 WHERE seq > 0;
UPDATE noetl.shard_cursor SET seq = 0, lease_epoch = 1 WHERE (seq, lease_epoch) <> (0, 1);
UPDATE noetl.projection_checkpoint SET last_projected_event_id = 0, lease_epoch = 1
    WHERE (last_projected_event_id, lease_epoch) <> (0, 1);
UPDATE noetl.execution_shard SET owner_instance = NULL, leased_until = NULL, epoch = 1
    WHERE owner_instance IS NOT NULL OR epoch <> 1;
"""


async def reset(conn: Conn) -> None:
    """Empty the database: every shard at its beginning, under epoch 1, owned by nobody."""
    await conn.execute(RESET)


async def rows(conn: Conn, query: str, *args: Any) -> list[dict[str, Any]]:
    """Return what a query finds."""
    return await (await conn.execute(query.encode(), args)).fetchall()


async def execution_in(conn: Conn, shard_id: int) -> int:
    """Make an execution that lives in a shard; return its id."""
    execution_id = snowflake(SystemClock().unix_ms(), node=shard_id, seq=secrets.randbelow(4096))
    await conn.execute(
        "INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version) VALUES (%s, %s, 7, 'p', 1)",
        [execution_id, shard_id],
    )
    return execution_id


async def lease(conn: Conn, role: str, *, owner: str, epoch: int, lease_s: float) -> None:
    """Give the shard (of meta: the leadership) to an owner; a negative lease has run out."""
    await conn.execute(
        "UPDATE noetl.execution_shard SET owner_instance = %s, epoch = %s,"
        " leased_until = clock_timestamp() + make_interval(secs => %s) WHERE role = %s AND shard_id = %s",
        [owner, epoch, lease_s, role, 0 if role == "meta" else SHARD],
    )


def consequences(execution_id: int) -> str:
    """Return the rows, as text, that routing draws from the two inputs: the end of a loop, and the step after it."""
    drawn = [
        event(execution_id, "loop.done", "s", dedup_key="loop:5", event_id=event_id(SHARD, 2, 1)),
        event(execution_id, "command.issued", "t", dedup_key="issued:9", command_id=9, event_id=event_id(SHARD, 2, 2)),
    ]
    return event_log.events_text(drawn)


async def events_of(conn: Conn, execution_id: int, *, consequences_only: bool = False) -> list[str]:
    """Return the types of a run's events, sorted."""
    query = "SELECT event_type FROM noetl.event WHERE execution_id = %s AND (NOT %s OR (event_id & 32767) > 0)"
    return sorted(row["event_type"] for row in await rows(conn, query, execution_id, consequences_only))


def only(answer: Any) -> Any:
    """Return a step's answer, None in place of an error: it did nothing."""
    return None if isinstance(answer, Exception) else answer


async def queue(conn: Conn, execution_id: int, count: int, **columns: Any) -> list[int]:
    """Put commands of a run into the queue; `lease_s` from now; return their ids."""
    given = {"claim_token": None, "worker_id": None, "lease_s": None, "crash_count": 0, **columns}
    ids = [secrets.randbits(62) for _ in range(count)]
    await conn.execute(
        "INSERT INTO noetl.command (execution_id, command_id, shard_id, step, pool, context_id, issued_event_id,"
        " attempt, status, claim_token, worker_id, crash_count, lease_until)"
        " SELECT %(execution_id)s, id, %(shard_id)s, 's', 'default', 1, n, 1, %(status)s, %(claim_token)s"
        ", %(worker_id)s, %(crash_count)s, clock_timestamp() + make_interval(secs => %(lease_s)s)"
        " FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY AS t (id, n)",
        {**given, "execution_id": execution_id, "shard_id": SHARD, "ids": ids},
    )
    return ids

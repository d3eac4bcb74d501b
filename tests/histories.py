"""Histories written by hand for tests of meta and compute: executions, inputs, consequences, commands, no router."""

import secrets
from typing import Any

import msgspec

from noetl_common.clock import SystemClock
from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import event_id, snowflake
from noetl_common.db import Conn, Pool, json_text
from noetl_common.event_log import append


async def make_execution(pool: Pool, shard_id: int) -> int:
    """Make an execution that lives in `shard_id`; return its id."""
    execution_id = snowflake(SystemClock().unix_ms(), node=shard_id, seq=secrets.randbelow(4096))
    async with pool.connection() as conn:
        await conn.execute(
            "INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version)"
            " VALUES (%s, %s, 7, 'p', 1)",
            [execution_id, shard_id],
        )
    return execution_id


def event(execution_id: int, event_type: str, step: str = "", **fields: Any) -> Event:
    """Return an event; context, reference and error go into its envelope."""
    envelope = {name: fields.pop(name, None) for name in ("context", "reference", "error")}
    status = fields.pop("status", "OK")
    result = Envelope(status=status, **envelope)
    return Event(execution_id=execution_id, event_type=event_type, step=step, status=status, result=result, **fields)


def start(execution_id: int) -> Event:
    """Return the first input of a run."""
    context = {"path": "p", "version": 1, "workload": {"v": {}}, "depth": 0}
    return event(execution_id, "playbook.started", context=context, dedup_key="start")


def report(execution_id: int, number: int, *, step: str = "s", **fields: Any) -> Event:
    """Return the input that says command `number` is completed."""
    key = f"done:{number}"
    return event(execution_id, "command.completed", step, command_id=number, attempt=1, dedup_key=key, **fields)


async def routed(pool: Pool, shard_id: int, given: Event, *consequences: Event) -> int:
    """Append one input and route it: its consequences and the cursor in one transaction. Returns the input's number."""
    async with pool.connection() as conn, conn.transaction():
        (input_id,) = await append(conn, shard_id, [given])
    assert input_id
    seq = (input_id >> 15) & ((1 << 40) - 1)
    async with pool.connection() as conn, conn.transaction():
        await insert(conn, shard_id, [_numbered(c, shard_id, seq, ord_) for ord_, c in enumerate(consequences, 1)])
        await conn.execute("UPDATE noetl.shard_cursor SET seq = %s WHERE shard_id = %s", [seq, shard_id])
    return seq


def _numbered(given: Event, shard_id: int, seq: int, ord_: int) -> Event:
    given.event_id = event_id(shard_id, seq, ord_)
    given.dedup_key = given.dedup_key or f"test:{given.event_id}"
    return given


async def insert(conn: Conn, shard_id: int, events: list[Event]) -> None:
    """Insert numbered events as they are."""
    for one in events:
        columns = {"shard_id": shard_id, "created_at": "now", "catalog_id": 7}
        row = {"event_time": "now", **msgspec.to_builtins(one), **columns}
        await conn.execute(
            "INSERT INTO noetl.event SELECT * FROM json_populate_record(NULL::noetl.event, %s::json)", [json_text(row)]
        )


async def claimed_command(pool: Pool, execution_id: int, shard_id: int, /, **columns: Any) -> int:
    """Make a command whose worker's lease ran out a second ago, unless `lease_s` says otherwise; return its id."""
    command_id = secrets.randbits(62)
    lease_s = columns.pop("lease_s", -1)
    fields: dict[str, Any] = {
        "execution_id": execution_id,
        "command_id": command_id,
        "shard_id": shard_id,
        "step": "s",
        "pool": "default",
        "priority": 0,
        "status": "claimed",
        "attempt": 1,
        "crash_count": 0,
        "claim_token": 77,
        "cancel_requested": False,
        "available_at": "now",
        "turn_at": "now",
        "worker_id": "w",
        "loop_epoch": 0,
        "iter_index": -1,
        "context_id": 1,
        "issued_event_id": 1,
    }
    async with pool.connection() as conn:
        await conn.execute(
            "INSERT INTO noetl.command SELECT * FROM json_populate_record(NULL::noetl.command, %s::json)",
            [json_text({**fields, **columns})],
        )
        await conn.execute(
            "UPDATE noetl.command SET lease_until = clock_timestamp() + make_interval(secs => %s)"
            " WHERE command_id = %s",
            [lease_s, command_id],
        )
    return command_id


async def rows(pool: Pool, query: str, *args: Any) -> list[dict[str, Any]]:
    """Return what a query finds."""
    async with pool.connection() as conn:
        return await (await conn.execute(query.encode(), args)).fetchall()


async def execute(pool: Pool, statement: str, *args: Any) -> None:
    """Run a statement and commit."""
    async with pool.connection() as conn:
        await conn.execute(statement.encode(), args)


async def own(pool: Pool, *, role: str, instance: str, lease_s: float = 60.0) -> None:
    """Give every shard of a role, or the leader's row, to `instance` with epoch 1."""
    await execute(
        pool,
        "UPDATE noetl.execution_shard SET owner_instance = %s, epoch = 1,"
        " leased_until = clock_timestamp() + make_interval(secs => %s) WHERE role = %s",
        instance,
        lease_s,
        role,
    )
    if role == "compute":
        await execute(pool, "UPDATE noetl.projection_checkpoint SET lease_epoch = 1")
    if role == "ingest":
        await execute(pool, "UPDATE noetl.shard_cursor SET lease_epoch = 1")

"""What ingest tests share: executions, commands and reports made by hand, without a router."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from noetl_common.core.commands import CommandContext
from noetl_common.core.events import Envelope, Event
from noetl_common.core.playbook import Task
from noetl_common.core.shard import event_id, hashed_id, shard_of
from noetl_common.core.values import Ref, Value
from noetl_common.db import Pool
from noetl_common.ids import mint_execution_id
from noetl_common.secrets import Vault, generate_key, load_key
from noetl_common.wire import Report, ResultRow, encode
from services.ingest.append import Appender
from services.ingest.auth import Guard
from services.ingest.bells import PoolBells
from services.ingest.claims import Claims
from services.ingest.endpoints import Api
from services.ingest.starts import Starter
from services.ingest.store import ExecutionRow
from services.ingest.works import Start
from tests.builders import disk_store
from tests.servers import SHARD_COUNT

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: tests/hello}
workload: {greeting: hi}
workflow:
  - step: start
    tool: {kind: noop}
"""


class Recorder:
    """Stands where leases, the hand-over and the bus stand; remembers what it was given."""

    def __init__(self, *, owns: bool = True) -> None:
        self.owns = owns
        self.offered: list[tuple[int, list[Event], list[ResultRow]]] = []
        self.woken: list[int] = []
        self.rung: list[str] = []

    def epoch_of(self, shard_id: int) -> int | None:
        return 1 if self.owns else None

    def offer(self, shard_id: int, events: list[Event], rows: list[ResultRow]) -> None:
        self.offered.append((shard_id, events, rows))

    def wake(self, shard_id: int) -> None:
        self.woken.append(shard_id)

    async def publish(self, subject: str, payload: bytes = b"") -> None:
        self.rung.append(subject)


def appender_on(pool: Pool, recorder: Recorder) -> Appender:
    return Appender(pool, shard_count=SHARD_COUNT, handover=recorder, leases=recorder, bus=recorder)


def api_on(pool: Pool, folder: Path) -> Api:
    """Return the parts that routes work with, on a database and a folder of one's own, without a guard."""
    appender = appender_on(pool, Recorder())
    store = disk_store(folder)
    return Api(
        pool=pool,
        appender=appender,
        claims=Claims(pool, PoolBells(), lease_s=15),
        starter=Starter(pool, appender, shard_count=SHARD_COUNT, store=store),
        store=store,
        vault=Vault(load_key(generate_key())),
        guard=Guard(None),
        shard_count=SHARD_COUNT,
    )


def start_of(execution_id: int, *, key: str | None = None, path: str = "tests/hello") -> Start:
    row = ExecutionRow(
        execution_id=execution_id,
        shard_id=shard_of(execution_id, SHARD_COUNT),
        catalog_id=7,
        path=path,
        version=1,
        idempotency_key=key,
    )
    context = {"path": path, "version": 1, "workload": {"v": {}}, "depth": 0}
    envelope = Envelope(status="STARTED", context=context)
    event = Event(
        execution_id=execution_id,
        event_type="playbook.started",
        status="STARTED",
        result=envelope,
        dedup_key="start",
        catalog_id=7,
    )
    return Start(execution=row, event=event)


async def started(appender: Appender) -> int:
    execution_id = mint_execution_id()
    assert await appender.start(start_of(execution_id))
    return execution_id


async def issue(pool: Pool, execution_id: int, *, count: int = 1, step: str = "s", **columns: Any) -> list[int]:
    """Put commands of one step into the queue, as routing would, with their command.issued events; return their ids."""
    context_id = hashed_id(execution_id, step, "context")
    context = CommandContext(
        execution_id=execution_id,
        catalog_id=7,
        path="tests/hello",
        version=1,
        step=step,
        tasks=(Task(label=step, kind="noop"),),
        results=columns.pop("results", {}),
        ctx=columns.pop("ctx", {"seen": Value(1)}),
    )
    shard_id = shard_of(execution_id, SHARD_COUNT)
    command_ids = [hashed_id(execution_id, step, index) for index in range(count)]
    async with pool.connection() as conn, conn.transaction():
        await conn.execute(
            "INSERT INTO noetl.command_context VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            [execution_id, context_id, encode(context).decode()],
        )
        for index, command_id in enumerate(command_ids):
            issued = event_id(shard_id, 1, 1 + index + columns.get("ord_from", 0))
            await conn.execute(
                "INSERT INTO noetl.command (execution_id, command_id, shard_id, step, context_id, issued_event_id,"
                " iter_index, loop_epoch, pool, priority, crash_count)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [
                    execution_id,
                    command_id,
                    shard_id,
                    step,
                    context_id,
                    issued,
                    index if count > 1 else -1,
                    9 if count > 1 else 0,
                    columns.get("pool_name", "default"),
                    columns.get("priority", 0),
                    columns.get("crash_count", 0),
                ],
            )
            await conn.execute(
                "INSERT INTO noetl.event (execution_id, event_id, shard_id, event_type, step, command_id, status,"
                " dedup_key, catalog_id, event_time)"
                " VALUES (%s, %s, %s, 'command.issued', %s, %s, 'PENDING', %s, 7, now())",
                [execution_id, issued, shard_id, step, command_id, f"issued:{command_id}"],
            )
    return command_ids


def report_of(command: Any, **changes: Any) -> Report:
    """Return a fitting report of a claimed command."""
    fields: dict[str, Any] = {
        "execution_id": command.execution_id,
        "event_type": "command.completed",
        "command_id": command.command_id,
        "claim_token": command.claim_token,
        "step": command.step,
        "attempt": command.attempt,
        "status": "success",
        "result": Envelope(status="success"),
    }
    return Report(**{**fields, **changes})


def result_row(execution_id: int, payload: Any, *, step: str = "s", **columns: Any) -> ResultRow:
    """Return the row of a small payload."""
    text = encode(payload)
    fields: dict[str, Any] = {
        "execution_id": execution_id,
        "ref_id": hashed_id(execution_id, step, text),
        "step": step,
        "bytes": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
        "inline": msgspec.Raw(text),
    }
    return ResultRow(**{**fields, **columns})


def ref_of(row: ResultRow) -> Ref:
    return Ref(execution_id=row.execution_id, ref_id=row.ref_id, bytes=row.bytes, sha256=row.sha256, label=row.step)


async def rows_of(pool: Pool, query: str, *args: Any) -> list[dict[str, Any]]:
    async with pool.connection() as conn:
        return await (await conn.execute(query.encode(), args)).fetchall()

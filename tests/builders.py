"""Records for tests: each needs only what the test is about, the rest is plausible."""

from pathlib import Path
from typing import Any

import msgspec

from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import shard_of
from noetl_common.core.values import TierRule
from noetl_common.db import Conn
from noetl_common.ids import mint_execution_id, mint_id
from noetl_common.store.disk import DiskTier
from noetl_common.store.results import ResultStore

SHARD_COUNT = 16


def disk_store(folder: Path) -> ResultStore:
    """Return a result store in a folder, without copies."""
    return ResultStore([DiskTier(folder)], TierRule())


def an_event(execution_id: int, event_type: str = "command.completed", **fields: Any) -> Event:
    """Return an event with an envelope, not yet numbered; a terminal report gets its dedup key."""
    given = {"result": Envelope(status="ok"), "status": "COMPLETED", "step": "start", "catalog_id": 1, **fields}
    if event_type.startswith("command.") and "dedup_key" not in given:
        given["dedup_key"] = f"done:{given.get('command_id', 0)}"
    return Event(execution_id=execution_id, event_type=event_type, **given)


def an_execution_id(shard_id: int | None = None, *, shard_count: int = SHARD_COUNT) -> int:
    """Return a new execution id, in `shard_id` when one is given."""
    while True:
        execution_id = mint_execution_id()
        if shard_id is None or shard_of(execution_id, shard_count) == shard_id:
            return execution_id


async def insert_playbook(conn: Conn, *, path: str = "tests/noop", version: int = 1, content: str = "") -> int:
    """Register a document without looking at it; return its catalog id."""
    catalog_id = mint_id()
    await conn.execute(
        "INSERT INTO noetl.catalog (catalog_id, path, version, kind, content, digest)"
        " VALUES (%s, %s, %s, 'Playbook', %s, '')",
        [catalog_id, path, version, content],
    )
    return catalog_id


async def insert_execution(conn: Conn, *, shard_id: int | None = None, catalog_id: int = 1, **fields: Any) -> int:
    """Make the row of a run that appends can name; return its execution id."""
    execution_id = an_execution_id(shard_id)
    row = {"path": "tests/noop", "version": 1, **fields}
    await conn.execute(
        "INSERT INTO noetl.execution (execution_id, shard_id, catalog_id, path, version) VALUES (%s, %s, %s, %s, %s)",
        [execution_id, shard_of(execution_id, SHARD_COUNT), catalog_id, row["path"], row["version"]],
    )
    return execution_id


async def fetch(conn: Conn, query: str, *args: Any) -> list[dict[str, Any]]:
    """Return the rows of a query."""
    return await (await conn.execute(query.encode(), list(args) or None)).fetchall()


def plain(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record as the mapping that two of them are compared by."""
    return dict(msgspec.to_builtins(record))

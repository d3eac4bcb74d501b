"""How the models of SQL statements are registered, and what they share."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from noetl_common.sql import load_queries
from tests.simulation.connections import STATEMENTS
from tests.simulation.database import Row, Transaction, Waiting

Model = Callable[[Transaction, Any], Any]


def statement(package: str, *names: str) -> Callable[[Model], Model]:
    """Register the decorated function as the meaning of these queries of a package."""
    queries = load_queries(package)

    def register(model: Model) -> Model:
        for name in names:
            STATEMENTS[queries[name]] = (name, model)
        return model

    return register


def records(args: Any, name: str) -> list[Row]:
    """Return the rows of a batch parameter: json_to_recordset."""
    rows: list[Row] = msgspec.json.decode(args[name])
    return rows


def jsonb(value: Any) -> bytes | None:
    """Return a value as it is kept; null is no value."""
    return None if value is None else msgspec.json.encode(value)


def from_jsonb(text: bytes | None) -> Any:
    """Return a kept value as a client reads it."""
    return None if text is None else msgspec.json.decode(text)


def moment(text: str | None) -> datetime | None:
    """Return a timestamptz as it is kept."""
    return None if not text else datetime.fromisoformat(text).astimezone(UTC)


def now_s(tx: Transaction) -> float:
    """Return clock_timestamp() in seconds."""
    return tx.database.now_s()


def now_moment(tx: Transaction) -> datetime:
    """Return clock_timestamp()."""
    return datetime.fromtimestamp(now_s(tx), UTC)


def leads(tx: Transaction, args: Any) -> bool:
    """Return whether the leader of these parameters still leads: the EXISTS of every leader-only statement."""
    entry = tx.database.execution_shard.entries.get(("meta", 0))
    row = entry.seen_by(tx) if entry is not None else None
    return row is not None and row["owner_instance"] == args["leader"] and row["epoch"] == args["leader_epoch"]


def locked_row(tx: Transaction, entry: Any) -> Waiting:
    """Lock a row and return it as it is then: what FOR UPDATE and UPDATE see after a wait."""
    yield from tx.lock(entry)
    return entry.seen_by(tx)

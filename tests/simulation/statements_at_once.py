"""The model of the statement that appends and routes at once: the parts are the models of the long way's statements."""

from typing import Any

import msgspec

from tests.simulation.database import Row, Transaction, Waiting
from tests.simulation.statements import now_s, records, statement
from tests.simulation.statements_log import (
    INGEST,
    drop_timers,
    event_of,
    execution_row,
    insert_commands,
    insert_contexts,
    insert_results,
    insert_timers,
    upsert_states,
)

CLAIMED = ("step", "attempt", "loop_epoch", "iter_index")


@statement(INGEST, "commit_at_once")
def commit_at_once(tx: Transaction, args: Any) -> Waiting:
    database = tx.database
    shards, reports = records(args, "shards"), records(args, "reports")
    finished = [_claim(tx, report) for report in reports]
    is_at_rest = all([_is_at(tx, shard) for shard in shards])
    if not (is_at_rest and all(finished)):
        is_busy = is_at_rest and all(_fits(tx, _command(tx, report), report) for report in reports)
        return [{"is_open": False, "is_busy": is_busy, "tokens": None}]
    for shard in shards:
        for table in (database.shard_cursor, database.shard_head):
            tx.update(table, table.entries[shard["shard_id"],], seq=shard["new_seq"])
        tx.notes.append(("moved", shard))
    for report, row in zip(reports, finished, strict=True):
        if report["status"] is None:
            continue  # it streams, and goes on
        key = report["execution_id"], report["command_id"]
        tx.update(database.command, database.command.entries[key], status=report["status"], lease_until=None)
        tx.notes.append(("finished", (key, report["claim_token"], "", row)))
    for execution in records(args, "executions"):
        yield from tx.insert(database.execution, execution_row(execution))
    for event in records(args, "events"):
        yield from tx.insert(database.event, event_of(tx, event, event["event_id"] >> 55))
    yield from insert_results(tx, {"rows": args["results"]})
    yield from insert_contexts(tx, args)
    for name, id_, model in (
        ("commands", "issued_event_id", insert_commands),
        ("timers", "cause_event_id", insert_timers),
        ("states", "last_event_id", upsert_states),
    ):
        for row in records(args, name):
            if name == "timers" and row["execution_id"] in args["ended"]:
                continue
            yield from model(tx, {"shard_id": row[id_] >> 55, name: _text([row])})
    yield from drop_timers(tx, {"execution_ids": args["ended"]})
    return [{"is_open": True, "is_busy": False, "tokens": _lease(tx, args)}]


def _text(rows: list[Row]) -> bytes:
    return msgspec.json.encode(rows)


def _is_at(tx: Transaction, shard: Row) -> bool:
    """Return whether cursor and head of a shard are where they were taken to be, and nobody is at them."""
    database, key = tx.database, (shard["shard_id"],)
    cursor, head = database.shard_cursor.entries[key], database.shard_head.entries[key]
    if not (tx.try_lock(cursor) and tx.try_lock(head)):
        return False
    found, numbered = cursor.seen_by(tx), head.seen_by(tx)
    assert found is not None and numbered is not None
    is_ours = found["seq"] == shard["old_seq"] and found["lease_epoch"] == shard["epoch"]
    return (is_ours or "no fence" in database.faults) and numbered["seq"] == shard["old_seq"]


def _claim(tx: Transaction, report: Row) -> Row | None:
    """Return the command whose claim a report ends, if it is as the report says and nobody is at it."""
    entry = tx.database.command.entries.get((report["execution_id"], report["command_id"]))
    row = entry.seen_by(tx) if entry is not None and tx.try_lock(entry) else None
    return row if _fits(tx, row, report) else None


def _command(tx: Transaction, report: Row) -> Row | None:
    entry = tx.database.command.entries.get((report["execution_id"], report["command_id"]))
    return None if entry is None else entry.seen_by(tx)


def _fits(tx: Transaction, row: Row | None, report: Row) -> bool:
    if row is None or row["status"] != "claimed":
        return False
    if "finish without token" in tx.database.faults:
        return True
    return row["claim_token"] == report["claim_token"] and all(row[name] == report[name] for name in CLAIMED)


def _lease(tx: Transaction, args: Any) -> dict[str, int]:
    """Lease what was issued to workers that wait; return the tokens."""
    tokens = {}
    for command in records(args, "commands"):
        if command.get("worker_id") is None:
            continue
        tx.database.claim_token += 1
        tokens[str(command["command_id"])] = tx.database.claim_token
        entry = tx.database.command.entries[command["execution_id"], command["command_id"]]
        tx.update(
            tx.database.command,
            entry,
            status="claimed",
            attempt=1,
            worker_id=command["worker_id"],
            claim_token=tx.database.claim_token,
            lease_until=now_s(tx) + args["lease_s"],
        )
    return tokens

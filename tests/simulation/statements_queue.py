"""Models of the statements of the queue and the catalog: claim, renew, reap, read."""

from typing import Any

from tests.simulation.database import Row, Transaction, Waiting
from tests.simulation.statements import from_jsonb, jsonb, leads, locked_row, now_s, records, statement
from tests.simulation.statements_log import FINISHED, RESULT_COLUMNS

INGEST, META = "services.ingest", "services.meta"
COMMAND_COLUMNS = ["execution_id", "command_id", "issued_event_id", "step", "attempt", "claim_token", "context_id"]
COMMAND_COLUMNS += ["loop_epoch", "iter_index"]
EXPIRED_COLUMNS = ["execution_id", "command_id", "step", "pool", "attempt", "crash_count", "cancel_requested"]
EXPIRED_COLUMNS += ["worker_id", "loop_epoch", "iter_index"]


def shown(row: Row) -> Row:
    """Return a command as a client reads it."""
    told = {column: row[column] for column in COMMAND_COLUMNS}
    return {**told, "item": from_jsonb(row["item"]), "details": from_jsonb(row["details"])}


@statement(INGEST, "claim_commands")
def claim_commands(tx: Transaction, args: Any) -> list[Row]:
    queue, now = tx.database.queue, now_s(tx)
    waiting = []
    for entry in queue.open.values():
        row = entry.seen_by(tx)
        if row and row["pool"] == args["pool"] and row["status"] == "pending" and row["available_at"] <= now:
            waiting.append((-row["priority"], row["turn_at"], row["available_at"], entry))
    candidates = []
    for *_order, entry in sorted(waiting, key=lambda one: one[:3]):
        if len(candidates) < args["max"] and tx.try_lock(entry):
            candidates.append(entry)
    chosen = candidates
    if candidates:
        crashes = [(entry.seen_by(tx) or {})["crash_count"] for entry in candidates]
        alone = crashes[0] > 0
        chosen = candidates[:1] if alone else [e for e, count in zip(candidates, crashes, strict=True) if not count]
    leased = []
    for entry in chosen:
        row = entry.seen_by(tx)
        assert row is not None
        leased.append(shown(_lease(tx, entry, row, args)))
    return leased


def _lease(tx: Transaction, entry: Any, row: Row, args: Any) -> Row:
    tx.database.claim_token += 1
    return tx.update(
        tx.database.queue,
        entry,
        status="claimed",
        attempt=row["attempt"] + 1,
        worker_id=args["worker_id"],
        claim_token=tx.database.claim_token,
        lease_until=now_s(tx) + args["lease_s"],
    )


@statement(INGEST, "read_claims")
def read_claims(tx: Transaction, args: Any) -> list[Row]:
    rows = [entry.seen_by(tx) for entry in tx.database.queue.open.values()]
    held = [
        row
        for row in rows
        if row
        and row["status"] == "claimed"
        and row["worker_id"] == args["worker_id"]
        and row["lease_until"] is not None
        and row["lease_until"] > now_s(tx)
    ]
    return [shown(row) for row in sorted(held, key=lambda row: row["issued_event_id"])][: args["limit"]]


@statement(INGEST, "read_contexts")
def read_contexts(tx: Transaction, args: Any) -> list[Row]:
    found = []
    for given in records(args, "keys"):
        entry = tx.database.command_context.entries.get((given["execution_id"], given["context_id"]))
        row = entry.seen_by(tx) if entry is not None else None
        if row is not None:
            found.append({**row, "body": from_jsonb(row["body"])})
    return found


def result_shown(row: Row) -> Row:
    """Return a result's row as a client reads it."""
    told = {column: row[column] for column in RESULT_COLUMNS}
    told["preview"], told["extracted"] = from_jsonb(row["preview"]), from_jsonb(row["extracted"])
    return {**told, "inline_payload": row["inline_payload"]}


@statement(INGEST, "read_results")
def read_results(tx: Transaction, args: Any) -> list[Row]:
    found = []
    for given in records(args, "keys"):
        entry = tx.database.result_ref.entries.get((given["execution_id"], given["ref_id"]))
        row = entry.seen_by(tx) if entry is not None else None
        if row is not None:
            found.append(result_shown(row))
    return found


@statement(INGEST, "read_loop_results")
def read_loop_results(tx: Transaction, args: Any) -> list[Row]:
    if args["epoch"] == 0:
        return []
    latest: dict[int, Row] = {}
    for entry in tx.database.result_ref.group("loop_epoch", args["epoch"]):
        row = entry.seen_by(tx)
        if row is None or row["execution_id"] != args["execution_id"] or row["iter_index"] <= args["after"]:
            continue
        known = latest.get(row["iter_index"])
        if known is None or (row["created_at"], row["ref_id"]) > (known["created_at"], known["ref_id"]):
            latest[row["iter_index"]] = row
    return [result_shown(latest[index]) for index in sorted(latest)][: args["limit"]]


@statement(INGEST, "read_kept_results", "read_kept_loop_results")
def read_kept(tx: Transaction, args: Any) -> list[Row]:
    """No result outlives its run here: nothing is compacted."""
    return []


@statement(INGEST, "renew_leases")
def renew_leases(tx: Transaction, args: Any) -> list[Row]:
    queue, told = tx.database.queue, []
    until_s = now_s(tx) + args["lease_s"]
    given = {(g["execution_id"], g["command_id"], g["claim_token"]) for g in records(args, "leases")}
    for execution_id, command_id, token in sorted(given):
        entry = queue.entries.get((execution_id, command_id))
        row = entry.seen_by(tx) if entry is not None else None
        is_ours = row is not None and row["status"] == "claimed" and row["claim_token"] == token
        cancelled = row is not None and row["cancel_requested"]
        told.append({"command_id": command_id, "cancelled": cancelled, "lost": not is_ours})
        if entry is None or row is None or not tx.try_lock(entry) or not is_ours:
            continue
        if row["lease_until"] < now_s(tx) + args["lease_s"] * 2 / 3:
            tx.update(queue, entry, lease_until=until_s)
    return told


@statement(INGEST, "beat_worker")
def beat_worker(tx: Transaction, args: Any) -> Waiting:
    columns = {"capacity": args["capacity"], "active": args["active"], "status": "ready"}
    yield from register(tx, "worker_pool", args["worker_id"], **columns)
    return 1


def register(tx: Transaction, kind: str, instance: str, **columns: Any) -> Waiting:
    """Insert a process's row, or show in it that the process lives; return it."""
    runtimes = tx.database.runtime
    row = {"kind": kind, "name": instance, "instance": instance, "status": "ready", "heartbeat": now_s(tx), **columns}
    if (yield from tx.insert(runtimes, row, or_nothing=True)):
        return row
    entry = runtimes.entries[kind, instance]
    yield from tx.lock(entry)
    return tx.update(runtimes, entry, heartbeat=now_s(tx), **columns)


def _expired(tx: Transaction) -> list[tuple[Any, Row]]:
    rows = [(entry, entry.seen_by(tx)) for entry in tx.database.queue.open.values()]
    now = now_s(tx)
    found = [(e, r) for e, r in rows if r and r["status"] == "claimed" and r["lease_until"] and r["lease_until"] < now]
    if "reaper ignores ends" in tx.database.faults:
        everything = [(entry, entry.seen_by(tx)) for entry in tx.database.queue.entries.values()]
        found += [(e, r) for e, r in everything if r and r["status"] == "completed" and r["crash_count"] == 0][:1]
    return found


@statement(META, "shards_with_expired")
def shards_with_expired(tx: Transaction, args: Any) -> list[Row]:
    shards = {row["shard_id"] for _entry, row in _expired(tx)}
    return [{"shard_id": shard_id} for shard_id in sorted(shards)]


@statement(META, "lock_expired")
def lock_expired(tx: Transaction, args: Any) -> list[Row]:
    if not leads(tx, args):
        return []
    found = []
    for entry, row in sorted(_expired(tx), key=lambda one: one[0].key):
        if row["shard_id"] == args["shard_id"] and len(found) < args["limit"] and tx.try_lock(entry):
            found.append({column: row[column] for column in EXPIRED_COLUMNS})
    return found


@statement(META, "reissue_commands")
def reissue_commands(tx: Transaction, args: Any) -> Waiting:
    for given in records(args, "commands"):
        entry = tx.database.command.entries[given["execution_id"], given["command_id"]]
        row = yield from locked_row(tx, entry)
        changes = {"claim_token": None, "worker_id": None, "lease_until": None, "status": "pending"}
        due_s = now_s(tx) + given["delay_s"]
        changes.update(crash_count=row["crash_count"] + 1, available_at=due_s, turn_at=due_s)
        tx.update(tx.database.command, entry, **changes)
    return 1


@statement(META, "end_commands")
def end_commands(tx: Transaction, args: Any) -> Waiting:
    for given in records(args, "commands"):
        entry = tx.database.command.entries[given["execution_id"], given["command_id"]]
        row = yield from locked_row(tx, entry)
        changes = {"status": given["status"], "claim_token": None, "lease_until": None}
        tx.update(tx.database.command, entry, crash_count=row["crash_count"] + 1, **changes)
    return 1


@statement(META, "bury_commands")
def bury_commands(tx: Transaction, args: Any) -> Waiting:
    for given in records(args, "commands"):
        row = {**given, "reason": "POISON", "detail": jsonb(given["detail"])}
        yield from tx.insert(tx.database.dead_letter, row, or_nothing=True)
    return 1


@statement(INGEST, "read_playbook")
def read_playbook(tx: Transaction, args: Any) -> list[Row]:
    return [_document(row) for row in _entries(tx, catalog_id=args["catalog_id"])]


@statement(INGEST, "read_registered_playbook")
def read_registered_playbook(tx: Transaction, args: Any) -> list[Row]:
    found = _entries(tx, path=args["path"], version=args["version"])
    return [_document(row) for row in found if row["kind"] == "Playbook" and row["archived_at"] is None][:1]


@statement(INGEST, "list_playbook_versions")
def list_playbook_versions(tx: Transaction, args: Any) -> list[Row]:
    found = _entries(tx, path=args["path"], version=None)
    return [{"version": row["version"]} for row in found if row["archived_at"] is None][:10]


@statement(INGEST, "read_newest_entry")
def read_newest_entry(tx: Transaction, args: Any) -> list[Row]:
    found = _entries(tx, path=args["path"], version=None)
    columns = ("catalog_id", "path", "version", "kind", "content", "digest")
    return [{name: row[name] for name in columns} for row in found if row["archived_at"] is None][:1]


def _entries(tx: Transaction, *, catalog_id: int = 0, path: str = "", version: int | None = None) -> list[Row]:
    catalog = tx.database.catalog
    if catalog_id:
        entry = catalog.entries.get((catalog_id,))
        return [row] if entry is not None and (row := entry.seen_by(tx)) else []
    rows = [row for entry in catalog.group("path", path) if (row := entry.seen_by(tx))]
    rows = [row for row in rows if version in (None, row["version"])]
    return sorted(rows, key=lambda row: -row["version"])


def _document(row: Row) -> Row:
    return {name: row[name] for name in ("catalog_id", "version", "content")}


def is_finished(row: Row) -> bool:
    """Return whether a command has come to its end."""
    return row["status"] in FINISHED

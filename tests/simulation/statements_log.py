"""Models of the statements of the append and of the decision transaction."""

from typing import Any

from noetl_common.core.shard import seq_in
from tests.simulation.database import Entry, Row, Transaction, Waiting
from tests.simulation.statements import from_jsonb, jsonb, locked_row, moment, now_moment, now_s, records, statement

INGEST, COMMON = "services.ingest", "noetl_common"
NO_LOCK = "sequence without lock"  # a mutant
FINISHED = ("completed", "failed", "cancelled")
EVENT_COLUMNS = ["execution_id", "event_id", "event_type", "step", "command_id", "attempt", "loop_epoch", "iter_index"]
EVENT_COLUMNS += ["status", "dedup_key", "catalog_id", "parent_execution_id", "worker_id", "event_time"]
RESULT_COLUMNS = ["execution_id", "ref_id", "step", "task_label", "shape", "loop_epoch", "iter_index", "parent_ref_id"]
RESULT_COLUMNS += ["store_tier", "physical_uri", "content_type", "bytes", "sha256", "compression", "rows"]


def shown(row: Row) -> Row:
    """Return an event as a client reads it."""
    event = {column: row[column] for column in EVENT_COLUMNS}
    event["result"], event["meta"] = from_jsonb(row["result"]), from_jsonb(row["meta"])
    return event


def event_of(tx: Transaction, given: Row, shard_id: int) -> Row:
    """Return an event's row as it is kept."""
    row = {column: given.get(column) for column in EVENT_COLUMNS}
    row.update(shard_id=shard_id, result=jsonb(given.get("result")), meta=jsonb(given.get("meta")))
    row["catalog_id"] = given.get("catalog_id") or 0
    row.update(event_time=moment(given.get("event_time")) or now_moment(tx), created_at=now_s(tx))
    return row


@statement(COMMON, "lock_head")
def lock_head(tx: Transaction, args: Any) -> Waiting:
    entry = tx.database.shard_head.entries[args["shard_id"],]
    if NO_LOCK in tx.database.faults:
        return [{"seq": (entry.now or {})["seq"]}]
    head = yield from locked_row(tx, entry)
    return [{"seq": head["seq"]}]


@statement(COMMON, "append_inputs")
def append_inputs(tx: Transaction, args: Any) -> Waiting:
    database, shard_id = tx.database, args["shard_id"]
    head = database.shard_head.entries[shard_id,]
    seq = (head.seen_by(tx) or {})["seq"]
    occurred: set[tuple[int, str | None]] = set()
    taken, fresh = [], []
    for place, given in enumerate(records(args, "events"), 1):
        key = (given["execution_id"], given.get("dedup_key"))
        run = _fresh_in(tx, key, is_first=key not in occurred)
        occurred.add(key)
        if run is None:
            continue
        seq = _next_of_sequence(head) if NO_LOCK in database.faults else seq + 1
        given["event_id"] = shard_id << 55 | seq << 15
        given["catalog_id"] = given.get("catalog_id") or run["catalog_id"]
        if given.get("parent_execution_id") is None:
            given["parent_execution_id"] = run["parent_execution_id"]
        fresh.append(event_of(tx, given, shard_id))
        taken.append({"place": place, "seq": seq})
    for row in fresh:
        yield from tx.insert(database.event, row)
    if fresh and NO_LOCK not in database.faults:
        yield from tx.lock(head)
        tx.update(database.shard_head, head, seq=seq)
    return taken


def _fresh_in(tx: Transaction, key: tuple[int, str | None], *, is_first: bool) -> Row | None:
    """Return the run that takes an input, None when it is not there or has it already."""
    entry = tx.database.execution.entries.get((key[0],))
    run = entry.seen_by(tx) if entry is not None else None
    if run is None or run["compacted_at"] is not None:
        return None
    standing = tx.database.event.by_unique["event_dedup"].get(key) if key[1] is not None else None
    is_known = standing is not None and standing.seen_by(tx) is not None
    return None if key[1] is not None and (is_known or not is_first) else run


def _next_of_sequence(head: Entry) -> int:
    """Give out a number that nobody gives back: what a sequence does, whose transaction may commit later or never."""
    assert head.now is not None
    head.now = {**head.now, "seq": head.now["seq"] + 1}
    return int(head.now["seq"])


@statement(INGEST, "finish_commands")
def finish_commands(tx: Transaction, args: Any) -> Waiting:
    database = tx.database
    given = records(args, "reports")
    locked: dict[tuple[int, int], Row] = {}
    for key in sorted({(report["execution_id"], report["command_id"]) for report in given}):
        entry = database.command.entries.get(key)
        row = (yield from locked_row(tx, entry)) if entry is not None else None
        if row is not None:
            locked[key] = row
    fits: dict[int, bool] = {}
    taken: dict[tuple[int, int], int] = {}
    for report in given:
        key = report["execution_id"], report["command_id"]
        row = locked.get(key)
        fits[report["place"]] = row is not None and _fits(tx, row, report)
        if fits[report["place"]] and report["status"] != "partial" and key not in taken:
            taken[key] = report["place"]
            tx.update(database.command, database.command.entries[key], status=report["status"], lease_until=None)
            tx.notes.append(("finished", (key, report["claim_token"], report["worker_id"], row)))
    return [_judged(report, locked, taken, fits=fits[report["place"]]) for report in given]


def _fits(tx: Transaction, row: Row, report: Row) -> bool:
    if row["status"] != "claimed":
        return False
    if row["claim_token"] == report["claim_token"] or "finish without token" in tx.database.faults:
        return True
    by_name = row["worker_id"] == report["worker_id"] and report["attempt"] in (0, row["attempt"])
    return report["claim_token"] == 0 and by_name


def _judged(report: Row, locked: dict[Any, Row], taken: dict[Any, int], *, fits: bool) -> Row:
    key, place = (report["execution_id"], report["command_id"]), report["place"]
    row, finished = locked.get(key), taken.get(key)
    columns = ("step", "loop_epoch", "iter_index", "attempt")
    told = {"place": place, **{name: row[name] if row else None for name in columns}}
    if finished == place:
        return {**told, "outcome": "accepted"}
    if row is None:
        return {**told, "outcome": "unknown"}
    if report["status"] == "partial":
        is_open = fits and (finished is None or place < finished)
        return {**told, "outcome": "accepted" if is_open else "fenced"}
    same_claim = row["claim_token"] == report["claim_token"]
    is_over = row["status"] in ("completed", "failed") or (row["status"] == "cancelled" and same_claim)
    return {**told, "outcome": "duplicate" if fits or is_over else "fenced"}


@statement(INGEST, "insert_results")
def insert_results(tx: Transaction, args: Any) -> Waiting:
    inserted = 0
    for given in records(args, "rows"):
        row = {column: given.get(column) for column in RESULT_COLUMNS}
        row.update(preview=jsonb(given.get("preview")), extracted=jsonb(given.get("extracted")))
        inline = given.get("inline")
        row.update(inline_payload=None if inline is None else inline.encode(), created_at=now_s(tx))
        inserted += yield from tx.insert(tx.database.result_ref, row, or_nothing=True)
    return inserted


@statement(INGEST, "insert_executions")
def insert_executions(tx: Transaction, args: Any) -> Waiting:
    given = records(args, "executions")
    created = set()
    for one in sorted(given, key=lambda one: (one["idempotency_key"] is None, one["idempotency_key"] or "")):
        row = execution_row({**one, "parent_command_id": None})
        if (yield from tx.insert(tx.database.execution, row, or_nothing=True)):
            created.add(row["execution_id"])
    yield from join_groups(tx, [one for one in given if one["execution_id"] in created])
    return [{"execution_id": execution_id} for execution_id in created]


def join_groups(tx: Transaction, given: list[Row]) -> Waiting:
    """Put runs that are under a limit behind those that came before them."""
    for one in given:
        if one.get("group_id") is not None:
            tx.database.ticket += 1
            row = {"execution_id": one["execution_id"], "group_id": one["group_id"], "run_limit": one["run_limit"]}
            row.update(key=one["group_key"], ticket=tx.database.ticket, is_admitted=False)
            yield from tx.insert(tx.database.concurrency, row)


def execution_row(given: Row) -> Row:
    """Return an execution's row with its defaults."""
    return {
        "execution_id": given["execution_id"],
        "shard_id": given["shard_id"],
        "catalog_id": given["catalog_id"],
        "path": given["path"],
        "version": given["version"],
        "parent_execution_id": given.get("parent_execution_id"),
        "parent_command_id": given.get("parent_command_id"),
        "idempotency_key": given.get("idempotency_key"),
        "status": "RUNNING",
        "current_step": None,
        "progress": b"{}",
        "result": None,
        "error": None,
        "end_time": None,
        "last_event_id": 0,
        "compacted_at": None,
    }


@statement(INGEST, "find_starts")
def find_starts(tx: Transaction, args: Any) -> list[Row]:
    database = tx.database
    keys = database.execution.by_unique["execution_idempotency_key_key"]
    entries = [database.execution.entries.get((id_,)) for id_ in args["execution_ids"]]
    entries += [keys.get((key,)) for key in args["keys"]]
    rows = []
    for entry in {id(entry): entry for entry in entries if entry is not None}.values():
        run = entry.seen_by(tx)
        if run is None:
            continue
        start = database.event.by_unique["event_dedup"].get((run["execution_id"], "start"))
        event = start.seen_by(tx) if start is not None else None
        meta = from_jsonb(event["meta"]) or {} if event is not None else {}
        columns = ("execution_id", "idempotency_key", "catalog_id", "path", "version")
        told = {
            "event_id": event["event_id"] if event else None,
            "nonce": meta.get("nonce"),
            "asked": meta.get("asked"),
        }
        rows.append({**{name: run[name] for name in columns}, **told})
    return rows


@statement(INGEST, "find_events_by_dedup")
def find_events_by_dedup(tx: Transaction, args: Any) -> list[Row]:
    rows = []
    for given in records(args, "keys"):
        entry = tx.database.event.by_unique["event_dedup"].get((given["execution_id"], given["dedup_key"]))
        event = entry.seen_by(tx) if entry is not None else None
        if event is not None:
            rows.append({name: event[name] for name in ("execution_id", "dedup_key", "event_id")})
    return rows


@statement(INGEST, "read_cursor")
def read_cursor(tx: Transaction, args: Any) -> list[Row]:
    cursor = tx.database.shard_cursor.entries[args["shard_id"],].seen_by(tx)
    head = tx.database.shard_head.entries[args["shard_id"],].seen_by(tx)
    assert cursor is not None and head is not None
    return [{"lease_epoch": cursor["lease_epoch"], "seq": cursor["seq"], "waiting": head["seq"] - cursor["seq"]}]


@statement(INGEST, "read_inputs")
def read_inputs(tx: Transaction, args: Any) -> list[Row]:
    found: list[Row] = []
    for entry in tx.database.log.of_shard(args["shard_id"], args["after"]):
        row = entry.seen_by(tx)
        if row is not None and not row["event_id"] & 32767:
            found.append(shown(row))
            if len(found) == args["limit"]:
                break
    return found


@statement(INGEST, "read_states")
def read_states(tx: Transaction, args: Any) -> list[Row]:
    entries = (tx.database.execution_state.entries.get((id_,)) for id_ in args["execution_ids"])
    rows = [entry.seen_by(tx) for entry in entries if entry is not None]
    return [{"execution_id": r["execution_id"], "state": from_jsonb(r["state"])} for r in rows if r is not None]


@statement(INGEST, "move_cursor", "move_cursor_unfenced")
def move_cursor(tx: Transaction, args: Any) -> Waiting:
    entry = tx.database.shard_cursor.entries[args["shard_id"],]
    row = yield from locked_row(tx, entry)
    is_fenced = "no fence" not in tx.database.faults
    if is_fenced and (row["seq"] != args["old_seq"] or row["lease_epoch"] != args["epoch"]):
        return []
    tx.update(tx.database.shard_cursor, entry, seq=args["new_seq"])
    tx.notes.append(("moved", dict(args)))
    return [{"seq": args["new_seq"]}]


@statement(INGEST, "insert_children")
def insert_children(tx: Transaction, args: Any) -> Waiting:
    given = records(args, "children")
    yield from join_groups(tx, given)
    for child in given:
        yield from tx.insert(tx.database.execution, execution_row(child))
    return len(given)


@statement(INGEST, "insert_consequences")
def insert_consequences(tx: Transaction, args: Any) -> Waiting:
    for given in records(args, "events"):
        yield from tx.insert(tx.database.event, event_of(tx, given, args["shard_id"]))
    return 1


@statement(INGEST, "insert_contexts")
def insert_contexts(tx: Transaction, args: Any) -> Waiting:
    for given in records(args, "contexts"):
        row = {**given, "body": jsonb(given["body"])}
        yield from tx.insert(tx.database.command_context, row, or_nothing=True)
    return 1


@statement(INGEST, "insert_commands")
def insert_commands(tx: Transaction, args: Any) -> Waiting:
    for given in records(args, "commands"):
        due_s = now_s(tx) + given.get("delay_s", 0.0)
        row = {
            **{name: given[name] for name in ("execution_id", "command_id", "step", "context_id", "issued_event_id")},
            "shard_id": args["shard_id"],
            "pool": given.get("pool", "default"),
            "priority": given.get("priority", 0),
            "loop_epoch": given.get("loop_epoch", 0),
            "iter_index": given.get("iter_index", -1),
            "item": jsonb(given.get("item")),
            "available_at": due_s,
            "turn_at": due_s + given.get("turn_s", 0.0),
            "status": "pending",
            "attempt": 0,
            "crash_count": 0,
            "claim_token": None,
            "cancel_requested": False,
            "lease_until": None,
            "worker_id": None,
            "details": None,
        }
        yield from tx.insert(tx.database.command, row)
    return 1


@statement(INGEST, "insert_timers")
def insert_timers(tx: Transaction, args: Any) -> Waiting:
    for given in records(args, "timers"):
        row = {**given, "shard_id": args["shard_id"], "due_at": now_s(tx) + given["due_s"]}
        del row["due_s"]
        yield from tx.insert(tx.database.timer, row)
    return 1


@statement(INGEST, "drop_timers")
def drop_timers(tx: Transaction, args: Any) -> Waiting:
    timers, dropped = tx.database.timer, 0
    for execution_id in args["execution_ids"]:
        for entry in timers.group("execution_id", execution_id):
            if (yield from locked_row(tx, entry)) is not None:
                tx.put(timers, entry, None)
                dropped += 1
    return dropped


@statement(INGEST, "upsert_states")
def upsert_states(tx: Transaction, args: Any) -> Waiting:
    states = tx.database.execution_state
    for given in records(args, "states"):
        row = {**given, "shard_id": args["shard_id"], "state": jsonb(given["state"])}
        if not (yield from tx.insert(states, row, or_nothing=True)):
            entry = states.entries[given["execution_id"],]
            yield from tx.lock(entry)
            tx.update(states, entry, last_event_id=row["last_event_id"], state=row["state"])
    return 1


@statement(INGEST, "cancel_commands")
def cancel_commands(tx: Transaction, args: Any) -> Waiting:
    queue, found = tx.database.queue, []
    wanted = set(args["execution_ids"])
    candidates = [entry for id_ in sorted(wanted) for entry in queue.group("execution_id", id_)]
    for entry in sorted(candidates, key=lambda entry: entry.key):
        seen = entry.seen_by(tx)
        if seen is None or seen["status"] in FINISHED:
            continue
        row = yield from locked_row(tx, entry)
        if row is None or row["status"] in FINISHED:
            continue
        status = "cancelled" if row["status"] == "pending" else row["status"]
        tx.update(queue, entry, status=status, cancel_requested=True)
        columns = ("execution_id", "command_id", "step", "loop_epoch", "iter_index")
        found.append({**{name: row[name] for name in columns}, "was": row["status"]})
    return found


@statement(INGEST, "fire_timers")
def fire_timers(tx: Transaction, args: Any) -> list[Row]:
    timers = tx.database.timer
    entries = timers.group("shard_id", args["shard_id"])
    due = [(row["due_at"], entry) for entry in entries if (row := entry.seen_by(tx)) and row["due_at"] <= now_s(tx)]
    fired = []
    for _due_at, entry in sorted(due, key=lambda one: one[0]):
        if len(fired) < 500 and tx.try_lock(entry):
            row = entry.seen_by(tx)
            assert row is not None
            tx.put(timers, entry, None)
            fired.append({name: row[name] for name in ("execution_id", "timer_id", "kind", "cause_event_id")})
    return fired


@statement(INGEST, "look_at_shards")
def look_at_shards(tx: Transaction, args: Any) -> list[Row]:
    database, found = tx.database, []
    for shard_id in args["shard_ids"]:
        cursor = database.shard_cursor.entries[shard_id,].seen_by(tx)
        head = database.shard_head.entries[shard_id,].seen_by(tx)
        assert cursor is not None and head is not None
        timers = (entry.seen_by(tx) for entry in database.timer.group("shard_id", shard_id))
        next_s = min((row["due_at"] for row in timers if row is not None), default=None)
        due_in_s = None if next_s is None else next_s - now_s(tx)
        found.append({"shard_id": shard_id, "is_behind": head["seq"] > cursor["seq"], "due_in_s": due_in_s})
    return found


@statement(INGEST, "lock_groups")
def lock_groups(tx: Transaction, args: Any) -> Waiting:
    for group_id in sorted(set(args["groups"])):
        locks = tx.database.advisory_locks
        yield from tx.lock(locks.setdefault(group_id, Entry(group_id)))
    return [{}]


@statement(INGEST, "leave_groups")
def leave_groups(tx: Transaction, args: Any) -> Waiting:
    table, left = tx.database.concurrency, 0
    for execution_id in args["ended"]:
        entry = table.entries.get((execution_id,))
        if entry is not None and (yield from locked_row(tx, entry)) is not None:
            tx.put(table, entry, None)
            left += 1
    return left


@statement(INGEST, "admit_runs")
def admit_runs(tx: Transaction, args: Any) -> Waiting:
    table, admitted = tx.database.concurrency, []
    for group_id in sorted(set(args["groups"])):
        rows = [row for entry in table.group("group_id", group_id) if (row := entry.seen_by(tx))]
        places = sum(row["is_admitted"] for row in rows)
        waiting = sorted((row for row in rows if not row["is_admitted"]), key=lambda row: row["ticket"])
        for place, row in enumerate(waiting[: args["max"]], 1):
            if places + place > row["run_limit"]:
                break
            admitted.append(row["execution_id"])
    for execution_id in admitted:
        entry = table.entries[execution_id,]
        yield from tx.lock(entry)
        tx.update(table, entry, is_admitted=True)
    return [{"execution_id": execution_id} for execution_id in admitted]


def routed_seq(tx: Transaction, shard_id: int) -> int:
    """Return how far a shard is routed."""
    cursor = tx.database.shard_cursor.entries[shard_id,].seen_by(tx)
    assert cursor is not None
    return int(cursor["seq"])


def seq_of(row: Row) -> int:
    """Return the number of the input that an event is, or follows from."""
    return int(seq_in(row["event_id"]))

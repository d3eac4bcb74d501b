"""Models of the statements of ownership and of the projection: leases, leader, fences, checkpoints, read models."""

import itertools
from collections import Counter
from typing import Any

from noetl_common.core.shard import last_id, shard_in
from tests.simulation.database import Entry, Row, Transaction, Waiting
from tests.simulation.statements import from_jsonb, jsonb, leads, locked_row, moment, now_s, records, statement
from tests.simulation.statements_log import routed_seq
from tests.simulation.statements_log import shown as event_shown
from tests.simulation.statements_queue import register

AT = "last_projected_event_id"
COMMON, META, COMPUTE = "noetl_common", "services.meta", "services.compute"
FENCES = {"ingest": "shard_cursor", "compute": "projection_checkpoint"}


def _leases(tx: Transaction, role: str) -> list[tuple[Entry, Row]]:
    entries = tx.database.execution_shard.group("role", role)
    return [(entry, row) for entry in entries if (row := entry.seen_by(tx)) is not None]


@statement(COMMON, "renew_leases")
def renew_leases(tx: Transaction, args: Any) -> Waiting:
    role, me, now = args["role"], args["instance"], now_s(tx)
    before = _leases(tx, role)
    peers = {}
    for entry in tx.database.runtime.group("kind", role):
        row = entry.seen_by(tx)
        if row is None or row["instance"] == me or row["heartbeat"] <= now - args["lease_s"]:
            continue
        if not row["holds_lock"] or row["runtime_id"] in tx.database.session_locks:
            owned = sum(lease["owner_instance"] == row["instance"] for _entry, lease in before)
            peers[row["instance"]] = [owned, row["status"]]
    leader = tx.database.execution_shard.entries["meta", 0].seen_by(tx)
    assert leader is not None
    has_leader = leader["leased_until"] is not None and leader["leased_until"] > now
    mine = yield from register(tx, role, me, runtime_id=args["runtime_id"], holds_lock=args["holds_lock"])
    shards = []
    for entry, seen in before:
        if seen["owner_instance"] != me:
            continue
        row = yield from locked_row(tx, entry)
        if row["owner_instance"] == me:
            tx.update(tx.database.execution_shard, entry, leased_until=now_s(tx) + args["lease_s"])
            shards.append([row["shard_id"], row["epoch"]])
    told = {"status": mine["status"], "shards": shards, "shard_count": len(before), "peers": peers}
    return [{**told, "has_leader": has_leader}]


@statement(COMMON, "release_shards")
def release_shards(tx: Transaction, args: Any) -> Waiting:
    return (yield from _release(tx, args, set(args["shards"])))


@statement(COMMON, "leave_role")
def leave_role(tx: Transaction, args: Any) -> Waiting:
    yield from _release(tx, args, None)
    entry = tx.database.runtime.entries.get((args["role"], args["instance"]))
    if entry is None or (yield from locked_row(tx, entry)) is None:
        return 0
    tx.put(tx.database.runtime, entry, None)
    return 1


def _release(tx: Transaction, args: Any, shards: set[int] | None) -> Waiting:
    released = 0
    for entry, seen in _leases(tx, args["role"]):
        if seen["owner_instance"] != args["instance"] or (shards is not None and seen["shard_id"] not in shards):
            continue
        row = yield from locked_row(tx, entry)
        if row["owner_instance"] == args["instance"]:
            free = {"owner_instance": None, "leased_until": None, "updated_at": now_s(tx)}
            tx.update(tx.database.execution_shard, entry, **free)
            released += 1
    return released


@statement(META, "ping")
@statement(COMPUTE, "ping")
def ping(tx: Transaction, args: Any) -> list[Row]:
    return [{"?column?": 1}]


@statement(META, "look")
def look(tx: Transaction, args: Any) -> Waiting:
    seen = _seen(tx, args)
    entry, me = tx.database.execution_shard.entries["meta", 0], args["instance"]
    yield from register(tx, "meta", me, runtime_id=args["runtime_id"], holds_lock=args["holds_lock"])
    epoch = None
    if _may_lead(tx, entry.seen_by(tx), args):
        row = yield from locked_row(tx, entry)
        if _may_lead(tx, row, args):
            epoch = row["epoch"] + (row["owner_instance"] != me)
            taken = {"owner_instance": me, "epoch": epoch, "leased_until": now_s(tx) + args["lease_s"]}
            tx.update(tx.database.execution_shard, entry, **taken)
    return [{"epoch": epoch, **seen}]


def _may_lead(tx: Transaction, row: Any, args: Any) -> bool:
    free = row["owner_instance"] in (None, args["instance"]) or row["owner_instance"] in args["dead"]
    return free or row["leased_until"] < now_s(tx)


def _seen(tx: Transaction, args: Any) -> Row:
    """Return what there is to see for a leader: who lives, who owns how much, what nobody holds."""
    database, now = tx.database, now_s(tx)
    processes = []
    for role in args["roles"]:
        for entry in database.runtime.group("kind", role):
            row = entry.seen_by(tx)
            if row is None or row["instance"] == args["instance"] or row["heartbeat"] <= now - args["silent_s"]:
                continue
            is_missing = row["holds_lock"] and row["runtime_id"] not in database.session_locks
            told = {"role": role, "instance": row["instance"], "status": row["status"], "is_missing": is_missing}
            processes.append(told)
    missing = {process["instance"] for process in processes if process["is_missing"]}
    holdings: Counter[tuple[str, str | None]] = Counter()
    free = []
    for role in sorted(set(args["roles"]) - {"meta"}):
        for _entry, row in sorted(_leases(tx, role), key=lambda one: one[1]["shard_id"]):
            until_s = row["leased_until"]
            is_held = until_s is not None and until_s > judging_clock_s(tx)
            holder = row["owner_instance"] if is_held else None
            holdings[role, holder] += 1
            if holder is None or holder in missing:
                unheld_s = now - (until_s if until_s is not None else row["updated_at"])
                told = {"role": role, "shard_id": row["shard_id"], "epoch": row["epoch"]}
                free.append({**told, "owner": row["owner_instance"], "holder": holder, "unheld_s": unheld_s})
    open_ = (entry.seen_by(tx) for entry in database.queue.open.values())
    return {
        "processes": processes,
        "holdings": [{"role": role, "holder": holder, "shards": n} for (role, holder), n in holdings.items()],
        "free": free,
        "silent": _silent(tx, args),
        "postgres_age_s": now - database.started_s,
        "has_claims": any(row and row["status"] == "claimed" for row in open_),
        "progress": str(_progress(tx)),
    }


def _silent(tx: Transaction, args: Any) -> list[str]:
    """Return the processes whose leases ran out within the last minute."""
    now = now_s(tx)
    rows = [row for role in args["roles"] for e in tx.database.runtime.group("kind", role) if (row := e.seen_by(tx))]
    return [row["instance"] for row in rows if now - 60.0 <= row["heartbeat"] <= now - args["lease_s"]]


@statement(META, "cut_off")
def cut_off(tx: Transaction, args: Any) -> list[Row]:
    sessions = sorted(tx.session.server.sessions, key=lambda session: session.number)
    fallen = [session for session in sessions if session.process.name in args["instances"]]
    for session in fallen:
        session.cut()
    return [{"ended": len(fallen)}]


def _progress(tx: Transaction) -> int:
    total = 0
    for table, column in (("shard_head", "seq"), ("shard_cursor", "seq"), ("projection_checkpoint", AT)):
        for entry in tx.database.tables[table].entries.values():
            total += (entry.seen_by(tx) or {})[column] & ((1 << 55) - 1)
    return total


@statement(META, "resign")
def resign(tx: Transaction, args: Any) -> Waiting:
    entry = tx.database.execution_shard.entries["meta", 0]
    row = yield from locked_row(tx, entry)
    if row["owner_instance"] == args["instance"]:
        tx.update(tx.database.execution_shard, entry, owner_instance=None, leased_until=None)
    runtime = tx.database.runtime.entries.get(("meta", args["instance"]))
    if runtime is not None and (yield from locked_row(tx, runtime)) is not None:
        tx.put(tx.database.runtime, runtime, None)
    return 1


def judging_clock_s(tx: Transaction) -> float:
    """Return the time by which a lease is judged: the server's, or in a mutant that of the process that asks."""
    skew_s: float = getattr(tx.session.process, "skew_s", 0.0) if "process clock" in tx.database.faults else 0.0
    return now_s(tx) + skew_s


def _assign(role: str) -> Any:
    def assign(tx: Transaction, args: Any) -> Waiting:
        fences, leases = tx.database.tables[FENCES[role]], tx.database.execution_shard
        fence, lease = fences.entries[args["shard_id"],], leases.entries[role, args["shard_id"]]
        is_leader = leads(tx, args)
        yield from tx.lock(fence)
        row = yield from locked_row(tx, lease)
        owner = row["owner_instance"]
        is_free = owner is None or row["leased_until"] <= judging_clock_s(tx) or owner in args["dead"]
        if row["epoch"] != args["epoch"] or not is_free or not is_leader:
            return []
        epoch, now = row["epoch"] + 1, now_s(tx)
        given = {"owner_instance": args["owner"], "epoch": epoch, "leased_until": now + args["lease_s"]}
        tx.update(leases, lease, updated_at=now, **given)
        tx.update(fences, fence, lease_epoch=epoch)
        return [{"lease_epoch": epoch}]

    return assign


for _role in FENCES:
    statement(META, f"assign_{_role}")(_assign(_role))


@statement(META, "write_checkpoints")
def write_checkpoints(tx: Transaction, args: Any) -> Waiting:
    if not leads(tx, args):
        return []
    database, written = tx.database, []
    for (shard_id,), entry in sorted(database.shard_cursor.entries.items()):  # type: ignore[misc]
        cursor, head = entry.seen_by(tx), database.shard_head.entries[shard_id,].seen_by(tx)
        position = database.projection_checkpoint.entries[shard_id,].seen_by(tx)
        assert cursor is not None and head is not None and position is not None
        at = position["last_projected_event_id"]
        projected = max(0, ((at >> 15) & 1099511627775) - ((at & 32767) != 32767))
        known = [row for e in database.checkpoint.group("shard_id", shard_id) if (row := e.seen_by(tx))]
        last = max(known, key=lambda row: row["checkpoint_id"], default=None)
        now = cursor["seq"], projected, head["seq"]
        then = (last["routed_seq"], last["projected_seq"], last["head_seq"]) if last is not None else (0, 0, 0)
        if now == then:
            continue
        database.checkpoint_id += 1
        row = {"shard_id": shard_id, "checkpoint_id": database.checkpoint_id, "epoch": cursor["lease_epoch"]}
        row.update(routed_seq=now[0], projected_seq=now[1], head_seq=now[2], committed_at=now_s(tx))
        yield from tx.insert(database.checkpoint, row)
        written.append({"shard_id": shard_id})
    return written


@statement(META, "read_checkpoint_ages")
def read_checkpoint_ages(tx: Transaction, args: Any) -> list[Row]:
    ages = []
    for (shard_id,) in sorted(tx.database.shard_cursor.entries):  # type: ignore[misc]
        known = [row for e in tx.database.checkpoint.group("shard_id", shard_id) if (row := e.seen_by(tx))]
        if known:
            last = max(known, key=lambda row: row["checkpoint_id"])
            ages.append({"shard_id": shard_id, "age_s": now_s(tx) - last["committed_at"]})
    return ages


@statement(COMPUTE, "read_positions")
def read_positions(tx: Transaction, args: Any) -> list[Row]:
    database, told = tx.database, []
    for shard_id in args["shards"]:
        position = database.projection_checkpoint.entries[shard_id,].seen_by(tx)
        head = database.shard_head.entries[shard_id,].seen_by(tx)
        assert position is not None and head is not None
        projected = position["last_projected_event_id"]
        lag_s = _age_behind(tx, shard_id, projected) if projected < last_id(shard_id, head["seq"]) else None
        row = {"shard_id": shard_id, "routed_seq": routed_seq(tx, shard_id), "projected": projected}
        told.append({**row, "lag_s": lag_s})
    return told


def _age_behind(tx: Transaction, shard_id: int, after: int) -> float | None:
    for entry in tx.database.log.of_shard(shard_id, after):
        row = entry.seen_by(tx)
        if row is not None:
            return float(now_s(tx) - row["created_at"])
    return None


@statement(COMPUTE, "read_events")
def read_events(tx: Transaction, args: Any) -> list[Row]:
    found: list[Row] = []
    for shard in records(args, "shards"):
        entries = tx.database.log.of_shard(shard["shard_id"], shard["after"])
        following = (row for entry in entries if (row := entry.seen_by(tx)) is not None)
        read = itertools.islice(following, args["limit"])
        found += [event_shown(row) for row in read if row["event_id"] <= shard["until"]]
    return sorted(found, key=lambda row: row["event_id"])


@statement(COMPUTE, "read_runs")
def read_runs(tx: Transaction, args: Any) -> list[Row]:
    found = []
    for execution_id in args["executions"]:
        entry = tx.database.execution.entries.get((execution_id,))
        run = entry.seen_by(tx) if entry is not None else None
        if run is None:
            continue
        fold = tx.database.projection_state.entries.get((execution_id,))
        state = fold.seen_by(tx) if fold is not None else None
        row = {name: run[name] for name in ("execution_id", "status", "current_step", "end_time", "last_event_id")}
        row.update({name: from_jsonb(run[name]) for name in ("progress", "result", "error")})
        found.append({**row, "state": state["state"].decode() if state is not None else None})
    return found


@statement(COMPUTE, "save_projection")
def save_projection(tx: Transaction, args: Any) -> Waiting:
    table, moved = tx.database.projection_checkpoint, set()
    for move in records(args, "moves"):
        entry, fence = table.entries[move["shard_id"],], (move["epoch"], move["old"])
        if _fence_of(entry.seen_by(tx)) != fence or _fence_of((yield from locked_row(tx, entry))) != fence:
            continue
        lag_ms = int(1000 * (_age_behind(tx, move["shard_id"], move["new"]) or 0.0))
        tx.update(table, entry, last_projected_event_id=move["new"], last_projected_at=now_s(tx), lag_ms=lag_ms)
        tx.notes.append(("projected", move))
        moved.add(move["shard_id"])
    for given in records(args, "runs"):
        if shard_in(given["last_event_id"]) in moved:
            yield from _save_fold(tx, given)
            yield from _save_read_model(tx, given)
    return [{"shard_id": shard_id} for shard_id in moved]


def _fence_of(position: Row | None) -> tuple[int, int]:
    assert position is not None
    return position["lease_epoch"], position["last_projected_event_id"]


def _save_fold(tx: Transaction, given: Row) -> Waiting:
    table = tx.database.projection_state
    row = {name: given[name] for name in ("execution_id", "last_event_id")} | {"state": jsonb(given["state"])}
    if (yield from tx.insert(table, row, or_nothing=True)):
        return
    entry = table.entries[given["execution_id"],]
    before = yield from locked_row(tx, entry)
    if row["last_event_id"] > before["last_event_id"]:
        tx.update(table, entry, last_event_id=row["last_event_id"], state=row["state"])


def _save_read_model(tx: Transaction, given: Row) -> Waiting:
    table = tx.database.execution
    entry = table.entries.get((given["execution_id"],))
    if entry is None:
        return
    before = yield from locked_row(tx, entry)
    if before is None or given["last_event_id"] <= before["last_event_id"]:
        return
    plain = {name: given[name] for name in ("status", "current_step", "last_event_id")}
    packed = {name: jsonb(given[name]) for name in ("progress", "result", "error")}
    tx.update(table, entry, **plain, **packed, end_time=moment(given["end_time"]))

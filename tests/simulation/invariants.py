"""What must never be seen: checked at every commit against books of the checker's own, and once more at the end."""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_common.core.events import COMMAND_TERMINALS, PLAYBOOK_TERMINALS, Event
from noetl_common.core.fold import fold
from noetl_common.core.progress import Progress, project
from noetl_common.core.shard import ord_in, seq_in
from noetl_common.core.state import ExecutionState
from noetl_common.event_log import event_of
from tests.simulation.database import Changes, Database, Row, Transaction
from tests.simulation.statements_log import FINISHED, shown

if TYPE_CHECKING:
    from tests.simulation.world import World

READS_PER_INPUT = 4  # and one more for each fault: an input that is read without end is a loop that does not move


class Invariants:
    """The books: what was appended, folded, ended. `found`: what was violated, in words."""

    def __init__(self, database: Database, world: "World") -> None:
        self.database = database
        self.world = world
        self.found: list[str] = []
        self.tell: Callable[[str], None] | None = None  # of every commit, for who wants to see it
        self.digest = hashlib.sha256()
        self.commits = 0
        self.events = 0
        self.last_seq: Counter[int] = Counter()  # by shard
        self.folds: dict[int, ExecutionState] = {}
        self.shows: dict[int, tuple[ExecutionState, Progress]] = {}  # folded again behind the projection
        self.keys: set[tuple[int, str]] = set()
        self.issued: dict[int, int] = {}  # {command: execution}
        self.ended: set[int] = set()
        self.over: set[int] = set()  # executions with their terminal event
        self.loops: set[tuple[int, int]] = set()
        database.on_commit = self.check_commit

    def fail(self, message: str) -> None:
        """Note a violation, with the moment it was seen at."""
        self.world.loop.halt()
        if len(self.found) < 20:
            self.found.append(f"at {self.world.loop.now_s:.3f} s: {message}")

    def check_commit(self, tx: Transaction, changes: Changes) -> None:
        """Check what a transaction has just made true."""
        self.commits += 1
        self._note(tx, changes)
        by_table: dict[str, list[tuple[Row | None, Row | None]]] = {}
        for table, before, after in changes:
            by_table.setdefault(table.name, []).append((before, after))
        events = [after for before, after in by_table.get("event", []) if after is not None and before is None]
        if len(events) != len(by_table.get("event", [])):
            self.fail("an event was changed")
        self._check_events(events)
        for before, after in by_table.get("shard_cursor", []):
            self._check_cursor(before or {}, after or {}, tx)
        for before, after in by_table.get("command", []):
            self._check_command(before, after or {}, events)
        for before, after in by_table.get("execution_shard", []):
            self._check_owner(before or {}, after or {})
        for kind, note in tx.notes:
            if kind == "finished":
                self._check_finished(note)
            elif kind == "moved":
                self._check_decision(note, events, by_table)
            elif kind == "projected":
                self._check_projection(note, by_table)

    def _note(self, tx: Transaction, changes: Changes) -> None:
        """Take a commit into the digest, and tell of it."""
        process = tx.session.process.name
        line = f"{self.world.loop.now_s:9.4f} {process:10} {tx.first_write}"
        for table, _before, after in changes:
            line += f" [{table.name}]" if after is not None else f" [-{table.name}]"
            if table.name == "event" and after is not None:
                line += f" {after['event_id']} {after['event_type']} {after['step'] or ''}"
            elif table.name == "execution_shard" and after is not None:
                line += f" {after['role']} {after['shard_id']} to {after['owner_instance']} under {after['epoch']}"
            elif table.name == "command" and after is not None:
                line += f" {after['command_id']} {after['status']}"
        self.digest.update(line.encode())
        if self.tell is not None:
            self.tell(line)

    def _check_events(self, events: list[Row]) -> None:
        self.events += len(events)
        for row in sorted(events, key=lambda row: row["event_id"]):
            if ord_in(row["event_id"]) == 0:
                self._check_number(row)
            if row["dedup_key"] is not None:
                self._check_first(self.keys, (row["execution_id"], row["dedup_key"]), row)
            kind = row["event_type"]
            if kind in COMMAND_TERMINALS:
                self._check_first(self.ended, row["command_id"], row)
            elif kind in PLAYBOOK_TERMINALS:
                self._check_first(self.over, row["execution_id"], row)
            elif kind == "loop.done":
                self._check_first(self.loops, (row["execution_id"], row["loop_epoch"]), row)
            elif kind == "routing.failed":
                self.fail(f"run {row['execution_id']}: routing failed: {row['result']!r}")

    def _check_number(self, row: Row) -> None:
        shard_id, found = row["shard_id"], seq_in(row["event_id"])
        self.last_seq[shard_id] += 1
        if found != self.last_seq[shard_id]:
            expected = self.last_seq[shard_id]
            self.fail(f"shard {shard_id}: expected input {expected}, found {found} ({row['event_type']})")
            self.last_seq[shard_id] = found

    def _check_first(self, known: set[Any], key: Any, row: Row) -> None:
        if key in known:
            self.fail(f"accepted twice: {row['event_type']} of {row['step'] or 'run'} {key}")
        known.add(key)

    def _check_cursor(self, before: Row, after: Row, tx: Transaction) -> None:
        if after["seq"] < before["seq"]:
            self.fail(f"shard {after['shard_id']}: the cursor went back from {before['seq']} to {after['seq']}")
        if after["lease_epoch"] < before["lease_epoch"]:
            self.fail(f"shard {after['shard_id']}: the epoch went back")
        moves = [note for kind, note in tx.notes if kind == "moved" and note["shard_id"] == after["shard_id"]]
        if moves and moves[-1]["epoch"] != after["lease_epoch"]:
            found = moves[-1]["epoch"]
            self.fail(f"shard {after['shard_id']}: a write of epoch {found} under epoch {after['lease_epoch']}")
        if moves and moves[0]["old_seq"] != before["seq"]:
            self.fail(f"shard {after['shard_id']}: decided from {moves[0]['old_seq']}, but {before['seq']} is routed")

    def _check_command(self, before: Row | None, after: Row, events: list[Row]) -> None:
        id_ = after["command_id"]
        if before is None:
            self.issued[id_] = after["execution_id"]
            if not any(event["command_id"] == id_ and event["event_type"] == "command.issued" for event in events):
                self.fail(f"command {id_} without its event")
        elif before["status"] in FINISHED and after["status"] != before["status"]:
            self.fail(f"command {id_} was {before['status']} and is {after['status']}")

    def _check_finished(self, note: Any) -> None:
        (_execution_id, command_id), token, _worker_id, row = note
        if row["claim_token"] != token:
            self.fail(
                f"command {command_id}: a report with token {token} was accepted, {row['claim_token']} is current"
            )

    def _check_owner(self, before: Row, after: Row) -> None:
        if after["epoch"] < before["epoch"]:
            self.fail(f"{after['role']} {after['shard_id']}: the epoch of the lease went back")
        if after["owner_instance"] in (None, before["owner_instance"]) or after["role"] == "meta":
            return
        for server in self.world.servers():
            leases = server.leases
            if leases is None or server.role != after["role"] or server.name == after["owner_instance"]:
                continue
            if server.lock is not None and not server.lock.is_held:
                continue  # it counts as dead; that it is not is what the fence is for
            if after["shard_id"] in server.context.run(leases.owned):
                self.fail(f"{after['role']} {after['shard_id']} was given away while {server.name} owns it")

    def _check_decision(self, note: Row, events: list[Row], by_table: dict[str, Any]) -> None:
        """The cursor moved: its inputs and what was drawn from them fold into the states that were written."""
        shard_id, old, new = note["shard_id"], note["old_seq"], note["new_seq"]
        drawn = [row for row in events if ord_in(row["event_id"]) and row["shard_id"] == shard_id]
        if any(not old < seq_in(row["event_id"]) <= new for row in drawn):
            self.fail(f"shard {shard_id}: consequences of other inputs than {old + 1} to {new}")
        touched = {}
        for row in self._between(shard_id, old, new):
            event = event_of(shown(row))
            self._fold(event)
            touched[event.execution_id] = None
        written = {after["execution_id"]: after for _before, after in by_table.get("execution_state", [])}
        for execution_id in touched:
            row = written.get(execution_id)
            state = _state_of(row["state"]) if row is not None else None
            if state != self.folds[execution_id]:
                self.fail(f"run {execution_id}: the state is not the fold of the log")

    def _fold(self, event: Event) -> None:
        state = self.folds.get(event.execution_id) or ExecutionState(execution_id=event.execution_id)
        if not event.is_input and state.is_terminal:
            self.fail(f"run {event.execution_id}: {event.event_type} behind the end")
        self.folds[event.execution_id] = fold(state, event)

    def _between(self, shard_id: int, old: int, new: int) -> list[Row]:
        found = []
        for entry in self.database.log.of_shard(shard_id, shard_id << 55 | old << 15 | 32767):
            if entry.now is None:
                continue
            if seq_in(entry.now["event_id"]) > new:
                break
            found.append(entry.now)
        return found

    def _check_projection(self, note: Row, by_table: dict[str, Any]) -> None:
        """The projection moved: it shows the fold of the log up to there."""
        touched = {}
        for entry in self.database.log.of_shard(note["shard_id"], note["old"]):
            row = entry.now
            if row is None:
                continue
            if row["event_id"] > note["new"]:
                break
            id_ = row["execution_id"]
            state, progress = self.shows.get(id_) or (ExecutionState(execution_id=id_), Progress())
            event = event_of(shown(row))
            state = fold(state, event)
            self.shows[id_] = (state, project(progress, event, state))
            touched[id_] = row["event_id"]
        routed = self.database.shard_cursor.entries[note["shard_id"],].now
        assert routed is not None
        if seq_in(note["new"]) > routed["seq"]:
            self.fail(f"shard {note['shard_id']}: projected up to {seq_in(note['new'])}, routed to {routed['seq']}")
        states = {after["execution_id"]: after for _before, after in by_table.get("projection_state", [])}
        models = {after["execution_id"]: after for _before, after in by_table.get("execution", [])}
        for id_ in touched:
            state, progress = self.shows[id_]
            shown_state = _state_of(states[id_]["state"]) if id_ in states else None
            status = models[id_]["status"] if id_ in models else None
            if shown_state != state or status != progress.status:
                self.fail(f"run {id_}: the projection is not the fold of the log")

    def check_end(self) -> None:
        """Everything has come to its end, once, and nothing is missing."""
        self._check_runs()
        for (shard_id,), entry in self.database.shard_head.entries.items():  # type: ignore[misc]
            head = (entry.now or {})["seq"]
            cursor = (self.database.shard_cursor.entries[shard_id,].now or {})["seq"]
            inputs = sum(1 for e in self.database.log.of_shard(shard_id, -1) if e.now and not ord_in(e.now["event_id"]))
            if not head == cursor == inputs:
                self.fail(f"shard {shard_id}: head {head}, routed {cursor}, inputs {inputs}")
        if set(self.issued) != self.ended:
            self.fail(f"{len(set(self.issued) - self.ended)} commands have no end")
        for command_id in self.issued:
            if self.world.effects[command_id] == 0 and command_id in self._completed():
                self.fail(f"command {command_id} is completed, and nobody ran it")
        if self.database.deadlocks:
            self.fail(f"{self.database.deadlocks} deadlocks")
        for event_id, reads in self.world.reads.items():
            if reads > READS_PER_INPUT + self.world.faults.disruptions:
                self.fail(f"input {event_id} was read {reads} times")

    def _completed(self) -> set[int]:
        return {
            entry.now["command_id"]
            for entry in self.database.command.entries.values()
            if entry.now and entry.now["status"] == "completed"
        }

    def _check_runs(self) -> None:
        for (execution_id,), entry in self.database.execution.entries.items():  # type: ignore[misc]
            run = entry.now
            if run is None:
                continue
            state = self.folds.get(execution_id)
            if state is None or not state.is_terminal or execution_id not in self.over:
                self.fail(f"run {execution_id} ({run['path']}) hangs: {_brief(state)}")
            elif run["status"] != state.status:
                self.fail(f"run {execution_id} is shown as {run['status']}, and is {state.status}")
            else:
                self._check_items(execution_id)
        for key, execution_id in self.world.client.started.items():
            if execution_id not in self.folds:
                self.fail(f"{key}: run {execution_id} was promised, and is not in the log")

    def _check_items(self, execution_id: int) -> None:
        """Indices were handed out one by one, and what a loop says of itself is so."""
        begun: dict[int, set[int]] = {}
        done: dict[int, Event] = {}
        for entry in self.database.event.group("execution_id", execution_id):
            row = entry.now
            if row is None or not row["loop_epoch"]:
                continue
            if row["event_type"] in ("command.issued", "child.started") and row["iter_index"] is not None:
                begun.setdefault(row["loop_epoch"], set()).add(row["iter_index"])
            elif row["event_type"] == "loop.done":
                done[row["loop_epoch"]] = event_of(shown(row))
        for epoch, indices in begun.items():
            if indices != set(range(len(indices))):
                self.fail(f"run {execution_id}: loop {epoch} began items {sorted(indices)}")
        for epoch, event in done.items():
            count = len(begun.get(epoch, ()))
            if event.context["done"] + event.context["failed"] != count:
                self.fail(f"run {execution_id}: loop {epoch} of {event.step} began {count}, says {event.context}")


def _state_of(text: bytes) -> ExecutionState:
    return msgspec.convert(msgspec.json.decode(text), ExecutionState, strict=False)


def _brief(state: ExecutionState | None) -> str:
    if state is None:
        return "nothing of it is routed"
    return f"{state.status}, active {sorted(state.active)}, pending {sorted(state.pending)}"

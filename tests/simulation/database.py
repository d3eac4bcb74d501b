"""A model of Postgres as the services use it: rows with locks, READ COMMITTED, transactions that happen or do not.

A statement is a Python function with the meaning of one query of a .sql file (tests/simulation/statements_*.py). It
sees what has committed and what its own transaction wrote; where the query locks rows the function yields the
transaction that holds them, and goes on when that has ended. `differential.py` runs the same calls here and on a real
Postgres.
"""

import bisect
from collections.abc import Callable, Generator, Hashable, Iterator
from typing import Any

import psycopg
from psycopg import errors as pg

Row = dict[str, Any]
UNTOUCHED: Any = object()
Waiting = Generator["Transaction", None, Any]


Changes = list[tuple["Table", Row | None, Row | None]]  # a table, its row before and after
OnCommit = Callable[["Transaction", Changes], None]


class UniqueViolation(pg.UniqueViolation):
    """A unique violation that knows its constraint, as one from a server does."""

    def __init__(self, constraint: str) -> None:
        super().__init__(f'duplicate key value violates unique constraint "{constraint}"')
        self._constraint = constraint

    @property
    def diag(self) -> Any:
        return self

    @property
    def constraint_name(self) -> str:
        return self._constraint


class Entry:
    """One row: as committed, as its locker has left it, and who holds its lock."""

    __slots__ = ("after", "holder", "key", "now")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.now: Row | None = None
        self.after: Any = UNTOUCHED
        self.holder: Transaction | None = None

    def seen_by(self, tx: "Transaction") -> Row | None:
        """Return the row as a transaction sees it, None when there is none."""
        if self.holder is tx and self.after is not UNTOUCHED:
            row: Row | None = self.after
            return row
        return self.now


class Table:
    """Rows by primary key, with unique constraints and groups. What is grouped or unique never changes in a row."""

    def __init__(
        self,
        name: str,
        key: tuple[str, ...],
        *,
        uniques: dict[str, tuple[str, ...]] | None = None,
        groups: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.key = key
        self.entries: dict[Hashable, Entry] = {}
        self.uniques = uniques or {}
        self.by_unique: dict[str, dict[Hashable, Entry]] = {unique: {} for unique in self.uniques}
        self.groups: dict[str, dict[Any, dict[Hashable, Entry]]] = {column: {} for column in groups}
        self.checks_keys = True  # off in the mutant that has no primary key

    def constraints(self, row: Row) -> Iterator[tuple[str, dict[Hashable, Entry], Hashable]]:
        """Yield (name, entries by value, value) of every constraint that the row is under."""
        yield f"{self.name}_pkey", self.entries, tuple(row[column] for column in self.key)
        for name, columns in self.uniques.items():
            value = tuple(row[column] for column in columns)
            if None not in value:
                yield name, self.by_unique[name], value

    def group(self, column: str, value: Any) -> list[Entry]:
        """Return the entries of a group, in the order they were made."""
        return list(self.groups[column].get(value, {}).values())

    def enter(self, entry: Entry, row: Row) -> None:
        """Put an entry where it is looked for."""
        for _name, entries, value in self.constraints(row):
            entries[value] = entry
        self.entries[entry.key] = entry
        for column, groups in self.groups.items():
            groups.setdefault(row[column], {})[entry.key] = entry

    def plant(self, row: Row) -> None:
        """Put a row there without a transaction: what was before the beginning."""
        entry = Entry(tuple(row[column] for column in self.key))
        entry.now = row
        self.enter(entry, row)

    def remove(self, entry: Entry, row: Row) -> None:
        """Take an entry away from everywhere."""
        for _name, entries, value in self.constraints(row):
            if entries.get(value) is entry:
                del entries[value]
        self.entries.pop(entry.key, None)
        for column, groups in self.groups.items():
            groups.get(row[column], {}).pop(entry.key, None)


class Log(Table):
    """The events, which are also found by shard in the order of their ids."""

    def __init__(self) -> None:
        super().__init__(
            "event",
            ("execution_id", "event_id"),
            uniques={"event_dedup": ("execution_id", "dedup_key")},
            groups=("execution_id",),
        )
        self.shards: dict[int, list[tuple[int, str, Entry]]] = {}

    def enter(self, entry: Entry, row: Row) -> None:
        """Put an event where it is looked for."""
        super().enter(entry, row)
        bisect.insort(self.shards.setdefault(row["shard_id"], []), _place(entry, row))

    def remove(self, entry: Entry, row: Row) -> None:
        """Take an event away: its transaction came to nothing."""
        super().remove(entry, row)
        places = self.shards[row["shard_id"]]
        del places[bisect.bisect_left(places, _place(entry, row)[:2])]

    def of_shard(self, shard_id: int, after: int) -> Iterator[Entry]:
        """Yield the events of a shard behind an id, in order."""
        places = self.shards.get(shard_id, [])
        start = bisect.bisect_left(places, (after + 1,))
        for place in range(start, len(places)):
            yield places[place][2]


def _place(entry: Entry, row: Row) -> tuple[int, str, Entry]:
    return row["event_id"], repr(entry.key), entry


class Queue(Table):
    """The commands; those that are not finished are found without looking at the others."""

    def __init__(self) -> None:
        super().__init__("command", ("execution_id", "command_id"), groups=("execution_id",))
        self.open: dict[Hashable, Entry] = {}

    def enter(self, entry: Entry, row: Row) -> None:
        """Put a new command where it is looked for."""
        super().enter(entry, row)
        self.open[entry.key] = entry

    def remove(self, entry: Entry, row: Row) -> None:
        """Take a command away: its transaction came to nothing."""
        super().remove(entry, row)
        self.open.pop(entry.key, None)

    def settle(self, entry: Entry) -> None:
        """Note whether a committed command is finished."""
        if entry.now is not None and entry.now["status"] in ("pending", "claimed"):
            self.open[entry.key] = entry
        else:
            self.open.pop(entry.key, None)


class Transaction:
    """One transaction: what it locked, what it wrote, who waits for its end."""

    def __init__(self, database: "Database", session: Any) -> None:
        self.database = database
        self.session = session
        self.is_open = True
        self.is_failed = False
        self.waits_for: Transaction | None = None
        self.held: list[Entry] = []
        self.undo: list[tuple[Table, Entry, Any]] = []
        self.waiters: list[Callable[[], None]] = []
        self.first_write = ""
        self.notes: list[tuple[str, Any]] = []  # what statements tell the invariants

    def lock(self, entry: Entry) -> Waiting:
        """Take a row's lock, waiting for whoever has it."""
        while entry.holder is not None and entry.holder is not self:
            yield entry.holder
        if entry.holder is None:
            entry.holder = self
            self.held.append(entry)

    def try_lock(self, entry: Entry) -> bool:
        """Take a row's lock if nobody has it: SKIP LOCKED."""
        if entry.holder is not None and entry.holder is not self:
            return False
        if entry.holder is None:
            entry.holder = self
            self.held.append(entry)
        return True

    def put(self, table: Table, entry: Entry, row: Row | None) -> None:
        """Write a row whose lock is held; None deletes it."""
        assert entry.holder is self
        self.undo.append((table, entry, entry.after))
        entry.after = row

    def update(self, table: Table, entry: Entry, **columns: Any) -> Row:
        """Change columns of a row whose lock is held; return it."""
        row = {**(entry.seen_by(self) or {}), **columns}
        self.put(table, entry, row)
        return row

    def insert(self, table: Table, row: Row, *, or_nothing: bool = False) -> Generator["Transaction", None, bool]:
        """Insert a row; return whether it was. Errors: UniqueViolation, unless a conflict means nothing is done."""
        clear = False
        while not clear:
            clear = True
            for name, entries, value in table.constraints(row):
                entry = entries.get(value)
                if entry is None:
                    continue
                if entry.holder not in (None, self) and entry.after is not UNTOUCHED:
                    yield entry.holder  # it may come to nothing
                    clear = False
                    break
                if entry.seen_by(self) is not None and (table.checks_keys or or_nothing):
                    if or_nothing:
                        return False
                    raise UniqueViolation(name)
        key = tuple(row[column] for column in table.key)
        if not table.checks_keys and key in table.entries:
            key = (*key, len(table.entries))
        entry = table.entries.get(key) or Entry(key)
        yield from self.lock(entry)
        table.enter(entry, row)
        self.put(table, entry, row)
        return True

    def rollback_to(self, mark: int) -> None:
        """Undo what was written since the savepoint; locks are kept, as Postgres may."""
        while len(self.undo) > mark:
            table, entry, before = self.undo.pop()
            written, entry.after = entry.after, before
            if before is UNTOUCHED and entry.now is None and written is not None:
                table.remove(entry, written)

    def end(self) -> None:
        """Let go of all locks and wake who waits."""
        self.is_open = False
        for entry in self.held:
            entry.holder = None
        self.held = []
        waiters, self.waiters = self.waiters, []
        for wake in waiters:
            wake()


class Database:
    """The tables, the sequence, and the clock of the server."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.tables = {
            table.name: table
            for table in (
                Table("catalog", ("catalog_id",), groups=("path",)),
                Table("runtime", ("kind", "name"), groups=("kind",)),
                Table(
                    "execution",
                    ("execution_id",),
                    uniques={
                        "execution_parent_command_id_key": ("parent_command_id",),
                        "execution_idempotency_key_key": ("idempotency_key",),
                    },
                ),
                Table("execution_state", ("execution_id",)),
                Log(),
                Table("shard_head", ("shard_id",)),
                Table("shard_cursor", ("shard_id",)),
                Queue(),
                Table("command_context", ("execution_id", "context_id")),
                Table("dead_letter", ("execution_id", "command_id")),
                Table("timer", ("execution_id", "timer_id"), groups=("shard_id", "execution_id")),
                Table("result_ref", ("execution_id", "ref_id"), groups=("loop_epoch",)),
                Table("execution_shard", ("role", "shard_id"), groups=("role",)),
                Table("projection_checkpoint", ("shard_id",)),
                Table("projection_state", ("execution_id",)),
                Table("concurrency", ("execution_id",), groups=("group_id",)),
                Table("checkpoint", ("shard_id", "checkpoint_id"), groups=("shard_id",)),
            )
        }
        self.claim_token = 0
        self.checkpoint_id = 0
        self.ticket = 0
        self.started_s = -60.0  # when the server came up
        self.session_locks: set[int] = set()
        self.advisory_locks: dict[int, Entry] = {}
        self.on_commit: Callable[[Transaction, list[tuple[Table, Row | None, Row | None]]], None] = lambda tx, rows: (
            None
        )
        self.faults: set[str] = set()  # mutants that statements look at
        self.deadlocks = 0

    @property
    def log(self) -> Log:
        """The events."""
        log = self.tables["event"]
        assert isinstance(log, Log)
        return log

    @property
    def queue(self) -> Queue:
        """The commands."""
        queue = self.tables["command"]
        assert isinstance(queue, Queue)
        return queue

    def __getattr__(self, name: str) -> Table:
        try:
            return self.__dict__["tables"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def commit(self, tx: Transaction) -> None:
        """Make a transaction's writes what everybody sees, all at once."""
        written: dict[int, tuple[Table, Entry]] = {id(entry): (table, entry) for table, entry, _before in tx.undo}
        changes = []
        for table, entry in written.values():
            if entry.after is UNTOUCHED:
                continue  # taken back to a savepoint
            changes.append((table, entry.now, entry.after))
            before, entry.now, entry.after = entry.now, entry.after, UNTOUCHED
            if entry.now is None and before is not None:
                table.remove(entry, before)
            if isinstance(table, Queue):
                table.settle(entry)
        tx.end()
        if changes:
            self.on_commit(tx, changes)

    def abort(self, tx: Transaction) -> None:
        """Undo all that a transaction wrote."""
        if tx.is_open:
            tx.rollback_to(0)
            for entry in tx.held:
                entry.after = UNTOUCHED
            tx.end()

    def blocks(self, tx: Transaction, holder: Transaction) -> bool:
        """Return whether waiting for `holder` would close a circle."""
        one: Transaction | None = holder
        while one is not None:
            if one is tx:
                self.deadlocks += 1
                return True
            one = one.waits_for
        return False


def broken() -> psycopg.OperationalError:
    """Return what a client gets when its connection is cut."""
    return psycopg.OperationalError("the connection is lost: server closed the connection unexpectedly")

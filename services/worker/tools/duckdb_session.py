"""A DuckDB connection for one call: made, used and closed in threads, interrupted when its call is over.

A database file belongs to one call of this worker at a time; others wait. Another process that holds the file is an
error that a later try may not meet.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from noetl_common.config import env, load
from noetl_common.errors import DependencyMissing, Invalid, ToolFailed
from services.worker.tables import Tables
from services.worker.tools.duckdb_values import json_value

if TYPE_CHECKING:
    import duckdb

MEMORY = ":memory:"
THREADS_MAX = 8  # calls at the same time in one worker
FETCH_ROWS = 10_000
ARROW_ROWS = 16_384
# {type: what a column of a table of it holds}, of those whose values JSON says as Arrow has them
SAME_IN_ARROW = {
    "BOOLEAN": "bool",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"), "int64"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "double"),
    "VARCHAR": "string",
}
INTERRUPT_EVERY_S = 0.05
INTERRUPT_S_MAX = 5.0  # then the thread is left to end by itself, and its file stays locked until it has
KEY_VARIABLE = "noetl_idempotency_key"

T = TypeVar("T")
MemoryBytesMax = Annotated[
    int, env("NOETL_DUCKDB_MEMORY_BYTES", unit="bytes", doc="Memory of one duckdb tool call; more goes to disk.")
]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator grants to a call."""

    duckdb_memory_bytes_max: MemoryBytesMax = 512 * 1024 * 1024


class Session:
    """One connection. Its methods are called in a thread by `call`, one at a time."""

    def __init__(self, database: str, library: Any) -> None:
        self.database = database
        self._library = library
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._is_stopped = False
        self.pending: Future[Any] | None = None

    async def call(self, work: Callable[[], T]) -> T:
        """Return what `work` returns in a thread; when this task is cancelled, the statement is interrupted first.

        Errors: ToolFailed; those of `work` pass through.
        """
        self.pending = pending = _threads().submit(self._translated, work)
        try:
            return await asyncio.wrap_future(pending)
        except asyncio.CancelledError:
            self._is_stopped = True
            waited_s = 0.0
            while not pending.done() and waited_s < INTERRUPT_S_MAX:
                if self._connection is not None:
                    self._connection.interrupt()
                await asyncio.sleep(INTERRUPT_EVERY_S)
                waited_s += INTERRUPT_EVERY_S
            raise

    def open(self, idempotency_key: str) -> None:
        """Connect, in UTC; the key is the variable `noetl_idempotency_key`."""
        memory_bytes_max = load(Limits).duckdb_memory_bytes_max
        config = {"memory_limit": f"{memory_bytes_max}B", "autoinstall_known_extensions": "false"}
        if self.database == MEMORY:
            config["temp_directory"] = os.path.join(tempfile.gettempdir(), f"noetl-duckdb-{os.getpid()}")
        self._connection = self._library.connect(self.database, config=config)
        self.do("SET TimeZone = 'UTC'")
        self.do(f"SET VARIABLE {KEY_VARIABLE} = $1", [idempotency_key])

    def do(self, text: str, values: list[Any] | None = None) -> Any:
        """Execute one statement; return the connection, which is then its result."""
        assert self._connection is not None, "a session is opened before it is used"
        self._check_goes_on()
        return self._connection.execute(text, values)

    def many(self, text: str, rows: list[tuple[Any, ...]]) -> None:
        """Execute one statement for each of the rows."""
        assert self._connection is not None, "a session is opened before it is used"
        self._connection.executemany(text, rows)

    def result(self, text: str, values: list[Any], tables: Tables) -> dict[str, Any]:
        """Return {status, rows, row_count, columns} of one statement; many rows stand in a file of `tables`.

        Errors: TooLarge.
        """
        relation = self._relation(text, values)
        if relation is not None:
            return self._streamed(relation, tables)
        done = self.do(text, values or None)
        columns = [str(column[0]) for column in done.description or ()]
        types = [str(column[1]) for column in done.description or ()]
        found = done.fetchmany(FETCH_ROWS)
        if (columns, types) == (["Success"], ["BOOLEAN"]) and not found:
            return {"status": "success", "rows": [], "row_count": 0, "columns": []}
        if (columns, types) == (["Count"], ["BIGINT"]) and not _asks(text):
            count = int(found[0][0]) if found else 0
            return {"status": "success", "rows": [], "row_count": count, "columns": []}
        sink = tables.sink(columns, [_kind_of(kind) for kind in types])
        while found:
            self._check_goes_on()
            sink.add(_values_as_json(found, types))
            found = done.fetchmany(FETCH_ROWS)
        return {"status": "success", "rows": sink.finish(), "row_count": sink.count, "columns": columns}

    def _relation(self, text: str, values: list[Any]) -> Any:
        """Return the result of a query whose values are the same in Arrow and in JSON, None for any other."""
        assert self._connection is not None, "a session is opened before it is used"
        self._check_goes_on()
        statements = self._connection.extract_statements(text)
        if len(statements) != 1 or statements[0].type != self._library.StatementType.SELECT:
            return None
        relation = self._connection.sql(text, params=values) if values else self._connection.sql(text)
        return relation if {str(kind) for kind in relation.types} <= SAME_IN_ARROW.keys() else None

    def _streamed(self, relation: Any, tables: Tables) -> dict[str, Any]:
        columns = list(relation.columns)
        sink = tables.sink(columns, [SAME_IN_ARROW[str(kind)] for kind in relation.types])
        for batch in relation.to_arrow_reader(ARROW_ROWS):
            self._check_goes_on()
            if sink.takes_arrow and _is_finite(batch):
                sink.add_arrow(batch)
            else:
                values_of = [[json_value(value) for value in column.to_pylist()] for column in batch.columns]
                sink.add(list(zip(*values_of, strict=True)))
        return {"status": "success", "rows": sink.finish(), "row_count": sink.count, "columns": columns}

    def _check_goes_on(self) -> None:
        if self._is_stopped:
            raise self._library.InterruptException("Interrupted!")

    def rows(self, text: str, values: list[Any]) -> "Rows":
        """Execute one statement and return its rows, to be fetched before anything else is done here."""
        return Rows(self.do(text, values or None))

    def in_transaction(self) -> bool:
        """Return whether a transaction was open; it is rolled back."""
        try:
            self.do("ROLLBACK")
        except self._library.TransactionException:
            return False
        return True

    def close(self) -> None:
        """Close the connection once nothing runs on it any more; what was not committed is undone."""
        if self.pending is not None:
            wait([self.pending])
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _translated(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except self._library.Error as exc:
            raise _failure(exc) from None


class Rows:
    """The rows of one statement, fetched a few at a time. Used in the session's thread."""

    def __init__(self, done: Any) -> None:
        self._done = done
        self.columns = [str(column[0]) for column in done.description or ()]
        self._types = [str(column[1]) for column in done.description or ()]

    def fetch(self, count: int) -> list[dict[str, Any]]:
        """Return the next rows, `count` at most; none at the end."""
        return _as_json(self._done.fetchmany(count), self.columns, self._types)


@asynccontextmanager
async def open_session(database: str, *, idempotency_key: str, lock_name: str = "") -> AsyncIterator[Session]:
    """Lend a session on a database file, or `:memory:`, once no other call of this worker has that file.

    Errors: DependencyMissing names the extra; ToolFailed when the file cannot be opened.
    """
    library = _library()
    session = Session(database, library)
    lock = _lock(lock_name or database)
    await lock.acquire()
    try:
        await session.call(lambda: session.open(idempotency_key))
        yield session
    finally:
        is_stuck = session.pending is not None and not session.pending.done()
        loop = asyncio.get_running_loop()
        closing = _threads().submit(session.close)
        closing.add_done_callback(lambda _: _release(lock, loop))
        if not is_stuck:
            await asyncio.shield(asyncio.wrap_future(closing))


def close_threads() -> None:
    """End the threads once they are idle; the next call starts new ones."""
    global _executor
    if _executor is not None:
        _executor.shutdown(wait=False, cancel_futures=True)
        _executor = None


def _as_json(found: list[tuple[Any, ...]], columns: list[str], types: list[str]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in _values_as_json(found, types)]


def _values_as_json(found: list[tuple[Any, ...]], types: list[str]) -> list[list[Any]]:
    is_json = [kind == "JSON" for kind in types]
    return [[json_value(v, is_json=j) for v, j in zip(row, is_json, strict=True)] for row in found]


def _kind_of(type_name: str) -> str:
    """Return what a column of a table holds for a type of DuckDB's (TableWriter)."""
    is_nested = type_name == "JSON" or type_name.endswith("]") or type_name.startswith(("STRUCT", "MAP", "UNION"))
    return SAME_IN_ARROW.get(type_name) or ("json" if is_nested else "string")


def _is_finite(batch: Any) -> bool:
    """Return whether no number in a batch is one that JSON says by a text."""
    compute = import_module("pyarrow.compute")
    floats = [column for column in batch.columns if str(column.type) in ("float", "double")]
    return all(compute.all(compute.is_finite(column), min_count=0).as_py() is not False for column in floats)


def _release(lock: asyncio.Lock, loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(lock.release)


def _asks(text: str) -> bool:
    # A count that the author selected is a row; the one that comes with INSERT, UPDATE, COPY and others is not.
    return text.lstrip("( \n\t").upper().startswith(("SELECT", "WITH", "FROM", "VALUES", "TABLE", "SHOW", "DESCRIBE"))


def _failure(exc: Exception) -> ToolFailed:
    name = type(exc).__name__.removesuffix("Exception")
    # What follows the first paragraph quotes the statement, and with it what was rendered into it.
    text = str(exc).partition("\n\n")[0].strip()
    kind, retryable = {
        "Constraint": ("db_constraint", False),
        "Connection": ("db_connection", True),
        "Transaction": ("db_deadlock", True),
        "Interrupt": ("db_timeout", True),
        "OutOfMemory": ("memory", False),
        "IO": ("db_connection", "lock" in text.lower()),
        "Internal": ("internal", False),
        "Fatal": ("internal", False),
    }.get(name, ("sql", False))
    failure = ToolFailed({"kind": kind, "code": f"DUCKDB_{name.upper()}", "message": text, "retryable": retryable})
    for note in getattr(exc, "__notes__", ()):
        failure.add_note(note)
    return failure


def _library() -> Any:
    try:
        import_module("pytz")  # the library imports it itself, when a timestamp has a time zone
        return import_module("duckdb")
    except ImportError:
        raise DependencyMissing("this tool needs the duckdb library: pip install noetl[duckdb]") from None


def _lock(database: str) -> asyncio.Lock:
    if database == MEMORY:
        return asyncio.Lock()
    if "\0" in database:
        raise Invalid("database: expected a path without NUL characters, found one")
    locks = _locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    name = os.path.realpath(database)
    lock = locks.get(name)
    if lock is None:
        lock = locks[name] = asyncio.Lock()
    return lock


def _threads() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="duckdb")
    return _executor


_executor: ThreadPoolExecutor | None = None
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = WeakKeyDictionary()

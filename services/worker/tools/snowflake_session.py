"""One session of Snowflake, through the official connector, whose blocking calls run in threads of their own."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from cryptography.hazmat.primitives import serialization

from noetl_common.db import json_text
from noetl_common.errors import Invalid, ToolFailed
from services.worker.tables import Tables
from services.worker.tools import Call
from services.worker.tools.duckdb_values import json_value
from services.worker.tools.libraries import library
from services.worker.tools.sql_statements import Parameter, tokens

THREADS_MAX = 8  # calls of this tool that run at the same time
FETCH_ROWS = 10_000
CONNECT_TIMEOUT_S = 60
JSON_TYPES = frozenset((5, 9, 10))  # the connector's codes of VARIANT, OBJECT and ARRAY
# {the connector's name: its spellings in credentials and tool fields}, all of them also with `sf_` before
FIELDS = {
    "account": ("account",),
    "user": ("user", "username"),
    "password": ("password",),
    "private_key": ("private_key",),
    "private_key_passphrase": ("private_key_passphrase",),
    "token": ("token",),
    "authenticator": ("authenticator",),
    "warehouse": ("warehouse",),
    "database": ("database",),
    "schema": ("schema",),
    "role": ("role",),
}
OF_CREDENTIAL = ("host", "port", "protocol")  # where to connect is not for a playbook to say
REFUSED_LOGIN = re.compile(r"[Ii]ncorrect username or password|JWT token is invalid|is locked|was not authorized")
# (SQLSTATE prefix, kind of the error, may succeed when tried again), first match wins
KINDS = (
    ("57014", "db_timeout", True),
    ("40", "db_deadlock", True),
    ("08", "db_connection", True),
    ("28", "db_connection", False),
    ("23", "db_constraint", False),
    ("22000", "db_constraint", False),
    ("", "sql", False),
)

T = TypeVar("T")


class Session:
    """An open session. Every method but `call` blocks: it is for `call` to run."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._connection: Any = None
        self.is_over = False

    async def call(self, do: Callable[[], T]) -> T:
        """Return what `do` returns, run in a thread.

        Errors: ToolFailed with the error of the tool's outcome.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: self._guarded(do))

    def open(self, arguments: dict[str, Any]) -> None:
        """Connect."""
        self._connection = library("snowflake.connector", extra="snowflake").connect(**arguments)

    def close(self) -> None:
        """End the session; the server ends what still runs in it."""
        self.is_over = True
        if self._connection is not None:
            self._connection.close()

    def do(self, text: str, values: Sequence[Any] = ()) -> Any:
        """Return the cursor of a statement that was run; `values` stand for its `?`."""
        if self.is_over:
            raise ToolFailed({"kind": "db_timeout", "code": "DB_TIMEOUT", "message": "given up", "retryable": True})
        cursor = self._connection.cursor()
        cursor.execute(text, tuple(values) or None)
        return cursor

    def result(self, text: str, values: Sequence[Any], first_word: str, *, tables: Tables) -> dict[str, Any]:
        """Return {status, columns, rows, row_count} of a statement; many rows stand in a file of `tables`.

        Errors: TooLarge.
        """
        cursor = self.do(text, values)
        columns = columns_of(cursor)
        if _tells_a_count(columns, first_word):
            changed = 0 if columns == ["status"] else max(cursor.rowcount or 0, 0)
            return {"status": "success", "rows": [], "row_count": changed, "columns": []}
        is_json = [column[1] in JSON_TYPES for column in cursor.description or ()]
        sink = tables.sink(columns, ["json" if one else "string" for one in is_json])
        while found := cursor.fetchmany(FETCH_ROWS):
            sink.add([list(map(_plain, row, is_json)) for row in found])
            if self.is_over:
                raise ToolFailed({"kind": "db_timeout", "code": "DB_TIMEOUT", "message": "given up", "retryable": True})
        return {"status": "success", "rows": sink.finish(), "row_count": sink.count, "columns": columns}

    def _guarded(self, do: Callable[[], T]) -> T:
        try:
            return do()
        except Exception as exc:
            if type(exc).__module__.startswith("snowflake."):
                raise _failure(exc) from exc
            raise


@asynccontextmanager
async def open_session(call: Call, *, timeout_s: float) -> AsyncIterator[Session]:
    """Open a session of the credential that the call names; close it in the end.

    Errors: Invalid, NotFound, DependencyMissing names the extra, ToolFailed.
    """
    arguments = await _arguments(call, timeout_s)
    session = Session(_pool())
    try:
        await session.call(lambda: session.open(arguments))
        yield session
    finally:
        session.is_over = True  # a statement under way in a thread is the last one
        _pool().submit(_closed_quietly, session)


def close_threads() -> None:
    """End the threads; the worker calls this when it stops."""
    global _threads
    if _threads is not None:
        _threads.shutdown(wait=False)
        _threads = None


def numbered(text: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return a statement with `?` for `$1`, `$2`, ..., and the values in the order of the places."""
    if not values:
        return text, []
    parts, found = [], []
    for token in tokens(text):
        if token.kind == "numbered":
            found.append(values[int(token.text[1:]) - 1])
            parts.append("?")
        else:
            parts.append(token.text)
    return "".join(parts), found


def bindable(parameter: Parameter) -> Any:
    """Return what the connector binds: mappings and lists go as JSON text."""
    value, is_json = parameter
    return json_text(value) if isinstance(value, dict | list) or (is_json and not isinstance(value, str)) else value


def columns_of(cursor: Any) -> list[str]:
    """Return the names of a result's columns."""
    return [str(column[0]) for column in cursor.description or ()]


def _plain(value: Any, is_json: bool) -> Any:
    if is_json and isinstance(value, str):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value  # what only JavaScript takes for a value: undefined, NaN
    return json_value(value)


def _tells_a_count(columns: list[str], first_word: str) -> bool:
    """Return whether a result only says how many rows were changed, or that something was done."""
    if columns == ["status"]:
        return first_word not in ("SELECT", "WITH", "SHOW", "CALL", "EXECUTE", "DESCRIBE", "DESC", "LIST", "TABLE", "")
    return all(column.lower().startswith("number of ") for column in columns)


async def _arguments(call: Call, timeout_s: float) -> dict[str, Any]:
    found = await _fields(call)
    if key := found.pop("private_key", None):
        found["private_key"] = _der(key, found.pop("private_key_passphrase", None))
        found.pop("password", None)
    if missing := [name for name in ("account", "user") if not found.get(name)]:
        raise Invalid(f"{missing[0]}: expected a text in the credential or the task, found nothing")
    if not found.keys() & {"password", "private_key", "token"}:
        raise Invalid("expected password, private_key or token in the credential, found none of them")
    seconds = max(1, math.ceil(timeout_s))
    return {
        **found,
        "paramstyle": "qmark",
        "login_timeout": min(seconds, CONNECT_TIMEOUT_S),
        "network_timeout": seconds,
        "application": "noetl",
        "session_parameters": {
            "QUERY_TAG": f"noetl/{call.execution_id}/{call.step}/{call.idempotency_key}"[:2000],
            "STATEMENT_TIMEOUT_IN_SECONDS": seconds,
            "ABORT_DETACHED_QUERY": True,
            "CLIENT_TELEMETRY_ENABLED": False,
        },
    }


async def _fields(call: Call) -> dict[str, Any]:
    auth = call.config.get("auth") or call.config.get("credential")
    given: dict[str, Any] = auth if isinstance(auth, dict) else {}
    alias = given.get("credential") or given.get("alias") if given else auth
    more: dict[str, Any] = {}
    if isinstance(alias, str):
        credential = await call.credential(alias)
        kind = str(credential.get("type", "snowflake")).lower()
        if kind != "snowflake":
            raise Invalid(f"credential {alias!r}: expected type snowflake, found {kind}")
        given = credential.get("data") or {}
        more = {name: given[name] for name in OF_CREDENTIAL if given.get(name)}
    found = {**_spelled(given), **_spelled(call.config), **more}
    if not found:
        raise Invalid("expected `auth` naming a snowflake credential, found none")
    if "port" in found:
        found["port"] = int(found["port"])
    return found


def _spelled(given: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, spellings in FIELDS.items():
        values = (given.get(prefix + spelling) for spelling in spellings for prefix in ("", "sf_"))
        value = next((value for value in values if value not in (None, "")), None)
        if value is not None:
            found[name] = str(value)
    return found


def _der(pem: str, passphrase: str | None) -> bytes:
    try:
        key = serialization.load_pem_private_key(pem.encode(), passphrase.encode() if passphrase else None)
    except (ValueError, TypeError):
        raise Invalid("private_key: expected a private key in PEM, and its passphrase if it has one") from None
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _failure(exc: Exception) -> ToolFailed:
    """Return the error of a tool's outcome for one of the connector's, by its SQLSTATE and its class."""
    state, number = str(getattr(exc, "sqlstate", None) or ""), getattr(exc, "errno", None)
    text = " ".join(str(getattr(exc, "msg", None) or exc).split())[:1000]
    name = type(exc).__name__
    if REFUSED_LOGIN.search(text):
        kind, retryable = "db_connection", False
    elif name == "IntegrityError":
        kind, retryable = "db_constraint", False
    elif name in ("ProgrammingError", "DataError", "NotSupportedError"):
        kind, retryable = next((kind, again) for prefix, kind, again in KINDS if state.startswith(prefix))
    else:
        kind, retryable = "db_connection", True
    code = f"SNOWFLAKE_{number}" if isinstance(number, int) and number > 0 else "SNOWFLAKE"
    error = {"kind": kind, "code": code, "message": text, "retryable": retryable, "sqlstate": state}
    failure = ToolFailed({name: value for name, value in error.items() if value != ""})
    for note in getattr(exc, "__notes__", ()):
        failure.add_note(note)
    return failure


def _closed_quietly(session: Session) -> None:
    try:
        session.close()
    except Exception:  # the connector's: a session that cannot be closed ends by itself
        return


def _pool() -> ThreadPoolExecutor:
    global _threads
    library("snowflake.connector", extra="snowflake")
    if _threads is None:
        _threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="snowflake")
    return _threads


_threads: ThreadPoolExecutor | None = None

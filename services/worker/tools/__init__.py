"""The tools: one file a kind, each an async `run(call) -> Outcome`. What a tool can know is in its Call."""

from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Ref
from noetl_common.errors import ReferenceNotAvailable
from services.worker.tables import Tables

if TYPE_CHECKING:
    from services.worker.tools.python_pool import PythonPool

# What a task that its run cancelled is cancelled with; one that its worker lost or gave up has nothing.
CANCELLED = "cancelled"
Partial = Callable[[Any], Awaitable[None]]
Note = Callable[[dict[str, Any], Any], Awaitable[dict[str, Any]]]
StoredTable = Callable[[Ref, Path], Awaitable[tuple[Path, dict[str, str]] | None]]
Credential = Callable[[str], Awaitable[dict[str, Any]]]


def _keep_nothing(value: Any) -> None:
    return None


def _conceals_nothing(text: str) -> bool:
    return False


async def _tell_nobody(value: Any) -> None:
    return None


async def _note_nowhere(details: dict[str, Any], payload: Any) -> dict[str, Any]:
    return details


async def _no_table(ref: Ref, copy: Path) -> tuple[Path, dict[str, str]] | None:
    raise ReferenceNotAvailable(f"{ref.uri}: no stored table can be read here")


class Call(msgspec.Struct, kw_only=True):
    """One call of one tool.

    Shapes: `config` the tool's own fields, rendered (those of UNRENDERED as text); `input` rendered; `scope` for what
    a tool looks up itself (it may raise NeedPayload, but only before its first side effect: it is called again);
    `credential` alias -> {"type", "data"}; `globals` the loop variables that python code sees uninvited;
    `conceal` takes what must be hidden in all that is stored of the command, and `conceals` tells whether a text holds
    such a thing; `partial` hands on one chunk of a result
    that is streamed and returns when it is recorded; `note` keeps details and a payload for the next attempt, should
    this one end without a report, and returns them with the payload's `reference`; `details` are those that an earlier
    attempt noted. Who has lost the command is cancelled in either. `tables` takes rows that may be many;
    `stored_table` returns where the file of a stored table can be read, in place or copied to the path it is given, and
    {column: what it holds}; None for one whose items are no rows of SQL.
    """

    kind: str
    label: str
    step: str
    execution_id: int
    scope: Scope
    credential: Credential
    config: dict[str, Any] = {}
    input: dict[str, Any] = {}
    globals: dict[str, Any] = {}
    idempotency_key: str = ""
    attempt: int = 1
    timeout_s: float = 300.0
    processes: "PythonPool | None" = None
    conceal: Callable[[Any], None] = _keep_nothing
    conceals: Callable[[str], bool] = _conceals_nothing
    partial: Partial = _tell_nobody
    note: Note = _note_nowhere
    details: dict[str, Any] | None = None
    tables: Tables = msgspec.field(default_factory=Tables)
    stored_table: StoredTable = _no_table


Tool = Callable[[Call], Awaitable[Outcome]]

KINDS = frozenset(
    {
        *("noop", "python", "http", "postgres", "cursor", "duckdb", "ducklake", "shell", "script"),
        *("nats", "artifact", "result_fetch", "secrets", "mcp", "transfer"),
        *("container", "snowflake", "gcs"),
    }
)
TOOLS: dict[str, Tool] = {}  # those called so far

# Fields whose members name stored results, which are handed on by their references and never loaded.
REFERRING: dict[str, str] = {"duckdb": "tables", "ducklake": "tables"}

# Fields that hold a program: their texts, and any `code` in them, are rendered as text, never as a native value.
UNRENDERED: dict[str, frozenset[str]] = {
    "python": frozenset({"code", "script"}),
    "script": frozenset({"code", "script"}),
    "shell": frozenset({"command", "cmd"}),
}


async def dispatch(call: Call) -> Outcome:
    """Return what the tool of `call.kind` came to; an unknown kind is an error outcome that names it."""
    tool = TOOLS.get(call.kind) or _imported(call.kind)
    if tool is None:
        message = f"kind: expected one of {', '.join(sorted(KINDS))}, found {call.kind!r}"
        return failed("tool", message, code="TOOL_UNKNOWN")
    return await tool(call)


def failed(kind: str, message: str, *, code: str = "", retryable: bool = False, **more: Any) -> Outcome:
    """Return an error outcome; `code` defaults to the kind in capitals, `more` are further fields of the error."""
    error = {"kind": kind, "code": code or f"TOOL_{kind.upper()}", "message": message, "retryable": retryable, **more}
    return Outcome(status="error", error=error)


def _imported(kind: str) -> Tool | None:
    # A tool is imported when it is first called: its driver costs memory and start-up time only where it is used.
    if kind not in KINDS:
        return None
    tool: Tool = import_module(f"{__name__}.{kind}").run
    TOOLS[kind] = tool
    return tool

"""The tools: one file a kind, each an async `run(call) -> Outcome`. What a tool can know is in its Call."""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_common.core.outcome import Outcome
from noetl_common.core.playbook import UNSUPPORTED
from noetl_common.core.scope import Scope

if TYPE_CHECKING:
    from services.worker.tools.python_pool import PythonPool

Credential = Callable[[str], Awaitable[dict[str, Any]]]


def _keep_nothing(value: Any) -> None:
    return None


class Call(msgspec.Struct, kw_only=True):
    """One call of one tool.

    Shapes: `config` the tool's own fields, rendered (those of UNRENDERED as text); `input` rendered; `scope` for what
    a tool looks up itself (it may raise NeedPayload, but only before its first side effect: it is called again);
    `credential` alias -> {"type", "data"}; `globals` the loop variables that python code sees uninvited;
    `conceal` takes what must be hidden in all that is stored of the command.
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


Tool = Callable[[Call], Awaitable[Outcome]]

KINDS = frozenset(
    {
        *("noop", "python", "http", "postgres", "duckdb", "ducklake", "shell", "script"),
        *("nats", "artifact", "result_fetch", "secrets", "mcp", "transfer"),
    }
)
TOOLS: dict[str, Tool] = {}  # those called so far

# Fields that hold a program: their texts, and any `code` in them, are rendered as text, never as a native value.
UNRENDERED: dict[str, frozenset[str]] = {
    "python": frozenset({"code", "script"}),
    "script": frozenset({"code", "script"}),
    "shell": frozenset({"command", "cmd"}),
}


async def dispatch(call: Call) -> Outcome:
    """Return what the tool of `call.kind` came to; an unknown kind is an error outcome that names it."""
    if call.kind == UNSUPPORTED:
        return failed("tool", str(call.config.get("message")), code="UNSUPPORTED")
    tool = TOOLS.get(call.kind) or _imported(call.kind)
    if tool is None:
        message = f"no tool {call.kind!r} here; expected one of {', '.join(sorted(KINDS))}"
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

"""The outcome envelope: what one tool call came to, as rules, arcs and `set` see it."""

from typing import Any, Literal

import msgspec


class Outcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One tool call's outcome.

    Shapes: `data` is the tool's result (any JSON); `error` has kind, code, message, retryable and, when known,
    status, http_status, retry_after, pg_code, exception; `http` {status, headers}; `pg` {code, sqlstate};
    `py` {exception, traceback, stdout, stderr}; `meta` {attempt, duration_ms}.
    """

    status: Literal["success", "error"] = "success"
    data: Any = None
    error: dict[str, Any] | None = None
    http: dict[str, Any] = {}
    pg: dict[str, Any] = {}
    py: dict[str, Any] = {}
    meta: dict[str, Any] = {}

    @property
    def ok(self) -> bool:
        """True unless the tool failed."""
        return self.status == "success"

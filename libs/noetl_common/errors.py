"""Our exceptions, all of them.

* NoetlError                     expected: logged, counted, survived
  - ConfigError                  a setting is missing or wrong; the process does not start (exit 3)
  - DependencyMissing            Postgres, NATS or a library is not there (exit 4)
  - PlaybookError                a playbook document is wrong; carries every problem found
  - TemplateFailed               an expression does not parse or raised; names step, field, expression
  - PoisonInput                  one input can never be routed; its execution fails, its shard goes on
  - Fenced                       another owner holds the shard now: roll back, drop the cache, stop
  - NotFound                     404
  - Conflict                     409
  - Gone                         410: it went with the retention
  - Invalid                      422, with a JSON pointer
  - TooLarge                     413
  - Unauthorized                 401 or 403
  - AddressRefused               a tool may not connect there
  - ToolFailed                   what a tool stands on refused; carries the error of the tool's outcome
  - Unavailable                  503, retry later
  - Overloaded                   429: new work is refused for a while, so that what is under way ends
  - ReferenceNotAvailable        a payload cannot be read from any tier
  - ReferenceCorrupt             a payload's digest is not the one recorded
  - SealBroken                   a sealed credential does not open: other key, other name, or changed

Anything else that reaches a loop is a bug: the process ends and is restarted.
"""

from typing import Any


class NoetlError(Exception):
    """Base of every error we expect and handle."""

    code = "NOETL_ERROR"
    status = 500

    def details(self) -> dict[str, Any]:
        """Return what a problem document adds to the message."""
        return {}


class ConfigError(NoetlError):
    """A setting is missing or wrong."""

    code = "CONFIG_INVALID"


class DependencyMissing(NoetlError):
    """Something this process needs is not installed or not reachable."""

    code = "DEPENDENCY_MISSING"
    status = 503


class PlaybookError(NoetlError):
    """A playbook document is refused; `problems` lists every finding, each with where and what."""

    code = "PLAYBOOK_INVALID"
    status = 422

    def __init__(self, problems: list[dict[str, Any]]) -> None:
        self.problems = problems
        first = problems[0]["message"] if problems else "invalid playbook"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{first}{more}")

    def details(self) -> dict[str, Any]:
        """Return every problem."""
        return {"problems": self.problems}


class TemplateFailed(NoetlError):
    """An expression does not parse, or raised while it was evaluated."""

    code = "TEMPLATE_FAILED"
    status = 422

    def __init__(self, message: str, *, expression: str = "", where: str = "") -> None:
        self.expression = expression
        self.where = where
        place = f"{where}: " if where else ""
        shown = expression if len(expression) <= 200 else expression[:200] + "..."
        super().__init__(f"{place}{message}" + (f" in {shown!r}" if shown else ""))

    def details(self) -> dict[str, Any]:
        """Return the expression and where it stands."""
        return {"expression": self.expression, "where": self.where}


class PoisonInput(NoetlError):
    """An input whose decision always raises."""

    code = "ROUTING_FAILED"


class Fenced(NoetlError):
    """The shard has another owner or another cursor than this process believed."""

    code = "FENCED"

    def __init__(self, shard_id: int, epoch: int) -> None:
        self.shard_id = shard_id
        super().__init__(f"shard {shard_id}: epoch {epoch} is no longer the owner")


class NotFound(NoetlError):
    """What was asked for does not exist."""

    code = "NOT_FOUND"
    status = 404


class Conflict(NoetlError):
    """The request contradicts the present state."""

    code = "CONFLICT"
    status = 409

    def __init__(self, message: str, *, code: str = "CONFLICT") -> None:
        self.code = code
        super().__init__(message)


class Gone(NoetlError):
    """What was asked for existed and went with the retention."""

    code = "EXECUTION_ARCHIVED"
    status = 410

    def __init__(self, message: str, *, code: str = "EXECUTION_ARCHIVED") -> None:
        self.code = code
        super().__init__(message)


class Invalid(NoetlError):
    """A request's value has the wrong shape; `pointer` is the JSON pointer to it."""

    code = "INVALID"
    status = 422

    def __init__(self, message: str, *, pointer: str = "") -> None:
        self.pointer = pointer
        super().__init__(message)

    def details(self) -> dict[str, Any]:
        """Return the pointer."""
        return {"pointer": self.pointer}


class TooLarge(NoetlError):
    """A body, batch or nesting is over its limit."""

    code = "TOO_LARGE"
    status = 413


class Unauthorized(NoetlError):
    """No token, or one without the scope."""

    code = "UNAUTHORIZED"
    status = 401

    def __init__(self, message: str, *, status: int = 401) -> None:
        self.status = status
        super().__init__(message)


class AddressRefused(NoetlError):
    """A playbook's request would go to an address that is closed to tools."""

    code = "ADDRESS_REFUSED"
    status = 403


class ToolFailed(NoetlError):
    """What a tool stands on refused: `error` (kind, code, message, retryable) becomes that of the tool's outcome."""

    code = "TOOL_FAILED"
    status = 422

    def __init__(self, error: dict[str, Any]) -> None:
        self.error = error
        super().__init__(str(error.get("message", "")))


class Unavailable(NoetlError):
    """A dependency does not answer now; the caller retries, after `retry_after_s` at the earliest."""

    code = "UNAVAILABLE"
    status = 503

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class Overloaded(Unavailable):
    """A limit on work under way is reached: new work is refused, nothing of it was begun."""

    code = "OVERLOADED"
    status = 429


class ReferenceNotAvailable(NoetlError):
    """A referenced payload cannot be read from any tier."""

    code = "REFERENCE_NOT_AVAILABLE"
    status = 503


class ReferenceCorrupt(NoetlError):
    """A payload does not have the digest recorded for it."""

    code = "REFERENCE_CORRUPT"
    status = 500


class SealBroken(NoetlError):
    """A sealed record does not open: another key, another name, or it was changed."""

    code = "SEAL_BROKEN"

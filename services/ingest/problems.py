"""Errors as application/problem+json (RFC 9457), with the keys that older clients look for beside it."""

import math
from typing import Any

import msgspec
import psycopg
from starlette.exceptions import HTTPException
from starlette.responses import Response

from noetl_common.db import is_retryable
from noetl_common.errors import Conflict, Invalid, NoetlError, Unauthorized, Unavailable
from noetl_common.log import get_logger
from noetl_common.wire import encode
from services.ingest.claims import ActiveClaim

log = get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
MESSAGE_CHARACTERS_MAX = 300
TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    422: "Invalid",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
}


def problem(status: int, *, code: str, message: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """Return a problem document. `detail` is the message, or {code, message} where clients read `detail.code`."""
    body = {
        "type": "about:blank",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "code": code,
        "detail": message,
        "error": message,
        **more,
    }
    return Response(encode(body), status_code=status, media_type=MEDIA_TYPE, headers=headers)


def problem_in(error: BaseException) -> dict[str, Any]:
    """Return {status, code, error, pointer?} of what one item of a batch raised. Errors: what is no Exception."""
    if not isinstance(error, Exception):
        raise error
    body = msgspec.json.decode(problem_of(error).body)
    return {name: body[name] for name in ("status", "code", "error", "pointer") if body.get(name)}


def problem_of(error: Exception) -> Response:
    """Return the answer to a request that raised. What nobody expected is logged with its traceback, and not shown."""
    if isinstance(error, NoetlError):
        return _expected(error)
    if isinstance(error, HTTPException):
        code = TITLES.get(error.status_code, "error").upper().replace(" ", "_")
        headers = dict(error.headers) if error.headers else None
        return problem(error.status_code, code=code, message=str(error.detail), headers=headers)
    if isinstance(error, psycopg.Error) and is_retryable(error):
        log.warning("http.database_away", error=error)
        return _expected(Unavailable("the database does not answer now"))
    if isinstance(error, psycopg.DataError):
        # Whatever the types let through: a NUL in a text, a number beyond a column's range.
        found = str(error).splitlines()[0][:MESSAGE_CHARACTERS_MAX]
        return _expected(Invalid(f"expected values that can be stored, found {found}"))
    log.exception("http.bug")
    return problem(500, code="INTERNAL_ERROR", message="an internal error; the server's log has the details")


def _expected(error: NoetlError) -> Response:
    headers: dict[str, str] = {}
    more = error.details()
    if isinstance(error, Conflict) and error.code != Conflict.code:
        more = {**more, "detail": {"code": error.code, "message": str(error)}}
    if isinstance(error, ActiveClaim):
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    elif error.status in (429, 503):
        after_s = error.retry_after_s if isinstance(error, Unavailable) else 0.0
        headers["retry-after"] = str(math.ceil(after_s) or RETRY_AFTER_S)
        more = {**more, "retry_after_s": after_s} if after_s else more
    if isinstance(error, Unauthorized) and error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return problem(error.status, code=error.code, message=str(error), headers=headers, **more)

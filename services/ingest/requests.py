"""Requests, read within their limits: bodies, nesting, numbers in queries."""

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from noetl_common import wire
from noetl_common.errors import Invalid, NotFound, TooLarge
from noetl_common.wire import BODY_BYTES_MAX, NESTING_MAX

T = TypeVar("T")

NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
SQUARE = bytes.maketrans(b"{}", b"[]")
INT64_MAX = (1 << 63) - 1


async def read_body(request: Request, *, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return the request's body, reading no further than the limit. Errors: TooLarge."""
    declared = request.headers.get("content-length", "")
    if re.fullmatch(r"[0-9]{1,19}", declared) and int(declared) > bytes_max:
        raise TooLarge(f"body: expected at most {bytes_max} bytes, found {declared}")
    before = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        if len(before) + len(chunk) > bytes_max:
            raise TooLarge(f"body: expected at most {bytes_max} bytes, found more")
        if not message.get("more_body", False):
            return bytes(before) + chunk if before else chunk
        before += chunk


async def read_json(request: Request, kind: type[T], *, bytes_max: int = BODY_BYTES_MAX) -> T:
    """Return the request's JSON body as a `kind`; no body counts as {}.

    Errors: TooLarge over the size or nesting limit; Invalid with a JSON pointer for a wrong type.
    """
    body = await read_body(request, bytes_max=bytes_max)
    check_nesting(body)
    return wire.decode(body or b"{}", kind, bytes_max=bytes_max)


def check_nesting(body: bytes) -> None:
    """Return if the JSON text nests at most NESTING_MAX levels. Errors: TooLarge."""
    if body.count(b"[") + body.count(b"{") <= NESTING_MAX:
        return
    # Without escapes, every second part between quotes is outside of strings.
    outside = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    left = b"".join(outside).translate(SQUARE, NOT_BRACKETS)
    # Each pass takes the innermost pairs away, at C speed; malformed text is the decoder's to refuse.
    for _level in range(NESTING_MAX):
        if b"[]" not in left:
            return
        left = left.replace(b"[]", b"")
    if b"[]" in left:
        raise TooLarge(f"body: expected at most {NESTING_MAX} levels of nesting, found more")


def query_int(request: Request, name: str, default: int, *, low: int = 0, high: int = INT64_MAX) -> int:
    """Return a number of the query, as it is. Errors: Invalid when it is none or outside [low, high]."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    return within(int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else text, name, low=low, high=high)


def within(value: int | str, name: str, *, low: int, high: int) -> int:
    """Return a number that a caller gave as `name`. Errors: Invalid when it is none or outside [low, high]."""
    if isinstance(value, str) or not low <= value <= high:
        found = repr(str(value)[:40])
        raise Invalid(f"{name}: expected a whole number from {low} to {high}, found {found}", pointer=f"/{name}")
    return value


def query_text(request: Request, name: str) -> str | None:
    """Return a text of the query, None when it is missing or empty."""
    return request.query_params.get(name) or None


def query_flag(request: Request, name: str) -> bool:
    """Return True when the query says so."""
    return request.query_params.get(name, "").lower() in ("true", "1", "yes")


def path_id(request: Request, name: str, *, what: str) -> int:
    """Return the id in the path. Errors: NotFound when it can be nobody's."""
    text = request.path_params[name]
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > INT64_MAX:
        raise NotFound(f"expected a number of up to 19 digits as the {what}'s id, found {text[:60]!r}")
    return int(text)


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """How large pages may be and are, and how much may stand before one that is asked for by number."""

    size_default: int
    size_max: int
    offset_max: int
    size_min: int = 1


def paging(request: Request, bounds: Paging) -> tuple[int, int, int]:
    """Return (limit, offset, page) of `page`/`page_size` or of `limit`/`offset`.

    Errors: Invalid, also for a page so far behind that reading up to it costs too much: a cursor goes on from there.
    """
    if "page" in request.query_params or "page_size" in request.query_params:
        size = query_int(request, "page_size", bounds.size_default, low=bounds.size_min, high=bounds.size_max)
        page = query_int(request, "page", 1, low=1, high=1_000_000)
        return size, _near((page - 1) * size, "page", bounds), page
    limit = query_int(request, "limit", bounds.size_default, low=1, high=bounds.size_max)
    offset = _near(query_int(request, "offset", 0, low=0, high=100_000_000), "offset", bounds)
    return limit, offset, offset // limit + 1


def _near(offset: int, name: str, bounds: Paging) -> int:
    if offset > bounds.offset_max:
        expected = f"expected at most {bounds.offset_max} before the page; further on, the cursor of the page before"
        raise Invalid(f"{name}: {expected}, found {offset} before it", pointer=f"/{name}")
    return offset


def answer(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return `value` as a JSON response."""
    return Response(wire.encode(value), status_code=status, media_type="application/json", headers=headers)


def idempotency_key_of(request: Request) -> str | None:
    """Return the key a caller sent, in either spelling of its header."""
    return request.headers.get("idempotency-key") or request.headers.get("x-idempotency-key")

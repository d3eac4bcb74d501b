"""The http tool: one request, its answer as data, its failure classified."""

import asyncio
import base64
import email.utils
import http.cookiejar
import time
from typing import Any
from weakref import WeakKeyDictionary

import httpcore
import httpx
import msgspec

from noetl_common.config import load
from noetl_common.core.outcome import Outcome
from noetl_common.errors import AddressRefused, Invalid, NotFound, TooLarge, Unavailable
from services.worker.tools import Call, failed
from services.worker.tools.egress import Egress, GuardedTransport
from services.worker.tools.http_request import Plan, plan_of

BODY_BYTES_MAX = 64 * 1024 * 1024
REDIRECTS_MAX = 5
PREVIEW_CHARS = 300
STATUS_KINDS = {401: "auth", 403: "auth", 404: "not_found", 429: "rate_limit"}
TIMEOUTS = (TimeoutError, httpx.TimeoutException, httpcore.TimeoutException)
BROKEN = (httpx.HTTPError, httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, OSError)


async def run(call: Call) -> Outcome:
    """Return {status_code, headers, data, body, url, elapsed} of the answer; `body` is `data` under its other name.

    A 2xx is a success; any other status is an error that carries the same data.
    Shapes: `data` is the parsed JSON, else text, else (not text at all) base64 with `encoding: base64`.
    Errors: none is raised; error.kind is connection, timeout, rate_limit, auth, not_found, client_error,
    server_error, parse, blocked or config. No secret of a credential shows in them.
    """
    try:
        plan = await plan_of(call)
    except (Invalid, NotFound) as exc:
        return failed("config", f"http: {exc}", code="CREDENTIAL_NOT_FOUND" if isinstance(exc, NotFound) else exc.code)
    except Unavailable as exc:
        return failed("connection", f"http: {exc}", code=exc.code, retryable=True)
    where = plan.scrubbed(f"{plan.method} {_shown(plan.url)}")
    began = time.monotonic()
    try:
        async with asyncio.timeout(plan.timeout_s):
            response, body = await _exchange(plan)
    except TIMEOUTS:
        return failed("timeout", f"{where}: no answer within {plan.timeout_s:g} s", code="HTTP_TIMEOUT", retryable=True)
    except AddressRefused as exc:
        return failed("blocked", f"{where}: {exc}", code=exc.code)
    except TooLarge as exc:
        return failed("client_error", f"{where}: {exc}", code="HTTP_BODY_TOO_LARGE")
    except (httpcore.LocalProtocolError, httpx.InvalidURL, UnicodeEncodeError):
        # The library's message quotes the offending header, which may be a secret.
        return failed("config", f"{where}: a header or the target is not valid HTTP", code="HTTP_REQUEST_INVALID")
    except BROKEN as exc:
        text = plan.scrubbed(str(exc) or type(exc).__name__)
        hopeless = "CERTIFICATE" in text or isinstance(exc, httpx.TooManyRedirects)
        return failed("connection", f"{where}: {text}", code="HTTP_CONNECTION", retryable=not hopeless)
    return _outcome(plan, response, body, elapsed_s=time.monotonic() - began)


async def close() -> None:
    """Close the clients of the running event loop; the worker calls this when it stops."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()


async def _exchange(plan: Plan) -> tuple[httpx.Response, bytes]:
    client = _client(verify=plan.verify)
    request = client.build_request(
        plan.method, plan.url, headers=plan.headers, content=plan.content, timeout=plan.timeout_s
    )
    for _ in range(REDIRECTS_MAX + 1):
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            body = await _read(response)
        finally:
            await response.aclose()
        following = response.next_request if plan.follow_redirects else None
        if following is None:
            return response, body
        if _origin(following.url) != _origin(request.url):
            for name in plan.guarded & set(following.headers):
                del following.headers[name]
        request = following
    raise httpx.TooManyRedirects(f"more than {REDIRECTS_MAX} redirects")


async def _read(response: httpx.Response) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    async for part in response.aiter_bytes():
        size_bytes += len(part)
        if size_bytes > BODY_BYTES_MAX:
            raise TooLarge(f"expected an answer of at most {BODY_BYTES_MAX} bytes, found more")
        parts.append(part)
    return b"".join(parts)


def _outcome(plan: Plan, response: httpx.Response, body: bytes, *, elapsed_s: float) -> Outcome:
    status = response.status_code
    headers = dict(response.headers)
    url = plan.scrubbed(_shown(response.url))
    try:
        content, encoding = _content(plan, response, body)
    except (msgspec.DecodeError, RecursionError) as exc:
        message = f"{plan.method} {url} answered {status}, expected JSON: {exc}"
        return failed("parse", message, code="HTTP_NOT_JSON", status=status, http_status=status)
    data: dict[str, Any] = {
        "status_code": status,
        "headers": headers,
        "data": content,
        "body": content,
        "url": url,
        "elapsed": round(elapsed_s, 4),
    }
    if encoding:
        data["encoding"] = encoding
    outcome = Outcome(data=data, http={"status": status, "headers": headers})
    if not response.is_success:
        outcome.status = "error"
        outcome.error = _error(plan, response, body, url)
    return outcome


def _content(plan: Plan, response: httpx.Response, body: bytes) -> tuple[Any, str]:
    """Return the body as data, and `base64` when that is how it had to be written."""
    if plan.response_type == "binary":
        return base64.b64encode(body).decode(), "base64"
    kind = response.headers.get("content-type", "").lower()
    is_json = plan.response_type == "json" or "json" in kind
    if plan.response_type != "text" and (is_json or body[:1] in (b"{", b"[")):
        try:
            return msgspec.json.decode(body) if body.strip() or plan.response_type == "json" else None, ""
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if plan.response_type == "json":
                raise
    try:
        return body.decode(response.charset_encoding or "utf-8"), ""
    except (UnicodeDecodeError, LookupError):
        if plan.response_type == "text" or kind.startswith("text/"):
            return body.decode("utf-8", errors="replace"), ""
        return base64.b64encode(body).decode(), "base64"


def _error(plan: Plan, response: httpx.Response, body: bytes, url: str) -> dict[str, Any]:
    status = response.status_code
    kind = STATUS_KINDS.get(status) or ("server_error" if status >= 500 else "client_error")
    preview = plan.scrubbed(" ".join(body[: 4 * PREVIEW_CHARS].decode(errors="replace").split()))[:PREVIEW_CHARS]
    error = {
        "kind": kind,
        "code": f"HTTP_{status}",
        "message": f"{plan.method} {url} answered {status} {response.reason_phrase}".rstrip()
        + (f": {preview}" if preview else ""),
        "retryable": kind in ("rate_limit", "server_error"),
        "status": status,
        "http_status": status,
    }
    retry_after_s = _retry_after_s(response.headers.get("retry-after", ""))
    return error if retry_after_s is None else {**error, "retry_after": retry_after_s}


def _retry_after_s(text: str) -> float | None:
    """Return the seconds that a Retry-After header asks for, given as a number or as a date."""
    text = text.strip()
    if text.isdigit():
        return float(text)
    try:
        return max(round(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 1), 0.0)
    except (ValueError, TypeError):
        return None


def _shown(url: httpx.URL) -> str:
    return str(url.copy_with(userinfo=b"") if url.userinfo else url)


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, httpx.AsyncClient]] = WeakKeyDictionary()


def _client(*, verify: bool) -> httpx.AsyncClient:
    """Return the running loop's client, one that checks certificates and one that does not; neither keeps cookies."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if verify not in clients:
        no_cookies = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        transport = GuardedTransport(verify=verify, allowed=load(Egress).allowed)
        clients[verify] = httpx.AsyncClient(transport=transport, cookies=no_cookies, trust_env=False)
    return clients[verify]

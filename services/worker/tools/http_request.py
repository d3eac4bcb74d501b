"""What an http task asks for: its fields, with all their spellings, as one request and the secrets in it."""

from collections.abc import Mapping
from typing import Any, Literal, cast

import httpx
import msgspec

from noetl_common.core.duration import seconds_in
from noetl_common.db import json_text
from noetl_common.errors import Invalid
from services.worker.tools import Call

TIMEOUT_DEFAULT_S = 30.0
FORM = "application/x-www-form-urlencoded"
API_KEY_HEADER = "X-API-Key"
SECRET_MIN_CHARS = 4  # shorter ones would blot out half of every message

ResponseType = Literal["auto", "json", "text", "binary"]


class Plan(msgspec.Struct, kw_only=True):
    """One request to send. `guarded`: headers that must not follow a redirect to another origin."""

    method: str
    url: httpx.URL
    headers: httpx.Headers
    content: bytes | None
    timeout_s: float
    verify: bool
    follow_redirects: bool
    response_type: ResponseType
    guarded: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()

    def scrubbed(self, text: str) -> str:
        """Return `text` without any secret of this request."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


async def plan_of(call: Call) -> Plan:
    """Return the request that the task's fields describe.

    Errors: Invalid names the field, what was expected and what was found; NotFound for an unknown credential.
    """
    config = call.config
    method = str(config.get("method") or "GET").upper()
    if not method.isalpha():
        raise Invalid(f"method: expected an HTTP method, found {method!r}")
    headers = httpx.Headers(texts(config.get("headers"), "headers"))
    url = _url(config)
    secrets = {url.password} if url.password else set()
    plan = Plan(
        method=method,
        url=url,
        headers=headers,
        content=_content(config, headers),
        timeout_s=_timeout_s(call),
        verify=_flag(config, "verify_ssl", default=True),
        follow_redirects=_flag(config, "follow_redirects", default=True),
        response_type=_response_type(config),
        secrets=frozenset(secrets),
    )
    await _authorize(plan, call)
    headers.setdefault("User-Agent", "noetl")
    headers.setdefault("X-Noetl-Idempotency-Key", call.idempotency_key)
    if method != "GET":
        headers.setdefault("Idempotency-Key", call.idempotency_key)
    return plan


def texts(given: Any, field: str) -> dict[str, str]:
    """Return a mapping as HTTP wants it: null dropped, numbers and booleans as text, lists and mappings as JSON."""
    if given is None or given == "":
        return {}
    if not isinstance(given, Mapping):
        raise Invalid(f"{field}: expected a mapping, found {type(given).__name__}")
    return {str(name): v if isinstance(v, str) else json_text(v) for name, v in given.items() if v is not None}


def _url(config: Mapping[str, Any]) -> httpx.URL:
    given = config.get("url") or config.get("endpoint")
    if not isinstance(given, str):
        raise Invalid(
            f"url: expected a text (or `endpoint` with one), found {'nothing' if given is None else repr(given)}"[:300]
        )
    try:
        url = httpx.URL(given.strip())
        if url.scheme not in ("http", "https") or not url.host:
            raise Invalid(
                f"url: expected http:// or https:// and a host, found scheme {url.scheme!r}, host {url.host!r}"
            )
    except httpx.InvalidURL as exc:
        raise Invalid(f"url: expected a URL, found {str(given)[:200]!r}: {exc}") from exc
    params = texts(config.get("params"), "params")
    return url.copy_merge_params(params) if params else url


def _content(config: Mapping[str, Any], headers: httpx.Headers) -> bytes | None:
    """Return the body: `json` before `payload`, `data`, `body`, `form`; sets Content-Type when it is missing."""
    name = next((n for n in ("json", "payload", "data", "body", "form") if config.get(n) is not None), None)
    if name is None:
        return None
    value = config[name]
    wants_form = headers.get("Content-Type", "").lower().startswith(FORM)
    if name == "form" or (name == "data" and isinstance(value, Mapping) and wants_form):
        headers.setdefault("Content-Type", FORM)
        return str(httpx.QueryParams(texts(value, name))).encode()
    if isinstance(value, str) and name in ("data", "body"):
        return value.encode()
    headers.setdefault("Content-Type", "application/json")
    return json_text(value).encode()


async def _authorize(plan: Plan, call: Call) -> None:
    auth = call.config.get("auth") or call.config.get("credential")
    if not auth:
        return
    kind, fields = await _credential(auth, call)
    header, value = "Authorization", ""
    secret = _first(fields, "token", "access_token", "api_key", "key", "value", "password")
    if kind == "bearer":
        value = f"Bearer {secret}"
    elif kind == "basic":
        user, password = _first(fields, "username", "user"), _first(fields, "password")
        value = next(httpx.BasicAuth(user, password).auth_flow(_BLANK)).headers["Authorization"]
    elif kind == "api_key":
        name = str(fields.get("header") or fields.get("header_name") or fields.get("name") or API_KEY_HEADER)
        if str(fields.get("in") or fields.get("location") or "header") == "query":
            plan.url = plan.url.copy_merge_params({name: secret})
        else:
            header, value = name, str(fields.get("prefix") or "") + secret
    else:
        raise Invalid(f"auth: expected a credential of type bearer, basic or api_key, found {kind!r}")
    if not secret:
        raise Invalid(f"auth: expected a {kind} credential with a secret, found one without")
    if value:
        plan.headers.setdefault(header, value)
        plan.guarded = frozenset({header.lower()})
    found = {secret, value, value.partition(" ")[2], str(httpx.QueryParams({"x": secret}))[2:]}
    plan.secrets |= {text for text in found if len(text) >= SECRET_MIN_CHARS}


async def _credential(auth: Any, call: Call) -> tuple[str, Mapping[str, Any]]:
    """Return (type, fields) of an alias, of {type, credential: alias}, of fields given inline, or of {any: those}."""
    if isinstance(auth, Mapping) and len(auth) == 1 and isinstance(inner := next(iter(auth.values())), Mapping):
        auth = inner
    kind = ""
    if isinstance(auth, Mapping):
        kind = str(auth.get("type") or "")
        alias = auth.get("credential") or auth.get("alias")
        if not isinstance(alias, str):
            if not kind:
                raise Invalid(f"auth: expected a credential's name or a mapping with `type`, found keys {sorted(auth)}")
            return _kind(kind), auth
        auth = alias
    if not isinstance(auth, str):
        raise Invalid(f"auth: expected a credential's name or a mapping, found {type(auth).__name__}")
    record = await call.credential(auth)
    return _kind(kind or str(record.get("type") or "")), record.get("data") or {}


def _kind(name: str) -> str:
    plain = name.lower().replace("-", "_")
    return {"bearer_token": "bearer", "http_bearer": "bearer", "oauth2": "bearer", "apikey": "api_key"}.get(
        plain, plain
    )


def _first(fields: Mapping[str, Any], *names: str) -> str:
    return next((str(fields[name]) for name in names if fields.get(name) not in (None, "")), "")


def _timeout_s(call: Call) -> float:
    given = call.config.get("timeout", call.config.get("timeout_seconds"))
    timeout_s = TIMEOUT_DEFAULT_S if given in (None, "") else seconds_in(given, 0.0)
    if not timeout_s > 0:
        raise Invalid(f"timeout: expected seconds above 0, found {given!r}")
    return min(timeout_s, call.timeout_s)


def _flag(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    given = config.get(name)
    if given is None or given == "":
        return default
    text = str(given).strip().lower()
    if text not in ("true", "false", "1", "0", "yes", "no"):
        raise Invalid(f"{name}: expected true or false, found {given!r}")
    return text in ("true", "1", "yes")


def _response_type(config: Mapping[str, Any]) -> ResponseType:
    given = str(config.get("response_type") or "auto").lower()
    if given not in ("auto", "json", "text", "binary"):
        raise Invalid(f"response_type: expected json, text or binary, found {given!r}")
    return cast(ResponseType, given)


_BLANK = httpx.Request("GET", "http://blank.invalid/")

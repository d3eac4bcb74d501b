"""What each kind of keychain entry resolves to."""

import asyncio
import base64
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.db import json_text
from noetl_common.errors import Invalid, NotFound, Unavailable
from services.worker.tools import Call, Credential, http
from services.worker.tools.secret_sources import login_of, read_secret
from services.worker.tools.secret_stores import account_of

TOKENS_MAX = 1024
EXPIRY_MARGIN_S = 30.0  # a token is renewed this long before it runs out
LIFETIME_DEFAULT_S = 300.0
ENDPOINT_TIMEOUT_S = 30.0
GOOGLE_TOKEN_URL = "https://oauth2.googleapis.com/token"
GOOGLE_LIFETIME_S = 3600
JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Tokens:
    """Tokens of token endpoints until they run out, by all that was asked: in memory only."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._held: dict[str, tuple[float, dict[str, Any]]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, key: str) -> asyncio.Lock:
        """Return the lock of those who ask for one token: the first asks the endpoint, the others take its answer."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    def get(self, key: str) -> dict[str, Any] | None:
        """Return a token that is good for some time yet."""
        until, token = self._held.get(key, (0.0, {}))
        return token if until > self._now() else None

    def put(self, key: str, token: dict[str, Any]) -> None:
        """Keep a token as long as it says it is good."""
        lifetime_s = token.get("expires_in")
        try:
            lifetime_s = float(LIFETIME_DEFAULT_S if lifetime_s is None else lifetime_s)
        except (TypeError, ValueError):
            lifetime_s = 0.0
        if len(self._held) >= TOKENS_MAX:
            self._held.clear()
        self._held[key] = (self._now() + lifetime_s - EXPIRY_MARGIN_S, token)


class Source(msgspec.Struct, kw_only=True):
    """Where entries are resolved: the credentials of the catalog, the tokens held, the execution that asks.

    `is_retry`: the call before failed, perhaps for its token, so a new one is asked for.
    """

    credential: Credential
    tokens: Tokens
    execution_id: int
    is_retry: bool = False


Resolve = Callable[[dict[str, Any], Source], Awaitable[Any]]


def _kind(value: Any) -> str:
    # Only what it is: the value itself may be the secret.
    return "nothing" if value is None else type(value).__name__ if value else f"an empty {type(value).__name__}"


async def _static(fields: dict[str, Any], source: Source) -> Any:
    given = fields.get("map", fields.get("value"))
    if not isinstance(given, dict):
        raise Invalid(f"map: expected a mapping, found {_kind(given)}")
    return given


async def _bearer(fields: dict[str, Any], source: Source) -> Any:
    token = fields.get("token")
    if not isinstance(token, str) or not token:
        raise Invalid("token: expected a text, found nothing")
    return {"token": token, "access_token": token, "token_type": "Bearer"}


async def _credential(fields: dict[str, Any], source: Source) -> Any:
    alias = next((fields[name] for name in ("credential", "ref", "auth") if fields.get(name)), None)
    if not isinstance(alias, str):
        raise Invalid(f"credential: expected the name of a registered credential, found {_kind(alias)}")
    return dict((await source.credential(alias)).get("data") or {})


async def _secrets(fields: dict[str, Any], source: Source) -> Any:
    wanted = fields.get("map")
    if not isinstance(wanted, dict) or not wanted:
        raise Invalid(f"map: expected {{key: name of a secret}}, found {_kind(wanted)}")
    provider, login = fields.get("provider"), await login_of(fields, source.credential)
    return {str(key): await read_secret(provider, name, login) for key, name in wanted.items()}


async def _oauth2(fields: dict[str, Any], source: Source) -> Any:
    endpoint = fields.get("endpoint") or fields.get("token_url") or fields.get("url")
    if not isinstance(endpoint, str) or not endpoint:
        raise Invalid("endpoint: expected the URL of a token endpoint, found none")
    names = ("headers", "data", "json", "params", "auth", "verify_ssl")
    asked = {name: fields[name] for name in names if fields.get(name) is not None}
    config = {**asked, "url": endpoint, "method": str(fields.get("method") or "POST"), "response_type": "json"}
    if "data" in config and not config.get("headers"):
        config["headers"] = {"Content-Type": "application/x-www-form-urlencoded"}
    own = source.execution_id if str(fields.get("scope") or "").lower() in ("local", "execution") else 0
    key = hashlib.sha256(f"{own} {json_text(config)}".encode()).hexdigest()
    async with source.tokens.lock(key):
        held = None if source.is_retry else source.tokens.get(key)
        if held is None:
            held = await _asked(config, source)
            source.tokens.put(key, held)
        return held


async def _google_id_token(fields: dict[str, Any], source: Source) -> Any:
    audience = fields.get("target_audience") or fields.get("audience")
    if not isinstance(audience, str) or not audience:
        raise Invalid("target_audience: expected the URL that the token is for, found nothing")
    account = await _service_account(fields, source)
    endpoint = str(account.get("token_uri") or GOOGLE_TOKEN_URL)
    key = hashlib.sha256(f"{endpoint} {account['client_email']} {audience}".encode()).hexdigest()
    async with source.tokens.lock(key):
        held = None if source.is_retry else source.tokens.get(key)
        if held is None:
            grant = {"grant_type": JWT_GRANT, "assertion": _assertion(account, endpoint, audience)}
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            given = await _asked({"url": endpoint, "method": "POST", "data": grant, "headers": form}, source)
            if not isinstance(given.get("id_token"), str):
                raise Invalid(f"expected an id_token of the token endpoint, found {', '.join(sorted(given))}")
            held = {"id_token": given["id_token"], "token_type": "Bearer", "audience": audience}
            source.tokens.put(key, {**held, "expires_in": GOOGLE_LIFETIME_S})
        return {name: held[name] for name in ("id_token", "token_type", "audience")}


async def _service_account(fields: dict[str, Any], source: Source) -> dict[str, Any]:
    """Return the key of the service account that a credential or a secret of Google Secret Manager holds."""
    if secret := fields.get("service_account_secret"):
        text = await read_secret("gcp", secret, await login_of(fields, source.credential))
        account = account_of({"service_account_json": text})
    else:
        alias = fields.get("service_account_credential") or fields.get("auth") or fields.get("credential")
        if not isinstance(alias, str):
            raise Invalid("auth: expected the name of a credential that holds a service account's key, found none")
        account = account_of(dict((await source.credential(alias)).get("data") or {}))
    if account is None:
        raise Invalid("auth: expected a credential with service_account_json, found another")
    return account


def _assertion(account: dict[str, Any], endpoint: str, audience: str) -> str:
    """Return the JWT by which a service account asks for a token, signed with its key."""
    now = int(time.time())
    lifetime = {"iat": now, "exp": now + GOOGLE_LIFETIME_S}
    claims = {"iss": account["client_email"], "sub": account["client_email"], "aud": endpoint, **lifetime}
    head = {"alg": "RS256", "typ": "JWT", "kid": account.get("private_key_id")}
    signed = f"{_base64url(head)}.{_base64url({**claims, 'target_audience': audience})}"
    try:
        key = serialization.load_pem_private_key(str(account["private_key"]).encode(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise Invalid("private_key: expected an RSA key in PEM in the service account's key, found none")
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _base64url(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json_text(value).encode()).decode().rstrip("=")


KINDS: dict[str, Resolve] = {
    "static": _static,
    "bearer": _bearer,
    "credential": _credential,
    "secrets": _secrets,
    "secret_manager": _secrets,
    "oauth2": _oauth2,
    "google_id_token": _google_id_token,
}


async def _asked(config: dict[str, Any], source: Source) -> dict[str, Any]:
    # By the http tool, so that a token endpoint is no way round the addresses that are closed to tools.
    outcome = await http.run(
        Call(
            kind="http",
            label="keychain",
            step="keychain",
            execution_id=source.execution_id,
            scope=Scope(load=_nothing, workload=Value({}), ctx={}, results={}),
            credential=source.credential,
            config=config,
            timeout_s=ENDPOINT_TIMEOUT_S,
        )
    )
    if not outcome.ok:
        error = outcome.error or {}
        text = f"endpoint: expected a token, found: {error.get('message')}"
        raise Unavailable(text) if error.get("retryable") else Invalid(text)
    token = outcome.data["data"]
    if not isinstance(token, dict) or not token:
        raise Invalid(f"endpoint: expected a token as a JSON object, found {type(token).__name__}")
    return token


def _nothing(ref: Any, key: str | None) -> Any:
    raise NotFound("a token endpoint reads no results")

"""Who may call what: bearer tokens with scopes, or nobody asked on a loopback address."""

import functools
import hashlib
import ipaddress
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from noetl_common.errors import ConfigError, Unauthorized

Permission = Literal["read", "write", "worker", "admin"]
TOKEN_CHARACTERS_MIN = 16


class Guard:
    """Decides whether a request's token carries a scope that its endpoint asks for.

    `local_only`: without tokens, on a loopback address. Any web page that is open on this machine could reach it then,
    so what a browser sends for another site is refused.
    """

    def __init__(self, tokens: Mapping[str, list[Permission]] | None, *, local_only: bool = False) -> None:
        self._local_only = local_only
        # By digest: comparing secrets byte by byte would tell how much of one was right.
        self._permissions = None if tokens is None else {_digest(token): frozenset(of) for token, of in tokens.items()}

    def check(self, authorization: str, wanted: tuple[Permission, ...]) -> None:
        """Return if one of the `wanted` scopes is granted; admin has them all.

        Errors: Unauthorized, 401 without a known token, 403 with one that lacks the scope.
        """
        if self._permissions is None or not wanted:
            return
        scheme, _, token = authorization.partition(" ")
        granted = self._permissions.get(_digest(token.strip())) if scheme.lower() == "bearer" else None
        if granted is None:
            raise Unauthorized("expected a known bearer token in the Authorization header, found another or none")
        if "admin" not in granted and not granted.intersection(wanted):
            found = ", ".join(sorted(granted)) or "none"
            raise Unauthorized(f"expected a token with the scope {' or '.join(wanted)}, found {found}", status=403)

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Return unless a browser asks for the sake of another site, by its Origin or a name bound to this address.

        Errors: Unauthorized, 403.
        """
        if not self._local_only:
            return
        for name, given in (("Host", f"//{headers.get('host', '')}"), ("Origin", headers.get("origin", "//"))):
            if given != "//" and not _names_loopback(given):
                found = given.removeprefix("//")[:100]
                raise Unauthorized(
                    f"{name}: expected this machine while NOETL_AUTH is none, found {found!r}", status=403
                )


def guard_of(*, auth: str, tokens: str, host: str, insecure_bind: bool) -> Guard:
    """Return the guard that the settings ask for.

    Errors: ConfigError when tokens are wanted and missing or malformed, or when nothing guards an address that
    others can reach.
    """
    if auth == "token":
        return Guard(_parsed(tokens))
    if not insecure_bind and not is_loopback(host):
        raise ConfigError(
            f"NOETL_HOST: expected a loopback address while NOETL_AUTH is none, found {host!r};"
            " set NOETL_AUTH=token, or NOETL_INSECURE_BIND=true where something else guards the network"
        )
    return Guard(None, local_only=not insecure_bind)


def is_loopback(host: str) -> bool:
    """Return True when only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@functools.lru_cache(maxsize=64)
def _names_loopback(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _parsed(text: str) -> dict[str, list[Permission]]:
    expected = 'expected {"<token>": ["read", "write", "worker", "admin"], ...}'
    if not text:
        raise ConfigError(f"NOETL_AUTH_TOKENS: {expected} because NOETL_AUTH is token, found nothing")
    try:
        tokens = msgspec.json.decode(text.encode(), type=dict[str, list[Permission]])
    except msgspec.MsgspecError as exc:
        raise ConfigError(f"NOETL_AUTH_TOKENS: {expected}, found something else") from exc
    if not tokens or any(len(token) < TOKEN_CHARACTERS_MIN for token in tokens):
        raise ConfigError(f"NOETL_AUTH_TOKENS: expected tokens of at least {TOKEN_CHARACTERS_MIN} characters")
    return tokens


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()

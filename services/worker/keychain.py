"""The keychain of a command: secrets found when a template of a tool's fields reads them, and kept nowhere."""

import base64
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote, urlsplit

from noetl_common.core.scope import Scope
from noetl_common.core.templates import render
from noetl_common.core.views import LazyMapping, View
from noetl_common.errors import Invalid, NoetlError, NotFound, Unavailable
from noetl_common.log import HIDDEN, redact
from services.worker.keychain_kinds import KINDS, Source

SECRET_CHARS_MIN = 4  # shorter values are words, not secrets
WITHIN_CHARS_MIN = 8  # shorter ones are hidden in results where they stand alone: inside a text they may be chance
WORDS = frozenset(("true", "false", "none", "null"))

T = TypeVar("T")


class NeedSecret(Exception):
    """A template read an entry that is not resolved: resolve it and render again. Not a failure, so no NoetlError."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        super().__init__(alias)


class Concealed:
    """The secrets that one command has used, and how to take them out of what is told about it."""

    def __init__(self) -> None:
        self._alone: set[str] = set()
        self._within: set[str] = set()

    def add(self, value: Any) -> None:
        """Hide every text in `value` from now on, in logs too."""
        if isinstance(value, dict):
            for part in value.values():
                self.add(part)
        elif isinstance(value, list | tuple):
            for part in value:
                self.add(part)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.add(str(value))  # a password of digits is a number in YAML
        elif isinstance(value, str) and len(value) >= SECRET_CHARS_MIN and value.lower() not in WORDS:
            if value in self._alone:
                return
            self._alone.add(value)
            redact(value)
            if len(value) >= WITHIN_CHARS_MIN:
                self._within.update(_spellings(value))
            self.add(_password_in(value))

    def without(self, value: Any) -> Any:
        """Return JSON data with `***` wherever a secret stood; the same data when nothing was used."""
        return self._hidden(value) if self._alone else value

    def message(self, text: str) -> str:
        """Return a message for people without any secret, short ones included."""
        for secret in sorted(self._alone | self._within, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {self._text(str(name)): self._hidden(part) for name, part in value.items()}
        if isinstance(value, int | float) and not isinstance(value, bool):
            return HIDDEN if str(value) in self._alone else value
        return [self._hidden(part) for part in value] if isinstance(value, list | tuple) else value

    def _text(self, text: str) -> str:
        if text in self._alone:
            return HIDDEN
        for secret in sorted((s for s in self._within if s in text), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


class Keychain:
    """The declared entries as templates see them: `keychain.<alias>.<field>`.

    Entries are templates too, over what the step sees and the entries above them.
    """

    def __init__(self, entries: tuple[dict[str, Any], ...], source: Source, concealed: Concealed) -> None:
        self._entries = {str(entry["name"]): (place, entry) for place, entry in enumerate(entries)}
        self._source = source
        self._concealed = concealed
        self._found: dict[str, Any] = {}

    def view(self, before: int | None = None) -> LazyMapping:
        """Return what the name `keychain` stands for; with `before`, for the entry at that place."""
        names = [name for name, (place, _) in self._entries.items() if before is None or place < before]

        def read(alias: str) -> Any:
            if alias not in names:
                declared = ", ".join(names) or "none"
                raise NotFound(f"keychain: no entry {alias!r} to resolve; declared here: {declared}")
            if alias not in self._found:
                raise NeedSecret(alias)
            return self._found[alias]

        return LazyMapping(lambda: names, read)

    async def filled(
        self, make: Callable[[], Awaitable[T]], scope: Scope, *, settled: "Settled", attempt: int = 1
    ) -> T:
        """Return what `make` returns, called again each time an entry that it missed has been resolved.

        Errors: those of `make`; NotFound, Unavailable and Invalid that name the alias.
        """
        self._found.clear()  # a token may have run out since the call before; one that is good is still held
        self._source.is_retry = attempt > 1
        return await self._rounds(make, scope, settled)

    async def _rounds(self, make: Callable[[], Awaitable[T]], scope: Scope, settled: "Settled") -> T:
        while True:
            try:
                return await make()
            except NeedSecret as exc:
                await self._resolve(exc.alias, scope, settled)

    async def _resolve(self, alias: str, scope: Scope, settled: "Settled") -> None:
        place, entry = self._entries[alias]
        where = f"keychain.{alias}"
        seen = scope.extended(locals={"keychain": self.view(before=place)})

        async def rendered() -> Any:
            return await settled(lambda: render(entry, seen, where=where))

        fields = await self._rounds(rendered, scope, settled)
        kind = str(fields.get("kind") or "").lower()
        resolve = KINDS.get(kind)
        if resolve is None:
            raise Invalid(f"{where}: kind: expected one of {', '.join(sorted(KINDS))}, found {kind!r}")
        # What an entry is made of is as secret as what it gives: a client's secret, a login.
        for name in ("token", "data", "json", "params", "headers"):
            self._concealed.add(_secret_parts(fields.get(name)))
        try:
            found = await resolve(fields, self._source)
        except NoetlError as exc:
            error = next((known for known in (NotFound, Unavailable) if isinstance(exc, known)), Invalid)
            raise error(f"{where}: {self._concealed.message(str(exc))}") from None
        if kind == "oauth2":
            self._concealed.add({name: part for name, part in found.items() if SECRET_NAME.search(name.lower())})
        else:
            self._concealed.add(found if kind == "secrets" else _secret_parts(found))
        self._found[alias] = _Token(alias, found) if kind == "bearer" else _Entry(alias, found)


Settled = Callable[[Callable[[], Any]], Awaitable[Any]]


class _Token(View):
    """One resolved token: the text itself, and under the names it goes by."""

    def __init__(self, alias: str, fields: dict[str, Any]) -> None:
        self._fields = _Entry(alias, fields)

    def unwrap(self) -> Any:
        """Return the token."""
        return self._fields.member("token")

    def member(self, name: str) -> Any:
        """Return the token under one of its names."""
        return self._fields.member(name)


class _Entry(LazyMapping):
    """One resolved entry: a field that it lacks is an error, never an empty text in a request."""

    def __init__(self, alias: str, fields: dict[str, Any]) -> None:
        def read(name: str) -> Any:
            if name not in fields:
                raise NotFound(f"keychain.{alias}: no field {name!r}; it has {', '.join(sorted(fields)) or 'none'}")
            return fields[name]

        super().__init__(lambda: list(fields), read)


SECRET_NAME = re.compile(r"token(?!_type)|secret|password|key|jwt|assertion|cookie")
PUBLIC_FIELDS = frozenset(
    (
        *("token_type", "type", "scope", "grant_type", "audience", "expires_in", "host", "hostname", "port", "db_host"),
        *("db_port", "db_name", "database", "dbname", "schema", "sslmode", "region", "content-type"),
        *("accept", "user", "username", "db_user"),
    )
)


def _secret_parts(fields: Any) -> Any:
    """Return what of an entry is secret: all but the fields that only say where and how."""
    if not isinstance(fields, dict):
        return fields
    return {name: part for name, part in fields.items() if str(name).lower() not in PUBLIC_FIELDS}


def _password_in(value: str) -> str | None:
    """Return the password of a connection string."""
    try:
        found = urlsplit(value).password if "://" in value and "@" in value else None
    except ValueError:
        return None
    return unquote(found) if found else None


def _spellings(value: str) -> set[str]:
    """Return how a text looks as it is, in JSON, in a URL, in base64 and in hexadecimal."""
    raw = value.encode(errors="replace")
    coded = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(raw), quote_plus(raw)}
    return {value, *coded, base64.b64encode(raw).decode().rstrip("="), raw.hex()}

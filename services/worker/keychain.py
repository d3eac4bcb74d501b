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
from noetl_common.wire import encoded
from services.worker.keychain_kinds import KINDS, Source

SECRET_CHARS_MIN = 4  # shorter values are words, not secrets
WITHIN_CHARS_MIN = 8  # shorter ones are hidden in results where they stand alone: inside a text they may be chance
LINE_CHARS_MIN = 16  # a line of a key in several lines tells as much as the key
CUT_MARK = "\n[truncated: "  # where the output of a program was cut: perhaps in the middle of a secret
ESCAPED = "\"'/\\"  # what JSON and Python write with a backslash, more of them the deeper it is nested
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
        self._escaped: dict[str, re.Pattern[str]] = {}

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
                if any(char in ESCAPED for char in value):
                    self._escaped[value] = re.compile("".join(map(_escaped, value)))
            self.add(_password_in(value))
            self.add(_parts_in(value))

    def add_credential(self, data: Any) -> None:
        """Hide what of a registered credential is secret by its name; a password that is the user's name is not."""
        if isinstance(data, dict):
            texts = {name: part for name, part in data.items() if isinstance(part, str)}
            public = {part for name, part in texts.items() if name.lower() in PUBLIC_FIELDS}
            for name, part in texts.items():
                if SECRET_NAME.search(name.lower()) or name.lower() == "value":
                    self.add(part if len(part) >= WITHIN_CHARS_MIN and part not in public else None)
                else:
                    self.add(_password_in(part))

    def without(self, value: Any) -> Any:
        """Return JSON data with `***` wherever a secret stood; the same data when nothing was used."""
        return self._hidden(value) if self._alone else value

    @property
    def count(self) -> int:
        """How many texts are hidden by now."""
        return len(self._alone)

    def may_touch(self, text: str) -> bool:
        """Return False when `without` would change nothing of the data that JSON `text` says."""
        marks = self._alone | self._within | {CUT_MARK}
        if any(mark in text or encoded(mark)[1:-1].decode() in text for mark in marks):
            return True
        return "\\" in text and any(pattern.search(text) for pattern in self._escaped.values())

    def message(self, text: str) -> str:
        """Return a message for people without any secret, short ones included."""
        for secret in sorted(self._alone | self._within, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return self._text(text)

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
        if "\\" in text:
            for pattern in self._escaped.values():
                text = pattern.sub(HIDDEN, text)
        cut = text.rfind(CUT_MARK)
        return text if cut < 0 else self._without_beginning(text[:cut]) + text[cut:]

    def _without_beginning(self, text: str) -> str:
        """Return a text without the beginning of a secret at its end."""
        for secret in self._within:
            for length in range(min(len(secret), len(text)) - 1, SECRET_CHARS_MIN - 1, -1):
                if text.endswith(secret[:length]):
                    return text[:-length] + HIDDEN
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
                raise NotFound(f"keychain: expected one of the entries {declared}, found no entry {alias!r}")
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
                known = ", ".join(sorted(fields)) or "none"
                raise NotFound(f"keychain.{alias}: expected one of the fields {known}, found no field {name!r}")
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


def _parts_in(value: str) -> list[Any]:
    """Return what tells as much as the whole: the lines of a key, the secret fields of a JSON text."""
    parts: list[Any] = []
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        parts += [line for line in lines if len(line) >= LINE_CHARS_MIN and not line.startswith("-----")]
    if value.lstrip().startswith("{"):
        try:
            fields = json.loads(value)
        except ValueError:
            return parts
        parts += [part for name, part in fields.items() if SECRET_NAME.search(name.lower())]
    return parts


def _escaped(char: str) -> str:
    """Return the pattern of one character behind any number of backslashes."""
    return r"\\+" if char == "\\" else (r"\\*" if char in ESCAPED else "") + re.escape(char)


def _spellings(value: str) -> set[str]:
    """Return how a text looks as it is, in JSON, in Python, in a URL, in base64 and in hexadecimal."""
    raw = value.encode(errors="replace")
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    found = {value, repr(value)[1:-1], raw.hex(), raw.hex().upper(), *in_json}
    found |= {quote(raw), quote_plus(raw), quote(raw, safe="")}
    for before in range(3):  # in base64 the same bytes look different after none, one or two others
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # The characters at the edges hold bits of the neighbours too.
        coded = coded[-(-before * 8 // 6) : len(coded) - ((before + len(raw)) % 3 > 0)]
        if len(coded) >= WITHIN_CHARS_MIN:
            found |= {coded, coded.replace("+", "-").replace("/", "_")}
    found.add(base64.b64encode(raw).decode().rstrip("="))
    return found

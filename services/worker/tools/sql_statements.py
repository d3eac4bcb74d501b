"""Cut a SQL script into statements, and its placeholders into bound parameters, by Postgres' own lexical rules.

Understood: '...' with '' inside, E'...' with backslashes, "identifiers", $tag$...$tag$, -- and nested /* */
comments, parentheses, BEGIN ATOMIC bodies. `standard_conforming_strings` is taken to be on, as it is by default.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from noetl_common.errors import Invalid

WORDS_MAX = 16
TOKEN = re.compile(
    r"""
      (?P<space>\s++)
    | (?P<comment>--[^\n\r]*+)
    | (?P<block>/\*)
    | (?P<escaped>[eE]'(?:[^'\\]++|\\.|'')*+'(?:[ \t\f\v]*[\r\n]\s*'(?:[^'\\]++|\\.|'')*+')*)
    | (?P<open_escaped>[eE]')
    | (?P<string>'(?:[^']++|'')*+')
    | (?P<open_string>')
    | (?P<quoted>"(?:[^"]++|"")*+")
    | (?P<open_quoted>")
    | (?P<dollar>\$(?:[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*+)?\$)
    | (?P<numbered>\$\d++)
    | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*+)
    | (?P<number>\d[0-9A-Za-z_.]*+)
    | (?P<named>%\([A-Za-z_]\w*\)s)
    | (?P<next>%s(?!\w))
    | (?P<percent>%%)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
BLOCK_EDGE = re.compile(r"/\*|\*/")
JSON_CAST = re.compile(r"\s*::\s*jsonb?\b(?!\s*\[)", re.IGNORECASE)
UNTERMINATED = {
    "open_escaped": "string",
    "open_string": "string",
    "open_quoted": "quoted identifier",
    "block": "/* comment",
    "dollar": "dollar-quoted string",
}
# First words of what Postgres refuses inside a transaction block, or of what manages transactions itself.
ALONE = frozenset({"VACUUM", "REINDEX", "BEGIN", "COMMIT", "END", "ABORT"})
ALONE_PAIRS = frozenset(
    {
        *((verb, what) for verb in ("CREATE", "DROP") for what in ("DATABASE", "TABLESPACE", "SUBSCRIPTION")),
        ("ALTER", "SYSTEM"),
        ("DISCARD", "ALL"),
        ("START", "TRANSACTION"),
        ("PREPARE", "TRANSACTION"),
    }
)
CONCURRENT_VERBS = frozenset({"CREATE", "DROP", "ALTER"})


class Statement(msgspec.Struct, frozen=True):
    """One statement without its semicolon; `words` its first keywords outside parentheses, upper case."""

    text: str
    words: tuple[str, ...]
    start: int  # where it begins in the script

    @property
    def runs_alone(self) -> bool:
        """True when it cannot stand inside a transaction block, or begins or ends one itself."""
        first, *rest = self.words or ("",)
        if first == "ROLLBACK":
            return "TO" not in rest[:2]
        if first in ALONE or self.words[:2] in ALONE_PAIRS or self.words == ("CLUSTER",):
            return True
        return first in CONCURRENT_VERBS and "CONCURRENTLY" in rest


class Token(NamedTuple):
    """A lexical element and where it stands."""

    kind: str
    text: str
    start: int


class Parameter(NamedTuple):
    """A value to bind; `is_json` when the placeholder is cast to json or jsonb."""

    value: Any
    is_json: bool


def split(script: str) -> list[Statement]:
    """Return the statements of `script` in order; empty ones and lone comments are left out.

    Errors: Invalid names the line where an unterminated string, identifier or comment begins.
    """
    statements: list[Statement] = []
    draft = _Draft()
    for token in tokens(script):
        if token.kind == "other" and token.text == ";" and draft.is_top_level:
            draft.finish(script, token.start, statements)
            draft = _Draft()
        elif token.kind not in ("space", "comment"):
            draft.take(token)
    draft.finish(script, len(script), statements)
    return statements


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of `text`; joined they are `text` again.

    Errors: Invalid as for `split`.
    """
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        assert match is not None and match.lastgroup is not None, "the last alternative matches any character"
        kind, end = match.lastgroup, match.end()
        if kind == "block":
            kind, end = "comment", _end_of_block(text, end)
        elif kind == "dollar":
            kind, end = "string", _end_of_dollar_string(text, end, match.group())
        if end == 0 or kind.startswith("open_"):
            line = text.count("\n", 0, position) + 1
            what = UNTERMINATED[match.lastgroup]
            raise Invalid(f"SQL: expected the end of the {what} that begins in line {line}, found the end of the text")
        yield Token(kind, text[position:end], position)
        position = end


def bind_all(
    statements: Sequence["Statement"],
    params: Any,
    *,
    value: Callable[["Parameter"], Any],
    spelled: Callable[[str], str] = str,
) -> list[tuple[str, list[Any]]]:
    """Return each statement with placeholders $1, $2, ... and what `params` binds to them.

    `value` says what the driver gets for a parameter; `spelled` brings a dialect's own placeholders into ours.
    Errors: Invalid, also for a parameter that no placeholder names.
    """
    if params is None or params == [] or params == {}:
        return [(statement.text, []) for statement in statements]
    if not isinstance(params, list | dict):
        raise Invalid(f"params: expected a list or a mapping, found {type(params).__name__}")
    binder = Binder(params)
    queries = []
    for statement in statements:
        text, values = binder.bind(spelled(statement.text))
        queries.append((text, [value(parameter) for parameter in values]))
    binder.check_all_used()
    return queries


class Binder:
    """Turn the placeholders of a script's statements into $1.. with the values they name.

    `$n` names the nth parameter; `%s` the next one, counted through the whole script; `%(name)s` one of a
    mapping. With a percent placeholder in use, `%%` outside quotes means `%`. Nothing inside quotes is touched.
    """

    def __init__(self, params: Sequence[Any] | Mapping[str, Any]) -> None:
        self._params = params
        self._used: set[int | str] = set()
        self._next = 0

    def bind(self, text: str) -> tuple[str, list[Parameter]]:
        """Return `text` with its placeholders numbered from $1, and the value of each number.

        Errors: Invalid for a placeholder without a parameter.
        """
        parts: list[str] = []
        bound: list[Parameter] = []
        numbers: dict[tuple[int | str, bool], int] = {}
        found = list(tokens(text))
        percent_style = not any(token.kind == "numbered" for token in found)
        for token in found:
            key = self._key(token, percent_style=percent_style)
            if key is None:
                parts.append("%" if token.kind == "percent" and percent_style else token.text)
                continue
            is_json = JSON_CAST.match(text, token.start + len(token.text)) is not None
            number = numbers.setdefault((key, is_json), len(numbers) + 1)
            if number > len(bound):
                bound.append(Parameter(self._value(key), is_json))
            parts.append(f"${number}")
        return "".join(parts), bound

    def check_all_used(self) -> None:
        """Do nothing when each of a list of parameters was bound.

        Errors: Invalid says how many were expected and found; a mapping may hold more than the script names.
        """
        if not isinstance(self._params, Mapping) and len(self._used) < len(self._params):
            raise Invalid(
                f"params: expected {len(self._used)}, as many as there are placeholders, found {len(self._params)}"
            )

    def _key(self, token: Token, *, percent_style: bool) -> int | str | None:
        if token.kind == "numbered":
            return int(token.text[1:]) - 1
        if percent_style and token.kind == "named":
            return token.text[2:-2]
        if percent_style and token.kind == "next":
            self._next += 1
            return self._next - 1
        return None

    def _value(self, key: int | str) -> Any:
        if isinstance(self._params, Mapping):
            if not isinstance(key, str):
                raise Invalid("params: expected a list for the placeholders %s and $1, found a mapping")
            if key not in self._params:
                raise Invalid(f"params: expected a value named {key!r}, found {sorted(self._params)}")
            self._used.add(key)
            return self._params[key]
        if isinstance(key, str):
            raise Invalid(f"params: expected a mapping for the placeholder %({key})s, found a list")
        if not 0 <= key < len(self._params):
            raise Invalid(f"params: expected at least {key + 1} for the placeholders used, found {len(self._params)}")
        self._used.add(key)
        return self._params[key]


class _Draft:
    """The statement being read: where it began, how deep in parentheses and BEGIN ATOMIC bodies we stand."""

    def __init__(self) -> None:
        self._start = -1
        self._words: list[str] = []
        self._last_word = ""
        self._parens = 0
        self._bodies = 0

    @property
    def is_top_level(self) -> bool:
        return self._parens <= 0 and self._bodies == 0

    def take(self, token: Token) -> None:
        if self._start < 0:
            self._start = token.start
        if token.kind == "word":
            self._take_word(token.text.upper())
            return
        self._last_word = ""
        if token.kind == "other":
            self._parens += {"(": 1, ")": -1}.get(token.text, 0)

    def finish(self, script: str, end: int, statements: list[Statement]) -> None:
        if self._start >= 0:
            statements.append(Statement(script[self._start : end].rstrip(), tuple(self._words), self._start))

    def _take_word(self, word: str) -> None:
        if self._parens <= 0:
            if len(self._words) < WORDS_MAX:
                self._words.append(word)
            if word == "ATOMIC" and self._last_word == "BEGIN" and self._makes_routine:
                self._bodies += 1
            elif word == "CASE" and self._bodies:
                self._bodies += 1  # CASE ends with END too
            elif word == "END" and self._bodies:
                self._bodies -= 1
        self._last_word = word

    @property
    def _makes_routine(self) -> bool:
        return self._words[:1] == ["CREATE"] and not {"FUNCTION", "PROCEDURE"}.isdisjoint(self._words[1:4])


def _end_of_block(text: str, position: int) -> int:
    """Return where the comment that was opened before `position` ends, 0 when it does not."""
    depth = 1
    for edge in BLOCK_EDGE.finditer(text, position):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return 0


def _end_of_dollar_string(text: str, position: int, tag: str) -> int:
    """Return where the string whose body starts at `position` ends, 0 when it does not."""
    closing = text.find(tag, position)
    return closing + len(tag) if closing >= 0 else 0

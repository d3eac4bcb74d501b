"""YAML with positions: a document as plain JSON types, and the line and column of every part of it."""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import yaml

from noetl_common.core.playbook import Finding
from noetl_common.errors import PlaybookError

DOCUMENT_BYTES_MAX = 1_048_576
NESTING_MAX = 64
PARTS_MAX = 100_000  # values, with those an alias repeats
PROBLEMS_MAX = 100
SHOWN_CHARS_MAX = 60  # of a line that is no YAML

Path = tuple[str | int, ...]


class Position(NamedTuple):
    """A place in the text, counted from 1."""

    line: int
    column: int


_START = Position(1, 1)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A document read: its value, where each part stands, and what was wrong without hindering the reading."""

    value: Any
    positions: dict[Path, Position]
    problems: list[tuple[Path, Finding]]

    def position(self, path: Path) -> Position:
        """Return where the part stands, or the nearest part round it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.positions:
                return self.positions[path[:end]]
        return _START


def read(text: str) -> Source:
    """Return the one document in the text.

    Errors: PlaybookError with line and column when it is no YAML, has no or several documents, or exceeds a limit.
    """
    size = len(text.encode("utf-8", "replace"))
    if size > DOCUMENT_BYTES_MAX:
        raise _refused(f"expected a document of at most {DOCUMENT_BYTES_MAX} bytes, found {size}")
    try:
        return _Reader(yaml.parse(text, Loader=_LOADER)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.problem, error.context) if part)
        raise _refused(_not_yaml(text, _position(mark), what), _position(mark)) from error
    except yaml.YAMLError as error:
        position = _reader_position(text, error)
        raise _refused(_not_yaml(text, position, str(error).splitlines()[0]), position) from error


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_TRUE = re.compile(r"(?:yes|Yes|YES|true|True|TRUE|on|On|ON)\Z")
_FALSE = re.compile(r"(?:no|No|NO|false|False|FALSE|off|Off|OFF)\Z")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z")
_OTHER_INT = re.compile(r"([-+]?)(0x[0-9a-fA-F_]+|0o?[0-7_]+|0b[01_]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z")
_TEXT_TAG = "tag:yaml.org,2002:str"
_PLAIN_TAGS = {
    f"tag:yaml.org,2002:{name}": name for name in ("str", "int", "float", "bool", "null", "map", "seq", "merge")
}
_NUMBER_MAX = 2**63


class _Anchored(NamedTuple):
    value: Any
    parts: int


class _Reader:
    """Builds values from parser events, so that limits hold before anything is built."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._positions: dict[Path, Position] = {}
        self._problems: list[tuple[Path, Finding]] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._parts = 0

    def document(self) -> Source:
        """Return the document; there must be exactly one."""
        value: Any = None
        seen = False
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if seen:
                    raise _refused("expected one document, found another", _position(event.start_mark))
                seen = True
                value = self._node(next(self._events), (), 0)
        if not seen or value is None:
            raise _refused("expected a document, found nothing: the text is empty")
        return Source(value=value, positions=self._positions, problems=self._problems)

    def _node(self, event: Any, path: Path, depth: int) -> Any:
        position = _position(event.start_mark)
        self._positions[path] = position
        self._count(1, position)
        if depth > NESTING_MAX:
            raise _refused(f"expected at most {NESTING_MAX} levels, found a part nested deeper", position)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), position)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        before = self._parts
        value = self._value(event, path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, self._parts - before + 1)
        return value

    def _value(self, event: Any, path: Path, depth: int) -> Any:
        tag = event.tag
        if tag is not None and tag != "!" and tag not in _PLAIN_TAGS:
            message = f"expected a plain value, found the tag {tag!r}, which is not allowed"
            self._problem(message, _position(event.start_mark), path)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(item, (*path, len(items)), depth + 1))
            return items
        return self._mapping(path, depth)

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merges: list[Any] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            position = _position(event.start_mark)
            if not isinstance(event, yaml.ScalarEvent):
                self._skip(event, path, depth)
                self._skip(next(self._events), path, depth)
                found_here = "a list" if isinstance(event, yaml.SequenceStartEvent) else "a mapping or an alias"
                message = f"expected a text as the key, found {found_here}"
                self._problem(message, position, path, hint="a template needs quotes: '{{ name }}'")
                continue
            key = event.value
            value = self._node(next(self._events), (*path, key), depth + 1)
            if key == "<<" and event.implicit[0]:
                merges.append((value, position))
            elif key in found:
                message = f"expected each key once in a mapping, found {key!r} again"
                self._problem(message, position, (*path, key))
            else:
                found[key] = value
                self._positions[(*path, key)] = position
        return self._merged(found, merges, path)

    def _merged(self, found: dict[str, Any], merges: list[Any], path: Path) -> dict[str, Any]:
        for value, position in merges:
            for source in value if isinstance(value, list) else [value]:
                if not isinstance(source, dict):
                    self._problem(f"expected a mapping for the merge key, found {_kind(source)}", position, path)
                    continue
                self._count(len(source), position)
                found = {**source, **found}
        return found

    def _skip(self, event: Any, path: Path, depth: int) -> None:
        kept = dict(self._positions)
        self._node(event, path, depth + 1)
        self._positions = kept

    def _alias(self, anchor: str, position: Position) -> Any:
        if anchor not in self._anchors:
            raise _refused(f"expected an anchor before the alias, found none named {anchor!r}", position)
        anchored = self._anchors[anchor]
        if anchored is None:
            raise _refused(f"expected a finished part, found the alias {anchor!r} inside what it names", position)
        self._count(anchored.parts, position)
        return anchored.value

    def _scalar(self, event: Any, path: Path) -> Any:
        text: str = event.value
        if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
            bad = next(char for char in text if char == "\x00" or "\ud800" <= char <= "\udfff")
            message = f"expected characters that can be stored, found U+{ord(bad):04X}"
            self._problem(message, _position(event.start_mark), path)
            return ""
        tag = _PLAIN_TAGS.get(event.tag or "")
        if tag == "str" or (event.tag is None and not event.implicit[0]) or event.tag == "!":
            return text
        value = _resolved(text)
        if isinstance(value, (int, float)) and (not math.isfinite(value) or abs(value) >= _NUMBER_MAX * 2.0**960):
            self._problem(f"expected a finite number, found {text[:40]}", _position(event.start_mark), path)
            return 0
        if isinstance(value, int) and not -_NUMBER_MAX <= value < _NUMBER_MAX:
            message = f"expected a whole number of at most 64 bits, found {text[:40]}"
            self._problem(message, _position(event.start_mark), path, hint="write it in quotes")
            return 0
        return value

    def _count(self, parts: int, position: Position) -> None:
        self._parts += parts
        if self._parts > PARTS_MAX:
            raise _refused(f"expected at most {PARTS_MAX} parts, found more (aliases counted each time)", position)

    def _problem(self, message: str, position: Position, path: Path, *, hint: str = "") -> None:
        if len(self._problems) < PROBLEMS_MAX:
            line, column = position
            finding = Finding(severity="error", message=message, line=line, column=column, hint=hint)
            self._problems.append((path, finding))


def _resolved(text: str) -> Any:
    """Return what an unquoted scalar stands for. Dates and times stay texts, as in JSON."""
    if _NULL.match(text):
        return None
    if _TRUE.match(text):
        return True
    if _FALSE.match(text):
        return False
    if len(text) > 400:
        return text
    if _INT.match(text):
        return int(text.replace("_", ""))
    other = _OTHER_INT.match(text)
    if other:
        return _other_int(other.group(1), other.group(2).replace("_", ""), text)
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text


def _other_int(sign: str, digits: str, text: str) -> Any:
    # 0777 is octal in YAML 1.1, which the playbooks in use were written for.
    base = {"x": 16, "b": 2}.get(digits[1:2], 8)
    try:
        number = int(digits[2:] if digits[1:2] in "xob" else digits, base)
    except ValueError:
        return text
    return -number if sign == "-" else number


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "nothing" if value is None else "a single value"


def _not_yaml(text: str, position: Position, what: str) -> str:
    # Split as YAML does: form feeds and the like end no line.
    lines = re.split(r"\r\n|[\r\n\x85\u2028\u2029]", text)
    found = lines[position.line - 1].strip()[:SHOWN_CHARS_MAX] if position.line <= len(lines) else ""
    return f"expected valid YAML, found {found!r}: {what}" if found else f"expected more YAML, found the end: {what}"


def _position(mark: Any) -> Position:
    return _START if mark is None else Position(mark.line + 1, mark.column + 1)


def _reader_position(text: str, error: yaml.YAMLError) -> Position:
    index = getattr(error, "position", 0) or 0
    before = text[:index]
    return Position(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


def _refused(message: str, position: Position = _START) -> PlaybookError:
    finding = Finding(severity="error", message=message, line=position.line, column=position.column)
    return PlaybookError([msgspec.to_builtins(finding)])

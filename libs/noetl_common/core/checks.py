"""Checks: findings with their place, unknown keys, and the syntax of every template of a document."""

import difflib
import re
from collections.abc import Collection
from typing import Any, Literal

import msgspec

from noetl_common.core.playbook import Finding
from noetl_common.core.templates import SANDBOX, check, condition_source, is_template, mask_comments
from noetl_common.core.yaml_source import PROBLEMS_MAX, Path, Source
from noetl_common.errors import TemplateFailed

_UNRENDERED = frozenset(("desc", "description", "metadata"))
LISTED_MAX = 20
SHOWN_CHARS_MAX = 80
# Words of other dialects whose meaning here has another name.
_OTHER_WORDS = {"cond": "when", "condition": "when", "if": "when", "vars": "set", "params": "input", "expr": "when"}


class Report:
    """Collects what is wrong or odd in one document, each finding with its place."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.findings: list[Finding] = [
            msgspec.structs.replace(finding, where=place_of(source.value, path)) for path, finding in source.problems
        ]

    def error(self, path: Path, message: str, *, hint: str = "") -> None:
        """Add a problem: the document is refused."""
        self._add("error", path, message, hint=hint)

    def warn(self, path: Path, message: str, *, hint: str = "") -> None:
        """Add a warning: the document is taken."""
        self._add("warning", path, message, hint=hint)

    def mapping(self, value: Any, path: Path, what: str) -> dict[str, Any]:
        """Return the mapping; {} for nothing, and with a problem for anything else."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.error(path, f"{what}: expected a mapping, found {kind_of(value)}")
        return {}

    def listing(self, value: Any, path: Path, what: str) -> list[Any]:
        """Return the list; [] for nothing, and with a problem for anything else."""
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.error(path, f"{what}: expected a list, found {kind_of(value)}")
        return []

    def unknown_keys(self, mapping: dict[str, Any], known: Collection[str], path: Path, *, what: str) -> None:
        """Warn of keys that mean nothing here."""
        for key in mapping:
            if key not in known:
                self.warn((*path, key), f"{what} has no key {key!r}; it is ignored", hint=meant(key, known))

    def _add(self, severity: Literal["error", "warning"], path: Path, message: str, *, hint: str) -> None:
        if len(self.findings) >= PROBLEMS_MAX and severity == "warning":
            return
        line, column = self._source.position(path)
        where = place_of(self._source.value, path)
        self.findings.append(
            Finding(severity=severity, message=message, where=where, line=line, column=column, hint=hint)
        )


def is_word(value: Any, words: Collection[str]) -> bool:
    """Return whether a value is one of the words; a list or a mapping is none."""
    return isinstance(value, str) and value in words


def meant(word: str, known: Collection[str]) -> str:
    """Return "did you mean ..." when a known word is near."""
    if word in _OTHER_WORDS and _OTHER_WORDS[word] in known:
        return f"did you mean {_OTHER_WORDS[word]!r}?"
    near = difflib.get_close_matches(word, sorted(known), n=3)
    # Letters in another order are the likeliest slip, another first letter the least likely.
    near.sort(key=lambda one: (sorted(one) != sorted(word), one[:1] != word[:1]))
    return f"did you mean {near[0]!r}?" if near else ""


def kind_of(value: Any) -> str:
    """Return what a value is, in words."""
    names = {type(None): "nothing", bool: "a boolean", str: "a text", list: "a list", dict: "a mapping"}
    return names.get(type(value), "a number")


def shown(value: Any) -> str:
    """Return a value as an error shows what was found: a short one as it is, else what it is."""
    if value is None or isinstance(value, (list, dict)):
        return kind_of(value)
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def listed(words: Collection[str]) -> str:
    """Return the words that were expected, the first of them when they are many."""
    known = sorted(words)
    more = f" and {len(known) - LISTED_MAX} more" if len(known) > LISTED_MAX else ""
    return ", ".join(known[:LISTED_MAX]) + more if known else "none"


def place_of(document: Any, path: Path) -> str:
    """Return a path for people: "step 'load', tool.command"."""
    if len(path) >= 2 and path[0] == "workflow" and isinstance(path[1], int):
        listed_steps = document.get("workflow") if isinstance(document, dict) else None
        step = listed_steps[path[1]] if isinstance(listed_steps, list) and path[1] < len(listed_steps) else None
        name = step.get("step", step.get("name")) if isinstance(step, dict) else None
        rest = _dotted(path[2:])
        return f"step {name if name is not None else path[1]!r}" + (f", {rest}" if rest else "")
    return _dotted(path)


def check_condition(when: Any, path: Path, report: Report) -> str | bool | None:
    """Return a `when` that is a text, a boolean or nothing; report what does not parse."""
    if when is None or isinstance(when, bool):
        return when
    if not isinstance(when, str):
        report.error(path, f"expected a condition (a text or a boolean), found {kind_of(when)}")
        return None
    if "{" in when and "{{" not in when and "{%" not in when:
        message = f"expected a condition in {{{{ }}}} or without braces, found a single brace in {when[:80]!r}"
        report.error(path, message, hint="write {{ ... }}, or no braces at all")
        return None
    _check_text(condition_source(when), path, report)
    return when


def check_templates(document: dict[str, Any], report: Report) -> None:
    """Report every template of the document that does not parse; conditions are checked where they are read."""
    for key in ("workflow", "workbook", "keychain", "executor"):
        _check_tree(document.get(key), (key,), report)
    # A default of the workload that does not parse stays the text it is.
    _check_tree(document.get("workload"), ("workload",), report, is_lenient=True)


def _check_tree(value: Any, path: Path, report: Report, *, is_lenient: bool = False) -> None:
    if isinstance(value, str):
        if is_template(value):
            _check_text(value, path, report, is_lenient=is_lenient)
    elif isinstance(value, dict):
        is_lenient = is_lenient or value.get("kind") == "shell"
        for key, item in value.items():
            if key in _UNRENDERED or (key == "when" and isinstance(item, str)):
                continue
            _check_tree(item, (*path, key), report, is_lenient=is_lenient)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_tree(item, (*path, index), report, is_lenient=is_lenient)


def _check_text(text: str, path: Path, report: Report, *, is_lenient: bool = False) -> None:
    try:
        check(mask_comments(text)[0])
    except TemplateFailed as error:
        (report.warn if is_lenient else report.error)(path, str(error), hint=_meant_filter(str(error.__cause__)))


def _meant_filter(reason: str) -> str:
    unknown = re.match(r"No (filter|test) named '([^']*)'", reason)
    if unknown is None:
        return ""
    known = SANDBOX.filters if unknown.group(1) == "filter" else SANDBOX.tests
    return meant(unknown.group(2), [name for name in known if not name.startswith("_")])


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text

"""The table of cases: cases/*.yaml, read and checked, and the rules of the language that they show."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

FOLDER = Path(__file__).parent / "cases"
RULES_FILE = FOLDER / "rules.yaml"
ROOT_KEYS = ("workload", "workflow", "executor", "keychain", "workbook")


class Part:
    """`!part`: equal to a mapping that has these keys with these values, and perhaps others."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and all(
            key in other and value == other[key] for key, value in self.wanted.items()
        )

    def __repr__(self) -> str:
        return f"!part {self.wanted!r}"

    __hash__ = None  # type: ignore[assignment]


class Like:
    """`!like`: equal to a text in which this pattern is found."""

    def __init__(self, pattern: str) -> None:
        self.pattern = re.compile(pattern)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.pattern.search(other) is not None

    def __repr__(self) -> str:
        return f"!like {self.pattern.pattern!r}"

    __hash__ = None  # type: ignore[assignment]


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One playbook and what it must come to; README.md beside the cases says what each key means."""

    case: str
    shows: str | list[str]
    workflow: list[Any] = []
    workload: Any = None
    executor: Any = None
    keychain: Any = None
    workbook: Any = None
    root: dict[str, Any] = {}
    text: str = ""
    payload: dict[str, Any] = {}
    playbooks: dict[str, Any] = {}
    files: dict[str, str] = {}
    cancel: str = ""
    status: Literal["COMPLETED", "FAILED", "CANCELLED", "REFUSED"] = "COMPLETED"
    results: dict[str, Any] = {}
    result: Any = msgspec.UNSET
    error: list[str] = []
    warnings: list[str] | None = None
    entered: list[str] | None = None
    events: dict[str, int] = {}
    commands: int | Literal["any", None] = None
    lasts_at_least_s: float = 0.0
    area: str = ""

    @property
    def rules(self) -> list[str]:
        """The rules that the case shows."""
        return [self.shows] if isinstance(self.shows, str) else self.shows

    @property
    def path(self) -> str:
        """The path that the playbook is registered under."""
        return "cases/" + re.sub(r"\W+", "_", f"{self.area} {self.case}")

    def document(self) -> str:
        """Return the playbook, as text."""
        if self.text:
            return self.text
        fields = {key: getattr(self, key) for key in ROOT_KEYS if getattr(self, key) is not None}
        return playbook_text(self.path, {**fields, **self.root})


def playbook_text(path: str, fields: dict[str, Any]) -> str:
    """Return a playbook of these root keys, with the head that every document has."""
    head = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": path.rpartition("/")[2], "path": path},
    }
    return yaml.safe_dump({**head, **fields}, sort_keys=False)


def read_cases() -> list[Case]:
    """Return every case of the table, in the order of the files."""
    return list(_cases())


def read_rules() -> dict[str, list[str]]:
    """Return {area: its rules, each a sentence}."""
    rules: dict[str, list[str]] = yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))
    return rules


def _cases() -> Iterator[Case]:
    for file in sorted(FOLDER.glob("*.yaml")):
        if file == RULES_FILE:
            continue
        for fields in yaml.load(file.read_text(encoding="utf-8"), _Loader):
            try:
                yield msgspec.convert({**fields, "area": file.stem}, Case)
            except msgspec.ValidationError as error:
                raise ValueError(f"{file.name}, case {fields.get('case')!r}: {error}") from error


class _Loader(yaml.SafeLoader):
    """YAML with `!part` and `!like`."""


def _part(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Part:
    return Part({str(key): value for key, value in loader.construct_mapping(node, deep=True).items()})


def _like(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Like:
    return Like(str(loader.construct_scalar(node)))


_Loader.add_constructor("!part", _part)
_Loader.add_constructor("!like", _like)

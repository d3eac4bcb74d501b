"""Parsing: whatever stands in the place of any part of a document, the answer names the problem."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from noetl_common.core.parse import parse
from noetl_common.errors import PlaybookError
from tests.unit.test_parse import WHOLE

NONSENSE: tuple[Any, ...] = (
    None,
    True,
    5,
    -1,
    1.5,
    10**40,
    float("nan"),
    float("inf"),
    "",
    "text",
    "{{",
    "{{ 1 / 0 }}",
    "{% for x in y %}",
    "x" * 5000,
    "\U0001f600",
    [],
    [[]],
    [None],
    [5],
    ["a", "a"],
    [{}],
    {},
    {"": None},
    {5: 6},
    {"kind": "noop"},
    {"step": 5},
    {"kind": []},
)


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every part of a document, the document itself first."""
    yield ()
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        for path in places(part):
            yield (key, *path)


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """Return a copy of `value` with the part at `path` replaced."""
    if not path:
        return by
    part = replaced(value[path[0]], path[1:], by)
    if isinstance(value, dict):
        return {**value, path[0]: part}
    return [*value[: path[0]], part, *value[path[0] + 1 :]]


DOCUMENT = yaml.safe_load(WHOLE)


@pytest.mark.parametrize("nonsense", NONSENSE, ids=lambda value: repr(value)[:20])
def test_nonsense_in_any_place_is_refused_or_taken_but_never_a_crash(nonsense: Any) -> None:
    crashes = []
    for path in places(DOCUMENT):
        text = yaml.safe_dump(replaced(DOCUMENT, path, nonsense))
        try:
            parse(text)
        except PlaybookError as refused:
            assert all(problem["message"] for problem in refused.problems)
        except Exception as bug:  # the test's subject: anything else than a refusal is a bug
            crashes.append(f"{path}: {bug!r}")
    assert not crashes, "\n".join(crashes[:20])

"""The JSON of results part by part: the same text as at once, large ones in a file."""

import asyncio
import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl_common.wire import encoded
from services.worker import json_text as parts
from services.worker.json_text import json_parts, json_text

SCALAR = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8))
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=6)
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ITEMS", 2)
    monkeypatch.setattr(parts, "PART_CHARS", 4)
    monkeypatch.setattr(parts, "STREAMED_BYTES_MIN", 50)


@settings(max_examples=300)
@given(VALUE)
def test_the_parts_are_the_text(value: Any) -> None:
    assert b"".join(json_parts(value)) == encoded(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        [1, 2, 3],
        {"a": list(range(100))},
        {1: [1, 2, 3], "b": "x" * 100},
        [{"a": "\ud800"} for _ in range(9)],
    ],
)
def test_a_large_text_is_in_a_file_and_has_its_size_and_digest(value: Any) -> None:
    text, body = asyncio.run(json_text(value)), encoded(value)
    found = text.body
    if text.file is not None:
        text.file.seek(0)
        found = text.file.read()
    text.close()
    assert (found, text.size, text.sha256) == (body, len(body), hashlib.sha256(body).hexdigest())
    assert (text.file is not None) == (len(body) > 50)

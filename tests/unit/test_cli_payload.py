"""The payload of a run from the command line."""

import json
from pathlib import Path

import pytest

from noetl_cli.payload import pairs, payload_of
from noetl_common.errors import Invalid


def test_values_that_are_json_keep_their_type_and_others_are_text() -> None:
    found = pairs(["n=1", "f=1.5", "b=true", "l=[1, 2]", "t=hello", "empty=", "url=http://h/?a=b"], option="--set")
    assert found == {
        "n": 1,
        "f": 1.5,
        "b": True,
        "l": [1, 2],
        "t": "hello",
        "empty": "",
        "url": "http://h/?a=b",
    }


def test_a_dot_goes_one_level_down() -> None:
    assert payload_of(["a.b.c=1", "a.b.d=2", "e=3"], None) == {"a": {"b": {"c": 1, "d": 2}}, "e": 3}


def test_set_goes_over_the_payload_file(tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text(json.dumps({"a": {"b": 1, "c": 2}, "d": 3}), encoding="utf-8")
    assert payload_of(["a.b=9"], file) == {"a": {"b": 9, "c": 2}, "d": 3}


@pytest.mark.parametrize("text", ["novalue", "=1", ""])
def test_a_setting_without_key_or_value_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(Invalid, match="--set: expected key=value"):
        pairs([text], option="--set")


def test_going_below_a_value_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(Invalid, match=r"--set a\.b: expected a mapping at 'a', found int"):
        payload_of(["a=1", "a.b=2"], None)


def test_a_payload_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "payload.yaml"
    file.write_text("- 1\n", encoding="utf-8")
    with pytest.raises(Invalid, match="expected a mapping, found list"):
        payload_of([], file)
    with pytest.raises(Invalid, match=r"missing\.yaml: expected a file, found no such file"):
        payload_of([], tmp_path / "missing.yaml")

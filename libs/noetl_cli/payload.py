"""The payload of a run from `--payload FILE` and `--set k=v`. Pure but for the file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from noetl_common.errors import Invalid


def payload_of(settings: Sequence[str], file: Path | None) -> dict[str, Any]:
    """Return the payload: the file's mapping, then each `--set`, where a dot in the key goes one level down."""
    from noetl_cli.documents import read_mapping

    payload = read_mapping(file) if file else {}
    for key, value in pairs(settings, option="--set").items():
        put(payload, key, value)
    return payload


def pairs(given: Sequence[str], *, option: str) -> dict[str, Any]:
    """Return {key: value} of texts `key=value`; a value that is JSON is taken as JSON.

    Errors: Invalid naming the option for a text without `=` or without a key.
    """
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise Invalid(f"{option}: expected key=value, found {text!r}")
        found[key.strip()] = parsed(value)
    return found


def parsed(text: str) -> Any:
    """Return JSON as its value, anything else as the text it is."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def put(payload: dict[str, Any], key: str, value: Any) -> None:
    """Set `a.b.c` in nested mappings. Errors: Invalid when a part on the way is not a mapping."""
    *way, last = key.split(".")
    place = payload
    for part in way:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise Invalid(f"--set {key}: expected a mapping at {part!r}, found {type(place).__name__}")
    place[last] = value

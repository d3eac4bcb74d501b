"""What DuckDB's values become as JSON: as the postgres tool has them."""

import base64
import math
from datetime import datetime, time, timedelta
from typing import Any

import msgspec

INTEGER_MIN, INTEGER_END = -(2**63), 2**64  # beyond them an integer is text


def json_value(value: Any, *, is_json: bool = False) -> Any:
    """Return `value` as JSON can say it; `is_json` for a column of type JSON.

    Shapes: decimals, uuids and large integers are text, moments ISO 8601, blobs base64, structs and maps mappings.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return msgspec.json.decode(value) if is_json else value
    if isinstance(value, int):
        return value if INTEGER_MIN <= value < INTEGER_END else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, list | tuple):
        return [json_value(element) for element in value]
    if isinstance(value, dict):
        return {str(json_value(key)): json_value(element) for key, element in value.items()}
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        offset = value.isoformat()[-6:] if value.tzinfo else ""
        return _trimmed(value.replace(tzinfo=None).isoformat()) + offset
    if isinstance(value, time):
        return _trimmed(value.isoformat())
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)  # dates, decimals, uuids


def _trimmed(text: str) -> str:
    return text.rstrip("0") if "." in text else text


def _duration(span: timedelta) -> str:
    """Return ISO 8601 as Postgres writes an interval: PT1H, P1DT2.5S, PT0S."""
    sign = "-" if span < timedelta(0) else ""
    span = abs(span)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    whole = _trimmed(f"{seconds}.{span.microseconds:06d}").rstrip(".")
    parts = [f"{sign}{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (whole, "S")) if n not in (0, "0")]
    days = f"{sign}{span.days}D" if span.days else ""
    return f"P{days}" + ("T" + "".join(parts) if parts else "" if days else "T0S")

"""The filters and tests that templates may use: what playbooks rely on, and nothing that could run away."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import filters as stock
from jinja2.runtime import Undefined
from jinja2.utils import pass_environment

from noetl_common.core.tables import Rows
from noetl_common.core.views import View, plain, unwrapped

WIDTH_MAX = 10_000
TEXT_CHARS_MAX = 1_048_576
DIGITS_MAX = 308


def text_of(value: Any) -> str:
    """Return a value as text: objects and lists as JSON in one line, undefined as nothing."""
    value = unwrapped(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Undefined):
        return ""
    if isinstance(value, (Mapping, list, tuple)) or (hasattr(value, "__iter__") and not isinstance(value, range)):
        return to_json(value)
    return str(value)


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, readable for people and databases alike."""
    if indent is not None:
        indent = min(int(indent), 8)
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, default=str)


def default(value: Any, otherwise: Any = "", boolean: bool = False) -> Any:
    """Return `otherwise` for an undefined name and for None; with `boolean` for anything false."""
    if isinstance(value, Undefined):
        return otherwise
    seen = unwrapped(value)
    return otherwise if seen is None or (boolean and not seen) else value


def to_int(value: Any, default: int = 0, base: int = 10) -> int:
    """Return a whole number, `default` for what is none and for an undefined name."""
    if isinstance(value, Undefined):
        return default
    if isinstance(value, str):
        try:
            return int(value.strip(), base)
        except ValueError:
            pass
    try:
        return int(float(value)) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return default


def to_float(value: Any, default: float = 0.0) -> float:
    """Return a number, `default` for what is none and for an undefined name."""
    if isinstance(value, Undefined):
        return default
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def length(value: Any) -> int:
    """Return how many items, keys or characters; 0 for None and undefined."""
    return 0 if value is None or isinstance(value, Undefined) else len(value)


def first(value: Any) -> Any:
    """Return the first item, None when there is none."""
    return next(iter(value), None) if isinstance(value, Iterable) else None


def last(value: Any) -> Any:
    """Return the last item, None when there is none."""
    items = value if isinstance(value, Rows) else list(value) if isinstance(value, Iterable) else []
    return items[-1] if items else None


def replace(value: Any, old: str, new: str, *count: int) -> str:
    """Return the text with one text replaced by another."""
    text, old, new = text_of(value), text_of(old), text_of(new)
    _fits(len(text) + text.count(old) * len(new))
    return text.replace(old, new, *count)


def split(value: Any, separator: str | None = None, times: int = -1) -> list[str]:
    """Return the parts of a text."""
    return text_of(value).split(separator, times)


def join(value: Any, separator: str = "", attribute: str | None = None) -> str:
    """Return the items as one text."""
    items = value if isinstance(value, Iterable) else []
    if attribute is not None:
        items = [item.get(attribute) for item in items]
    parts = [text_of(item) for item in items]
    _fits(sum(map(len, parts)) + len(parts) * len(separator))
    return separator.join(parts)


def keys(value: Any) -> list[Any]:
    """Return the keys of an object."""
    return list(value) if isinstance(value, Mapping) else []


def values(value: Any) -> list[Any]:
    """Return the values of an object."""
    return list(value.values()) if isinstance(value, Mapping) else []


def items(value: Any) -> list[Any]:
    """Return the pairs of an object."""
    return [list(pair) for pair in value.items()] if isinstance(value, Mapping) else []


def get(value: Any, key: Any, otherwise: Any = None) -> Any:
    """Return the value under a key or at an index, else `otherwise`."""
    try:
        return value[key]
    except (KeyError, IndexError, TypeError):
        return otherwise


def from_json(value: Any) -> Any:
    """Return what a JSON text says; anything but a text as it is."""
    return json.loads(value) if isinstance(value, str) else value


def b64encode(value: Any) -> str:
    """Return a text in base64."""
    return base64.b64encode(text_of(value).encode()).decode()


def b64decode(value: Any) -> str:
    """Return the text that a base64 text stands for."""
    return base64.b64decode(text_of(value)).decode()


def sql_string(value: Any) -> str:
    """Return a value as an SQL literal, quoted; NULL for None."""
    if value is None or isinstance(value, Undefined):
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float)):
        return str(value)
    return "'" + text_of(value).replace("'", "''") + "'"


def sql_json(value: Any) -> str:
    """Return a value as an SQL literal of type jsonb."""
    return "'" + to_json(value).replace("'", "''") + "'::jsonb"


def rounded(value: Any, precision: int = 0, method: str = "common") -> Any:
    """Return a number rounded to so many digits."""
    if abs(precision) > DIGITS_MAX:
        raise OverflowError(f"round to {precision} digits, allowed are {DIGITS_MAX}")
    return stock.do_round(value, precision, method)  # type: ignore[arg-type]


def center(value: Any, width: int = 80) -> str:
    """Return the text in the middle of so many characters."""
    return text_of(value).center(_width(width))


def indent(value: Any, width: int = 4, first: bool = False) -> str:
    """Return the text with its lines indented."""
    text = text_of(value)
    _fits(len(text) + (text.count("\n") + 1) * _width(width))
    return stock.do_indent(text, width, first)


@pass_environment
def truncate(environment: Any, value: Any, length: int = 255, *, killwords: bool = False, end: str = "...") -> str:
    """Return the text, cut to a length."""
    return stock.do_truncate(environment, text_of(value), length, killwords, end, 0)


def is_none(value: Any) -> bool:
    """Return True for None, also when a view stands for it."""
    return (value.unwrap() if isinstance(value, View) else value) is None


def _width(width: int) -> int:
    if width > WIDTH_MAX:
        raise OverflowError(f"a width of {width} characters, allowed are {WIDTH_MAX}")
    return width


def _fits(chars: int) -> None:
    if chars > TEXT_CHARS_MAX:
        raise OverflowError(f"a text of {chars} characters, allowed are {TEXT_CHARS_MAX}")


_OWN: dict[str, Callable[..., Any]] = {
    "b64decode": b64decode,
    "b64encode": b64encode,
    "center": center,
    "count": length,
    "d": default,
    "default": default,
    "first": first,
    "float": to_float,
    "fromjson": from_json,
    "from_json": from_json,
    "get": get,
    "indent": indent,
    "int": to_int,
    "items": items,
    "join": join,
    "keys": keys,
    "last": last,
    "len": length,
    "length": length,
    "lower": lambda value: text_of(value).lower(),
    "replace": replace,
    "round": rounded,
    "safe": lambda value: value,
    "split": split,
    "sqljson": sql_json,
    "sqlstr": sql_string,
    "string": text_of,
    "to_json": to_json,
    "tojson": to_json,
    "trim": lambda value, chars=None: text_of(value).strip(chars),
    "truncate": truncate,
    "upper": lambda value: text_of(value).upper(),
    "values": values,
}
_STOCK = (
    *("abs", "capitalize", "dictsort", "groupby", "list", "map", "max", "min", "reject", "rejectattr", "reverse"),
    *("select", "selectattr", "sort", "sum", "title", "unique", "urlencode", "wordcount"),
)

FILTERS: dict[str, Callable[..., Any]] = {**{name: stock.FILTERS[name] for name in _STOCK}, **_OWN}
# These read of a table no more rows than they need.
OF_ROWS = frozenset((length, first, last))
PREDICATES: dict[str, Callable[..., Any]] = {"none": is_none}

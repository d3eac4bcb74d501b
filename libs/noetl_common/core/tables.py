"""Tables: payloads whose rows stand in a Parquet file. Templates see them like any other, and read them by groups.

The rows are those of SQL, or the items of a list that is most of a payload: objects that all have the same keys are
rows, anything else is `bare`, the one column of its table.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec

from noetl_common.core.values import Ref
from noetl_common.core.views import NeedPayload, View

TABLE_TYPE = "application/vnd.apache.parquet"
COMMAND = re.compile(r"command_\d+\Z")
ITEM = "item"  # the column of a table whose rows are bare
LIST_DEPTH_MAX = 4  # of objects round a list that is stored as a table
_GROUP_MARK = "#"

Row = dict[str, Any]


class Rows(View):
    """The rows of a table: their number is known, a row is read with the group that it stands in.

    Shapes: `sizes` counts the rows of each group; `group(n)` returns the rows of group n, or raises NeedPayload.
    `ref` names the rows alone (shape `rows`), where they are stored.
    """

    def __init__(self, sizes: Sequence[int], group: Callable[[int], Sequence[Any]], *, ref: Ref | None = None) -> None:
        self.ref = ref
        self.sizes = sizes
        self._starts = list(accumulate(sizes, initial=0))
        self._group = group

    def unwrap(self) -> list[Any]:
        """Return all the rows. Errors: NeedPayload names every group that is missing."""
        return [row for group in self._groups(range(len(self.sizes))) for row in group]

    def member(self, name: str) -> Any:
        """Raise KeyError: a list has no names."""
        raise KeyError(name)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._slice(key)
        if isinstance(key, bool) or not isinstance(key, int):
            raise KeyError(key)
        place = key + len(self) if key < 0 else key
        if not 0 <= place < len(self):
            raise IndexError(key)
        group = bisect_right(self._starts, place) - 1
        return self._group(group)[place - self._starts[group]]

    def __iter__(self) -> Iterator[Any]:
        for group in range(len(self.sizes)):
            try:
                rows = self._group(group)
            except NeedPayload:
                # Who got this far may go on: each round of loading asks for as much again as was read before.
                [rows, *_] = self._groups(range(group, min(2 * group + 1, len(self.sizes))))
            yield from rows

    def __len__(self) -> int:
        return self._starts[-1]

    def __bool__(self) -> bool:
        return len(self) > 0

    def _slice(self, part: slice) -> list[Any]:
        places = range(len(self))[part]
        if not places:
            return []
        low, high = sorted((places[0], places[-1]))
        first, last = bisect_right(self._starts, low) - 1, bisect_right(self._starts, high) - 1
        groups = self._groups(range(first, last + 1))
        found = []
        for place in places:
            group = bisect_right(self._starts, place) - 1
            found.append(groups[group - first][place - self._starts[group]])
        return found

    def _groups(self, numbers: range) -> list[Sequence[Any]]:
        found: list[Sequence[Any]] = []
        needs: list[tuple[Ref, str | None]] = []
        for number in numbers:
            try:
                found.append(self._group(number))
            except NeedPayload as exc:
                needs += exc.needs
        if needs:
            raise NeedPayload(needs)
        return found


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A payload without its rows: `places` are the paths in `body` where they belong, `sizes` the rows of a group."""

    body: Any
    places: list[list[str]]
    sizes: list[int]

    def filled(self, rows: Any) -> Any:
        """Return the payload with `rows` in their places."""
        payload = self.body
        for path in self.places:
            payload = _put(payload, path, rows)
        return payload


class Parted(NamedTuple):
    """What `parted` finds: the rows, their keys, and what `Frame` needs of the rest. `bare`: a row is one value."""

    rows: Any
    names: list[str]
    body: Any
    places: list[list[str]]
    bare: bool = False


def parted(payload: Any) -> Parted | None:
    """Return a payload as rows and the rest: of a result {columns, rows, ...}, or of the largest of several by label.

    None when it has no rows whose keys are all its columns, in their order.
    """
    if not isinstance(payload, dict):
        return None
    best: tuple[list[str], dict[str, Any], list[str]] | None = None
    members: list[tuple[list[str], Any]] = [([], payload), *(([label], member) for label, member in payload.items())]
    for path, member in members:
        names = _names_of(member)
        if names is not None and (best is None or len(member["rows"]) > len(best[1]["rows"])):
            best = path, member, names
    if best is None:
        return None
    path, member, names = best
    rows = member["rows"]
    places = [[*path, "rows"]]
    for name, value in member.items():
        if COMMAND.match(name) and isinstance(value, dict) and _is_same(value.get("rows"), rows):
            places.append([*path, name, "rows"])
    return Parted(rows, names, _without(payload, places), places)


def listed(payload: Any) -> Parted | None:
    """Return a payload as the items of its longest list and the rest; None when no list is in it."""
    lists = list(_lists(payload, [], LIST_DEPTH_MAX))
    items = max((found for _path, found in lists), key=len, default=None)
    if not items:
        return None
    places = [path for path, found in lists if found is items]
    names = list(items[0]) if type(items[0]) is dict else []
    is_table = bool(names) and all(map(_is_text, names)) and all(type(i) is dict and list(i) == names for i in items)
    return Parted(items, names if is_table else [ITEM], _without(payload, places), places, not is_table)


def rows_in(payload: Any, *, depth: int = 4) -> bool:
    """Return whether rows of a table that are not loaded stand in a payload, where results have them."""
    if isinstance(payload, Rows):
        return True
    return depth > 0 and isinstance(payload, dict) and any(rows_in(part, depth=depth - 1) for part in payload.values())


def rows_seen(value: Any) -> Any:
    """Return the rows that a view stands for, not loaded; anything else as it is."""
    found = value.peek() if isinstance(value, View) else value
    return found if isinstance(found, Rows) else value


def table_value(ref: Ref, frame: Frame, *, group: Callable[[int], Sequence[Any]]) -> Any:
    """Return what `ref`, to a table or to its rows, stands for."""
    rows = Rows(frame.sizes, group, ref=rows_ref(ref, sum(frame.sizes)))
    return rows if ref.shape == "rows" else frame.filled(rows)


def rows_ref(ref: Ref, size: int) -> Ref:
    """Return the reference to the rows of a table."""
    return msgspec.structs.replace(ref, shape="rows", size=size)


def group_key(number: int) -> str:
    """Return the key under which a NeedPayload asks for a group of a table's rows."""
    return f"{_GROUP_MARK}{number}"


def group_in(key: str | None) -> int | None:
    """Return the group that a key of a NeedPayload for a table asks for, None for the table itself."""
    number = (key or "").removeprefix(_GROUP_MARK)
    return int(number) if key is not None and key.startswith(_GROUP_MARK) and number.isdecimal() else None


def is_table(ref: Ref) -> bool:
    """Return whether a reference names a table, or the rows of one."""
    return ref.content_type == TABLE_TYPE


def _names_of(member: Any) -> list[str] | None:
    if not isinstance(member, dict):
        return None
    columns, rows = member.get("columns"), member.get("rows")
    if not isinstance(columns, list) or not columns or not all(map(_is_text, columns)):
        return None
    names = list(dict.fromkeys(columns))
    if isinstance(rows, Rows):
        return names if rows.ref is None else None
    if not isinstance(rows, list) or not rows:
        return None
    return names if all(type(row) is dict and list(row) == names for row in rows) else None


def _is_text(name: Any) -> bool:
    # A name that is not UTF-8 can be no column of a file.
    return type(name) is str and name.encode(errors="ignore").decode() == name


def _is_same(found: Any, rows: Any) -> bool:
    return found is rows or (isinstance(found, list) and isinstance(rows, list) and found == rows)


def _lists(payload: Any, path: list[str], depth: int) -> Iterator[tuple[list[str], list[Any]]]:
    if type(payload) is list:
        yield path, payload
    elif type(payload) is dict and depth:
        for name, value in payload.items():
            if type(name) is str:
                yield from _lists(value, [*path, name], depth - 1)


def _without(payload: Any, places: list[list[str]]) -> Any:
    for place in places:
        payload = _put(payload, place, None)
    return payload


def _put(payload: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    first, *rest = path
    return {**payload, first: _put(payload[first], rest, value) if rest else value}

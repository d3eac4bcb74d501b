"""Tables as Parquet files: what comes back is what JSON would have brought, read by as little as it takes."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl_common.core import templates
from noetl_common.core.scope import Scope
from noetl_common.core.tables import TABLE_TYPE, Parted, Rows, group_in, listed, parted, rows_ref, table_value
from noetl_common.core.values import Ref, Value
from noetl_common.core.views import NeedPayload, plain
from noetl_common.errors import ReferenceCorrupt
from noetl_common.store import tables
from noetl_common.store.tables import Footer, TableFile, TableWriter, read_footer
from noetl_common.wire import encoded

REF = Ref(execution_id=1, ref_id=2, content_type=TABLE_TYPE, label="load")
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 3),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.sampled_from(["1.50", "NaN", "2024-01-01", "\x00", "\ud800", "null", "{}"]),
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
COLUMN = st.sampled_from([SCALAR, VALUE, st.integers(0, 5), st.text(max_size=5), st.floats(), st.booleans(), st.none()])


@st.composite
def results(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=1, max_size=4, unique=True))
    kinds = [draw(COLUMN) for _ in names]
    count = draw(st.integers(1, 30))
    rows = [{name: draw(kind) for name, kind in zip(names, kinds, strict=True)} for _ in range(count)]
    return of(names, rows)


def of(names: list[str], rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    top = {"columns": names, "rows": rows, "row_count": len(rows)}
    return {**top, **more, "command_0": {"status": "success", **top}}


def written(payload: Any, *, chunk: int = 7, find: Callable[[Any], Parted | None] = parted) -> TableFile:
    part = find(payload)
    assert part is not None
    writer = TableWriter(part.names)
    rows = [(row,) if part.bare else tuple(row.values()) for row in part.rows]
    for start in range(0, len(rows), chunk):
        writer.add(rows[start : start + chunk])
    file = writer.seal().finished(part)
    assert file is not None
    return file


class Reading:
    """A file that is read in parts, and which of them were."""

    def __init__(self, file: TableFile) -> None:
        file.file.seek(0)
        self.body: bytes = file.file.read()
        file.file.close()
        assert len(self.body) == file.bytes
        self.parts: list[tuple[int, int]] = []
        self.groups: dict[int, Any] = {}
        self.footer = asyncio.run(read_footer(self._read, size=file.bytes, uri="uri"))

    async def _read(self, offset: int, length: int) -> bytes:
        self.parts.append((offset, length))
        return self.body[offset : offset + length]

    def value(self, ref: Ref = REF) -> Any:
        def group(number: int) -> Any:
            if number not in self.groups:
                raise NeedPayload([(ref, f"#{number}")])
            return self.groups[number]

        return table_value(ref, self.footer.frame, group=group)

    def settled(self, make: Any) -> Any:
        while True:
            try:
                return make()
            except NeedPayload as need:
                for _ref, key in need.needs:
                    number = group_in(key)
                    assert number is not None
                    part = asyncio.run(self._read(*self.footer.place_of(number)))
                    self.groups[number] = self.footer.group(number, part)


@settings(deadline=None, max_examples=100)
@given(results())
def test_a_table_comes_back_as_its_json_would(payload: dict[str, Any]) -> None:
    reading = Reading(written(payload))
    assert reading.settled(lambda: plain(reading.value())) == msgspec.json.decode(encoded(payload))


@settings(deadline=None, max_examples=100)
@given(st.lists(VALUE, min_size=1, max_size=30), st.lists(st.text(max_size=3), max_size=4), VALUE)
def test_a_list_comes_back_as_its_json_would_wherever_it_stands(items: list[Any], path: list[str], other: Any) -> None:
    payload: Any = items
    for name in path:
        payload = {"beside": other, name: payload}
    reading = Reading(written(payload, find=listed))
    assert encoded(reading.settled(lambda: plain(reading.value()))) == encoded(msgspec.json.decode(encoded(payload)))


def test_of_a_list_templates_read_the_parts_that_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS_MAX", 100)
    items = [{"id": place} if place % 2 else {"id": place, "more": [place]} for place in range(1000)]
    for payload, spelled in ((items, "load"), ({"count": 1000, "found": {"items": items}}, "load.found['items']")):
        reading = Reading(written(payload, chunk=100, find=listed))

        def load(ref: Ref, key: str | None, *, reading: Reading = reading) -> Any:
            value = reading.value()
            return value if key is None else value[key]

        scope = Scope(load=load, workload=Value({}), ctx={}, results={"load": REF})

        def rendered(
            text: str, make: Any = templates.render, *, scope: Scope = scope, reading: Reading = reading
        ) -> Any:
            return reading.settled(lambda: make("{{ %s }}" % text, scope, where="here"))  # noqa: UP031

        assert rendered(f"{spelled} | length") == 1000 and rendered(f"{spelled} is defined")
        assert isinstance(rendered(spelled, templates.render_rows), Rows)
        assert templates.holds(f"{spelled} | length > 999 and {spelled}", scope, where="here")
        assert reading.groups == {}
        assert rendered(f"{spelled}[250]") == items[250] and rendered(f"{spelled}[-1].id") == 999
        assert set(reading.groups) == {2, 9}
        assert rendered(f"{spelled} | map(attribute='id') | sum") == 499_500


def test_rows_are_asked_for_in_few_rounds_and_no_more_than_were_read() -> None:
    held: dict[int, list[int]] = {}
    asked: list[list[int]] = []

    def group(number: int) -> list[int]:
        if number not in held:
            raise NeedPayload([(REF, f"#{number}")])
        return held[number]

    rows = Rows([1] * 1000, group)
    while True:
        try:
            assert list(rows) == list(range(1000))
            break
        except NeedPayload as need:
            asked.append([number for _ref, key in need.needs if (number := group_in(key)) is not None])
            held |= {number: [number] for number in asked[-1]}
    assert [len(part) for part in asked] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 489]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, "three", None],
        [None, None, None, 4],
        [True, False, None, 1],
        [1, 1.0, 2, 2.5],
        [1.5, math.nan, math.inf, -0.0],
        [2**63, -1, 2**64, 0],
        [{"a": [1]}, {}, [], None],
        ["x", "y", "z", {"of": "another type"}],
    ],
)
def test_a_column_that_changes_its_type_is_written_again_as_json(
    values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS_MAX", 2)
    payload = of(["id", "v"], [{"id": place, "v": value} for place, value in enumerate(values * 3)])
    reading = Reading(written(payload, chunk=1))
    found = reading.settled(lambda: plain(reading.value()))
    assert encoded(found) == encoded(msgspec.json.decode(encoded(payload)))
    assert sum(reading.footer.frame.sizes) == len(values) * 3 and reading.footer.kinds[0] == "int64"


def test_what_is_read_of_a_table_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS_MAX", 100)
    rows = [{"id": place, "name": f"name {place}"} for place in range(1000)]
    reading = Reading(written(of(["id", "name"], rows, more={"of": "it"}), chunk=100))
    value = reading.value()
    assert value["row_count"] == 1000 and value["more"] == {"of": "it"}
    assert isinstance(value["rows"], Rows) and len(value["rows"]) == 1000 and value["rows"]
    assert value["command_0"]["rows"] is value["rows"] and reading.groups == {}
    assert reading.settled(lambda: value["rows"][250]) == rows[250] and set(reading.groups) == {2}
    assert reading.settled(lambda: value["rows"][-1]) == rows[-1] and set(reading.groups) == {2, 9}
    assert reading.settled(lambda: value["rows"][295:305]) == rows[295:305] and set(reading.groups) == {2, 3, 9}
    assert reading.settled(lambda: value["rows"][::-400]) == rows[::-400]
    assert value["rows"][3:3] == []
    with pytest.raises(IndexError):
        value["rows"][1000]
    assert reading.value(rows_ref(REF, 1000)).ref == rows_ref(REF, 1000)


@pytest.mark.parametrize(
    "payload",
    [
        [1, 2],
        {"rows": [{"a": 1}], "row_count": 1},
        {"columns": ["a"], "rows": []},
        {"columns": ["a", "b"], "rows": [{"a": 1}]},
        {"columns": ["a"], "rows": [[1], [2]]},
        {"columns": ["a", "b"], "rows": [{"b": 1, "a": 2}]},
        {"columns": ["\ud800"], "rows": [{"\ud800": 1}]},
        {"columns": [], "rows": [{}]},
    ],
)
def test_what_is_no_table_stays_json(payload: Any) -> None:
    assert parted(payload) is None


def test_the_largest_table_of_a_pipeline_is_the_one_stored_as_such() -> None:
    small, large = of(["a"], [{"a": 1}]), of(["b"], [{"b": place} for place in range(50)])
    payload = {"first": small, "second": large, "third": {"n": 1}, "_carried": {"names": {}, "iter": {"x": 1}}}
    part = parted(payload)
    assert part is not None and part.places == [["second", "rows"], ["second", "command_0", "rows"]]
    reading = Reading(written(payload))
    assert reading.settled(lambda: plain(reading.value())) == payload


def test_a_file_that_was_changed_or_cut_is_refused() -> None:
    file = written(of(["a", "b"], [{"a": place, "b": f"text {place}"} for place in range(500)]))
    reading = Reading(file)
    offset, length = reading.footer.place_of(0)
    part = bytearray(reading.body[offset : offset + length])
    for place in range(len(part) // 2, len(part) // 2 + 20):
        part[place] ^= 0xFF
    for wrong in (bytes(part), bytes(part[:-1])):
        with pytest.raises(ReferenceCorrupt):
            list(reading.footer.group(0, wrong))
    with pytest.raises(ReferenceCorrupt):
        asyncio.run(read_footer(reading._read, size=file.bytes - 3, uri="uri"))


def test_other_parquet_files_are_no_payloads() -> None:
    file = written(of(["a"], [{"a": 1}]))
    with file.file:
        file.file.seek(0)
        metadata = pq.read_metadata(file.file)
    assert metadata.num_rows == 1 and Footer(metadata, uri="uri").frame.sizes == [1]
    with pytest.raises(ReferenceCorrupt, match="another kind"):
        Footer(_Without(), uri="uri")


class _Without:
    metadata: dict[bytes, bytes] = {}

"""Rows on their way: the same result in memory and from a file, secrets hidden in both, files read where they are."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl_common import metrics
from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.tables import TABLE_TYPE, Rows, parted, rows_in
from noetl_common.core.templates import render_reference
from noetl_common.core.values import Ref, TierRule, Value
from noetl_common.core.views import plain
from noetl_common.errors import ReferenceCorrupt, TooLarge
from noetl_common.store import tables as files
from noetl_common.store.objects import ObjectTier
from noetl_common.store.results import ResultStore
from noetl_common.store.s3 import S3Objects
from noetl_common.wire import ClaimedCommand, encoded
from services.worker import payloads as reading
from services.worker import tables
from services.worker.keychain import Concealed
from services.worker.payloads import Payloads
from services.worker.persist import persist_before_emit
from services.worker.tables import SpilledRows, Tables
from services.worker.tools import Call, dispatch, duckdb, postgres
from tests.builders import disk_store
from tests.object_stores import S3Server

DUCKDB = """SELECT i AS id, i % 3 = 0 AS yes, 'text ' || i AS text, i * 0.25::FLOAT AS small, i / 7 AS large,
  CASE WHEN i = 900 THEN 'NaN'::DOUBLE ELSE i END AS odd, NULL AS none, i::HUGEINT * 10::HUGEINT ** 20 AS huge,
  (i + 0.50)::DECIMAL(9, 2) AS amount, DATE '2024-01-01' + i::INT AS day, [i, NULL] AS list,
  {'a': i, 'b': 'x'} AS struct,  ('{"n": ' || i || '}')::JSON AS json, uuid() IS NULL AS never
FROM range(1000) t(i) ORDER BY id DESC"""
SAME_IN_ARROW = """SELECT i AS id, i % 3 = 0 AS yes, 'text ' || i AS text, i * 0.25::FLOAT AS small, i AS id,
  CASE WHEN i = ODD THEN 'Infinity'::DOUBLE WHEN i < 500 THEN NULL ELSE i / 7 END AS odd
FROM range(40000) t(i) ORDER BY id DESC"""
POSTGRES = """SELECT i AS id, i % 3 = 0 AS yes, 'text ' || i AS text, i / 7.0::float8 AS large,
  CASE WHEN i = 900 THEN 'NaN'::float8 ELSE i END AS odd, NULL AS none, (i + 0.50)::numeric(9, 2) AS amount,
  CASE WHEN i > 500 THEN date '2024-01-01' + i END AS day, ARRAY[i, NULL] AS list, json_build_object('n', i) AS json,
  CASE WHEN i % 2 = 0 THEN to_jsonb(i) ELSE to_jsonb('x'::text) END AS mixed, decode('00ff', 'hex') AS bytes, i AS id
FROM generate_series(1, 1000) i"""
REF = Ref(execution_id=5, ref_id=6)


@pytest.fixture(autouse=True)
async def _closed_afterwards() -> AsyncIterator[None]:
    yield
    await duckdb.close()
    await postgres.close()


class Nobody:
    """Ingest as a worker sees it that needs none, or only parts of tables."""

    def __init__(self, body: bytes = b"") -> None:
        self.body = body
        self.asked: list[tuple[int, int]] = []

    async def payload(self, ref: Ref) -> bytes:
        raise AssertionError(ref)

    async def loop_page(self, ref: Ref, *, after: int) -> Any:
        raise AssertionError(ref)

    async def part(self, ref: Ref, *, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return self.body[offset : offset + length]


def command() -> ClaimedCommand:
    return ClaimedCommand(execution_id=5, command_id=6, event_id=7, step="load", attempt=1, claim_token=8, context_id=9)


async def ran(kind: str, held: Tables, text: Any, **config: Any) -> Outcome:
    async def credential(alias: str) -> dict[str, Any]:
        raise AssertionError(alias)

    payloads = config.pop("payloads", None)
    more = {"stored_table": payloads.table_file} if payloads is not None else {}
    load = payloads.load if payloads is not None else lambda ref, key: None
    return await dispatch(
        Call(
            kind=kind,
            label="load",
            step="load",
            execution_id=5,
            scope=Scope(load=load, workload=Value({}), ctx={}, results={}),
            credential=credential,
            config={"command": text, **config},
            tables=held,
            **more,
        )
    )


@pytest.fixture
async def held() -> AsyncIterator[Tables]:
    made = Tables()
    yield made
    made.close()


@pytest.mark.parametrize("text", [DUCKDB, *(SAME_IN_ARROW.replace("ODD", odd) for odd in ("39999", "1", "-1"))])
async def test_rows_of_duckdb_are_the_same_in_memory_and_from_a_file(
    held: Tables, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(tables, "SPILL_ROWS", 100_000)
    monkeypatch.setattr(tables, "SPILL_BYTES", 1 << 30)
    memory = await ran("duckdb", held, text)
    assert memory.ok and not rows_in(memory.data), memory.error
    monkeypatch.setattr(tables, "SPILL_ROWS", 150)
    monkeypatch.setattr(files, "GROUP_ROWS_MAX", 300)
    spilled = await ran("duckdb", held, text)
    assert spilled.ok and isinstance(spilled.data["rows"], SpilledRows)
    assert spilled.data["command_0"]["rows"] is spilled.data["rows"]
    assert encoded(plain(spilled.data)) == encoded(memory.data)


async def test_rows_of_postgres_are_the_same_in_memory_and_from_a_file(
    held: Tables, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = await ran("postgres", held, POSTGRES, dsn=dsn)
    assert memory.ok and not rows_in(memory.data), memory.error
    monkeypatch.setattr(tables, "SPILL_ROWS", 150)
    monkeypatch.setattr(files, "GROUP_ROWS_MAX", 300)
    spilled = await ran("postgres", held, POSTGRES, dsn=dsn)
    assert spilled.ok and isinstance(spilled.data["rows"], SpilledRows)
    assert encoded(plain(spilled.data)) == encoded(memory.data)


async def test_a_query_of_postgres_without_rows_has_its_columns_and_one_that_fails_midway_leaves_nothing(
    held: Tables, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SPILL_ROWS", 150)
    empty = await ran("postgres", held, "SELECT 1 AS a, 'x' AS b WHERE false", dsn=dsn)
    assert empty.data["columns"] == ["a", "b"] and empty.data["rows"] == []
    made = await ran("postgres", held, "SELECT i INTO made FROM generate_series(1, 7) i", dsn=dsn)
    assert made.data["affected_rows"] == 7
    failed = await ran("postgres", held, "SELECT 1 / (900 - i) FROM generate_series(1, 5000) i", dsn=dsn)
    assert failed.error is not None and failed.error["pg_code"] == "22012" and "statement 1" in failed.error["message"]
    slow = "SELECT i, CASE WHEN i > 1000 THEN pg_sleep(9) END FROM generate_series(1, 5000) i"
    late = await ran("postgres", held, slow, dsn=dsn, timeout=0.3)
    assert late.error is not None and late.error["kind"] == "db_timeout"
    again = await ran("postgres", held, "WITH x AS (INSERT INTO made VALUES (8), (9) RETURNING i) TABLE x", dsn=dsn)
    assert again.data["rows"] == [{"i": 8}, {"i": 9}]


async def test_secrets_are_hidden_in_files_too_whenever_they_are_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SPILL_ROWS", 10)
    concealed = Concealed()
    held = Tables(concealed)
    rows = [(place, f"a secret-{place % 2}-canary here", {"of": 'b"secret-2-canary'}) for place in range(50)]
    try:
        concealed.add("secret-0-canary")
        sink = held.sink(["n", "text", "more"])
        for start in range(0, 50, 10):
            sink.add(rows[start : start + 10])
        found = sink.finish()
        payload = {"columns": ["n", "text", "more"], "rows": found, "row_count": 50}
        assert isinstance(found, SpilledRows)
        assert found[0]["text"] == "a *** here" and found[1]["text"] == "a secret-1-canary here"
        assert held.told(payload) is payload
        concealed.add("secret-1-canary")
        concealed.add('b"secret-2-canary')
        told = held.told(payload)
        assert [row["text"] for row in told["rows"]] == ["a *** here"] * 50
        assert told["rows"][7]["more"] == {"of": "***"} and [row["n"] for row in told["rows"]] == list(range(50))
    finally:
        held.close()


async def test_a_result_of_too_many_rows_is_refused(held: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TABLE_ROWS_MAX", 1000)
    outcome = await ran("duckdb", held, "FROM range(100000)")
    assert outcome.error is not None and "more than 1000 rows" in outcome.error["message"]
    monkeypatch.setattr(files, "TABLE_BYTES_MAX", 10)
    sink = held.sink(["a"])
    with pytest.raises(TooLarge, match="at most 10 bytes"):
        sink.add([[place] for place in range(1000)])
        for _ in range(100):
            sink.count = 0
            sink.add([[place] for place in range(1000)])
        sink.finish()


async def persisted(store: ResultStore, payload: Any) -> Ref:
    ref, row = await persist_before_emit(command(), payload, store=store, tabular=True)
    assert ref.content_type == row.content_type == TABLE_TYPE and row.rows == len(payload["rows"])
    assert ref.bytes == row.bytes and row.extracted == {"row_count": len(payload["rows"])}
    return ref


def made(count: int = 3000) -> dict[str, Any]:
    rows = [{"id": place, "tags": [place, "x"] if place % 2 else None} for place in range(count)]
    return {"columns": ["id", "tags"], "rows": rows, "row_count": count}


async def test_a_result_in_memory_is_stored_as_a_table_and_read_where_it_is(tmp_path: Path, held: Tables) -> None:
    store = disk_store(tmp_path / "store")
    ref = await persisted(store, made())
    payloads = Payloads(Nobody(), bytes_max=1_000_000, store=store)
    assert await payloads.settled(lambda: payloads.load(ref, "rows")[2999]["id"]) == 2999
    assert await payloads.settled(lambda: plain(payloads.load(ref, None))) == made()
    found = await payloads.table_file(ref, tmp_path / "copy")
    assert found is not None
    path, kinds = found
    assert path.is_relative_to(tmp_path / "store") and kinds == {"id": "int64", "tags": "json"}
    text = """SELECT count(*) AS n, sum(id)::BIGINT AS ids, max(tags ->> 1) AS tag, (SELECT count(*) FROM small) AS few
      FROM stored"""
    given = {"stored": ref, "small": [{"a": 1}, {"b": None}]}
    outcome = await ran("duckdb", held, text, tables=given, payloads=payloads)
    assert outcome.ok, outcome.error
    assert outcome.data["rows"] == [{"n": 3000, "ids": 4498500, "tag": "x", "few": 2}]


async def test_a_table_in_an_object_store_or_known_to_ingest_alone_is_copied_by_parts(
    s3: S3Server, tmp_path: Path, held: Tables
) -> None:
    tier = ObjectTier(S3Objects(s3.login, "bucket-worker-tables"), "minio")
    store = ResultStore([tier], TierRule(default="minio"))
    ref = await persisted(store, made())
    body = await tier.get(f"minio://exec/5/load/{ref.sha256}.parquet")
    await store.close()
    nobody = Nobody(body)
    away = Payloads(nobody, bytes_max=1_000_000, store=disk_store(tmp_path / "other"))
    assert await away.settled(lambda: away.load(ref, "rows")[7]["id"]) == 7 and nobody.asked
    outcome = await ran("duckdb", held, "SELECT count(*) AS n FROM t", tables={"t": ref}, payloads=away)
    assert outcome.ok and outcome.data["rows"] == [{"n": 3000}]
    nobody.body = body[:1000] + b"\x00" + body[1001:]
    with pytest.raises(ReferenceCorrupt, match="digest"):
        await away.table_file(ref, tmp_path / "copy")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"t": 5}, "tables.t: expected a result with rows, found int '5'"),
        ({"t": []}, "tables.t: expected a result with rows, found no rows"),
        ({"t": [1]}, "a list of other things"),
        ({"t": [{}]}, "tables.t: expected rows with columns"),
        ({"": [{"a": 1}]}, "expected names"),
        ("text", "tables: expected"),
    ],
)
async def test_what_is_no_result_with_rows_is_named(held: Tables, given: Any, says: str) -> None:
    outcome = await ran("duckdb", held, "SELECT 1", tables=given)
    assert outcome.error is not None and outcome.error["kind"] == "config" and says in outcome.error["message"]


@pytest.mark.parametrize("of", [lambda items: items, lambda items: {"data": {"items": items}, "n": 1}])
async def test_a_long_list_is_read_by_its_items_and_seen_by_sql_as_a_short_one_is(
    tmp_path: Path, held: Tables, of: Any
) -> None:
    store = disk_store(tmp_path / "store")
    items = [{"id": place, "text": "x" * 600} if place % 2 else {"id": place} for place in range(4000)]
    payload = of(items)
    ref, row = await persist_before_emit(command(), payload, store=store, tabular=True)
    assert (ref.content_type, row.rows) == (TABLE_TYPE, 4000)
    assert await persist_before_emit(command(), payload, store=store, tabular=True) == (ref, row)
    payloads = Payloads(Nobody(), bytes_max=1_000_000, store=store)
    assert await payloads.settled(lambda: plain(payloads.load(ref, None))) == payload
    rows = "{{ load }}" if payload is items else "{{ load.data['items'] }}"
    scope = Scope(load=payloads.load, workload=Value({}), ctx={}, results={"load": ref})
    given = await payloads.settled(lambda: render_reference(rows, scope, where="here"))
    text = "SELECT count(*) AS n, sum(id)::BIGINT AS ids, max(length(text)) AS most FROM stored"
    outcome = await payloads.settled_call(
        lambda: ran("duckdb", held, text, tables={"stored": given}, payloads=payloads)
    )
    assert outcome.ok, outcome.error
    assert outcome.data["rows"] == [{"n": 4000, "ids": 7_998_000, "most": 600}]


async def test_a_cache_of_rows_keeps_its_limit_and_a_read_of_more_than_memory_may_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = disk_store(tmp_path / "store")
    monkeypatch.setattr(files, "GROUP_ROWS_MAX", 1000)
    ref = await persisted(store, made())
    payloads = Payloads(Nobody(), bytes_max=1_000_000, store=store)
    assert await payloads.settled(lambda: payloads.load(ref, "rows")[2999]["id"]) == 2999
    misses, size = metrics.value("noetl_payload_cache_misses_total", kind="table"), 40_000
    small = Payloads(Nobody(), bytes_max=size, store=store)
    for place in (2999, 0, 1500, 0, 2998):
        assert (await small.settled(lambda at=place: small.load(ref, "rows")[at]))["id"] == place
        assert 0 < metrics.value("noetl_payload_cache_bytes") <= size
    assert metrics.value("noetl_payload_cache_misses_total", kind="table") > misses + 3
    monkeypatch.setattr(reading, "READ_BYTES_MAX", 20_000)
    with pytest.raises(TooLarge, match="at most 20000 bytes of its rows, found more: name the rows"):
        await payloads.settled(lambda: plain(payloads.load(ref, "rows")))


async def test_two_tables_in_one_payload_or_one_with_much_besides_are_json(tmp_path: Path, held: Tables) -> None:
    store = disk_store(tmp_path / "store")
    sinks = [held.sink(["a"]) for _ in range(2)]
    for sink in sinks:
        sink.add([[place] for place in range(25_000)])
    rows = [sink.finish() for sink in sinks]
    assert all(isinstance(one, Rows) for one in rows)
    payload = {name: {"columns": ["a"], "rows": one, "row_count": 25_000} for name, one in zip("xy", rows, strict=True)}
    ref, row = await persist_before_emit(command(), payload, store=store, tabular=True)
    assert ref.content_type == "application/json" and parted(payload) is not None
    payloads = Payloads(Nobody(), bytes_max=1_000_000, store=store)
    assert (await payloads.settled(lambda: payloads.load(ref, "y")))["rows"][-1] == {"a": 24_999}
    large = {**made(100), "more": "x" * 2_000_000}
    ref, row = await persist_before_emit(command(), large, store=store, tabular=True)
    assert (ref.content_type, row.rows) == ("application/json", 100)

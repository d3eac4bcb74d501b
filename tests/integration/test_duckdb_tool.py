"""The duckdb and ducklake tools with the real library: what comes back, what stays, what is undone, how they fail."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from services.worker.tools import Call, dispatch, duckdb

ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(1000) b"


@pytest.fixture(autouse=True)
async def _closed_afterwards() -> AsyncIterator[None]:
    yield
    await duckdb.close()


async def no_credential(alias: str) -> dict[str, Any]:
    raise AssertionError(alias)


async def sql(command: Any, *, kind: str = "duckdb", timeout_s: float = 20.0, **config: Any) -> Outcome:
    return await dispatch(
        Call(
            kind=kind,
            label="load",
            step="load",
            execution_id=7,
            scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
            credential=no_credential,
            config={"command": command, **config},
            idempotency_key="key-1",
            timeout_s=timeout_s,
        )
    )


async def good(command: Any, **config: Any) -> Any:
    outcome = await sql(command, **config)
    assert outcome.ok, outcome.error
    return outcome.data


async def bad(command: Any, **config: Any) -> dict[str, Any]:
    outcome = await sql(command, **config)
    assert outcome.status == "error" and outcome.error is not None, outcome
    return outcome.error


async def test_one_statement_returns_its_rows_and_itself_as_command_0() -> None:
    rows = {"columns": ["a", "b"], "rows": [{"a": 1, "b": "x"}], "row_count": 1}
    assert await good("-- it's a comment\nSELECT 1 AS a, 'x' AS b;") == {
        **rows,
        "command_0": {"status": "success", **rows},
    }


async def test_a_script_returns_the_last_rows_and_each_statement() -> None:
    data = await good(
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2) RETURNING a; UPDATE t SET a = 9 WHERE a = 1"
    )
    assert data["rows"] == [{"a": 1}, {"a": 2}] and data["row_count"] == 2
    assert data["command_0"] == {"status": "success", "rows": [], "row_count": 0, "columns": []}
    assert data["command_1"]["rows"] == [{"a": 1}, {"a": 2}]
    assert data["command_2"]["row_count"] == 1


@pytest.mark.parametrize(
    ("script", "affected"),
    [
        (["CREATE TABLE t (a int)", "INSERT INTO t SELECT * FROM range(5)"], 5),
        ("CREATE TABLE t AS SELECT * FROM range(3); DELETE FROM t WHERE range > 0;", 5),
        ("SET VARIABLE x = 1", 0),
    ],
)
async def test_without_rows_the_affected_are_counted(script: Any, affected: int) -> None:
    assert (await good(script))["affected_rows"] == affected


async def test_a_count_that_was_asked_for_is_a_row() -> None:
    assert (await good('SELECT 5::bigint AS "Count"'))["rows"] == [{"Count": 5}]


async def test_values_come_back_as_the_postgres_tool_has_them() -> None:
    data = await good(
        """SELECT 1.10::decimal(9, 2) AS dec, 9007199254740993::bigint AS big, 2::hugeint ** 100::int AS pow,
           '2026-01-02 03:04:05.6+00'::timestamptz AS at, '2026-01-02 03:04:05'::timestamp AS plain,
           '2026-01-02'::date AS day, '03:04:05.5'::time AS hour, '{"a": [1, 2.5]}'::json AS doc,
           '\\xff\\x00'::blob AS raw, [1, 2] AS ints, [1.10::decimal(9, 2)] AS decs, {'a': 1, 'b': [null]} AS both,
           MAP {1: 'x'} AS map, interval 1 hour AS span, interval '1 day 2.5 seconds' AS longer, true AS yes,
           '6ecd8c99-4036-403d-bf84-cf8400f67836'::uuid AS id, 'NaN'::double AS odd, '-inf'::float AS low,
           170141183460469231731687303715884105727::hugeint AS huge, NULL AS nothing"""
    )
    assert data["rows"][0] == {
        "dec": "1.10",
        "big": 9007199254740993,
        "pow": 2.0**100,
        "at": "2026-01-02T03:04:05.6+00:00",
        "plain": "2026-01-02T03:04:05",
        "day": "2026-01-02",
        "hour": "03:04:05.5",
        "doc": {"a": [1, 2.5]},
        "raw": "/wA=",
        "ints": [1, 2],
        "decs": ["1.10"],
        "both": {"a": 1, "b": [None]},
        "map": {"1": "x"},
        "span": "PT1H",
        "longer": "P1DT2.5S",
        "yes": True,
        "id": "6ecd8c99-4036-403d-bf84-cf8400f67836",
        "odd": "NaN",
        "low": "-Infinity",
        "huge": "170141183460469231731687303715884105727",
        "nothing": None,
    }


@pytest.mark.parametrize(
    ("command", "params", "row"),
    [
        ("SELECT ?::int + ? AS x", [1, 2], {"x": 3}),
        ("SELECT %s::int + %s::int AS x", [1, 2], {"x": 3}),
        ("SELECT $2 AS a, $1 AS b", ["it's", "x"], {"a": "x", "b": "it's"}),
        ("SELECT $n AS x, '$n ?' AS y", {"n": "a", "unused": 1}, {"x": "a", "y": "$n ?"}),
        ("SELECT %(n)s AS x, 5 %% 3 AS y", {"n": "a"}, {"x": "a", "y": 2}),
        ("SELECT %s::json AS x", [{"a": [1, {"b": "it's"}]}], {"x": {"a": [1, {"b": "it's"}]}}),
        ("SELECT list_sum(?) AS x", [[1, 3]], {"x": 4}),
        ("SELECT ? AS x", [None], {"x": None}),
    ],
)
async def test_parameters_are_bound(command: str, params: Any, row: dict[str, Any]) -> None:
    assert (await good(command, params=params))["rows"] == [row]


async def test_the_key_of_the_command_is_a_variable() -> None:
    assert (await good("SELECT getvariable('noetl_idempotency_key') AS key"))["rows"] == [{"key": "key-1"}]


async def test_a_file_keeps_what_memory_forgets(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.duckdb")
    await good("CREATE TABLE t AS SELECT 1 AS a", database=file)
    assert (await good("SELECT a FROM t", database=file))["rows"] == [{"a": 1}]
    await good("CREATE TABLE t AS SELECT 1 AS a", database=":memory:")
    assert (await bad("SELECT a FROM t", database=":memory:"))["code"] == "DUCKDB_CATALOG"


async def test_after_an_error_nothing_of_the_script_happened(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.duckdb")
    error = await bad("CREATE TABLE t (a int);\nINSERT INTO t VALUES (1);\nSELECT * FROM nope", database=file)
    assert "(statement 3 of 3, line 3)" in error["message"]
    assert (await good("SHOW TABLES", database=file))["rows"] == []


async def test_a_script_that_commits_by_itself_keeps_what_it_committed(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.duckdb")
    await bad("BEGIN; CREATE TABLE t (a int); COMMIT; SELECT * FROM nope", database=file)
    assert (await good("SHOW TABLES", database=file))["rows"] == [{"name": "t"}]
    other = str(tmp_path / "other.duckdb")
    await good(f"ATTACH '{other}' AS other; CREATE TABLE other.t AS SELECT 2 AS a; DETACH other", database=file)
    assert (await good("SELECT a FROM t", database=other))["rows"] == [{"a": 2}]


async def test_calls_on_one_file_wait_for_each_other(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.duckdb")
    await good("CREATE TABLE t (a int)", database=file)
    again = str(tmp_path / "." / "shop.duckdb")
    await asyncio.gather(*(good("INSERT INTO t VALUES (1)", database=each) for each in [file, again] * 6))
    assert (await good("SELECT count(*) AS n FROM t", database=file))["rows"] == [{"n": 12}]


@pytest.mark.parametrize(
    ("command", "config", "kind", "message"),
    [
        ("selec 1", {}, "sql", 'Parser Error: syntax error at or near "selec" (statement 1 of 1, line 1)'),
        ("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (1)", {}, "db_constraint", "duplicate key"),
        ("SELECT 1", {"database": "/nowhere/x.duckdb"}, "db_connection", "/nowhere/x.duckdb"),
        ("SELECT 1", {"database": 5}, "config", "database: expected a path or :memory:, found int"),
        ("SELECT 1", {"auth": "shop"}, "config", "auth: expected none, found a credential"),
        (" -- nothing", {}, "config", "no SQL command provided"),
        (None, {}, "config", "no SQL command provided"),
        ("SELECT ?", {"params": "x"}, "config", "params: expected a list or a mapping, found str"),
        ("SELECT ?", {"params": [1, 2]}, "config", "params: expected 1"),
        ("BEGIN", {}, "config", "command: expected COMMIT or ROLLBACK at its end, found a transaction left open"),
    ],
)
async def test_a_failure_says_what_was_wrong(command: Any, config: dict[str, Any], kind: str, message: str) -> None:
    error = await bad(command, **config)
    assert error["kind"] == kind and message in error["message"], error


async def test_an_error_does_not_quote_the_statement() -> None:
    assert "s3cret" not in (await bad("SELECT 's3cret', nope"))["message"]


async def test_a_query_without_end_is_interrupted_at_its_timeout(tmp_path: Path) -> None:
    began = time.monotonic()
    file = str(tmp_path / "shop.duckdb")
    error = await bad(f"CREATE TABLE t (a int); {ENDLESS}", timeout_s=0.5, database=file)
    assert error["kind"] == "db_timeout" and error["retryable"] and time.monotonic() - began < 5
    assert (await good("SHOW TABLES", database=file))["rows"] == []


async def test_a_query_without_end_is_interrupted_by_a_cancellation(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.duckdb")
    task = asyncio.create_task(sql(ENDLESS, database=file, timeout_s=60))
    waiting = asyncio.create_task(sql("SELECT 1 AS a", database=file))
    await asyncio.wait({waiting}, timeout=0.3)
    assert not waiting.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await waiting).data["rows"] == [{"a": 1}]


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_DUCKDB_MEMORY_BYTES", str(20 * 1024 * 1024))
    error = await bad("SELECT list(range) AS l FROM range(50000000)")
    assert error["kind"] == "memory" and not error["retryable"], error


@pytest.mark.parametrize("library", ["duckdb", "pytz"])
async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    error = await bad("SELECT 1")
    assert (error["kind"], error["code"]) == ("config", "DEPENDENCY_MISSING")
    assert "pip install noetl[duckdb]" in error["message"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "catalog_connection: expected a path or postgres:..., found nothing"),
        ({"catalog_connection": "c.ducklake", "catalog_name": "a b"}, "catalog_name: expected letters"),
        ({"catalog_connection": "c.ducklake", "data_path": 5}, "data_path: expected text, found int"),
    ],
)
async def test_a_wrong_field_of_ducklake_is_named(config: dict[str, Any], message: str) -> None:
    assert message in (await bad("SELECT 1", kind="ducklake", **config))["message"]


async def test_ducklake_runs_where_its_extension_is_and_else_names_it(tmp_path: Path) -> None:
    lake = {"catalog_connection": str(tmp_path / "c.ducklake"), "data_path": str(tmp_path / "files")}
    outcome = await sql("CREATE TABLE t AS SELECT 1 AS a; SELECT a FROM t", kind="ducklake", **lake)
    if outcome.ok:
        assert outcome.data["rows"] == [{"a": 1}]
    else:
        assert outcome.error is not None and outcome.error["code"] == "DEPENDENCY_MISSING"
        assert "the DuckDB extension 'ducklake' cannot be loaded" in outcome.error["message"]

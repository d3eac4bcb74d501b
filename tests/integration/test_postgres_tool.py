"""The postgres tool against a real server: what comes back, what is undone, how it fails."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.errors import NotFound
from services.worker.tools import Call, postgres
from tests.running import wait_until


@pytest.fixture(autouse=True)
async def _closed_afterwards() -> AsyncIterator[None]:
    yield
    await postgres.close()


def call_of(dsn: str, timeout_s: float = 20.0, **config: Any) -> Call:
    async def credential(alias: str) -> dict[str, Any]:
        if alias != "shop":
            raise NotFound(f"no credential {alias!r}")
        parts = conninfo_to_dict(dsn)
        names = {
            "db_host": "host",
            "db_port": "port",
            "db_user": "user",
            "db_password": "password",
            "db_name": "dbname",
        }
        return {"type": "postgres", "data": {name: parts.get(libpq_name) for name, libpq_name in names.items()}}

    return Call(
        kind="postgres",
        label="load",
        step="load",
        execution_id=7,
        scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
        credential=credential,
        config={"auth": "shop", **config},
        idempotency_key="key-1",
        timeout_s=timeout_s,
    )


async def sql(dsn: str, command: str, **config: Any) -> Outcome:
    return await postgres.run(call_of(dsn, command=command, **config))


async def good(dsn: str, command: str, **config: Any) -> Any:
    outcome = await sql(dsn, command, **config)
    assert outcome.ok, outcome.error
    return outcome.data


async def bad(dsn: str, command: str, **config: Any) -> dict[str, Any]:
    outcome = await sql(dsn, command, **config)
    assert outcome.status == "error" and outcome.error is not None, outcome
    return {**outcome.error, "pg": outcome.pg}


async def test_one_statement_returns_its_rows_and_itself_as_command_0(dsn: str) -> None:
    data = await good(dsn, "-- it's a comment\nSELECT 1 AS a, 'x' AS b;")
    rows = {"columns": ["a", "b"], "rows": [{"a": 1, "b": "x"}], "row_count": 1}
    assert data == {**rows, "command_0": {"status": "success", **rows}}


async def test_a_script_returns_the_last_rows_and_each_statement(dsn: str) -> None:
    data = await good(
        dsn, "CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2) RETURNING a; UPDATE t SET a = a + 1 WHERE a = 1"
    )
    assert data["rows"] == [{"a": 1}, {"a": 2}] and data["row_count"] == 2
    assert data["command_0"] == {"status": "success", "rows": [], "row_count": 0, "columns": []}
    assert data["command_1"]["rows"] == [{"a": 1}, {"a": 2}]
    assert data["command_2"]["row_count"] == 1


async def test_without_rows_the_affected_are_counted(dsn: str) -> None:
    await good(dsn, "CREATE TABLE t (a int)")
    assert (await good(dsn, "INSERT INTO t SELECT generate_series(1, 5)"))["affected_rows"] == 5
    data = await good(dsn, "DELETE FROM t WHERE a < 3; DELETE FROM t WHERE a = 5")
    assert data["affected_rows"] == 3


async def test_values_come_back_as_json(dsn: str) -> None:
    data = await good(
        dsn,
        """SELECT 1.10::numeric AS dec, 9007199254740993::bigint AS big, '2026-01-02 03:04:05.6+00'::timestamptz AS at,
           '2026-01-02 03:04:05'::timestamp AS plain, '2026-01-02'::date AS day, 'infinity'::timestamptz AS never,
           '{"a": [1, 2.5]}'::jsonb AS doc, '\\xff00'::bytea AS raw, ARRAY[1, 2] AS ints, ARRAY['x', NULL] AS words,
           ARRAY[1.10::numeric] AS decs, '1 hour'::interval AS span, int4range(1, 3) AS range, true AS yes,
           '6ecd8c99-4036-403d-bf84-cf8400f67836'::uuid AS id, 'NaN'::float8 AS odd, 0.5::float8 AS half,
           ROW(1, 'x') AS pair, '10.0.0.0/8'::cidr AS net, NULL AS nothing""",
    )
    assert data["rows"][0] == {
        "dec": "1.10",
        "big": 9007199254740993,
        "at": "2026-01-02T03:04:05.6+00:00",
        "plain": "2026-01-02T03:04:05",
        "day": "2026-01-02",
        "never": "infinity",
        "doc": {"a": [1, 2.5]},
        "raw": "/wA=",
        "ints": [1, 2],
        "words": ["x", None],
        "decs": ["1.10"],
        "span": "PT1H",
        "range": "[1,3)",
        "yes": True,
        "id": "6ecd8c99-4036-403d-bf84-cf8400f67836",
        "odd": "NaN",
        "half": 0.5,
        "pair": "(1,x)",
        "net": "10.0.0.0/8",
        "nothing": None,
    }


@pytest.mark.parametrize(
    ("command", "params", "row"),
    [
        ("SELECT %s::int + %s::int AS x", [1, 2], {"x": 3}),
        ("SELECT $2::text AS a, $1::text AS b", ["it's", "x"], {"a": "x", "b": "it's"}),
        ("SELECT %(n)s::text AS x, 5 %% 3 AS y", {"n": "a", "unused": 1}, {"x": "a", "y": 2}),
        ("SELECT %s::jsonb AS x", [{"a": [1, {"b": "it's"}]}], {"x": {"a": [1, {"b": "it's"}]}}),
        ("SELECT %s::jsonb AS x", [[1, 2]], {"x": [1, 2]}),
        ("SELECT %s::jsonb AS x", [5], {"x": 5}),
        ("SELECT %s::jsonb AS x", ['{"a": 1}'], {"x": {"a": 1}}),
        ("SELECT (e ->> 'id')::int AS x FROM jsonb_array_elements(%s) e", [[{"id": 4}]], {"x": 4}),
        ("SELECT 3 = ANY(%s) AS x", [[1, 3]], {"x": True}),
        ("SELECT %s::text AS x", [None], {"x": None}),
        ("SELECT %s::int AS x WHERE 'a%%s%s' LIKE 'a%%'", [1], {"x": 1}),
    ],
)
async def test_parameters_are_bound(dsn: str, command: str, params: Any, row: dict[str, Any]) -> None:
    assert (await good(dsn, command, params=params))["rows"] == [row]


async def test_parameters_reach_every_statement_of_a_script(dsn: str) -> None:
    script = "CREATE TABLE t (a int, b text); INSERT INTO t VALUES (%s, %s); INSERT INTO t VALUES (%s, %s); TABLE t"
    data = await good(dsn, script, params=[1, "x;'", 2, None])
    assert data["rows"] == [{"a": 1, "b": "x;'"}, {"a": 2, "b": None}]


async def test_a_percent_sign_is_plain_without_parameters(dsn: str) -> None:
    assert (await good(dsn, "SELECT 5 % 3 AS x, '%s' AS y"))["rows"] == [{"x": 2, "y": "%s"}]


async def test_after_an_error_no_statement_of_the_script_happened(dsn: str) -> None:
    error = await bad(dsn, "CREATE TABLE t (a int);\nINSERT INTO t VALUES (1);\nSELEC 1")
    assert error["code"] == "42601" and error["kind"] == "sql" and error["pg"] == {"code": "42601", "sqlstate": "42601"}
    assert "42601" in error["message"] and "statement 3 of 3, line 3" in error["message"]
    assert (await good(dsn, "SELECT to_regclass('t') AS t"))["rows"] == [{"t": None}]


async def test_what_cannot_stand_in_a_transaction_runs_statement_by_statement(dsn: str) -> None:
    script = "CREATE TABLE t (a int); CREATE INDEX CONCURRENTLY i ON t (a); VACUUM t; SELECT count(*) AS n FROM t"
    assert (await good(dsn, script))["rows"] == [{"n": 0}]


async def test_a_script_may_manage_its_own_transactions(dsn: str) -> None:
    script = "CREATE TABLE t (a int); BEGIN; INSERT INTO t VALUES (1); ROLLBACK; INSERT INTO t VALUES (2); TABLE t"
    assert (await good(dsn, script))["rows"] == [{"a": 2}]


async def test_a_transaction_left_open_is_an_error_and_is_rolled_back(dsn: str) -> None:
    await good(dsn, "CREATE TABLE t (a int)")
    error = await bad(dsn, "BEGIN; INSERT INTO t VALUES (1)")
    assert "found a transaction left open" in error["message"]
    assert (await good(dsn, "SELECT count(*) AS n FROM t"))["rows"] == [{"n": 0}]


async def test_sessions_leave_nothing_to_the_next_script(dsn: str) -> None:
    await good(dsn, "CREATE TEMP TABLE mine (a int); SET work_mem = '9MB'")
    data = await good(dsn, "SELECT to_regclass('mine') AS t, current_setting('work_mem') AS m")
    assert data["rows"][0]["t"] is None and data["rows"][0]["m"] != "9MB"


async def test_sql_sees_who_calls_and_the_idempotency_key(dsn: str) -> None:
    data = await good(
        dsn, "SELECT current_setting('noetl.idempotency_key') AS k, current_setting('application_name') AS a"
    )
    assert data["rows"] == [{"k": "key-1", "a": "noetl/7/load"}]


async def test_a_schema_becomes_the_search_path(dsn: str) -> None:
    await good(dsn, "CREATE SCHEMA side; CREATE TABLE side.t (a int)")
    assert (await good(dsn, "SELECT count(*) AS n FROM t", schema="side"))["rows"] == [{"n": 0}]


@pytest.mark.parametrize(
    ("command", "kind", "code", "retryable"),
    [
        ("SELECT 1 / 0", "sql", "22012", False),
        ("SELECT * FROM nowhere", "sql", "42P01", False),
        ("INSERT INTO one VALUES (1), (1)", "db_constraint", "23505", False),
        ("DO $$ BEGIN RAISE EXCEPTION 'five expected' USING ERRCODE = '40P01'; END $$", "db_deadlock", "40P01", True),
        ("COPY one FROM STDIN", "sql", "SQL", False),
    ],
)
async def test_errors_are_classified(dsn: str, command: str, kind: str, code: str, retryable: bool) -> None:
    await good(dsn, "CREATE TABLE one (a int PRIMARY KEY)")
    error = await bad(dsn, command)
    assert (error["kind"], error["code"], error["retryable"]) == (kind, code, retryable)
    assert (await good(dsn, "SELECT 1 AS a"))["row_count"] == 1


async def test_a_statement_over_its_time_is_cut_off(dsn: str) -> None:
    error = await bad(dsn, "SELECT pg_sleep(30)", timeout=0.2)
    assert (error["kind"], error["retryable"]) == ("db_timeout", True)


@pytest.mark.parametrize("command", ["", "  ;\n;"])
async def test_no_statement_is_a_clear_error(dsn: str, command: str) -> None:
    error = await bad(dsn, command)
    assert "no SQL command provided" in error["message"]


async def test_comments_alone_are_nothing_to_do(dsn: str) -> None:
    assert await good(dsn, "-- nothing yet;\n/* at all */") == {"affected_rows": 0}


async def test_a_nul_character_is_a_clear_error(dsn: str) -> None:
    assert "NUL" in (await bad(dsn, "SELECT 'a\0b'"))["message"]
    assert "NUL" in (await bad(dsn, "SELECT %s", params=["a\0b"]))["message"]
    assert "NUL" in (await bad(dsn, "SELECT %s::text[]", params=[["a\0b"]]))["message"]


async def test_an_unknown_credential_is_named(dsn: str) -> None:
    error = await bad(dsn, "SELECT 1", auth="nobody")
    assert (error["kind"], error["code"]) == ("config", "CREDENTIAL_NOT_FOUND") and "nobody" in error["message"]


async def test_a_database_that_does_not_answer_is_retryable(dsn: str, free_port: Any) -> None:
    error = await bad(dsn, "SELECT 1", auth=None, host="127.0.0.1", port=free_port(), user="u", password="s3cret")
    assert (error["kind"], error["retryable"]) == ("db_connection", True) and "s3cret" not in str(error)


async def test_a_password_never_shows_in_an_error(dsn: str) -> None:
    error = await bad(dsn, "SELECT 1", auth={"dsn": "s3cret host 'x"})
    assert "s3cret" not in str(error) and "connection string" in error["message"]


async def test_connections_are_used_again_and_a_dead_one_is_replaced(dsn: str) -> None:
    first = (await good(dsn, "SELECT pg_backend_pid() AS pid"))["rows"][0]["pid"]
    again = (await good(dsn, "SELECT pg_backend_pid() AS pid"))["rows"][0]["pid"]
    assert again == first
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    fresh = (await good(dsn, "SELECT pg_backend_pid() AS pid"))["rows"][0]["pid"]
    assert fresh != first


async def test_no_more_connections_than_the_limit_are_opened(dsn: str) -> None:
    pids = await asyncio.gather(*(good(dsn, "SELECT pg_backend_pid() AS pid") for _ in range(40)))
    assert len({data["rows"][0]["pid"] for data in pids}) <= 8


async def test_cancelling_the_call_cancels_the_query(dsn: str) -> None:
    task = asyncio.create_task(sql(dsn, "SELECT pg_sleep(60) AS long_nap"))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:

        async def napping() -> int:
            query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(60)%'"
            row = await (await conn.execute(query)).fetchone()
            assert row is not None
            return int(row[0])

        await wait_until(napping, what="the query runs")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def awake() -> bool:
            return await napping() == 0

        await wait_until(awake, what="the query is gone")

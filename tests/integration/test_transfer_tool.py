"""The transfer tool between real endpoints: what arrives, how, and that a failure leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.errors import NotFound
from noetl_common.process import Service
from services.worker.tools import Call, dispatch, duckdb, http, postgres
from tests.running import start_service

POSTS = [
    {"id": n, "userId": n % 3, "title": f"it's {n}", "meta": {"tags": ["a", n], "note": "x"}, "score": n / 2}
    for n in range(1, 101)
]
MAPPING = {"id": "id", "user_id": "userId", "title": "title"}
TABLE = "CREATE TABLE post (id int PRIMARY KEY, user_id int, title text)"
KINDS = """CREATE TABLE {} (id int PRIMARY KEY, dec numeric, moment timestamptz, doc jsonb, raw bytea, ints int[],
           words text[], yes bool, uid uuid, span interval, big bigint, half float8, day date, nothing text)"""
KINDS_ROW = """INSERT INTO a VALUES (1, 1.10, '2026-01-02 03:04:05.6+00', '{"a": [1, "x"]}', '\\xff00', '{1,2}',
               '{x,NULL}', true, '6ecd8c99-4036-403d-bf84-cf8400f67836', '1 day 1 hour', 9007199254740993, 'NaN',
               '2026-01-02', NULL)"""


@pytest.fixture(autouse=True)
async def _closed_afterwards() -> AsyncIterator[None]:
    yield
    await http.close()
    await postgres.close()
    await duckdb.close()


async def posts(request: Request) -> Response:
    return JSONResponse({"page": {"items": POSTS[: int(request.query_params.get("n", 100))]}})


async def plain(request: Request) -> Response:
    return JSONResponse(POSTS)


async def broken(request: Request) -> Response:
    return JSONResponse({"why": "because"}, status_code=503)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    routes = [Route("/posts", posts), Route("/plain", plain), Route("/broken", broken)]
    service = Service(name="stub", asgi=Starlette(routes=routes), host="127.0.0.1", port=0)
    async with start_service(service) as running:
        yield running.url
        await http.close()


class Shop:
    """A database that the credential `shop` names, and the tool called with it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    async def call(self, timeout_s: float = 20.0, **config: Any) -> Outcome:
        async def credential(alias: str) -> dict[str, Any]:
            if alias != "shop":
                raise NotFound(f"no credential {alias!r}")
            return {"type": "postgres", "data": {"dsn": self.dsn}}

        return await dispatch(
            Call(
                kind="transfer",
                label="move",
                step="move",
                execution_id=7,
                scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
                credential=credential,
                config=config,
                idempotency_key="key-1",
                timeout_s=timeout_s,
            )
        )

    async def good(self, **config: Any) -> Any:
        outcome = await self.call(**config)
        assert outcome.ok, outcome.error
        return outcome.data

    async def bad(self, **config: Any) -> dict[str, Any]:
        outcome = await self.call(**config)
        assert outcome.status == "error" and outcome.error is not None, outcome
        return outcome.error

    async def sql(self, text: str) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as conn:
            cursor = await conn.execute(text.encode())
            return await cursor.fetchall() if cursor.description else []

    def table(self, name: str = "post", **more: Any) -> dict[str, Any]:
        return {"type": "postgres", "auth": "shop", "table": name, **more}

    def query(self, text: str, **more: Any) -> dict[str, Any]:
        return {"type": "postgres", "auth": "shop", "query": text, **more}


@pytest.fixture
def shop(dsn: str) -> Shop:
    return Shop(dsn)


async def test_an_answer_goes_into_a_table_in_chunks(shop: Shop, url: str) -> None:
    await shop.sql(TABLE)
    source = {"type": "http", "url": f"{url}/posts", "data_path": "page.items"}
    assert await shop.good(source=source, target=shop.table(mapping=MAPPING), chunk_size=30) == {
        "status": "success",
        "rows_transferred": 100,
        "chunks": 4,
        "columns": ["id", "user_id", "title"],
        "mode": "append",
        "source": "http",
        "target": "postgres",
    }
    assert await shop.sql("SELECT count(*), sum(user_id), max(title) FROM post") == [(100, 100, "it's 99")]


async def test_json_finds_its_columns(shop: Shop, url: str) -> None:
    await shop.sql("CREATE TABLE public.post (id bigint, meta jsonb, note jsonb, text text, score numeric)")
    mapping = {"id": "id", "meta": "meta", "note": "meta.note", "text": "meta", "score": "score"}
    await shop.good(source={"type": "http", "url": f"{url}/plain"}, target=shop.table("public.post"), mapping=mapping)
    row = (1, {"tags": ["a", 1], "note": "x"}, "x", '{"tags":["a",1],"note":"x"}', "0.5")
    assert await shop.sql("SELECT id, meta, note, text, score::text FROM public.post WHERE id = 1") == [row]


@pytest.mark.parametrize(
    ("mode", "more", "found"),
    [
        ("replace", {}, [(1, "it's 1"), (2, "it's 2")]),
        ("upsert", {}, [(1, "it's 1"), (2, "it's 2"), (9, "old")]),
        ("upsert", {"key": "id"}, [(1, "it's 1"), (2, "it's 2"), (9, "old")]),
        ("append", {}, None),
    ],
)
async def test_the_mode_says_what_becomes_of_rows_that_are_there(
    shop: Shop, url: str, mode: str, more: dict[str, Any], found: Any
) -> None:
    await shop.sql(TABLE)
    await shop.sql("INSERT INTO post VALUES (1, 1, 'old'), (9, 9, 'old')")
    source = {"type": "http", "url": f"{url}/posts?n=2", "data_path": "page.items"}
    outcome = await shop.call(source=source, target=shop.table(mapping=MAPPING), mode=mode, chunk_size=1, **more)
    if found is None:
        assert outcome.error is not None and outcome.error["kind"] == "db_constraint"
        assert "23505" in outcome.error["message"] and "(target)" in outcome.error["message"]
        found = [(1, "old"), (9, "old")]
    assert await shop.sql("SELECT id, title FROM post ORDER BY id") == found


async def test_an_insert_of_ones_own_takes_the_columns_by_name(shop: Shop, url: str) -> None:
    await shop.sql(TABLE)
    query = "INSERT INTO post (title, id) VALUES (upper(%(title)s), %(id)s::int + 1000)"
    source = {"type": "http", "url": f"{url}/posts?n=2", "data_path": "page.items"}
    await shop.good(source=source, target=shop.query(query, mapping={"id": "id", "title": "title"}))
    assert await shop.sql("SELECT id, title FROM post ORDER BY id") == [(1001, "IT'S 1"), (1002, "IT'S 2")]


async def test_every_type_of_postgres_arrives_as_it_left(shop: Shop) -> None:
    await shop.sql(KINDS.format("a"))
    await shop.sql(KINDS.format("b"))
    await shop.sql(KINDS_ROW)
    await shop.good(source=shop.query("SELECT * FROM a WHERE id = %s", params=[1]), target=shop.table("b"))
    a, b = await shop.sql("SELECT a::text FROM a"), await shop.sql("SELECT b::text FROM b")
    assert a == b and len(a) == 1


async def test_a_table_goes_to_duckdb_and_back(shop: Shop, tmp_path: Path) -> None:
    file = str(tmp_path / "shop.duckdb")
    await shop.sql(KINDS.format("a"))
    await shop.sql(KINDS.format("b"))
    await shop.sql(KINDS_ROW)
    await shop.sql("INSERT INTO a (id) SELECT generate_series(2, 2500)")
    call = query_of(
        file,
        "CREATE TABLE t (id int, dec decimal(9, 2), moment timestamptz, doc json, raw blob, ints int[], "
        "words varchar[], yes bool, uid uuid, span interval, big bigint, half double, day date, nothing varchar)",
    )
    assert (await dispatch(call)).ok
    lake = {"type": "duckdb", "database": file, "table": "t"}
    assert (await shop.good(source=shop.table("a"), target=lake))["rows_transferred"] == 2500
    back = {"type": "duckdb", "database": file, "query": "SELECT * FROM t WHERE id < ?", "params": [3]}
    assert (await shop.good(source=back, target=shop.table("b")))["rows_transferred"] == 2
    a = await shop.sql("SELECT a::text FROM a WHERE id < 3 ORDER BY id")
    assert await shop.sql("SELECT b::text FROM b ORDER BY id") == a


@pytest.mark.parametrize(("mode", "ids"), [("append", [1, 2, 9]), ("replace", [1, 2]), ("upsert", [1, 2, 9])])
async def test_a_table_of_duckdb_takes_every_mode(shop: Shop, url: str, tmp_path: Path, mode: str, ids: Any) -> None:
    file = str(tmp_path / "shop.duckdb")
    there = [9] if mode == "append" else [1, 9]
    await dispatch(query_of(file, "CREATE TABLE t (id int PRIMARY KEY, title text, meta json)"))
    for number in there:
        await dispatch(query_of(file, f"INSERT INTO t (id, title) VALUES ({number}, 'old')"))  # noqa: S608 - a number
    source = {"type": "http", "url": f"{url}/posts?n=2", "data_path": "page.items"}
    target = {"type": "duckdb", "database": file, "table": "main.t"}
    await shop.good(source=source, target=target, mode=mode, mapping={"id": "id", "title": "title", "meta": "meta"})
    found = (await dispatch(query_of(file, "FROM t ORDER BY id"))).data["rows"]
    assert [row["id"] for row in found] == ids
    assert found[0] == {"id": 1, "title": "it's 1", "meta": {"tags": ["a", 1], "note": "x"}}


def query_of(database: str, command: str) -> Call:
    async def credential(alias: str) -> dict[str, Any]:
        raise AssertionError(alias)

    return Call(
        kind="duckdb",
        label="load",
        step="load",
        execution_id=7,
        scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
        credential=credential,
        config={"database": database, "command": command},
    )


async def test_a_failure_in_the_middle_leaves_nothing(shop: Shop) -> None:
    await shop.sql(TABLE)
    await shop.sql("INSERT INTO post VALUES (9, 9, 'old')")
    text = "SELECT n AS id, 1 AS user_id, 1 / (1500 - n) AS title FROM generate_series(1, 2000) n"
    error = await shop.bad(source=shop.query(text), target=shop.table(), mode="replace", chunk_size=500)
    assert "22012" in error["message"] and "(source)" in error["message"]
    assert await shop.sql("SELECT id FROM post") == [(9,)]


async def test_nothing_to_move_is_a_success_and_replaces(shop: Shop) -> None:
    await shop.sql(TABLE)
    await shop.sql("INSERT INTO post VALUES (9, 9, 'old')")
    data = await shop.good(source=shop.query("SELECT 1 AS id WHERE false"), target=shop.table(), mode="replace")
    assert data["rows_transferred"] == 0 and await shop.sql("TABLE post") == []


async def test_a_transfer_ends_at_its_timeout(shop: Shop) -> None:
    await shop.sql(TABLE)
    text = "SELECT n AS id, 1 AS user_id, pg_sleep(1)::text AS title FROM generate_series(1, 1000) n"
    error = await shop.bad(source=shop.query(text), target=shop.table(), timeout_s=0.5, chunk_size=1)
    assert error["kind"] == "db_timeout" and error["retryable"]
    assert await shop.sql("TABLE post") == []


async def test_a_cancelled_transfer_leaves_nothing(shop: Shop) -> None:
    await shop.sql(TABLE)
    text = "SELECT n AS id, 1 AS user_id, pg_sleep(1)::text AS title FROM generate_series(1, 1000) n"
    task = asyncio.create_task(shop.call(source=shop.query(text), target=shop.table(), chunk_size=1))
    await asyncio.wait({task}, timeout=0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await shop.sql("TABLE post") == []


HTTP: dict[str, Any] = {"type": "http", "data_path": "page.items"}
PG: dict[str, Any] = {"type": "postgres", "auth": "shop", "table": "post"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"target": PG}, "source: expected a mapping with `type`, found NoneType"),
        (
            {"source": {"type": "ftp"}, "target": PG},
            "duckdb, http, postgres, snowflake, found 'ftp'",
        ),
        (
            {"source": HTTP, "target": {"type": "http"}},
            "expected duckdb, postgres, snowflake, found 'http'",
        ),
        ({"source": HTTP, "target": {"type": "snowflake"}}, "expected `auth` naming a snowflake credential"),
        ({"source": {"type": "duckdb"}, "target": {"type": "duckdb"}}, "expected another target than duckdb"),
        ({"source": HTTP, "target": PG, "mode": "merge"}, "mode: expected append, replace or upsert, found 'merge'"),
        ({"source": HTTP, "target": PG, "chunk_size": 0}, "chunk_size: expected 1 to 100000, found 0"),
        ({"source": HTTP, "target": PG, "mapping": ["id"]}, "mapping: expected {column of the target"),
        (
            {"source": HTTP, "target": PG, "mapping": {"id": "nr"}},
            "mapping.id: expected a field of the source (id, meta",
        ),
        ({"source": HTTP, "target": PG, "mapping": {"nr": "id"}}, "columns (id, user_id, title), found 'nr'"),
        ({"source": HTTP, "target": {**PG, "table": "nope"}}, "target.table: expected a table that exists"),
        ({"source": HTTP, "target": {**PG, "table": ""}}, "target.table: expected text, found ''"),
        ({"source": HTTP, "target": {**PG, "auth": "nobody"}}, "no credential 'nobody' (target)"),
        ({"source": {**HTTP, "data_path": "page.rows"}, "target": PG}, "source.data_path: expected 'page.rows'"),
        ({"source": {**HTTP, "data_path": "page"}, "target": PG}, "expected a list of rows, found dict"),
        ({"source": {**PG, "table": "", "query": "a; b"}, "target": PG}, "source.query: expected one statement"),
        ({"source": HTTP, "target": PG, "mapping": MAPPING, "mode": "upsert", "key": "nr"}, "key: expected columns"),
        ({"source": {**HTTP, "path": "/broken"}, "target": PG}, "transfer: GET http"),
    ],
)
async def test_a_wrong_field_is_named(shop: Shop, url: str, config: dict[str, Any], message: str) -> None:
    await shop.sql(TABLE)
    source = config.get("source")
    if source and source["type"] == "http":
        config = {**config, "source": {**source, "url": url + source.get("path", "/posts")}}
    error = await shop.bad(**config)
    assert message in error["message"], error
    assert await shop.sql("TABLE post") == []

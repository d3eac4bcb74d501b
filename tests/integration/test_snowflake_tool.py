"""The snowflake tool through the real connector, over HTTP, against fakesnow: an emulator of Snowflake on DuckDB."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from noetl_common.core.outcome import Outcome
from noetl_common.core.scope import Scope
from noetl_common.core.values import Value
from noetl_common.errors import Invalid, NotFound
from services.worker.tools import Call, dispatch, duckdb, snowflake, snowflake_session

LOGIN = {"account": "fakesnow", "user": "fake", "password": "snow", "database": "shop", "schema": "public"}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Start the emulator in a process of its own: it logs at will and holds DuckDB."""
    log = tmp_path_factory.mktemp("fakesnow") / "log"
    port = _free_port()
    command = [sys.executable, "-W", "ignore", "-m", "fakesnow", "--server", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _wait(process, port, log)
        yield {**LOGIN, "host": "127.0.0.1", "port": port, "protocol": "http"}
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    for _ in range(300):
        assert process.poll() is None, log.read_text()
        try:
            httpx.get(f"http://127.0.0.1:{port}/", timeout=0.5, trust_env=False)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


class Warehouse:
    """An emulated account that the credential `wh` names, and the tool called with it."""

    def __init__(self, login: dict[str, Any]) -> None:
        self.login = login

    async def credential(self, alias: str) -> dict[str, Any]:
        if alias == "other":
            return {"type": "postgres", "data": {}}
        if alias != "wh":
            raise NotFound(f"no credential {alias!r}")
        return {"type": "snowflake", "data": self.login}

    async def call(self, kind: str = "snowflake", timeout_s: float = 30.0, **config: Any) -> Outcome:
        return await dispatch(
            Call(
                kind=kind,
                label="ask",
                step="ask",
                execution_id=7,
                scope=Scope(load=lambda ref, key: None, workload=Value({}), ctx={}, results={}),
                credential=self.credential,
                config=config,
                idempotency_key="key-1",
                timeout_s=timeout_s,
            )
        )

    async def good(self, *commands: str, **more: Any) -> Any:
        outcome = await self.call(auth="wh", commands=list(commands), **more)
        assert outcome.ok, outcome.error
        return outcome.data

    async def bad(self, command: str, **more: Any) -> dict[str, Any]:
        outcome = await self.call(**{"auth": "wh", "command": command, **more})
        assert outcome.status == "error" and outcome.error is not None, outcome
        return outcome.error


@pytest.fixture
async def warehouse(emulator: dict[str, Any], request: pytest.FixtureRequest) -> AsyncIterator[Warehouse]:
    yield Warehouse({**emulator, "database": f"db_{abs(hash(request.node.name)) % 10**9}"})
    await snowflake.close()
    await duckdb.close()


async def test_a_script_returns_the_last_rows_and_every_command(warehouse: Warehouse) -> None:
    await warehouse.good("CREATE TABLE item (id int, name varchar)")
    data = await warehouse.good(
        "INSERT INTO item VALUES (1, 'it''s; one'), (2, 'two')", "SELECT id, name FROM item ORDER BY id"
    )
    assert (data["columns"], data["row_count"]) == (["ID", "NAME"], 2)
    assert data["rows"] == [{"ID": 1, "NAME": "it's; one"}, {"ID": 2, "NAME": "two"}]
    assert data["command_0"]["row_count"] == 2 and data["command_1"]["rows"] == data["rows"]
    changed = await warehouse.good("UPDATE item SET name = 'x' WHERE id > 0")
    assert changed["affected_rows"] == 2


@pytest.mark.parametrize(
    ("sql", "params", "row"),
    [
        ("SELECT %(a)s AS a, %(b)s AS b", {"a": 1, "b": "it's %s; $1"}, {"A": 1, "B": "it's %s; $1"}),
        ("SELECT %s AS a, '%s' AS b", ["x"], {"A": "x", "B": "%s"}),
        ("SELECT $2 AS a, $1 AS b, $2 AS c", [1, "y"], {"A": "y", "B": 1, "C": "y"}),
        ("SELECT %(n)s AS n", {"n": None}, {"N": None}),
        ("SELECT parse_json(%(doc)s):k::int AS k", {"doc": {"k": 5}}, {"K": 5}),
    ],
)
async def test_parameters_are_bound_never_read_as_sql(
    warehouse: Warehouse, sql: str, params: Any, row: dict[str, Any]
) -> None:
    assert (await warehouse.good(sql, params=params))["rows"] == [row]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1.50::number(10,2)", "1.50"),
        ("9007199254740993::bigint", 9007199254740993),
        ("1.5::float", 1.5),
        ("true", True),
        ("'2026-01-02'::date", "2026-01-02"),
        ("'12:30:00'::time", "12:30:00"),
        ("'2026-01-02 03:04:05'::timestamp_ntz", "2026-01-02T03:04:05"),
        ("to_binary('ff00', 'HEX')", "/wA="),
        ("parse_json('{\"a\": [1]}')", {"a": [1]}),
        ("null", None),
    ],
)
async def test_values_become_json(warehouse: Warehouse, expression: str, value: Any) -> None:
    assert (await warehouse.good(f"SELECT {expression} AS x"))["rows"] == [{"X": value}]


async def test_after_an_error_none_of_a_script_happened(warehouse: Warehouse) -> None:
    await warehouse.good("CREATE TABLE item (id int)")
    error = await warehouse.bad("INSERT INTO item VALUES (1);\nSELECT * FROM nowhere")
    assert "statement 2 of 2, line 2" in error["message"]
    assert (await warehouse.good("SELECT count(*) AS n FROM item"))["rows"] == [{"N": 0}]


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        ({"command": "SELECT * FROM nowhere"}, "sql", "does not exist"),
        ({"command": "SELEC 1"}, "sql", "001003"),
        ({"command": "-- nothing"}, "config", "found only blanks and comments"),
        ({"command": "SELECT 1", "params": [1]}, "config", "as many as there are placeholders"),
        ({"command": "SELECT 1", "auth": "nobody"}, "config", "no credential 'nobody'"),
        ({"command": "SELECT 1", "auth": "other"}, "config", "expected type snowflake, found postgres"),
        ({"command": "SELECT 1", "auth": None}, "config", "expected `auth` naming a snowflake credential"),
        ({"command": "SELECT 1", "auth": {"user": "u"}}, "config", "account: expected a text"),
        ({"command": "SELECT 1", "auth": {"user": "u", "account": "a"}}, "config", "expected password, private_key"),
    ],
)
async def test_an_error_is_classified_and_says_what_was_expected(
    warehouse: Warehouse, config: dict[str, Any], kind: str, words: str
) -> None:
    error = await warehouse.bad(**config)
    assert (error["kind"], error["retryable"]) == (kind, False), error
    assert words in error["message"]


async def test_a_server_that_is_not_there_may_be_tried_again(warehouse: Warehouse) -> None:
    warehouse.login = {**warehouse.login, "port": _free_port()}
    error = await warehouse.bad("SELECT 1", timeout_s=3.0)
    assert error["retryable"] is True and error["kind"] in ("db_connection", "db_timeout")


@pytest.mark.parametrize("mode", ["append", "replace", "upsert"])
async def test_rows_are_transferred_into_snowflake_and_back(warehouse: Warehouse, tmp_path: Path, mode: str) -> None:
    await warehouse.good("CREATE TABLE post (id int, title varchar, doc variant)")
    await warehouse.good("INSERT INTO post (id, title) VALUES (1, 'old'), (0, 'kept')")
    rows = "SELECT i::int AS id, 'it''s ' || i AS title, json('{\"n\": ' || i || '}') AS doc FROM range(1, 26) r(i)"
    outcome = await warehouse.call(
        "transfer",
        source={"type": "duckdb", "query": rows},
        target={"type": "snowflake", "auth": "wh", "table": "post"},
        mode=mode,
        key="id",
        chunk_size=10,
    )
    assert outcome.ok, outcome.error
    assert (outcome.data["rows_transferred"], outcome.data["chunks"]) == (25, 3)
    found = await warehouse.good("SELECT id, title, doc:n::int AS n FROM post ORDER BY id, title")
    expected = {"append": 27, "replace": 25, "upsert": 26}[mode]
    assert found["row_count"] == expected
    assert {"ID": 25, "TITLE": "it's 25", "N": 25} in found["rows"]
    assert ({"ID": 1, "TITLE": "old", "N": None} in found["rows"]) is (mode == "append")
    database = str(tmp_path / "back.duckdb")
    await warehouse.call("duckdb", database=database, command="CREATE TABLE post (id int, title varchar)")
    back = await warehouse.call(
        "transfer",
        source={"type": "snowflake", "auth": "wh", "query": "SELECT id, title FROM post WHERE id > %s", "params": [5]},
        target={"type": "duckdb", "database": database, "table": "post"},
        mapping={"id": "ID", "title": "TITLE"},
        chunk_size=7,
    )
    assert back.ok and back.data["rows_transferred"] == 20, back.error
    count = await warehouse.call("duckdb", database=database, command="SELECT count(*) AS n FROM post")
    assert count.data["rows"] == [{"n": 20}]


@pytest.mark.parametrize(
    ("target", "mode", "words"),
    [
        ({"table": "nowhere"}, "append", "does not exist"),
        ({"table": "post"}, "upsert", "key: expected columns that are written"),
        ({"table": "post", "mapping": {"nope": "id"}}, "append", "expected one of its columns (ID)"),
        ({"query": "INSERT INTO post VALUES (%(id)s / 0)"}, "replace", "expected append with target.query"),
    ],
)
async def test_a_transfer_that_fails_leaves_nothing(
    warehouse: Warehouse, target: dict[str, Any], mode: str, words: str
) -> None:
    await warehouse.good("CREATE TABLE post (id int)")
    outcome = await warehouse.call(
        "transfer",
        source={"type": "duckdb", "query": "SELECT 1 AS id"},
        target={"type": "snowflake", "auth": "wh", **target},
        mode=mode,
    )
    assert outcome.error is not None and words in outcome.error["message"], outcome.error
    assert (await warehouse.good("SELECT count(*) AS n FROM post"))["rows"] == [{"N": 0}]


async def test_a_transfer_by_an_insert_of_its_own(warehouse: Warehouse) -> None:
    await warehouse.good("CREATE TABLE post (id int, label varchar)")
    outcome = await warehouse.call(
        "transfer",
        source={"type": "duckdb", "query": "SELECT i::int AS id FROM range(3) r(i)"},
        target={"type": "snowflake", "auth": "wh", "query": "INSERT INTO post VALUES (%(id)s, 'n' || %(id)s)"},
    )
    assert outcome.ok, outcome.error
    assert (await warehouse.good("SELECT label FROM post WHERE id = 2"))["rows"] == [{"LABEL": "n2"}]


async def test_waiting_for_snowflake_holds_up_nothing(warehouse: Warehouse) -> None:
    beats = 0
    task = asyncio.create_task(warehouse.good("SELECT 1 AS x"))
    while not task.done():
        await asyncio.sleep(0.002)
        beats += 1
    assert (await task)["rows"] == [{"X": 1}] and beats > 3


def test_a_key_pair_logs_in_with_der_and_a_wrong_key_is_named() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"opensesame"),
    ).decode()
    der = snowflake_session._der(pem, "opensesame")
    assert serialization.load_der_private_key(der, None)
    for given in ((pem, None), (pem, "wrong"), ("nonsense", None)):
        with pytest.raises(Invalid, match="expected a private key in PEM"):
            snowflake_session._der(*given)

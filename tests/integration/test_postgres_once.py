"""`once: true`: the script and its entry in the ledger commit together, so that a repeated run applies nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from noetl_common import metrics
from services.worker.tools import Call, postgres
from tests.integration.test_postgres_tool import call_of

MAKE = "CREATE TABLE IF NOT EXISTS applied (n int)"


@pytest.fixture(autouse=True)
async def _closed_afterwards(dsn: str) -> AsyncIterator[None]:
    assert (await postgres.run(call_of(dsn, command=MAKE))).ok
    yield
    await postgres.close()


def once(dsn: str, command: str, key: str = "key-1", **config: Any) -> Call:
    call = call_of(dsn, command=command, once=True, **config)
    call.idempotency_key = key
    return call


def rows_in(dsn: str) -> list[int]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return [row[0] for row in conn.execute("SELECT n FROM applied ORDER BY n").fetchall()]


async def test_a_repeated_run_applies_nothing_and_returns_what_the_first_returned(dsn: str) -> None:
    script = "INSERT INTO applied VALUES (1) RETURNING n, clock_timestamp() AS at"
    first = await postgres.run(once(dsn, script))
    before = metrics.value("noetl_effects_repeated_total")
    again = await postgres.run(once(dsn, script))
    assert first.ok and again.ok
    assert first.data == again.data
    assert rows_in(dsn) == [1]
    assert metrics.value("noetl_effects_repeated_total") == before + 1


async def test_another_key_is_another_effect(dsn: str) -> None:
    for key in ("one", "two"):
        assert (await postgres.run(once(dsn, "INSERT INTO applied VALUES (1)", key))).ok
    assert rows_in(dsn) == [1, 1]


async def test_what_fails_leaves_no_entry_and_may_be_tried_again(dsn: str) -> None:
    script = "INSERT INTO applied VALUES (1); SELECT 1 / (SELECT count(*) - 1 FROM applied)"
    failed = await postgres.run(once(dsn, script))
    assert failed.error is not None and failed.error["code"] == "22012"
    assert rows_in(dsn) == []
    assert (await postgres.run(once(dsn, "INSERT INTO applied VALUES (2)"))).ok
    assert rows_in(dsn) == [2]


async def test_many_at_once_apply_it_once(dsn: str) -> None:
    script = "INSERT INTO applied VALUES (1) RETURNING n; SELECT pg_sleep(0.05)"
    outcomes = await asyncio.gather(*(postgres.run(once(dsn, script)) for _ in range(12)))
    assert [outcome.error for outcome in outcomes] == [None] * 12
    assert len({str(outcome.data) for outcome in outcomes}) == 1
    assert rows_in(dsn) == [1]


async def test_a_result_that_the_ledger_does_not_keep_undoes_the_script(dsn: str) -> None:
    script = "INSERT INTO applied VALUES (1); SELECT repeat('x', 2000000) AS text"
    outcome = await postgres.run(once(dsn, script))
    assert outcome.error is not None
    assert "once: expected a result of at most 1048576 bytes" in outcome.error["message"]
    assert rows_in(dsn) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"once": "yes"}, "once: expected true or false, found 'yes'"),
        ({"once": True, "chunk_size": 10}, "once: expected no chunk_size"),
        ({"once": True, "command": "VACUUM applied"}, "once: expected statements of one transaction, found VACUUM"),
    ],
)
async def test_what_cannot_be_done_once_is_refused(dsn: str, config: dict[str, Any], message: str) -> None:
    outcome = await postgres.run(call_of(dsn, **{"command": "SELECT 1", **config}))
    assert outcome.error is not None and message in outcome.error["message"]


async def test_a_role_that_may_not_make_the_ledger_is_told_what_to_make(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        name = conn.execute("SELECT 'r' || pg_backend_pid()").fetchone()
        assert name is not None
        role = name[0]
        conn.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'told'")
        try:
            outcome = await postgres.run(once(dsn, "SELECT 1", user=role, password="told"))
            assert outcome.error is not None
            assert "expected the table public.noetl_effect or the right to make it" in outcome.error["message"]
            await postgres.close()
        finally:
            conn.execute(f"DROP ROLE {role}")

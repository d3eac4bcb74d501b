"""Workers killed, frozen or cut off in the middle of a claim or a stream: every row and chunk once, none lost."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from noetl_common.db import Pool
from noetl_common.secrets import generate_key
from services.compute.app import app as compute_app
from services.compute.config import Config as ComputeConfig
from services.ingest.app import app as ingest_app
from services.ingest.config import Config as IngestConfig
from services.meta.app import app as meta_app
from services.meta.config import Config as MetaConfig
from tests.gates import Gate, Mode, open_gate
from tests.ingesting import rows_of
from tests.running import start_role, wait_until

ROWS = 20
LEASE_S = 1.5
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: claims, path: tests/claims}
workflow:
- step: drain
  loop:
    cursor:
      kind: postgres
      auth: work
      claim: |
        UPDATE work SET claims = claims + 1 WHERE id IN (
          SELECT id FROM work WHERE claims = 0 ORDER BY id LIMIT {{ __frame_max_rows }} FOR UPDATE SKIP LOCKED
        ) RETURNING id
    iterator: row
    spec: {mode: cursor, max_in_flight: 2, frame: {max_rows: 7, row_concurrency: 3}}
  tool:
    kind: postgres
    auth: work
    command: "UPDATE work SET done = done + 1 WHERE id = {{ iter.row.id }}"
  next: {arcs: [{step: end}]}
- step: end
  tool: {kind: noop}
"""


STREAM = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: stream, path: tests/stream}
workflow:
- step: load
  tool:
    kind: python
    code: |
      import time
      for n in range(20):
          emit({"n": n})
          time.sleep(0.1)
      result = "all"
  next: {arcs: [{step: each, on: call.partial}]}
- step: each
  tool:
    kind: postgres
    auth: work
    command: "UPDATE work SET done = done + 1 WHERE id = {{ iter.chunk.n + 1 }}"
  next: {arcs: [{step: end}]}
- step: end
  tool: {kind: noop}
"""


class Site:
    """A server with its database, and workers as processes of their own."""

    def __init__(self, pool: Pool, url: str, dsn: str, folder: Path) -> None:
        self.pool = pool
        self.url = url
        self.dsn = dsn
        self.folder = folder
        self.workers: list[asyncio.subprocess.Process] = []

    async def worker(self, url: str = "") -> asyncio.subprocess.Process:
        """Start a worker that calls `url`."""
        environ = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ},
            "NOETL_SERVER_URL": url or self.url,
            "NOETL_STORE_DIR": str(self.folder),
            "NOETL_PORT": "0",
            "NOETL_HOST": "127.0.0.1",
            "NOETL_HEARTBEAT_SEC": "0.3",
            "NOETL_WORKER_ID": f"w{len(self.workers) + 1}",
        }
        log = (self.folder / f"worker{len(self.workers) + 1}.log").open("wb")
        with log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.worker", env=environ, stdout=log, stderr=log
            )
        self.workers.append(process)
        return process

    async def start(self, text: str = PLAYBOOK) -> str:
        """Start the playbook."""
        async with httpx.AsyncClient(base_url=self.url) as client:
            path = (await client.post("/api/catalog/register", json={"content": text})).json()["path"]
            answer = await client.post("/api/execute", json={"path": path})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["execution_id"])

    async def completed(self, execution_id: str, *, within_s: float = 60.0) -> None:
        """Return when the run has completed."""

        async def status() -> Any:
            [row] = await rows_of(self.pool, "SELECT * FROM noetl.execution WHERE execution_id = %s", execution_id)
            return row if row["status"] != "RUNNING" else None

        row = await wait_until(status, timeout_s=within_s, what="the end of the run")
        assert row["status"] == "COMPLETED", row["error"]

    async def ended(self, execution_id: str, *, within_s: float = 60.0, works_once: bool = True) -> None:
        """Return when the run has completed and every row was claimed and recorded once.

        `works_once`: no worker was killed while rows were worked on, so their tools ran once, too.
        """
        await self.completed(execution_id, within_s=within_s)
        found = await rows_of(self.pool, "SELECT claims, done, count(*) AS n FROM work GROUP BY 1, 2 ORDER BY 2")
        assert [(row["claims"], row["done"]) for row in found][: 1 if works_once else 2] == [(1, 1), (1, 2)][
            : len(found)
        ]
        assert sum(row["n"] for row in found) == ROWS
        text = "SELECT count(*) AS n FROM noetl.event WHERE event_type = 'command.completed' AND iter_index >= 0"
        assert await rows_of(self.pool, text) == [{"n": ROWS}]

    async def attempts(self) -> list[int]:
        """Return how often each claim was tried."""
        text = "SELECT attempt FROM noetl.command WHERE iter_index < 0 AND step = 'drain' ORDER BY issued_event_id"
        return [row["attempt"] for row in await rows_of(self.pool, text)]


@pytest.fixture
async def site(pool: Pool, dsn: str, nats_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    await do(
        pool,
        "CREATE TABLE work (id int PRIMARY KEY, claims int DEFAULT 0, done int DEFAULT 0);"
        " INSERT INTO work (id) SELECT generate_series(1, 20)",
    )
    ingest = IngestConfig(
        database_url=dsn,
        nats_url=nats_url,
        port=0,
        encryption_key=generate_key(),
        store_dir=str(tmp_path),
        command_lease_s=LEASE_S,
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(start_role(meta_app, MetaConfig(database_url=dsn)))
        await stack.enter_async_context(start_role(compute_app, ComputeConfig(database_url=dsn)))
        server = await stack.enter_async_context(start_role(ingest_app, ingest))
        made = Site(pool, server.url, dsn, tmp_path)
        await put_credential(made, dsn)
        try:
            yield made
        finally:
            for process in made.workers:
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def do(pool: Pool, script: str) -> None:
    async with pool.connection() as conn:
        await conn.execute(script.encode())


async def put_credential(site: Site, dsn: str, *, port: int = 0) -> None:
    parts = conninfo_to_dict(dsn)
    data = {
        "db_host": "127.0.0.1" if port else parts["host"],
        "db_port": port or parts["port"],
        "db_user": parts["user"],
        "db_password": parts.get("password") or "",
        "db_name": parts["dbname"],
    }
    async with httpx.AsyncClient(base_url=site.url) as client:
        answer = await client.post("/api/credentials", json={"name": "work", "type": "postgres", "data": data})
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def gate_to_ingest(site: Site, mark: bytes, mode: Mode) -> AsyncIterator[tuple[Gate, str]]:
    place = urlsplit(site.url)
    async with open_gate(str(place.hostname), place.port or 0, mark=mark, mode=mode) as gate:
        yield gate, f"http://127.0.0.1:{gate.port}"


async def caught(gate: Gate) -> None:
    await asyncio.wait_for(gate.caught.wait(), 30)
    await asyncio.sleep(0.1)  # what was passed on arrives


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("mark", "mode"),
    [(b"/details", "hold"), (b"/details", "hold_answer"), (b'"row_count"', "hold"), (b'"row_count"', "hold_answer")],
    ids=["before the note", "before the commit", "before the report", "before its answer"],
)
async def test_a_worker_killed_in_a_claim_loses_no_row_and_hands_none_on_twice(
    site: Site, mark: bytes, mode: Mode
) -> None:
    async with gate_to_ingest(site, mark, mode) as (gate, url):
        first = await site.worker(url)
        execution_id = await site.start()
        await caught(gate)
        first.kill()
        await first.wait()
        await site.worker()
        is_reported = (mark, mode) == (b'"row_count"', "hold_answer")
        await site.ended(execution_id, works_once=not is_reported)
    assert (await site.attempts())[0] == (1 if is_reported else 2)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_undone", [False, True], ids=["committed", "undone"])
async def test_a_worker_killed_while_its_commit_runs_is_told_of_by_postgres(
    site: Site, dsn: str, is_undone: bool
) -> None:
    # The claim's COMMIT waits for a lock that the test holds: until then its fate is open.
    await do(
        site.pool,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NULL; END';"
        " CREATE CONSTRAINT TRIGGER wait AFTER UPDATE OF claims ON work INITIALLY DEFERRED FOR EACH ROW"
        " EXECUTE FUNCTION wait()",
    )
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("SELECT pg_advisory_lock(4711)")
        first = await site.worker()
        execution_id = await site.start()
        waiting = (
            "SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database AND d.datname = current_database()"
            " WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"
        )

        async def blocked() -> list[int]:
            return [row["pid"] for row in await rows_of(site.pool, waiting)]

        [pid] = await wait_until(blocked, timeout_s=30, what="the COMMIT that waits")
        first.kill()
        await first.wait()
        await site.worker()
        await wait_until(lambda: second_attempt(site), timeout_s=30, what="the second attempt")
        await asyncio.sleep(0.5)
        assert await rows_of(site.pool, "SELECT 1 FROM work WHERE done > 0") == []
        if is_undone:
            await rows_of(site.pool, "SELECT pg_terminate_backend(%s)", pid)
        await conn.execute("SELECT pg_advisory_unlock(4711)")
    await site.ended(execution_id)


async def second_attempt(site: Site) -> bool:
    return (await site.attempts())[:1] == [2]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["hold", "hold_answer"], ids=["before the note", "before the commit"])
async def test_a_worker_frozen_in_a_claim_longer_than_its_lease_neither_loses_nor_doubles_rows(
    site: Site, mode: Mode
) -> None:
    async with gate_to_ingest(site, b"/details", mode) as (gate, url):
        first = await site.worker(url)
        execution_id = await site.start()
        await caught(gate)
        os.kill(first.pid, signal.SIGSTOP)
        await site.worker()
        await wait_until(lambda: second_attempt(site), timeout_s=30, what="the second attempt")
        await asyncio.sleep(0.5)
        # The frozen worker may still commit: until that is decided nobody may take these rows, or end without them.
        assert await rows_of(site.pool, "SELECT 1 FROM work WHERE done > 0") == []
        gate.release()
        os.kill(first.pid, signal.SIGCONT)
        await site.ended(execution_id)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["cut", "cut_answer"], ids=["before it arrived", "before its answer"])
async def test_a_commit_whose_connection_is_cut_is_asked_about(site: Site, dsn: str, mode: Mode) -> None:
    parts = conninfo_to_dict(dsn)
    async with open_gate(str(parts["host"]), int(str(parts["port"])), mark=b"COMMIT", mode=mode) as gate:
        await put_credential(site, dsn, port=gate.port)
        await site.worker()
        execution_id = await site.start()
        await caught(gate)
        await site.ended(execution_id)
    assert set(await site.attempts()) == {1}


@pytest.mark.timeout(120)
async def test_a_claim_that_is_refused_at_its_commit_is_not_taken_for_the_one_behind_it(site: Site) -> None:
    # The first COMMIT fails; the try behind it finds other rows.
    await do(
        site.pool,
        """
        CREATE SEQUENCE tries;
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('tries') = 1 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER refused AFTER UPDATE OF claims ON work DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION refuse();
        """,
    )
    by = "ORDER BY CASE WHEN (SELECT is_called FROM tries) THEN id ELSE -id END"
    execution_id = await site.start(PLAYBOOK.replace("ORDER BY id", by))
    await site.worker()
    await site.ended(execution_id)
    assert await rows_of(site.pool, "SELECT last_value > 20 AS is_past FROM tries") == [{"is_past": True}]


async def test_a_worker_killed_in_a_stream_costs_no_chunk_and_doubles_none(site: Site) -> None:
    first = await site.worker()
    execution_id = await site.start(STREAM)
    chunks = "SELECT count(*) AS n FROM noetl.event WHERE event_type = 'call.partial'"

    async def streamed() -> bool:
        return bool((await rows_of(site.pool, chunks))[0]["n"] >= 5)

    await wait_until(streamed, timeout_s=30, what="the fifth chunk")
    first.kill()
    await first.wait()
    await site.worker()
    await site.completed(execution_id)
    assert await rows_of(site.pool, chunks) == [{"n": ROWS}]
    [row] = await rows_of(site.pool, "SELECT attempt FROM noetl.command WHERE step = 'load'")
    assert row["attempt"] == 2
    items = (
        "SELECT iter_index FROM noetl.event WHERE event_type = 'command.completed' AND step = 'each'"
        " ORDER BY iter_index"
    )
    assert [row["iter_index"] for row in await rows_of(site.pool, items)] == list(range(ROWS))
    # Tools run at least once: only what the killed worker had not reported was worked on again.
    assert await rows_of(site.pool, "SELECT 1 FROM work WHERE done < 1") == []
    labels = "SELECT task_label FROM noetl.result_ref WHERE task_label LIKE 'load.chunk.%%'"
    assert len(await rows_of(site.pool, labels)) == ROWS

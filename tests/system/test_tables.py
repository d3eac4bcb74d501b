"""Large results with rows through a whole stack: written as they come, read by parts, counted in place."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from noetl_cli.embedded.stack import Plan, Stack, throwaway_stack
from noetl_common.core.tables import TABLE_TYPE
from tests.conformance import running
from tests.conformance.running import Run, completed, document, execute, register
from tests.memory import Watch

ROWS = int(os.environ.get("NOETL_TEST_TABLE_ROWS", "1000000"))
LOOP_ROWS = int(os.environ.get("NOETL_TEST_LOOP_ROWS", "3000"))
OVER_IDLE_MB_MAX = 300
EVENT_RESULT_BYTES_MAX = 512

TABLE = """
- step: make
  tool:
    kind: duckdb
    command: >
      SELECT i AS id, md5(i::VARCHAR) AS text, sha256(i::VARCHAR) AS more, i * 0.5::DOUBLE AS half
      FROM range(ROWS) t(i)
  next: {arcs: [{step: count, when: "{{ make.row_count == ROWS and make.rows | length == ROWS }}"}]}
- step: count
  tool:
    kind: duckdb
    tables: {made: "{{ make }}", few: "{{ make.rows[10:12] }}"}
    command: >
      SELECT count(*) AS n, sum(id)::BIGINT AS total, (SELECT max(id) FROM few) AS most FROM made
  next: {arcs: [{step: look}]}
- step: look
  tool:
    kind: python
    input:
      one: "{{ make.rows[HALF] }}"
      last: "{{ make.command_0.rows[-1].id }}"
      few: "{{ make.rows[65530:65540] | map(attribute='id') | list }}"
      counted: "{{ count.rows[0] }}"
      columns: "{{ make.columns }}"
    code: |
      result = {"one": one, "last": last, "few": few, "counted": counted, "columns": columns}
""".replace("HALF", str(ROWS // 2)).replace("ROWS", str(ROWS))
LOOP = """
- step: make
  tool:
    kind: postgres
    auth: pg_local
    command: >
      SELECT i AS id, repeat('x', CASE WHEN i % 100 = 0 THEN 2000 ELSE 10 END) AS text
      FROM generate_series(1, ROWS) i
  next: {arcs: [{step: each}]}
- step: each
  loop: {in: "{{ make.rows[:300] }}", iterator: row, mode: parallel}
  tool: {kind: noop}
  next: {arcs: [{step: all}]}
- step: all
  loop: {in: "{{ make.rows }}", iterator: row, mode: parallel, spec: {max_in_flight: 500}}
  tool:
    kind: python
    input: {n: "{{ row.id }}", size: "{{ row.text | length }}"}
    code: "result = n + size"
  next: {arcs: [{step: sum}]}
- step: sum
  tool: {kind: python, input: {all: "{{ all.results }}"}, code: "result = {'n': len(all), 'total': sum(all)}"}
""".replace("ROWS", str(LOOP_ROWS))
LISTS = """
- step: make
  tool:
    kind: python
    code: |
      items = [{"id": i, "text": "x" * 300} if i % 2 else {"id": i, "small": True} for i in range(20000)]
      result = {"found": {"items": items}, "count": len(items)}
  next: {arcs: [{step: each, when: "{{ make.found['items'] | length == make.count }}"}]}
- step: each
  loop: {in: "{{ make.found['items'] }}", iterator: item, mode: parallel, spec: {max_in_flight: 1000}}
  tool: {kind: noop}
  next: {arcs: [{step: look}]}
- step: look
  tool: {kind: python, input: {one: "{{ make.found['items'][19999] }}"}, code: "result = one['id']"}
"""
LARGE = """
- step: make
  tool: {kind: python, code: "result = {'text': ''.join(chr(97 + i % 7) for i in range(101)) * 500000, 'n': 1}"}
  next: {arcs: [{step: look, when: "{{ make.n == 1 }}"}]}
- step: look
  tool: {kind: noop}
  next: {arcs: [{step: never, when: "{{ make.text | length > 0 }}"}]}
- step: never
  tool: {kind: noop}
"""
SHOWN = """
- step: make
  tool:
    kind: postgres
    auth: pg_local
    command: >
      SELECT i AS id, 'name ' || i AS name, json_build_object('of', json_build_array(i)) AS more, NULL::int AS none,
             (i + 0.50)::numeric(9, 2) AS amount
      FROM generate_series(1, 500) i
  next: {arcs: [{step: pipe}]}
- step: pipe
  tool:
    - make: {kind: duckdb, tables: {made: "{{ make }}"}, command: "SELECT id, more, amount FROM made ORDER BY id"}
    - more: {kind: python, input: {second: "{{ make.rows[1].id }}"}, code: "result = {'second': second}"}
  next: {arcs: [{step: look}]}
- step: look
  tool:
    kind: python
    input:
      pipe: "{{ pipe }}"
      second: "{{ pipe.second }}"
      amount: "{{ pipe.rows[499].amount }}"
      labels: "{{ pipe.results | list }}"
    code: |
      assert amount == "500.50" and pipe["rows"][499]["more"] == {"of": [500]}, (amount, pipe["rows"][499])
      result = {"whole": len(pipe["rows"]), "sum": sum(row["id"] for row in pipe["rows"]), "second": second,
                "labels": labels}
"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "RUN_S_MAX", 60 + ROWS / 50_000 + LOOP_ROWS / 100)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    replicas = {"worker": 1, "ingest": 1}
    folder: Path = tmp_path_factory.mktemp("tables")
    with throwaway_stack(folder / "stack", Plan(owner="test", replicas=replicas)) as started:
        yield started


def largest_result(stack: Stack, run: Run) -> int:
    """Return how large, as text, the largest `result` in the log of a run is."""
    assert stack.running is not None
    query = "SELECT max(octet_length(result::text)) FROM noetl.event WHERE execution_id = %s"
    with psycopg.connect(stack.running.database_url) as conn:
        [largest] = conn.execute(query, [int(run.id)]).fetchone() or [0]
    return int(largest)


@pytest.fixture(scope="module")
def api(stack: Stack) -> Iterator[httpx.Client]:
    assert stack.running is not None
    with httpx.Client(base_url=stack.running.api_url, timeout=60) as client:
        url = httpx.URL(stack.running.database_url.replace("postgresql://", "http://"))
        login = {"user": url.username, "password": url.password, "db_name": url.path.strip("/")}
        data = {"db_host": url.host, "db_port": url.port, **login}
        credential = {"name": "pg_local", "type": "postgres", "data": data}
        assert client.post("/api/credentials", json=credential).status_code == 200
        yield client


def test_a_table_of_many_rows_is_made_read_and_counted_in_place_in_little_memory(
    stack: Stack, api: httpx.Client
) -> None:
    with Watch(stack) as watch:
        run = completed(api, TABLE)
    middle = ROWS // 2
    digest = {name: hashlib.new(name, str(middle).encode()).hexdigest() for name in ("md5", "sha256")}
    assert run.result("look") == {
        "one": {"id": middle, "text": digest["md5"], "more": digest["sha256"], "half": middle * 0.5},
        "last": ROWS - 1,
        "few": list(range(65530, 65540)),
        "counted": {"n": ROWS, "total": ROWS * (ROWS - 1) // 2, "most": 11},
        "columns": ["id", "text", "more", "half"],
    }
    [link] = api.get(f"/api/executions/{run.id}/trace/make").json()["chain"]
    assert (link["content_type"], link["rows"]) == (TABLE_TYPE, ROWS)
    assert link["preview"]["row_count"] == ROWS
    assert 0 < largest_result(stack, run) < EVENT_RESULT_BYTES_MAX
    told = {"bytes": link["bytes"], "over idle (MB)": watch.over_idle()}
    print(told)
    assert all(size < OVER_IDLE_MB_MAX for size in watch.over_idle().values()), told


def test_a_loop_over_a_table_reads_its_rows_as_they_are_issued(stack: Stack, api: httpx.Client) -> None:
    with Watch(stack) as watch:
        run = completed(api, LOOP)
    assert api.get(f"/api/result/{run.id}/sum").json()["data"] == {
        "n": LOOP_ROWS,
        "total": sum(size_of(i) + i for i in range(1, LOOP_ROWS + 1)),
    }
    told = watch.over_idle()
    print(told)
    assert all(size < OVER_IDLE_MB_MAX for size in told.values()), told


def test_a_list_is_read_where_it_is_stored_as_a_table_is(stack: Stack, api: httpx.Client) -> None:
    with Watch(stack) as watch:
        run = completed(api, LISTS)
    assert run.result("look") == 19_999
    [link] = api.get(f"/api/executions/{run.id}/trace/make").json()["chain"]
    assert (link["content_type"], link["rows"]) == (TABLE_TYPE, 20_000)
    items = [{"id": i, "text": "x" * 300} if i % 2 else {"id": i, "small": True} for i in range(20_000)]
    found = api.get("/api/result/resolve", params={"ref": link["ref"]})
    assert found.json() == {"found": {"items": items}, "count": 20_000}
    told = watch.over_idle()
    print(told)
    assert told["ingest-1"] < OVER_IDLE_MB_MAX


def test_ingest_holds_no_large_payload_whether_it_is_read_or_decided_on(stack: Stack, api: httpx.Client) -> None:
    with Watch(stack) as watch:
        run = execute(api, register(api, document(LARGE)), {})
        [link] = api.get(f"/api/executions/{run.id}/trace/make").json()["chain"]
        size, digest = 0, hashlib.sha256()
        with api.stream("GET", "/api/result/resolve", params={"ref": link["ref"]}) as answer:
            for part in answer.iter_bytes():
                size += len(part)
                digest.update(part)
    assert (size, digest.hexdigest()) == (link["bytes"], link["sha256"]) and size > 50_000_000
    # A scalar beside the text is at hand; the text itself no decision reads.
    assert run.entered() == ["make", "look"] and run.status["status"] == "FAILED"
    assert "expected at most 50331648 bytes to be read of a result at once" in run.message
    told = watch.over_idle()
    print(told)
    assert told["ingest-1"] < 50


def size_of(number: int) -> int:
    return 2000 if number % 100 == 0 else 10


def test_the_api_shows_a_table_as_it_shows_every_result(api: httpx.Client) -> None:
    run = completed(api, SHOWN)
    expected = [
        {"id": i, "name": f"name {i}", "more": {"of": [i]}, "none": None, "amount": f"{i}.50"} for i in range(1, 501)
    ]
    shown = api.get(f"/api/result/{run.id}/make").json()
    assert shown["content_type"] == TABLE_TYPE and not shown["truncated"]
    for result in (shown["data"], run.result("make")):
        assert result["rows"] == result["command_0"]["rows"] == expected
        assert result["columns"] == list(expected[0]) and result["row_count"] == 500
    assert run.result("look") == {"whole": 500, "sum": sum(range(1, 501)), "second": 2, "labels": ["make", "more"]}

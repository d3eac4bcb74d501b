"""Large results with rows through a whole stack: written as they come, read by parts, counted in place."""

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from noetl_cli.embedded.stack import Plan, Stack, throwaway_stack
from noetl_common.core.tables import TABLE_TYPE
from tests.conformance.running import Run, completed

ROWS = int(os.environ.get("NOETL_TEST_TABLE_ROWS", "1000000"))
LOOP_ROWS = 3_000
OVER_IDLE_MB_MAX = 300
EVENT_RESULT_BYTES_MAX = 512

TABLE = """
- step: make
  tool:
    kind: duckdb
    command: SELECT i AS id, md5(i::VARCHAR) AS text, i * 0.5::DOUBLE AS half FROM range(ROWS) t(i)
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


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    replicas = {"worker": 1, "ingest": 1}
    folder: Path = tmp_path_factory.mktemp("tables")
    with throwaway_stack(folder / "stack", Plan(owner="test", replicas=replicas)) as started:
        yield started


class Watch:
    """The most memory that the worker and ingest held, beside what they held when this began."""

    def __init__(self, stack: Stack) -> None:
        self._pids = {child.role.name: child.pid for child in stack.children}
        self.idle = {name: resident_bytes(pid) for name, pid in self._pids.items()}
        self.most = dict(self.idle)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def over_idle(self) -> dict[str, int]:
        return {name: (self.most[name] - self.idle[name]) // 1_000_000 for name in self.idle}

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for name, pid in self._pids.items():
                self.most[name] = max(self.most[name], resident_bytes(pid))


def largest_result(stack: Stack, run: Run) -> int:
    """Return how large, as text, the largest `result` in the log of a run is."""
    assert stack.running is not None
    query = "SELECT max(octet_length(result::text)) FROM noetl.event WHERE execution_id = %s"
    with psycopg.connect(stack.running.database_url) as conn:
        [largest] = conn.execute(query, [int(run.id)]).fetchone() or [0]
    return int(largest)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


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
    assert run.result("look") == {
        "one": {"id": ROWS // 2, "text": hashlib.md5(str(ROWS // 2).encode()).hexdigest(), "half": ROWS // 4 * 1.0},
        "last": ROWS - 1,
        "few": list(range(65530, 65540)),
        "counted": {"n": ROWS, "total": ROWS * (ROWS - 1) // 2, "most": 11},
        "columns": ["id", "text", "half"],
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

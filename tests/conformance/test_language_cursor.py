"""The language, run whole: cursor loops, which claim their rows from a table while it is worked on."""

import itertools
import json
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from tests.conformance.running import Run, completed, failed

_numbers = itertools.count(1)
CLAIM = (
    "WITH mine AS (UPDATE WORK SET claims = claims + 1 WHERE id IN (SELECT id FROM WORK WHERE claims = 0 ORDER BY id"
    " LIMIT {{ __frame_max_rows | default(1) | int }} FOR UPDATE SKIP LOCKED) RETURNING id, weight)"
    " SELECT * FROM mine ORDER BY id"
)
DONE = "UPDATE WORK SET done = done + 1 WHERE id = {{ iter.row.id }}"
CREATE = "CREATE TABLE WORK (id int PRIMARY KEY, weight int, claims int DEFAULT 0, done int DEFAULT 0)"
TALLY = "SELECT claims, done, count(*)::int AS n FROM WORK GROUP BY 1, 2 ORDER BY 1, 2"


class Table:
    """A table of work of one test; its SQL calls it WORK."""

    def __init__(self, database_url: str, rows: int) -> None:
        self.url = database_url
        self.name = f"cursor_work_{next(_numbers)}"
        self.do(CREATE)
        self.do("INSERT INTO WORK SELECT n, n * 10 FROM generate_series(1, ROWS) AS t (n)".replace("ROWS", str(rows)))

    def sql(self, text: str) -> str:
        return text.replace("WORK", self.name)

    def do(self, text: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as conn:
            done = conn.execute(self.sql(text).encode())
            return done.fetchall() if done.description else []

    def tally(self) -> list[tuple[int, int, int]]:
        """Return [(times claimed, times done, rows)]."""
        return [(row["claims"], row["done"], row["n"]) for row in self.do(TALLY)]


@pytest.fixture
def table(database_url: str) -> Table:
    return Table(database_url, 40)


def loop(table: Table, *, spec: str = "", tool: Any = None, after: str = "", tail: str = "") -> str:
    """Return a workflow that drains the table."""
    text = f"""
        - step: drain
          loop:
            cursor: {{kind: postgres, auth: pg_local, claim: "{CLAIM}"}}
            iterator: row
            spec: {{mode: cursor, {spec or "max_in_flight: 2, frame: {max_rows: 5, row_concurrency: 2}"}}}
          tool: {json.dumps(tool or sql_tool(DONE))}
          next: {{arcs: [{after or "{step: told}"}]}}
        - step: told
          tool:
            kind: python
            input: {{stats: "{{{{ drain.stats }}}}", count: "{{{{ drain.count }}}}"}}
            code: result = dict(input_data)
        {tail}
        """
    return table.sql(text)


def sql_tool(command: str) -> dict[str, str]:
    return {"kind": "postgres", "auth": "pg_local", "command": command}


def claims_of(run: Run) -> list[int]:
    """Return how many rows each claim brought."""
    return [
        event["context"]["row_count"]
        for event in run.events()
        if event["event_type"] == "command.completed" and event["step"] == "drain" and event["iter_index"] is None
    ]


def test_a_table_is_drained_by_frames_at_the_same_time(api: httpx.Client, table: Table) -> None:
    run = completed(api, loop(table))
    assert table.tally() == [(1, 1, 40)]
    stats = {"total": 40, "success": 40, "failed": 0}
    assert {key: run.result("told")[key] for key in ("stats", "count")} == {"stats": stats, "count": 40}
    claims = claims_of(run)
    assert sum(claims) == 40 and max(claims) == 5 and claims[-1] == 0
    assert run.kinds("drain").count("loop.done") == 1


def test_an_empty_table_is_a_loop_without_items(api: httpx.Client, database_url: str) -> None:
    table = Table(database_url, 0)
    run = completed(api, loop(table))
    assert run.result("told")["stats"] == {"total": 0, "success": 0, "failed": 0}
    assert claims_of(run) == [0]


def test_rows_that_the_bodies_add_are_drained_too(api: httpx.Client, database_url: str) -> None:
    table = Table(database_url, 5)
    more = "INSERT INTO WORK SELECT id * 100, 0 FROM WORK WHERE id = {{ iter.row.id }} AND id < 10000"
    run = completed(api, loop(table, tool=sql_tool(f"{more}; {DONE}")))
    assert table.tally() == [(1, 1, 15)]
    assert run.result("told")["count"] == 15


def test_a_body_knows_its_place_in_the_frame_and_in_the_loop(api: httpx.Client, database_url: str) -> None:
    table = Table(database_url, 5)
    code = "result = [row['id'], row['weight'], _index, _total, _first, _last, loop_index]"
    tool = {"kind": "python", "code": code}
    after = """{step: told, when: "{{ event.name == 'loop.done' }}"}"""
    run = completed(api, loop(table, spec="max_in_flight: 1, frame: {max_rows: 3}", tool=tool, after=after))
    found = sorted(item for item in run.results("drain") if isinstance(item, list) and len(item) == 7)
    assert found == [
        [1, 10, 0, 3, True, False, 0],
        [2, 20, 1, 3, False, False, 1],
        [3, 30, 2, 3, False, True, 2],
        [4, 40, 0, 2, True, False, 3],
        [5, 50, 1, 2, False, True, 4],
    ]


def test_a_body_may_get_the_whole_frame(api: httpx.Client, database_url: str) -> None:
    table = Table(database_url, 7)
    tool = {"kind": "python", "code": "result = {'ids': [r['id'] for r in row], 'of': len(row), 'n': loop_index}"}
    spec = "max_in_flight: 1, frame: {max_rows: 3, process: frame}"
    run = completed(api, loop(table, spec=spec, tool=tool))
    found = [item for item in run.results("drain") if isinstance(item, dict) and "ids" in item]
    expected = [
        {"ids": [1, 2, 3], "of": 3, "n": 0},
        {"ids": [4, 5, 6], "of": 3, "n": 1},
        {"ids": [7], "of": 1, "n": 2},
    ]
    assert sorted(found, key=lambda item: item["n"]) == expected
    assert run.result("told")["count"] == 3


def test_a_row_that_fails_fails_the_step_unless_failures_are_allowed(api: httpx.Client, database_url: str) -> None:
    tool = sql_tool("SELECT 1 / ({{ iter.row.id }} - 3)")
    strict = Table(database_url, 6)
    run = failed(api, loop(strict, spec="max_in_flight: 1, frame: {max_rows: 2}", tool=tool))
    assert "drain" in run.message and "division by zero" in run.message
    lenient = Table(database_url, 6)
    spec = "max_in_flight: 1, max_failures: 1, frame: {max_rows: 2}"
    run = completed(api, loop(lenient, spec=spec, tool=tool))
    assert run.result("told")["stats"] == {"total": 6, "success": 5, "failed": 1}
    assert lenient.tally() == [(1, 0, 6)]


def test_entered_again_a_cursor_claims_again(api: httpx.Client, database_url: str) -> None:
    table = Table(database_url, 4)
    more = """
        - step: more
          tool:
            kind: postgres
            auth: pg_local
            command: "INSERT INTO WORK SELECT {{ round }} * 100 + n, 0 FROM generate_series(1, 3) AS t (n)"
          next: {arcs: [{step: drain}]}
        """
    again = """{step: more, when: "{{ round | int < 2 }}", set: {ctx.round: "{{ round | int + 1 }}"}}, {step: told}"""
    run = completed(api, loop(table, after=again, tail=more), workload={"round": 0})
    assert table.tally() == [(1, 1, 10)]
    assert run.kinds("drain").count("loop.done") == 3
    assert run.result("told")["count"] == 3


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("SELECT nothing FROM nowhere", "nowhere"),
        ("SELECT n FROM generate_series(1, 10001) AS t (n)", "expected at most 10000 rows a claim, found 10001"),
        ("BEGIN; SELECT 1; COMMIT", "the claim is committed by the worker"),
        ("SELECT {{ 1 // 0 }}", "claim"),
    ],
)
def test_a_claim_that_fails_fails_the_step_and_says_why(api: httpx.Client, claim: str, said: str) -> None:
    run = failed(
        api,
        f"""
        - step: drain
          loop: {{cursor: {{kind: postgres, auth: pg_local, claim: "{claim}"}}, iterator: row}}
          tool: {{kind: noop}}
        """,
    )
    assert said in run.message and "drain" in str(run.status["error"]), run.status

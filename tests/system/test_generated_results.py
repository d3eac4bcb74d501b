"""Whatever a tool returns, the log holds little of it, and all of it comes back by its reference."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
import yaml

from noetl_cli.embedded.stack import Plan, Stack, throwaway_stack
from noetl_common.core.tables import TABLE_TYPE
from tests.conformance import running
from tests.conformance.running import completed
from tests.system import generated_results
from tests.system.generated_results import made

COUNT = int(os.environ.get("NOETL_TEST_GENERATED_RESULTS", "280"))
FIRST = int(os.environ.get("NOETL_TEST_GENERATED_FIRST", "0"))  # so that many can be looked at a part at a time
READS_AT_ONCE = 4
RESULT_BYTES_P999 = 2048
RESULT_BYTES_MAX = 4096
SQL_COUNT = min(max(COUNT // 20, 7), 40)
HTTP_COUNT = max(COUNT // 10, 28)
CODE = Path(generated_results.__file__).read_text(encoding="utf-8")
ROWS = """SELECT i AS id, repeat('x', (i * {{ n }}) % 50) AS text, CASE WHEN i % 3 = 0 THEN i ELSE NULL END AS third,
(i + 0.25)::numeric(12, 2) AS amount FROM generate_series(1, {{ n * n * 9 }}) AS t (i) ORDER BY i"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with throwaway_stack(tmp_path_factory.mktemp("generated") / "stack", Plan(owner="test")) as started:
        yield started


def looped(name: str, count: int, tool: Any) -> dict[str, Any]:
    loop = {"in": f"{{{{ range({count}) | list }}}}", "iterator": "n", "mode": "parallel", "spec": {"max_in_flight": 8}}
    return {"step": name, "loop": loop, "tool": tool}


def rows_of(n: int) -> dict[str, Any]:
    count = n * n * 9
    found = [
        {"id": i, "text": "x" * (i * n % 50), "third": i if i % 3 == 0 else None, "amount": f"{i}.25"}
        for i in range(1, count + 1)
    ]
    top = {"columns": ["id", "text", "third", "amount"], "rows": found, "row_count": count}
    return {**top, "command_0": {"status": "success", **top}}


def test_what_tools_return_is_little_in_the_log_and_whole_by_reference(
    stack: Stack, answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stack.running is not None
    monkeypatch.setattr(running, "RUN_S_MAX", 60.0 + COUNT)
    url = httpx.URL(stack.running.database_url.replace("postgresql://", "http://"))
    login = {"db_user": url.username, "db_password": url.password, "db_name": url.path.strip("/")}
    server = {"kind": "postgres", "db_host": url.host, "db_port": url.port, **login}
    shell = "printf '%*s' $(({{ n }} * {{ n }} * 100)) x"
    pipe = [
        {"rows": {**server, "command": ROWS}},
        {"other": {"kind": "python", "input": {"n": "{{ n }}"}, "code": "result = {'n': n, 'text': 'y' * n * 300}"}},
    ]
    code = f"{CODE}\n\nresult = made({FIRST} + n)"
    steps = [
        looped("python", COUNT, {"kind": "python", "input": {"n": "{{ n }}"}, "code": code}),
        looped("http", HTTP_COUNT, {"kind": "http", "url": f"{answers}/{{{{ {FIRST} + n }}}}"}),
        looped("postgres", SQL_COUNT, {**server, "command": ROWS}),
        looped("duckdb", SQL_COUNT, {"kind": "duckdb", "command": ROWS.replace("numeric", "decimal")}),
        looped("shell", SQL_COUNT, {"kind": "shell", "command": shell}),
        looped("pipe", SQL_COUNT, pipe),
        {"step": "one", "tool": {"kind": "duckdb", "command": "FROM range(5000)"}},
        {"step": "artifact", "tool": {"kind": "artifact", "result_ref": "{{ one._ref }}"}},
    ]
    for step, after in pairwise(steps):
        step["next"] = {"arcs": [{"step": after["step"]}]}
    # A connection is given up here before the server does, while an expected result is made.
    limits = httpx.Limits(keepalive_expiry=1.0)
    with httpx.Client(base_url=stack.running.api_url, timeout=120, limits=limits) as api:
        run = completed(api, yaml.safe_dump(steps))
        found = stored(api, run.id)
        assert len(found["postgres"]) == len(found["duckdb"]) == len(found["pipe"]) == SQL_COUNT
        with ThreadPoolExecutor(READS_AT_ONCE) as reading:
            list(reading.map(lambda n: check_python(api, found["python"].get(n), FIRST + n), range(COUNT)))
            list(reading.map(lambda n: check_http(api, found["http"][n], FIRST + n), range(HTTP_COUNT)))
        for n in range(SQL_COUNT):
            assert payload(api, found["postgres"][n]) == payload(api, found["duckdb"][n]) == rows_of(n), n
            shown = payload(api, found["shell"][n])["stdout"].partition("\n")[0]
            assert shown == "x".rjust(n * n * 100)[: 64 * 1024]  # what is over that is cut, and a line says so
            other = {"n": n, "text": "y" * n * 300}
            assert payload(api, found["pipe"][n]) == {"rows": rows_of(n), "other": other}
        assert payload(api, found["artifact"][-1])["rows"][4999] == {"range": 4999}
    kinds = {step: {link["content_type"] for link in links.values()} for step, links in found.items()}
    assert all(TABLE_TYPE in kinds[step] for step in ("python", "postgres", "duckdb", "pipe", "artifact")), kinds
    check_log(stack.running.database_url, run.id)


def check_python(api: httpx.Client, row: dict[str, Any] | None, number: int) -> None:
    expected = as_json(number)
    # A result of null is no payload.
    assert (row is None) == (expected is None) and (row is None or payload(api, row) == expected), number


def check_http(api: httpx.Client, row: dict[str, Any], number: int) -> None:
    assert payload(api, row)["data"] == as_json(number), number


def as_json(number: int) -> Any:
    return msgspec.json.decode(msgspec.json.encode(made(number)))


class Answer(BaseHTTPRequestHandler):
    """Answers a request for a number with the result that is made of it."""

    def do_GET(self) -> None:
        body = msgspec.json.encode(made(int(self.path.strip("/"))))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def answers() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def stored(api: httpx.Client, execution_id: str) -> dict[str, dict[int, Any]]:
    """Return {step: {index of an item, or -1: the row of its result}}."""
    found: dict[str, dict[int, Any]] = {}
    cursor = "0"
    while cursor is not None:
        page = api.get(f"/api/result/{execution_id}/list", params={"limit": 1000, "cursor": cursor}).json()
        for row in page["results"]:
            index = -1 if row["iter_index"] is None else row["iter_index"]
            found.setdefault(row["step"], {})[index] = row
        cursor = page["next_cursor"]
    return found


def payload(api: httpx.Client, row: dict[str, Any]) -> Any:
    answer = api.get("/api/result/resolve", params={"ref": row["ref"]})
    assert answer.status_code == 200, answer.text
    return answer.json()


def check_log(database_url: str, execution_id: str) -> None:
    """Return when the log of a run holds little of its results."""
    query = "SELECT octet_length(result::text) FROM noetl.event WHERE execution_id = %s AND result IS NOT NULL"
    with psycopg.connect(database_url) as conn:
        sizes = sorted(size for [size] in conn.execute(query, [int(execution_id)]).fetchall())
    told = {
        "results": len(sizes),
        "p50": sizes[len(sizes) // 2],
        "p99.9": sizes[int(len(sizes) * 0.999)],
        "most": sizes[-1],
    }
    print(told)
    assert told["p99.9"] <= RESULT_BYTES_P999 and told["most"] <= RESULT_BYTES_MAX, told

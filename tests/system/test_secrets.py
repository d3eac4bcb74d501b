"""A canary in each kind of credential: used by real runs, found nowhere that anybody could read it."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psycopg
import pytest
from psycopg import conninfo, sql

from tests.system.test_cli_run import Machine

PASSWORD = "canary-Pq7x-password"
TOKEN = "canary-Zt5w-token"
WRONG = "canary-Kb3m-wrong"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: secrets/{name}}}\nworkflow:\n"
STEPS = {
    "reads": "- step: start\n  tool: {kind: postgres, auth: canary_pg, command: 'SELECT 1 AS n'}\n",
    "fails": "- step: start\n  tool: {kind: postgres, auth: canary_pg, command: 'SELECT * FROM nowhere'}\n",
    "is_refused": "- step: start\n  tool: {kind: postgres, auth: canary_wrong, command: 'SELECT 1'}\n",
    "calls": "- step: start\n  tool: {kind: http, auth: canary_http, url: 'URL/ok'}\n",
    "is_denied": "- step: start\n  tool: {kind: http, auth: canary_http, url: 'URL/denied'}\n",
    "finds_nobody": "- step: start\n  tool: {kind: http, auth: canary_http, url: 'http://127.0.0.1:1/'}\n",
    "loops": (
        "- step: start\n  loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}\n"
        "  tool:\n"
        "  - {name: call, kind: http, auth: canary_http, url: 'URL/ok'}\n"
        "  - {name: read, kind: postgres, auth: canary_pg, command: 'SELECT {{ n }} AS n'}\n"
    ),
}
KEYCHAIN = (
    "keychain:\n- {name: robot, kind: credential, credential: canary_http}\n"
    "- {name: header, kind: static, map: {value: 'Bearer {{ keychain.robot.token }}'}}\n"
)
STEPS |= {
    "rings": (
        "- step: start\n  tool:\n"
        "  - {name: call, kind: http, url: 'URL/ok', headers: {Authorization: '{{ keychain.header.value }}'}}\n"
        "  - name: tell\n    kind: python\n    input: {token: '{{ keychain.robot.token }}'}\n"
        "    set: {ctx.kept: '{{ output }}'}\n"
        "    code: |\n      import base64\n      print(token)\n"
        "      result = {'token': token, token: [f'it is {token}'], 'x': base64.b64encode(token.encode()).decode()}\n"
        "- step: after\n  tool: {kind: noop, result: '{{ kept }}'}\n" + KEYCHAIN
    ).replace("- step: after", "  next: {arcs: [{step: after}]}\n- step: after"),
    "rings_and_is_denied": (
        "- step: start\n  tool: {kind: http, url: 'URL/denied?token={{ keychain.robot.token }}', "
        "headers: {Authorization: '{{ keychain.header.value }}'}}\n" + KEYCHAIN
    ),
    "rings_and_raises": (
        "- step: start\n  tool:\n    kind: python\n    input: {token: '{{ keychain.robot.token }}'}\n"
        "    code: |\n      raise ValueError(f'{token!r} is wrong')\n" + KEYCHAIN
    ),
    "rings_for_sql": (
        "- step: start\n  tool:\n    kind: postgres\n    auth: canary_pg\n"
        "    command: SELECT '{{ keychain.robot.token }}'::int\n" + KEYCHAIN
    ),
}
COMPLETED = {"reads", "calls", "loops", "rings"}


class Peer(BaseHTTPRequestHandler):
    """Wants the token, and never repeats it."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization", ""))
        self.send_response(200 if self.path == "/ok" else 403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        return None


@pytest.fixture
def peer_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Peer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.noetl("down", "--purge")


def stored(api_url: str, database_url: str) -> None:
    """Store the canaries: a login that works, one that does not, a bearer token."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE canary LOGIN PASSWORD {}").format(PASSWORD))
    place = conninfo.conninfo_to_dict(database_url)
    login = {"host": place["host"], "port": int(str(place["port"])), "database": "playbook", "user": "canary"}
    for name, kind, data in (
        ("canary_pg", "postgres", {**login, "password": PASSWORD}),
        ("canary_wrong", "postgres", {**login, "password": WRONG}),
        ("canary_http", "bearer", {"token": TOKEN}),
    ):
        body = {"name": name, "type": kind, "data": data, "description": "a canary", "tags": ["canary"]}
        assert httpx.post(f"{api_url}/api/credentials", json=body).status_code == 200


def traces_of(canary: str) -> list[bytes]:
    """Return what a canary looks like as it is and in the encodings that secrets usually leak in."""
    plain = canary.encode()
    return [plain, plain.hex().encode(), base64.b64encode(plain).rstrip(b"="), json.dumps(canary).encode()]


def rows_as_text(database_url: str) -> dict[str, str]:
    """Return every row of every table of ours as text, by table."""
    with psycopg.connect(database_url) as conn:
        names = conn.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        found = {}
        for schema, table in names:
            query = sql.SQL("SELECT string_agg(t::text, E'\\n') FROM {} t").format(sql.Identifier(schema, table))
            found[f"{schema}.{table}"] = str((conn.execute(query).fetchone() or [""])[0])
        return found


def test_no_table_file_or_answer_shows_a_secret_that_runs_used(machine: Machine, peer_url: str) -> None:
    machine.noetl("up", "--detach", "--port", "0")
    stack = json.loads((machine.state / "stack.json").read_text(encoding="utf-8"))
    api_url, database_url = stack["api_url"], stack["database_url"]
    stored(api_url, database_url)
    said = []
    for name, steps in STEPS.items():
        text = HEAD.format(name=name) + steps.replace("URL", peer_url)
        file = machine.write(f"{name}.yaml", text)
        done = machine.noetl("run", str(file), "--json", code=0 if name in COMPLETED else 1)
        said.append(done.stdout + done.stderr)
    assert Peer.asked and set(Peer.asked) == {f"Bearer {TOKEN}"}, "the token was used"
    for run in httpx.get(f"{api_url}/api/executions").json():
        said.append(httpx.get(f"{api_url}/api/executions/{run['execution_id']}").text)
    said.append(httpx.get(f"{api_url}/api/credentials").text + httpx.get(f"{api_url}/metrics").text)
    tables = rows_as_text(database_url)
    assert "canary_pg" in tables["noetl.credential"] and "canary_http" in tables["noetl.command_context"]
    machine.noetl("down")
    files = {str(path): path.read_bytes() for path in machine.state.rglob("*") if path.is_file()}
    assert any(path.endswith(".log") for path in files)
    for canary in (PASSWORD, TOKEN, WRONG):
        for trace in traces_of(canary):
            assert not [name for name, rows in tables.items() if trace.decode() in rows], canary
            assert not [path for path, content in files.items() if trace in content], canary
            assert not [text for text in said if trace.decode() in text], canary

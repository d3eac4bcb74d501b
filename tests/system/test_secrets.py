"""A canary in each kind of credential: used by real runs, found nowhere that anybody could read it."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus

import httpx
import psycopg
import pytest
from psycopg import conninfo, sql

from tests.conformance.running import execute, register
from tests.system.secrets_told import BASIC, CANARIES, COMPLETED, PASSWORD, PEM, TOKEN, WRONG, documents
from tests.system.test_cli_run import Machine

SHOWN = {"rings", "rings_and_raises", "rings_in_a_shell"}  # by the command line too
CUT_CHARS = 12  # of a canary that was cut: so much of it tells


class Peer(BaseHTTPRequestHandler):
    """Wants the token; under /echo it repeats what it was sent, and how that looks in base64."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        self.asked.append(given)
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        body = b"{}"
        if "/echo" in self.path:
            coded = base64.b64encode(given.encode()).decode()
            body = json.dumps({"you": dict(self.headers), "coded": coded, "path": self.path, "sent": sent}).encode()
        self.send_response(200 if self.path.startswith("/ok") else 403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if "/echo" in self.path:
            self.send_header("X-You-Sent", given)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

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
    """Store the canaries: a login that works, one that does not, tokens, a key of several lines."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE canary LOGIN PASSWORD {}").format(PASSWORD))
    place = conninfo.conninfo_to_dict(database_url)
    login = {"host": place["host"], "port": int(str(place["port"])), "database": "playbook", "user": "canary"}
    for name, kind, data in (
        ("canary_pg", "postgres", {**login, "password": PASSWORD}),
        ("canary_wrong", "postgres", {**login, "password": WRONG}),
        ("canary_http", "bearer", {"token": TOKEN}),
        ("canary_basic", "basic", {"username": "me", "password": BASIC}),
        ("canary_pem", "generic", {"key": PEM}),
    ):
        body = {"name": name, "type": kind, "data": data, "description": "a canary", "tags": ["canary"]}
        assert httpx.post(f"{api_url}/api/credentials", json=body).status_code == 200


def traces_of(canary: str) -> set[str]:
    """Return what a canary looks like as it is, cut, and in the encodings that secrets usually leak in."""
    plain = canary.encode()
    found = {canary[:CUT_CHARS], canary[-CUT_CHARS:], json.dumps(canary)[1:-1], repr(canary)[1:-1]}
    found |= {quote(canary), quote_plus(canary), quote(canary, safe=""), plain.hex(), plain.hex().upper()}
    for before in range(3):  # in base64 the same bytes look different after none, one or two of another text
        coded = base64.b64encode(b"x" * before + plain).decode().rstrip("=")
        coded = coded[2 * before - before // 2 : -1]
        found |= {coded, coded.replace("+", "-").replace("/", "_")}
    return found


def leaks(places: dict[str, bytes]) -> list[tuple[str, str]]:
    """Return (place, what stands around it) of the first canary in each place."""
    wanted = {trace.encode() for canary in CANARIES for trace in traces_of(canary)}
    found = []
    for name, content in places.items():
        ends = [content.find(trace) for trace in wanted if trace in content]
        found += [(name, content[max(0, at - 80) : at + 40].decode(errors="replace")) for at in ends[:1]]
    return found


def rows_as_bytes(database_url: str) -> dict[str, bytes]:
    """Return every row of every table of ours, by table: binary columns as they are, the others as text."""
    with psycopg.connect(database_url) as conn:
        names = conn.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        found = {}
        for schema, table in names:
            rows = conn.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))).fetchall()
            found[f"{schema}.{table}"] = b"\n".join(as_bytes(value) for row in rows for value in row)
        return found


def as_bytes(value: Any) -> bytes:
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()


def answers(api: httpx.Client) -> dict[str, bytes]:
    """Return what the API says of every run, document and credential."""
    found: dict[str, bytes] = {}

    def ask(url: str, **body: Any) -> Any:
        answer = api.post(url, json=body) if body else api.get(url)
        found[f"{url} {body}"] = answer.content
        assert answer.status_code < 500, (url, body, answer.text)
        return answer.json() if "json" in answer.headers["content-type"] else None

    for run in ask("/api/executions"):
        run_id = run["execution_id"]
        ask(f"/api/executions/{run_id}")
        ask(f"/api/executions/{run_id}/status")
        events = ask(f"/api/executions/{run_id}/events?page_size=500")["events"]
        ask(f"/api/replay/state?execution_id={run_id}")
        ask(f"/api/vars/{run_id}")
        for ref in set(re.findall(r"noetl://[^\"\\ ]+", json.dumps(ask(f"/api/result/{run_id}/list")))):
            ask(f"/api/result/resolve?ref={quote(ref)}")
        for step in {event["node_name"] for event in events if event["node_name"]}:
            ask(f"/api/executions/{run_id}/trace/{quote(step)}")
        for template in ("{{ workload }}", "{{ start }}", "{{ ctx }}", "{{ keychain.robot.token }}", "{{ keychain }}"):
            ask("/api/context/render", execution_id=int(run_id), template=template)
    for url in ("/api/credentials", "/api/credentials/canary_http", "/metrics", "/api/workers", "/api/worker/pools"):
        ask(url)
    ask("/api/catalog/list")
    return found


def test_no_table_file_or_answer_shows_a_secret_that_runs_used(machine: Machine, peer_url: str) -> None:
    machine.noetl("up", "--detach", "--port", "0")
    stack = json.loads((machine.state / "stack.json").read_text(encoding="utf-8"))
    api_url, database_url = stack["api_url"], stack["database_url"]
    stored(api_url, database_url)
    said = {}
    with httpx.Client(base_url=api_url, timeout=30) as api:
        texts = documents(peer_url)
        paths = {name: register(api, text) for name, text in texts.items()}
        for name in texts.keys() - SHOWN:
            run = execute(api, paths[name], {})
            assert run.status["status"] == ("COMPLETED" if name in COMPLETED else "FAILED"), run.status
        for name in SHOWN:
            file = machine.write(f"{name}.yaml", texts[name])
            done = machine.noetl("run", str(file), "--json", code=0 if name in COMPLETED else 1)
            run_id = json.loads(done.stdout)["execution_id"]
            shown = [done, machine.noetl("events", run_id), machine.noetl("status", run_id)]
            said[name] = "".join(part.stdout + part.stderr for part in shown).encode()
    basic = base64.b64encode(f"me:{BASIC}".encode()).decode()
    assert set(Peer.asked) == {f"Bearer {TOKEN}", f"Basic {basic}"}, "the secrets were used"
    with httpx.Client(base_url=api_url, timeout=30) as api:
        told = answers(api)
    tables = rows_as_bytes(database_url)
    assert b"canary_pg" in tables["noetl.credential"] and b"canary_http" in tables["noetl.command_context"]
    machine.noetl("down")
    # The state directory with its logs, results and NATS; and the cluster itself, with its write-ahead log.
    home = json.loads((machine.state / "postgres.json").read_text(encoding="utf-8"))["home"]
    files = {
        str(path): path.read_bytes() for top in (machine.state, Path(home)) for path in top.rglob("*") if path.is_file()
    }
    for kind in (".log", "pg_wal", "jetstream", "results"):
        assert any(kind in path for path in files), f"no file of the kind {kind} among {len(files)}"
    assert not leaks(said)
    assert not leaks(told)
    assert not leaks(tables)
    assert not leaks(files)

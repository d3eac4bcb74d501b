"""Files of starts: what is read, what is refused, how it is cut; and a server that takes nothing new for a while."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from noetl_cli import api as apis
from noetl_cli.api import Api
from noetl_cli.verbs import execute
from noetl_common.errors import Invalid, Overloaded

Answering = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


def test_each_line_is_a_start_and_gets_a_key_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "starts.jsonl"
    file.write_text('{"path": "a"}\n\n{"path": "b", "idempotency_key": "mine"}\n')
    assert execute.items_in(file, key="k") == [
        {"path": "a", "idempotency_key": "k:1"},
        {"path": "b", "idempotency_key": "mine"},
    ]
    assert execute.items_in(file, key="")[0] == {"path": "a"}


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"path": "a"}\n[1]', "line 2: expected a JSON object"), ("{", "line 1: expected"), ("\n", "a start a line")],
)
def test_a_line_that_is_no_start_is_refused_with_its_number(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "starts.jsonl"
    file.write_text(text)
    with pytest.raises(Invalid, match=message):
        execute.items_in(file, key="")


def test_a_file_is_sent_in_requests_that_the_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [{"path": "a", "n": n} for n in range(2_500)]
    parts = list(execute.parts_of(items))
    assert [len(part) for part in parts] == [1_000, 1_000, 500]
    assert [item for part in parts for item in part] == items
    monkeypatch.setattr(execute, "BATCH_BYTES_MAX", 50)
    assert [len(part) for part in execute.parts_of(items[:5])] == [2, 2, 1]


@contextmanager
def serving(answer: Answering) -> Iterator[Api]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, said = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if status == 429:
                self.send_header("retry-after", "0")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with Api(f"http://127.0.0.1:{server.server_port}") as api:
            yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_start_that_an_overloaded_server_refuses_is_made_again_under_its_key() -> None:
    asked: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        asked.append(body)
        return (429, {"error": "too much"}) if len(asked) < 3 else (200, {"execution_id": "7"})

    with serving(answer) as api:
        assert api.execute({"path": "a"}, {"n": 1}) == "7"
    assert len(asked) == 3 and asked[0]["idempotency_key"] and asked[1:] == asked[:1] * 2


def test_patience_with_an_overloaded_server_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apis, "PATIENCE_S", 0.3)
    with serving(lambda body: (429, {"error": "too much"})) as api, pytest.raises(Overloaded, match="too much"):
        api.execute({"path": "a"}, {})


def test_only_the_refused_items_of_a_batch_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apis, "OVERLOADED_PAUSE_S", 0.01)
    sizes: list[int] = []

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        items = body["executions"]
        sizes.append(len(items))
        refused = {"status": "failed", "error": "too much", "problem": {"status": 429}}
        results: list[dict[str, Any]] = []
        for index, item in enumerate(items):
            taken = {"status": "started", "execution_id": item["path"]}
            results.append({"index": index, **(taken if index < 2 else refused)})
        return 200, {"results": results}

    with serving(answer) as api:
        results = api.execute_batch([{"path": str(n)} for n in range(5)])
    assert sizes == [5, 3, 1]
    assert [(one["index"], one["execution_id"]) for one in results] == [(n, str(n)) for n in range(5)]

"""A small HTTP API for playbooks under test: pages by offset, cursor and number, an endpoint that fails at first,
one that measures how many calls overlap, and an echo."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

ITEMS = 35
POSTS = 100
ERRORS = {"429": 429, "500": 500, "503": 503, "auth": 401, "403": 403, "404": 404}

Query = dict[str, str]
Answer = tuple[int, Any, dict[str, str]]


class StubApi:
    """What the API remembers between calls: which pages have failed, how many probes ran at a time."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self._failed: set[str] = set()
        self._probes = dict.fromkeys(("started", "completed", "active", "max_active"), 0)

    def answer(self, method: str, path: str, query: Query, body: str) -> Answer:
        """Return (status, JSON, headers) of one request."""
        self.requests.append(f"{method} {path}")
        route: Callable[..., Answer] | None = {
            "/api/v1/assessments": self._assessments,
            "/api/v1/users": self._users,
            "/api/v1/events": self._events,
            "/api/v1/flaky": self._flaky,
            "/api/v1/flaky/reset": self._reset_flaky,
            "/api/v1/errors": self._errors,
            "/api/v1/concurrency/reset": self._reset_probes,
            "/api/v1/concurrency/stats": lambda query: ok(dict(self._probes)),
            "/api/v1/concurrency/probe": self._probe,
            "/health": lambda query: ok({"status": "ok"}),
            "/data": lambda query: ok([{"id": number} for number in range(2)]),
            "/posts": self._posts,
        }.get(path)
        if route is not None:
            return route(query)
        if path in ("/get", "/post") or path.startswith("/anything"):
            return ok({"args": query, "method": method, "url": path, "body": body, "json": _json(body)})
        return 404, {"detail": f"no {path}"}, {}

    def _assessments(self, query: Query) -> Answer:
        page, size = int(query.get("page") or 1), int(query.get("pageSize") or 10)
        found = [{"id": n, "name": f"Assessment {n}", "score": n * 2} for n in _slice((page - 1) * size, size)]
        more = page * size < ITEMS
        return ok({"data": found, "paging": {"hasMore": more, "page": page, "pageSize": size, "total": ITEMS}})

    def _users(self, query: Query) -> Answer:
        offset, limit = int(query.get("offset") or 0), int(query.get("limit") or 10)
        users = [{"id": n, "name": f"User {n}"} for n in _slice(offset, limit)]
        return ok({"users": users, "has_more": offset + limit < ITEMS, "offset": offset, "limit": limit})

    def _events(self, query: Query) -> Answer:
        page = int(base64.b64decode(query.get("cursor") or base64.b64encode(b"1")))
        limit = int(query.get("limit") or 10)
        events = [{"id": n} for n in _slice((page - 1) * limit, limit)]
        following = base64.b64encode(str(page + 1).encode()).decode() if page * limit < ITEMS else None
        return ok({"events": events, "next_cursor": following, "limit": limit})

    def _flaky(self, query: Query) -> Answer:
        page = query.get("page", "1")
        with self._lock:
            if page in query.get("fail_on", "").split(",") and page not in self._failed:
                self._failed.add(page)
                return 500, {"detail": f"page {page} fails once"}, {}
        return self._assessments(query)

    def _reset_flaky(self, query: Query) -> Answer:
        self._failed.clear()
        return ok({"status": "reset"})

    def _errors(self, query: Query) -> Answer:
        status = ERRORS[query.get("error_type", "500")]
        return status, {"detail": "as asked"}, {"Retry-After": "0"} if status == 429 else {}

    def _reset_probes(self, query: Query) -> Answer:
        self._probes.update(dict.fromkeys(self._probes, 0))
        return ok({"status": "reset"})

    def _probe(self, query: Query) -> Answer:
        with self._lock:
            self._probes["started"] += 1
            self._probes["active"] += 1
            self._probes["max_active"] = max(self._probes["max_active"], self._probes["active"])
        time.sleep(float(query.get("delay_seconds") or 0))
        with self._lock:
            self._probes["active"] -= 1
            self._probes["completed"] += 1
        return ok({"status": "ok", "label": query.get("label")})

    def _posts(self, query: Query) -> Answer:
        return ok([{"userId": 1, "id": n, "title": f"It's post {n}", "body": f"text {n}"} for n in range(1, POSTS + 1)])


def ok(value: Any) -> Answer:
    """Return an answer of status 200."""
    return 200, value, {}


@contextmanager
def stub_api() -> Iterator[StubApi]:
    """Serve the API on loopback while the block runs."""
    stub = StubApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, value, headers = stub.answer(self.command, parts.path, dict(parse_qsl(parts.query)), body)
            content = json.dumps(value).encode()
            self.send_response(status)
            for name, text in {
                "Content-Type": "application/json",
                "Content-Length": str(len(content)),
                **headers,
            }.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the tests ask the stub what was requested."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _slice(offset: int, count: int) -> range:
    return range(offset + 1, min(offset + count, ITEMS) + 1)


def _json(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None

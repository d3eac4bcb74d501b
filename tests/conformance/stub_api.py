"""A small HTTP API for playbooks under test: pages of every kind, endpoints that fail at first or refuse too many
requests, one that measures how many calls overlap, records of patients, a store of objects and an echo."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.conformance import stub_clinic, stub_pages
from tests.conformance.stub_pages import Answer, BadQuery, Request, ok

ERRORS = {"429": 429, "500": 500, "503": 503, "timeout": 504, "auth": 401, "403": 403, "404": 404}
TIMEOUT_ANSWER_S = 5.0
RATE_RPS = 5000
BATCH_PATIENTS_MAX = 500
SCRIPT = """def main(name="World", count=1):
    return {"status": "success", "message": f"Hello {name}", "count": int(count)}
"""


class StubApi:
    """What the API remembers between calls: failed pages, probes that ran at a time, requests of a second, objects."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._failed: set[str] = set()
        self._recent: dict[str, list[float]] = {}
        self._heavy = {"requests": 0, "bytes": 0}
        self._probes = dict.fromkeys(("started", "completed", "active", "max_active"), 0)
        self._routes = [(re.compile(pattern), route) for pattern, route in self._table().items()]

    def _table(self) -> dict[str, Callable[[Request], Answer]]:
        return {
            r"/api/v1/assessments": stub_pages.assessments,
            r"/api/v1/users": stub_pages.users,
            r"/api/v1/events": stub_pages.events,
            r"/api/v1/flaky": self._flaky,
            r"/api/v1/flaky/reset": self._reset_flaky,
            r"/api/v1/errors": self._errors,
            r"/api/v1/rate-limited": self._rate_limited,
            r"/api/v1/heavy": self._heavy_page,
            r"/api/v1/heavy/stats": lambda request: ok(dict(self._heavy)),
            r"/api/v1/reference-chain/items": stub_pages.chain_items,
            r"/api/v1/reference-chain/detail/\d+": self._chain_detail,
            r"/api/v1/patient-records": self._patient_records,
            r"/api/v1/patient/\w+": self._patient,
            r"/api/v1/mds/assessment_ids": self._mds_ids,
            r"/api/v1/mds/assessment/[^/]+": self._mds,
            r"/api/v1/pft/batch/\w+": self._batch,
            r"/api/v1/pft/mds/details": self._mds_details,
            r"/api/v1/concurrency/reset": self._reset_probes,
            r"/api/v1/concurrency/stats": lambda request: ok(dict(self._probes)),
            r"/api/v1/concurrency/probe": self._probe,
            r"/health|/api/health": lambda request: ok({"status": "ok"}),
            r"/data": lambda request: ok([{"id": number} for number in range(2)]),
            r"/posts(/\d+)?": stub_pages.posts,
            r"/users(/\d+)?": stub_pages.people,
            r"/v1/forecast": stub_pages.forecast,
            r"/scripts/\w+\.py": lambda request: ok(SCRIPT.encode()),
            r"/upload/storage/v1/b/[^/]+/o": self._upload,
            r"/storage/v1/b/[^/]+/o(/.+)?": self._objects,
            r"/get|/post|/put|/anything(/.*)?": stub_pages.echo,
        }

    def answer(self, request: Request) -> Answer:
        """Return (status, JSON or bytes, headers) of one request."""
        self.requests.append(f"{request.method} {request.path}")
        for pattern, route in self._routes:
            if pattern.fullmatch(request.path):
                try:
                    return route(request)
                except BadQuery as error:
                    return error.answer
        return 404, {"detail": f"no {request.path}"}, {}

    def _flaky(self, request: Request) -> Answer:
        page = str(request.number("page", 1))
        with self._lock:
            if page in request.query.get("fail_on", "").split(",") and page not in self._failed:
                self._failed.add(page)
                return 500, {"detail": f"page {page} fails once"}, {}
        return stub_pages.assessments(request)

    def _reset_flaky(self, request: Request) -> Answer:
        self._failed.clear()
        return ok({"status": "reset"})

    def _errors(self, request: Request) -> Answer:
        wanted = request.query.get("error_type", "500")
        if wanted not in ERRORS:
            raise BadQuery("error_type", wanted)
        if wanted == "timeout":
            self.stopped.wait(TIMEOUT_ANSWER_S)
        return ERRORS[wanted], {"detail": "as asked"}, {"Retry-After": "0"} if wanted == "429" else {}

    def _rate_limited(self, request: Request) -> Answer:
        return self._refused("rate-limited", request.number("requests_per_second", 5)) or stub_pages.assessments(
            request
        )

    def _refused(self, name: str, rate_rps: int) -> Answer | None:
        """Return the refusal of a request that comes too soon: more than `rate_rps` in the last second."""
        with self._lock:
            now = time.monotonic()
            recent = self._recent[name] = [at for at in self._recent.get(name, []) if now - at < 1.0]
            if len(recent) >= rate_rps:
                return 429, {"detail": "too many requests"}, {"Retry-After": "1"}
            recent.append(now)
        return None

    def _heavy_page(self, request: Request) -> Answer:
        status, value, headers = stub_pages.assessments(request)
        padding = "x" * request.number("payload_kb", 1) * 1024
        for item in value["data"]:
            item["payload"] = padding
        with self._lock:
            self._heavy["requests"] += 1
            self._heavy["bytes"] += len(padding) * len(value["data"])
        return status, value, headers

    def _chain_detail(self, request: Request) -> Answer:
        number = int(request.path.rsplit("/", 1)[1])
        if not 1 <= number <= stub_pages.CHAIN_ITEMS:
            return 404, {"detail": "no such item"}, {}
        return ok({"id": number, "value": number * 3, "text": f"detail of {number}", "payload": "x" * 200})

    def _patient_records(self, request: Request) -> Answer:
        refused = self._refused("patient-records", request.number("rate_limit", RATE_RPS))
        if refused:
            return refused
        self.stopped.wait(request.seconds("min_delay"))
        patient, page = request.number("patient_id", request.number("patientId", 1)), request.number("page", 1)
        return ok(stub_clinic.bundle(patient, page, request.number("payload_kb", 1)))

    def _patient(self, request: Request) -> Answer:
        kind = request.path.rsplit("/", 1)[1]
        refused = self._refused("patient", RATE_RPS)
        if refused:
            return refused
        patient, page = request.number("patientId", 0), request.number("page", 1)
        if kind not in stub_clinic.KINDS or not 1 <= page <= stub_clinic.pages_of(kind, patient):
            return 404, {"detail": f"no page {page} of {kind} of patient {patient}"}, {}
        return ok(stub_clinic.patient_page(kind, patient, page))

    def _mds_ids(self, request: Request) -> Answer:
        patient = request.number("patientId", 1)
        pages = range(1, stub_clinic.pages_of("assessments", patient) + 1)
        ids = [one for page in pages for one in stub_clinic.mds_ids(patient, page)]
        return ok({"data": ids, "patientId": patient, "total": len(ids)})

    def _mds(self, request: Request) -> Answer:
        return ok({"data": {"id": request.path.rsplit("/", 1)[1], "status": "complete", "sections": ["A", "B"]}})

    def _batch(self, request: Request) -> Answer:
        kind = request.path.rsplit("/", 1)[1]
        patients = [int(one) for one in request.query.get("patientIds", "").split(",") if one]
        if kind not in (*stub_clinic.KINDS, "mds"):
            return 404, {"detail": f"no batch of {kind}"}, {}
        if not 1 <= len(patients) <= BATCH_PATIENTS_MAX:
            raise BadQuery("patientIds", f"{len(patients)} ids")
        sizes = (request.number("pageSize", 10), request.number("patientsPerFacility", 1000))
        rows = stub_clinic.batch_rows(kind, patients, sizes)
        return ok({"data": rows, "data_type": kind, "count": len(rows)})

    def _mds_details(self, request: Request) -> Answer:
        ids = [one for one in request.query.get("ids", "").split(",") if one]
        return ok({"data": [{"id": one, "status": "complete"} for one in ids], "count": len(ids)})

    def _reset_probes(self, request: Request) -> Answer:
        self._probes.update(dict.fromkeys(self._probes, 0))
        return ok({"status": "reset"})

    def _probe(self, request: Request) -> Answer:
        with self._lock:
            self._probes["started"] += 1
            self._probes["active"] += 1
            self._probes["max_active"] = max(self._probes["max_active"], self._probes["active"])
        self.stopped.wait(request.seconds("delay_seconds"))
        with self._lock:
            self._probes["active"] -= 1
            self._probes["completed"] += 1
        return ok({"status": "ok", "label": request.query.get("label")})

    def _upload(self, request: Request) -> Answer:
        bucket, name = request.path.split("/")[5], request.query.get("name", "")
        if not name:
            raise BadQuery("name", name)
        with self._lock:
            self.objects[f"{bucket}/{name}"] = request.body
        return ok({"kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(request.body))})

    def _objects(self, request: Request) -> Answer:
        bucket, _, rest = request.path.removeprefix("/storage/v1/b/").partition("/")
        _, _, name = rest.partition("/")
        if name:
            found = self.objects.get(f"{bucket}/{unquote(name)}")
            return ok(found) if found is not None else (404, {"error": {"code": 404}}, {})
        start = f"{bucket}/{request.query.get('prefix', '')}"
        items = [{"name": key.partition("/")[2], "bucket": bucket} for key in self.objects if key.startswith(start)]
        return ok({"kind": "storage#objects", "items": items})


@contextmanager
def stub_api() -> Iterator[StubApi]:
    """Serve the API on loopback while the block runs."""
    stub = StubApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            given = {name.title(): value for name, value in self.headers.items()}
            status, value, headers = stub.answer(Request(self.command, parts.path, query, body, given))
            raw = isinstance(value, bytes)
            content = value if raw else json.dumps(value).encode()
            told = {
                "Content-Type": "text/plain" if raw else "application/json",
                "Content-Length": str(len(content)),
                **headers,
            }
            try:
                self.send_response(status)
                for name, text in told.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                # The playbook has stopped waiting, as it was asked to.
                self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

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
        stub.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()

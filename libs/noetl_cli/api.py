"""The HTTP API of a NoETL server, as the verbs use it."""

import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from noetl_common.errors import (
    Conflict,
    Invalid,
    NoetlError,
    NotFound,
    Overloaded,
    PlaybookError,
    TooLarge,
    Unauthorized,
    Unavailable,
)

TIMEOUT_S = 30.0
PATIENCE_S = 60.0  # with a server that takes nothing new for a while
OVERLOADED, OVERLOADED_PAUSE_S = 429, 2.0
EVENTS_PAGE_MAX = 500
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Answer = dict[str, Any]
T = TypeVar("T")


class Api:
    """One server. Errors of every method: the tree's error for the status, Unavailable when it does not answer."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        token = os.environ.get("NOETL_API_TOKEN", "")
        self._client = httpx.Client(
            base_url=self.url,
            timeout=TIMEOUT_S,
            headers={"Authorization": f"Bearer {token}"} if token else None,
            # A proxy configured for the world has no business between this command and a server on this machine.
            trust_env=urlsplit(self.url).hostname not in _LOOPBACK,
        )

    def __enter__(self) -> "Api":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._client.close()

    def health(self) -> Answer:
        """Return what the server says of itself."""
        return dict(self._get("/api/health", {}))

    def register(self, content: str) -> Answer:
        """Register a document; return its path, version, catalog_id and warnings."""
        return self._post("/api/catalog/register", {"content": content, "resource_type": "Playbook"})

    def execute(self, where: Mapping[str, Any], payload: Mapping[str, Any], *, key: str = "") -> str:
        """Start the playbook at `where` ({path or catalog_id, version?, priority?}); return the execution id.

        `key`: under the same one nothing is started twice. A server that takes nothing new is waited for.
        """
        body = {**where, "payload": payload, "idempotency_key": key or secrets.token_hex(16)}
        return str(_patiently(lambda: self._post("/api/execute", body))["execution_id"])

    def execute_batch(self, items: Sequence[Answer]) -> list[Answer]:
        """Start runs; return what became of each item. Those that an overloaded server refused are sent again."""
        items = [{"idempotency_key": secrets.token_hex(16), **item} for item in items]
        results: dict[int, Answer] = {}
        found: set[int] = set()

        def send() -> None:
            left = [index for index in range(len(items)) if index not in found]
            answer = self._post("/api/execute/batch", {"executions": [items[index] for index in left]})
            for index, result in zip(left, answer["results"], strict=True):
                results[index] = {**result, "index": index}
                if result.get("problem", {}).get("status") != OVERLOADED:
                    found.add(index)
            if len(found) < len(items):
                raise Overloaded("some starts were refused", retry_after_s=OVERLOADED_PAUSE_S)

        with suppress(Overloaded):  # what is refused to the end says so itself
            _patiently(send)
        return [results[index] for index in range(len(items))]

    def executions(self, *, limit: int, status: str | None, path: str | None) -> list[Answer]:
        """Return runs, newest first."""
        given = {"limit": limit, "page_size": limit, "status": status, "path": path}
        answer = self._get("/api/executions", given)
        found: list[Answer] = answer if isinstance(answer, list) else answer["items"]
        return found

    def execution(self, execution_id: str) -> Answer:
        """Return one run as projected, without its events."""
        return dict(self._get(f"/api/executions/{quote(execution_id, safe='')}", {"include_events": "false"}))

    def status(self, execution_id: str) -> Answer:
        """Return where a run stands."""
        return dict(self._get(f"/api/executions/{quote(execution_id, safe='')}/status", {}))

    def events_after(
        self, execution_id: str, since: int, *, pages_max: int, kind: str | None = None
    ) -> Iterator[Answer]:
        """Yield the events of a run after `since`, oldest first, page by page; `kind` one type only."""
        for _ in range(pages_max):
            given = {"since_event_id": since or None, "page_size": EVENTS_PAGE_MAX, "event_type": kind}
            page = self._get(f"/api/executions/{quote(execution_id, safe='')}/events", given)
            yield from page["events"]
            if not page["pagination"]["has_next"]:
                return
            since = int(page["pagination"]["last_event_id"])

    def resolve(self, ref: str) -> Any:
        """Return the payload that a reference names."""
        return self._get("/api/result/resolve", {"ref": ref})

    def trace(self, execution_id: str, step: str, *, depth: int | None = None) -> Answer:
        """Return the chain of results behind a step, all pages of it; `depth`: how many steps back."""
        path = f"/api/executions/{quote(execution_id, safe='')}/trace/{quote(step, safe='')}"
        given = {} if depth is None else {"depth": depth}
        answer = dict(self._get(path, given))
        while answer.get("next_cursor"):
            page = self._get(path, {**given, "cursor": answer["next_cursor"]})
            answer |= {"chain": answer["chain"] + page["chain"], "next_cursor": page["next_cursor"]}
        return answer

    def cancel(self, execution_id: str, reason: str) -> Answer:
        """Cancel a run and its children."""
        return self._post(f"/api/executions/{quote(execution_id, safe='')}/cancel", {"reason": reason, "cascade": True})

    def shards(self) -> Answer:
        """Return who owns which shard, and who lives."""
        return dict(self._get("/api/runtime/shards", {}))

    def ask_replica(self, instance: str, verb: str) -> Answer:
        """Drain, cordon or uncordon a replica; return how it stands and how many shards it owns."""
        return self._post(f"/api/runtime/replicas/{quote(instance, safe='')}/{verb}", {})

    def put_credential(self, body: Mapping[str, Any]) -> Answer:
        """Store a credential under its name, replacing the one before."""
        return self._post("/api/credentials", body)

    def credentials(self) -> list[Answer]:
        """Return every credential without its secret part."""
        return list(self._get("/api/credentials", {})["items"])

    def delete_credential(self, name: str) -> None:
        """Remove a credential."""
        self._send("DELETE", f"/api/credentials/{quote(name, safe='')}")

    def _get(self, path: str, given: Mapping[str, Any]) -> Any:
        return self._send("GET", path, params={k: v for k, v in given.items() if v is not None})

    def _post(self, path: str, body: Mapping[str, Any]) -> Answer:
        return dict(self._send("POST", path, json=body))

    def _send(self, method: str, path: str, **parts: Any) -> Any:
        try:
            answer = self._client.request(method, path, **parts)
        except httpx.TransportError as exc:
            found = exc if str(exc) else type(exc).__name__
            raise Unavailable(f"{self.url}: expected an API that answers, found none: {found}") from exc
        if answer.is_success:
            return answer.json() if answer.content else {}
        raise error_of(answer)


def _patiently(call: Callable[[], T]) -> T:
    """Return what `call` returns, made again while the server is overloaded, PATIENCE_S at most. Errors: its own."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except Overloaded as refusal:
            pause_s = max(refusal.retry_after_s, 0.1) * (1 + random.random() / 2)  # not all at the same moment
            if time.monotonic() + pause_s > deadline_s:
                raise
            time.sleep(pause_s)


def error_of(answer: httpx.Response) -> NoetlError:
    """Return the tree's error for a refused request; the message is the server's own."""
    try:
        body = answer.json()
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    detail = body.get("detail") or body.get("error") or f"HTTP {answer.status_code}"
    message = detail if isinstance(detail, str) else str(detail.get("message", detail))
    problems = body.get("problems")
    if isinstance(problems, list) and problems:
        return PlaybookError(problems)
    match answer.status_code:
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message)
        case 413:
            return TooLarge(message)
        case 400 | 422:
            return Invalid(message, pointer=str(body.get("pointer", "")))
        case 401 | 403:
            return Unauthorized(f"{message}; the token sent is NOETL_API_TOKEN", status=answer.status_code)
        case 429:
            asked = answer.headers.get("retry-after", "")
            return Overloaded(message, retry_after_s=float(asked) if asked.isdecimal() else OVERLOADED_PAUSE_S)
        case 502 | 503 | 504:
            return Unavailable(message)
    return NoetlError(f"{message} (HTTP {answer.status_code})")

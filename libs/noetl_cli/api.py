"""The HTTP API of a NoETL server, as the verbs use it."""

import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from noetl_common.errors import (
    Conflict,
    Invalid,
    NoetlError,
    NotFound,
    PlaybookError,
    TooLarge,
    Unauthorized,
    Unavailable,
)

TIMEOUT_S = 30.0
EVENTS_PAGE_MAX = 500
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Answer = dict[str, Any]


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

    def execute(self, where: Mapping[str, Any], payload: Mapping[str, Any]) -> str:
        """Start the playbook at `where` ({path, version?} or {catalog_id}); return the execution id."""
        return str(self._post("/api/execute", {**where, "payload": payload})["execution_id"])

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
        case 502 | 503 | 504:
            return Unavailable(message)
    return NoetlError(f"{message} (HTTP {answer.status_code})")

"""The worker's side of ingest's HTTP API, typed: every answer a record, every failure one of ours."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import httpx
import msgspec
from yarl import URL

from noetl_common.core.values import Ref
from noetl_common.errors import (
    Conflict,
    Invalid,
    NoetlError,
    NotFound,
    ReferenceCorrupt,
    ReferenceNotAvailable,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from noetl_common.log import get_logger
from noetl_common.loop import asked_pause_s, back_off_s
from noetl_common.wire import (
    Claim,
    Claimed,
    Details,
    Heartbeat,
    HeartbeatAnswer,
    Report,
    ReportBatch,
    Reported,
    ResultRow,
    encode,
)
from services.worker.ingests import Ingests

log = get_logger(__name__)
T = TypeVar("T")

TIMEOUT_S = 30.0  # without a byte of the answer
# The same of a claim or a report. An ingest that is frozen keeps its connections open: its workers must turn to another
# before their leases run out, and by the time its shards have another owner, who waits for what they report. Both may
# be sent again: claims are found again, reports are told to be duplicates.
HOT_TIMEOUT_S = 3.5
CONNECT_TIMEOUT_S = 3.0
KEEP_ALIVE_S = 3.0  # less than ingest's 15: a connection that it is about to close is not used again
CREDENTIAL_TTL_S = 60.0
CREDENTIALS_MAX = 256
LOOP_PAGE_ITEMS = 500


class LoopPage(msgspec.Struct, kw_only=True):
    """Part of a loop's results: rows in the order of their index, and the index to go on after (None: the end)."""

    results: list[ResultRow]
    next_after: int | None = None


class Api:
    """A client of ingest. One per worker; safe to use from many tasks."""

    def __init__(self, ingests: Ingests, *, worker_id: str, token: str = "") -> None:
        self.worker_id = worker_id
        self._ingests = ingests
        self._session = aiohttp.ClientSession(
            headers=headers(token),
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._credentials: dict[str, tuple[float, dict[str, Any]]] = {}

    async def claim(self, pool: str, *, count: int, wait_s: float) -> Claimed:
        """Return up to `count` commands, now on lease to this worker."""
        asked = Claim(worker_id=self.worker_id, pool=pool, max=count, wait_s=wait_s)
        timeout_s = HOT_TIMEOUT_S + wait_s
        return read(await self._send("POST", "/api/commands/claim", body=asked, timeout_s=timeout_s), Claimed)

    async def held(self) -> Claimed:
        """Return the commands on lease to this worker: also those of a claim whose answer was lost."""
        path = f"/api/workers/{self.worker_id}/claims"
        return read(await self._send("GET", path, timeout_s=HOT_TIMEOUT_S), Claimed)

    async def report(self, reports: list[Report]) -> Reported:
        """Return what became of each report; once it has answered, ingest holds them."""
        batch = ReportBatch(worker_id=self.worker_id, events=reports)
        return read(await self._send("POST", "/api/events/batch", body=batch, timeout_s=HOT_TIMEOUT_S), Reported)

    async def note(self, command_id: int, details: Details) -> None:
        """Have what this attempt notes down kept for the next one. Errors: Conflict when the claim is another's."""
        await self._send("POST", f"/api/commands/{command_id}/details", body=details)

    async def payload(self, ref: Ref) -> bytes:
        """Return the JSON that `ref` names. Errors: ReferenceNotAvailable when ingest does not know it."""
        try:
            return await self._send("GET", "/api/result/resolve", query={"ref": ref.uri})
        except NotFound as exc:
            raise ReferenceNotAvailable(f"{ref.uri}: {exc}") from exc

    async def part(self, ref: Ref, *, offset: int, length: int) -> bytes:
        """Return a part of the Parquet file that `ref` names. Errors: ReferenceNotAvailable when ingest has it not."""
        query = {"ref": ref.uri, "offset": str(offset), "length": str(length)}
        try:
            return await self._send("GET", "/api/results/table", query=query)
        except NotFound as exc:
            raise ReferenceNotAvailable(f"{ref.uri}: {exc}") from exc

    async def loop_page(self, ref: Ref, *, after: int) -> LoopPage:
        """Return the results of the items of loop `ref` behind index `after`."""
        query = {
            "execution_id": str(ref.execution_id),
            "step": ref.label,
            "loop_epoch": str(ref.epoch),
            "after": str(after),
            "limit": str(LOOP_PAGE_ITEMS),
        }
        return read(await self._send("GET", "/api/results/loop", query=query), LoopPage)

    async def credential(self, alias: str) -> dict[str, Any]:
        """Return {"type", "data"} of a credential, kept in memory for a minute. Errors: NotFound names the alias."""
        held = self._credentials.get(alias)
        if held is not None and held[0] > time.monotonic():
            return held[1]
        try:
            body = await self._send("GET", f"/api/credentials/{quote(alias, safe='')}", query={"include_data": "true"})
        except NotFound as exc:
            raise NotFound(f"credential: expected a registered one, found none named {alias!r}") from exc
        found = read(body, dict[str, Any])
        kept = {"type": found.get("type", ""), "data": found.get("data") or {}}
        if len(self._credentials) >= CREDENTIALS_MAX:
            self._credentials.clear()
        self._credentials[alias] = (time.monotonic() + CREDENTIAL_TTL_S, kept)
        return kept

    async def register(self, fields: dict[str, Any]) -> None:
        """Make this worker known."""
        await self._send("POST", "/api/worker/pool/register", body={"name": self.worker_id, **fields})

    async def deregister(self) -> None:
        """Say that this worker has stopped."""
        body = {"name": self.worker_id, "component_type": "worker_pool"}
        await self._send("POST", "/api/worker/pool/deregister", body=body)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: dict[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        content = None if body is None else encode(body)
        target = f"{path}?{urlencode(query)}" if query else path
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=timeout_s)
        what, said = f"{method} {path}", ""
        for url in self._ingests.in_turn():
            place = URL(url + target, encoded=True)
            try:
                async with self._session.request(
                    method, place, data=content, timeout=timeout, allow_redirects=False
                ) as answer:
                    return checked(answer.status, await answer.read(), what)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
                # Nothing was sent, so nothing is in doubt: another one may be asked at once.
                self._ingests.is_away(url)
                said = f"{type(exc).__name__}: {exc}"
            except (aiohttp.ClientError, TimeoutError) as exc:
                self._ingests.is_away(url)
                raise Unavailable(f"ingest does not answer {what}: {type(exc).__name__}: {exc}") from exc
            except Unavailable:
                self._ingests.is_away(url)
                raise
        raise Unavailable(f"ingest does not answer {what}: {said}")


async def persistently(call: Callable[[], Awaitable[T]], what: str) -> T:
    """Return what `call` returns, called again for as long as ingest is away, with back-off up to 5 s.

    It ends with the task that waits: a worker that lost its lease cancels it.
    """
    failures = 0
    while True:
        try:
            return await call()
        except Unavailable as exc:
            failures += 1
            pause_s = max(back_off_s(0.05, failures), asked_pause_s(exc))
            log.warning("api.unavailable", what=what, failures=failures, pause_s=round(pause_s, 3), error=exc)
            await asyncio.sleep(pause_s)


def heartbeat_once(client: httpx.Client, ingests: Ingests, beat: Heartbeat) -> HeartbeatAnswer:
    """Renew every lease in one call, from a thread of its own. Errors: as every call to ingest."""
    url = ingests.in_turn()[0]
    try:
        answer = client.post(f"{url}/api/commands/heartbeat", content=encode(beat))
        return read(checked(answer.status_code, answer.content, "POST /api/commands/heartbeat"), HeartbeatAnswer)
    except httpx.HTTPError as exc:
        ingests.is_away(url)
        raise Unavailable(f"ingest does not answer the heartbeat: {type(exc).__name__}: {exc}") from exc
    except Unavailable:
        ingests.is_away(url)
        raise


def headers(token: str) -> dict[str, str]:
    """Return the headers of every request."""
    plain = {"Content-Type": "application/json", "Accept": "application/json"}
    return {**plain, "Authorization": f"Bearer {token}"} if token else plain


def checked(status: int, body: bytes, what: str) -> bytes:
    """Return the body of a good answer. Errors: the one of ours that fits the status."""
    if 200 <= status < 300:
        return body
    found = _problem_in(body)
    message = f"{what}: {status}: {found.get('error') or body[:500].decode(errors='replace')}"
    # These say more than their status: a payload that is gone does not come back by asking again.
    lost = {kind.code: kind for kind in (ReferenceNotAvailable, ReferenceCorrupt)}.get(str(found.get("code", "")))
    if lost is not None:
        raise lost(message)
    kinds: dict[int, type[NoetlError]] = {404: NotFound, 409: Conflict, 413: TooLarge, 422: Invalid, 400: Invalid}
    if status in (401, 403):
        raise Unauthorized(message, status=status)
    if status in kinds:
        raise kinds[status](message)
    asked_s = found.get("retry_after_s")
    raise Unavailable(message, retry_after_s=asked_s if isinstance(asked_s, int | float) else 0.0)


def read(body: bytes, kind: type[T]) -> T:
    """Return an answer as its record. Errors: Unavailable when it has another shape (another version answers)."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except msgspec.DecodeError as exc:
        raise Unavailable(f"ingest answered something else than {kind.__name__}: {exc}") from exc


def _problem_in(body: bytes) -> dict[str, Any]:
    try:
        problem = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}

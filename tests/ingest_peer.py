"""A peer that speaks ingest's side of the wire to a worker under test: a queue of commands, and what was reported."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from noetl_common.core.commands import CommandContext, Item
from noetl_common.core.playbook import Task
from noetl_common.core.values import Value
from noetl_common.process import Service, serve
from noetl_common.wire import (
    Claim,
    Claimed,
    ClaimedCommand,
    Heartbeat,
    HeartbeatAnswer,
    Outcome,
    Report,
    ReportBatch,
    Reported,
    ResultRow,
    decode,
    encode,
)

EXECUTION = 987_654_321


class Peer:
    """What the worker talks to. Set `is_away` and every call is answered 503; `refuse` names steps refused with 422."""

    def __init__(self) -> None:
        self.url = ""
        self.waiting: list[ClaimedCommand] = []
        self.contexts: dict[int, CommandContext] = {}
        self.results: list[ResultRow] = []
        self.payloads: dict[str, bytes] = {}
        self.burnt: set[str] = set()  # references whose payload no tier has any more
        self.reports: list[Report] = []
        self.batches: list[int] = []
        self.beats: list[Heartbeat] = []
        self.calls: list[str] = []
        self.cancelled: list[int] = []
        self.lost: list[int] = []
        self.refuse: set[str] = set()
        self.outcome: Outcome = "accepted"
        self.is_away = False
        self.loses_claims = False  # a claim is granted, and its answer never arrives
        self.held: list[ClaimedCommand] = []
        self.lease_s = 15.0
        self.tokens: list[str | None] = []
        self.changed = asyncio.Event()
        self._token = 0

    def offer(self, tasks: tuple[Task, ...], *, items: Sequence[Item | None] = (None,), **context: Any) -> list[int]:
        """Queue one command (or one an item) and return their command ids."""
        context_id = len(self.contexts) + 1
        given: dict[str, Any] = {"workload": Value({}), "step": "work", "path": "p", "version": 1, **context}
        self.contexts[context_id] = CommandContext(
            execution_id=EXECUTION, catalog_id=5, tasks=tasks, total=len(items), **given
        )
        made = []
        for index, item in enumerate(items):
            self._token += 1
            made.append(
                ClaimedCommand(
                    execution_id=EXECUTION,
                    command_id=context_id * 1_000_000 + index,
                    event_id=self._token,
                    step=given["step"],
                    attempt=1,
                    claim_token=self._token,
                    context_id=context_id,
                    loop_epoch=3 if item is not None else 0,
                    iter_index=index if item is not None else -1,
                    item=item,
                )
            )
        self.waiting += made
        self.changed.set()
        return [command.command_id for command in made]

    async def until(self, condition: Any, *, within_s: float = 30.0) -> None:
        """Wait until `condition()` holds; every call of the worker is a chance."""
        async with asyncio.timeout(within_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def reported(self, count: int) -> list[Report]:
        """Return the reports once there are `count`."""
        await self.until(lambda: len(self.reports) >= count)
        return self.reports

    async def answer(self, request: Request) -> Response:
        """Answer one call."""
        self.calls.append(f"{request.method} {request.url.path}")
        self.tokens.append(request.headers.get("authorization"))
        body = await request.body()
        try:
            if self.is_away:
                return Response(b"{}", 503)
            return await self._answer(request, body)
        finally:
            self.changed.set()

    async def _answer(self, request: Request, body: bytes) -> Response:
        path = request.url.path
        if path == "/api/commands/claim":
            claimed = await self._claim(decode(body, Claim))
            self.held += claimed.commands
            return Response(b"{}", 503) if self.loses_claims else Response(encode(claimed))
        if path.startswith("/api/workers/") and path.endswith("/claims"):
            return Response(
                encode(Claimed(commands=self.held, contexts=self.contexts, results=[], lease_s=self.lease_s))
            )
        if path == "/api/events/batch":
            return self._report(decode(body, ReportBatch))
        if path == "/api/commands/heartbeat":
            self.beats.append(decode(body, Heartbeat))
            return Response(encode(HeartbeatAnswer(cancelled=self.cancelled, lost=self.lost)))
        if path == "/api/result/resolve":
            payload = self.payloads.get(request.query_params["ref"])
            if request.query_params["ref"] in self.burnt:
                return Response(b'{"code": "REFERENCE_NOT_AVAILABLE", "detail": "no tier has it"}', 503)
            return Response(b'{"error": "no such result"}', 404) if payload is None else Response(payload)
        if path.startswith("/api/credentials/"):
            name = path.rpartition("/")[2]
            known = {"name": name, "type": "bearer", "data": {"token": "t"}}
            return Response(b"{}", 404) if name == "gone" else Response(encode(known))
        return Response(b"{}")

    async def _claim(self, wanted: Claim) -> Claimed:
        if not self.waiting and wanted.wait_s:
            self.changed.clear()
            try:
                async with asyncio.timeout(min(wanted.wait_s, 0.2)):
                    while not self.waiting:
                        await self.changed.wait()
                        self.changed.clear()
            except TimeoutError:
                pass
        given, self.waiting = self.waiting[: wanted.max], self.waiting[wanted.max :]
        contexts = {command.context_id: self.contexts[command.context_id] for command in given}
        return Claimed(commands=given, contexts=contexts, results=self.results if given else [], lease_s=self.lease_s)

    def _report(self, batch: ReportBatch) -> Response:
        if any(report.step in self.refuse for report in batch.events if report.event_type == "command.completed"):
            return Response(b'{"detail": "refused"}', 422)
        self.batches.append(len(batch.events))
        self.reports += batch.events
        done = {report.claim_token for report in batch.events}
        self.held = [command for command in self.held if command.claim_token not in done]
        outcomes: list[Outcome] = [self.outcome] * len(batch.events)
        ids = [number + 1 for number in range(len(batch.events))]
        return Response(encode(Reported(status="ok", event_ids=ids, outcomes=outcomes)))


@asynccontextmanager
async def ingest_peer() -> AsyncIterator[Peer]:
    """Serve a peer on loopback."""
    peer = Peer()
    routes = [Route("/{path:path}", peer.answer, methods=["GET", "POST", "DELETE"])]
    service: Any = Service(name="peer", asgi=Starlette(routes=routes))  # type: ignore[arg-type]
    stop, listening = asyncio.Event(), asyncio.Event()

    def started(host: str, port: int) -> None:
        peer.url = f"http://{host}:{port}"
        listening.set()

    serving = asyncio.create_task(serve(service, stop, started=started))
    await asyncio.wait_for(listening.wait(), 10)
    try:
        yield peer
    finally:
        stop.set()
        await serving


def payload_of(row: ResultRow) -> Any:
    """Return the payload that rides in a row."""
    assert row.inline is not None
    return msgspec.json.decode(row.inline)

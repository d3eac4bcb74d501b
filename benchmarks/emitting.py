"""Clients that hold claims and stream chunks through the batch endpoint: the load of `benchmarks.ingest`."""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from benchmarks.http_client import Connection, sleep_until
from noetl_common.core.events import Envelope
from noetl_common.errors import Conflict, Unavailable
from noetl_common.wire import BATCH_EVENTS_MAX, Report, ReportBatch, Reported, encode

POOL = "emitters"
WORKER_ID = "benchmark"
CLAIM_MAX = 256
CLAIM_TIMEOUT_S = 30.0
BEAT_S = 3.0
CHUNKS_IN_A_ROW = 10  # of one command in one batch, as a step that streams sends them


class Emitter(msgspec.Struct):
    """One command on lease, and the number of the chunk that it streams next."""

    execution_id: int
    command_id: int
    claim_token: int
    step: str
    attempt: int
    loop_epoch: int = 0
    iter_index: int = -1
    chunk: int = 0

    def next_chunk(self) -> Report:
        """Return the report of its next chunk, which names no payload."""
        report = self._report("call.partial", "PARTIAL")
        report.task, report.chunk = "start", self.chunk
        self.chunk += 1
        return report

    def next_chunks(self, count: int) -> list[Report]:
        """Return the reports of its next chunks."""
        return [self.next_chunk() for _ in range(count)]

    def end(self) -> Report:
        """Return the report that ends it."""
        return self._report("command.completed", "COMPLETED")

    def _report(self, event_type: Any, status: str) -> Report:
        return Report(
            execution_id=self.execution_id,
            event_type=event_type,
            command_id=self.command_id,
            claim_token=self.claim_token,
            step=self.step,
            attempt=self.attempt,
            loop_epoch=self.loop_epoch,
            iter_index=self.iter_index,
            status=status,
            result=Envelope(status=status),
        )


async def claim_all(api_url: str, emitters: list[Emitter], count: int) -> None:
    """Add emitters for `count` commands of the pool, claimed. Errors: Unavailable when there are fewer."""
    deadline = time.monotonic() + CLAIM_TIMEOUT_S
    async with Connection(api_url) as api:
        while len(emitters) < count:
            wanted = {"worker_id": WORKER_ID, "pool": POOL, "max": CLAIM_MAX, "wait_s": 1.0}
            for command in (await api.post("/api/commands/claim", wanted))["commands"]:
                emitters.append(msgspec.convert(command, Emitter))
            if time.monotonic() > deadline:
                raise Unavailable(f"expected {count} commands to claim, found {len(emitters)}")


async def keep(api_url: str, emitters: Sequence[Emitter]) -> None:
    """Renew the leases of all emitters until cancelled. Errors: Conflict when one was lost."""
    async with Connection(api_url) as api:
        while True:
            leases = [(one.execution_id, one.command_id, one.claim_token) for one in emitters]
            told = await api.post("/api/commands/heartbeat", {"worker_id": WORKER_ID, "leases": leases})
            if told["lost"] or told["cancelled"]:
                raise Conflict(f"expected every lease to be renewed, found {len(told['lost'])} of {len(leases)} lost")
            await asyncio.sleep(BEAT_S)


async def send(api: Connection, reports: list[Report]) -> None:
    """Send one batch. Errors: Unavailable; Conflict when an event was not accepted."""
    status, body = await api.send("POST", "/api/events/batch", encode(ReportBatch(worker_id=WORKER_ID, events=reports)))
    if status >= 300:
        raise Unavailable(f"POST /api/events/batch: {status}: {body[:200]!r}")
    outcomes = msgspec.json.decode(body, type=Reported).outcomes
    if any(outcome != "accepted" for outcome in outcomes):
        raise Conflict(f"expected every event to be accepted, found {sorted(set(outcomes))}")


def batch_of(turns: Iterator[Emitter], size: int) -> list[Report]:
    """Return the next chunks of the emitters whose turn it is."""
    shares = [CHUNKS_IN_A_ROW] * (size // CHUNKS_IN_A_ROW) + [size % CHUNKS_IN_A_ROW]
    return [report for share in shares if share for report in next(turns).next_chunks(share)]


async def flood(api_url: str, emitters: Sequence[Emitter], *, batch: int, connections: int, seconds: float) -> float:
    """Send batches for `seconds`, each connection the next one when the last is answered; return events a second."""
    began_s = time.perf_counter()
    sent = 0

    async def sender(own: Sequence[Emitter]) -> None:
        nonlocal sent
        turns = itertools.cycle(own)
        async with Connection(api_url) as api:
            while time.perf_counter() < began_s + seconds:
                await send(api, batch_of(turns, batch))
                sent += batch

    await asyncio.gather(*(sender(emitters[n::connections]) for n in range(connections)))
    return sent / (time.perf_counter() - began_s)


async def pace(
    api_url: str, groups: Sequence[Sequence[Emitter]], *, batch: int, every_s: float, seconds: float
) -> list[float]:
    """Have each group send a batch every `every_s` on a connection of its own; return the ms until each was answered.

    They count from when a batch was due, so that one that is late because the one before it was slow counts as slow.
    """
    took_ms: list[float] = []

    async def sender(own: Sequence[Emitter], offset_s: float) -> None:
        turns = itertools.cycle(own)
        async with Connection(api_url) as api:
            due_s = time.perf_counter() + offset_s
            last_s = due_s + seconds
            while due_s < last_s:
                await sleep_until(due_s)
                await send(api, batch_of(turns, batch))
                took_ms.append((time.perf_counter() - due_s) * 1000)
                due_s += every_s

    await asyncio.gather(*(sender(own, every_s * n / len(groups)) for n, own in enumerate(groups)))
    return took_ms


async def end_all(api_url: str, emitters: Sequence[Emitter]) -> None:
    """Report the end of every command."""
    async with Connection(api_url) as api:
        for first in range(0, len(emitters), BATCH_EVENTS_MAX):
            await send(api, [one.end() for one in emitters[first : first + BATCH_EVENTS_MAX]])

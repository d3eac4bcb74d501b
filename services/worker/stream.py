"""What a command says before its end: the chunks it streams, and notes for the attempt after this one."""

import asyncio
from typing import Any, NoReturn, Protocol

import msgspec

from noetl_common import metrics
from noetl_common.core.events import Envelope
from noetl_common.core.shard import hashed_id
from noetl_common.core.values import reference_of
from noetl_common.errors import Conflict
from noetl_common.log import get_logger
from noetl_common.store.results import ResultStore
from noetl_common.wire import ClaimedCommand, Details, Report, Reported
from services.worker.api import persistently
from services.worker.persist import persist_before_emit

log = get_logger(__name__)

CLAIM_LABEL = "claim.rows"  # of the rows that a claim of a cursor loop brought


class Reporting(Protocol):
    """The part of ingest's API that takes these (services.worker.api.Api)."""

    worker_id: str

    async def report(self, reports: list[Report]) -> Reported:
        """Return what became of each report."""

    async def note(self, command_id: int, details: Details) -> None:
        """Have details kept. Errors: Conflict when the claim is another's."""


class Stream:
    """The line of one running command to ingest. A lost claim cancels who uses it: the command is another's now."""

    def __init__(self, command: ClaimedCommand, api: Reporting, store: ResultStore) -> None:
        self._command = command
        self._api = api
        self._store = store
        self._notes = 0

    @property
    def details(self) -> dict[str, Any] | None:
        """What an earlier attempt noted down."""
        return self._command.details

    async def chunk(self, task: str, number: int, value: Any) -> None:
        """Return once chunk `number` of what `task` streams is recorded, however long ingest is away.

        Errors: Invalid and TooLarge when it is refused; those of the store.
        """
        command = self._command
        # A chunk is named by its number, whichever attempt sends it: sent again it is the same one.
        nameless = msgspec.structs.replace(command, attempt=0)
        label = f"{task}.chunk.{number}"
        ref, row = await persist_before_emit(nameless, value, store=self._store, label=label)
        report = Report(
            execution_id=command.execution_id,
            event_type="call.partial",
            command_id=command.command_id,
            claim_token=command.claim_token,
            step=command.step,
            attempt=command.attempt,
            status="PARTIAL",
            result=Envelope(status="PARTIAL", reference=reference_of(ref)),
            loop_epoch=command.loop_epoch,
            iter_index=command.iter_index,
            results=[row],
            task=task,
            chunk=number,
        )
        [outcome] = (await persistently(lambda: self._api.report([report]), "chunk")).outcomes
        metrics.inc("noetl_worker_chunks_total", 1, outcome=outcome)
        if outcome in ("fenced", "unknown"):
            self._give_up(f"chunk {number} of task {task!r} is {outcome}")

    async def note(self, details: dict[str, Any], payload: Any) -> dict[str, Any]:
        """Return `details`, with `payload` named in them as `reference`, once they are kept for the next attempt.

        Errors: Invalid and TooLarge when they are refused; those of the store.
        """
        command = self._command
        ref, row = await persist_before_emit(command, payload, store=self._store, label=CLAIM_LABEL)
        # What this attempt notes down next, or reports, may be something else: each note has a row of its own.
        self._notes += 1
        row.ref_id = hashed_id(row.ref_id, "note", self._notes)
        ref = msgspec.structs.replace(ref, ref_id=row.ref_id)
        named = {**details, "reference": msgspec.to_builtins(ref)}
        noted = Details(
            worker_id=self._api.worker_id,
            execution_id=command.execution_id,
            claim_token=command.claim_token,
            details=named,
            results=[row],
        )
        try:
            await persistently(lambda: self._api.note(command.command_id, noted), "details")
        except Conflict as exc:
            self._give_up(str(exc))
        return named

    def _give_up(self, why: str) -> NoReturn:
        command = self._command
        log.warning(
            "command.lost",
            execution_id=command.execution_id,
            step=command.step,
            command_id=command.command_id,
            reason=why,
        )
        raise asyncio.CancelledError(f"the command is another worker's: {why}")

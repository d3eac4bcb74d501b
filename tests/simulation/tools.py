"""What simulated workers do with a command: it takes a while, may fail, may stream, may take rows; and is noted."""

import asyncio
import hashlib
import random
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_common import wire
from noetl_common.core.commands import CommandContext
from noetl_common.core.events import Envelope
from noetl_common.core.shard import hashed_id
from noetl_common.core.values import reference_of
from noetl_common.wire import ClaimedCommand, Report, ResultRow, ref_of
from services.worker.api import persistently
from tests.engine import is_claim

if TYPE_CHECKING:
    from tests.simulation.processes import WorkerApi
    from tests.simulation.world import World


class Tools:
    """The tools of one worker. Stands where the worker's payloads stand, too: small results come with claims."""

    def __init__(self, world: "World", api: "WorkerApi") -> None:
        self._world = world
        self._api = api
        self._payloads: dict[int, Any] = {}

    def keep(self, row: ResultRow) -> None:
        """Keep a small result that came with a claim."""
        if row.inline is not None:
            self._payloads[row.ref_id] = msgspec.json.decode(bytes(row.inline))

    async def perform(self, command: ClaimedCommand, context: CommandContext) -> Report:
        """Run a command: return its report."""
        world = self._world
        await world.faults.reach("effect.before")
        await asyncio.sleep(world.random.choice([0.001, 0.01, 0.05, 0.2]) * (0.5 + world.random.random()))
        if world.random.random() < self._slow_share(command):
            await asyncio.sleep(world.random.uniform(1.0, 8.0))
        world.effects[command.command_id] += 1
        await world.faults.reach("effect.after")
        fails = world.random.random() < world.workload.failures
        if is_claim(context):
            return _failed(command, "the claim") if fails else self._claimed(command, context)
        if world.workload.streams(context):
            await self._stream(command, context)
        if fails:
            return _failed(command, "by chance")
        return self._completed(command, context, {"ran": command.step, "index": command.iter_index})

    def _slow_share(self, command: ClaimedCommand) -> float:
        """Return how often a tool takes seconds: in a rough seed mostly where another worker may still report."""
        world = self._world
        if not world.is_rough or world.is_calm:
            return 0.01
        return 0.8 if command.attempt > 1 else 0.1

    def _claimed(self, command: ClaimedCommand, context: CommandContext) -> Report:
        """Take rows; an attempt after this one takes the same, as what is noted down makes it."""
        world = self._world
        if command.command_id not in world.claimed_rows:
            left = world.found_rows.setdefault(command.loop_epoch, random.Random(command.step).choice([0, 1, 3, 7]))
            taken = min(left, context.frame["__frame_max_rows"])
            world.found_rows[command.loop_epoch] = left - taken
            world.claimed_rows[command.command_id] = taken
        rows = [{"row": number} for number in range(world.claimed_rows[command.command_id])]
        report = self._completed(command, context, rows) if rows else _report(command, Envelope(status="COMPLETED"))
        report.result.context = {"row_count": len(rows)}
        for row in report.results:
            row.iter_index = -1
        return report

    async def _stream(self, command: ClaimedCommand, context: CommandContext) -> None:
        label = context.tasks[-1].label
        for number in range(random.Random(f"{command.step}:{command.iter_index}").choice([0, 1, 2, 3])):
            row = _row(command, {"chunk": number}, ref_id=hashed_id(command.command_id, label, number))
            row.iter_index = -1
            envelope = Envelope(status="PARTIAL", reference=reference_of(ref_of(row)))
            report = _report(command, envelope, event_type="call.partial")
            report.results, report.task, report.chunk = [row], label, number
            [outcome] = (await persistently(lambda report=report: self._api.report([report]), "chunk")).outcomes
            if outcome in ("fenced", "unknown"):
                raise asyncio.CancelledError("the command is another worker's")

    def _completed(self, command: ClaimedCommand, context: CommandContext, result: Any) -> Report:
        is_pipeline = context.is_pipeline or context.more
        if is_pipeline:
            prior = command.item.prior if command.item else None
            before = self._payloads.get(prior.ref_id, {}) if prior else {}
            result = {**before, **{task.label: result for task in context.tasks}}
        row = _row(command, result, ref_id=hashed_id(command.command_id, "result", command.attempt))
        row.shape = "pipeline" if is_pipeline else "plain"
        if context.more:
            row.iter_index = -1
        report = _report(command, Envelope(status="COMPLETED", reference=reference_of(ref_of(row))))
        report.results = [row]
        return report


async def perform(command: ClaimedCommand, context: CommandContext, *, scopes: Any, machine: Any, store: Any) -> Report:
    """Stand where services.worker.perform.perform stands."""
    report: Report = await machine.tools.perform(command, context)
    return report


def _failed(command: ClaimedCommand, message: str) -> Report:
    error = {"code": "TOOL", "message": message}
    return _report(command, Envelope(status="FAILED", error=error), event_type="command.failed")


def _report(command: ClaimedCommand, envelope: Envelope, *, event_type: Any = "command.completed") -> Report:
    return Report(
        execution_id=command.execution_id,
        event_type=event_type,
        command_id=command.command_id,
        claim_token=command.claim_token,
        step=command.step,
        attempt=command.attempt,
        status=envelope.status,
        result=envelope,
        loop_epoch=command.loop_epoch,
        iter_index=command.iter_index,
    )


def _row(command: ClaimedCommand, result: Any, *, ref_id: int) -> ResultRow:
    text = wire.encode(result)
    return ResultRow(
        execution_id=command.execution_id,
        ref_id=ref_id,
        step=command.step,
        bytes=len(text),
        sha256=hashlib.sha256(text).hexdigest(),
        loop_epoch=command.loop_epoch,
        iter_index=command.iter_index,
        inline=msgspec.Raw(text),
    )

"""Perform one command: what its templates see, its pipeline, its result made durable, its report."""

import asyncio
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

import msgspec

from noetl_common import metrics
from noetl_common.core.commands import CommandContext, Item
from noetl_common.core.events import Envelope
from noetl_common.core.results import Carried, carried_in, merged, view
from noetl_common.core.scope import Scope, system_names
from noetl_common.core.tables import Rows, rows_in
from noetl_common.core.values import Ref, Shape, Value, printable, reference_of
from noetl_common.core.views import plain
from noetl_common.errors import NoetlError, ReferenceCorrupt
from noetl_common.store.results import ResultStore
from noetl_common.wire import ClaimedCommand, Report, ResultRow, encoded
from services.worker.persist import AS_USUAL, persist_before_emit, persist_variables
from services.worker.pipeline import Ended, Machine, Pipeline, Work, secretive_in
from services.worker.stream import CLAIM_LABEL, Stream
from services.worker.tables import Tables

CONTEXTS_MAX = 256
MESSAGE_CHARS_MAX = 2000
FIELD_BYTES_MAX = 256
ERROR_BYTES_MAX = 3500


class Shared(msgspec.Struct, frozen=True):
    """What all commands of one context stand on; made once."""

    scope: Scope
    secretive: frozenset[str]


class Scopes:
    """What the commands share of the contexts seen last: every item of a loop stands on the same one."""

    def __init__(self, machine: Machine, *, worker_id: str) -> None:
        self._machine = machine
        self._worker_id = worker_id
        self._shared: OrderedDict[tuple[int, int], Shared] = OrderedDict()

    def of(self, command: ClaimedCommand, context: CommandContext) -> Shared:
        """Return what a context gives to all its commands, without anything that belongs to one item."""
        key = command.execution_id, command.context_id
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = Shared(self.fresh(context, {}), secretive_in(context.tasks))
            if len(self._shared) > CONTEXTS_MAX:
                self._shared.popitem(last=False)
        else:
            self._shared.move_to_end(key)
        return shared

    def fresh(self, context: CommandContext, variables: dict[str, Any]) -> Scope:
        """Return a new scope of a context in which `ctx` also has `variables`."""
        system = system_names(
            execution_id=context.execution_id,
            catalog_id=context.catalog_id,
            path=context.path,
            version=context.version,
            parent_execution_id=context.parent_execution_id,
            now=_now,
            last=None if context.last is None else view(context.last, self._machine.payloads.load),
        )
        return Scope(
            load=self._machine.payloads.load,
            workload=context.workload,
            ctx={**context.ctx, **{name: Value(value) for name, value in variables.items()}},
            results=context.results,
            system={**system, "step": context.step, "worker_id": self._worker_id},
            locals=context.frame,
        )


async def perform(
    command: ClaimedCommand, context: CommandContext, *, scopes: Scopes, machine: Machine, store: ResultStore
) -> Report:
    """Return the report of `command`, every payload that it names durable or beside it."""
    began = datetime.now(UTC)
    try:
        work = await _work(command, context, scopes, machine)
        if machine.reports is not None:
            work.stream = Stream(command, machine.reports, store)
        pipeline = Pipeline(work, machine)
        try:
            ended = await pipeline.run()
            report = await _report(command, context, ended, tables=pipeline.tables, store=store)
        finally:
            pipeline.tables.close()
    except NoetlError as exc:
        # Its item or prior results cannot be read, or its own result cannot be stored: the step fails, saying so.
        error = {"code": exc.code, "kind": exc.code.lower(), "message": str(exc), "retryable": exc.status == 503}
        report = failure(command, error)
    now = datetime.now(UTC)
    report.event_time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    report.meta = {"duration_ms": round((now - began).total_seconds() * 1000)}
    metrics.observe("noetl_command_latency_seconds", (now - began).total_seconds(), phase="run")
    return report


def failure(command: ClaimedCommand, error: dict[str, Any]) -> Report:
    """Return the report of a command that failed without a result."""
    envelope = Envelope(status="FAILED", error=_bounded(error, command.step, ""))
    return _blank(command, "command.failed", envelope)


def failed_instead(report: Report, message: str) -> Report:
    """Return the smallest report of the same command: that it failed, and why."""
    error = {"code": "REPORT_REFUSED", "kind": "protocol", "message": message}
    envelope = Envelope(status="FAILED", error=_bounded(error, report.step, ""))
    return msgspec.structs.replace(
        report, event_type="command.failed", status="FAILED", result=envelope, results=[], meta={}
    )


def cancellation(command: ClaimedCommand) -> Report:
    """Return the report of a command that its run asked to abandon."""
    return _blank(command, "command.cancelled", Envelope(status="CANCELLED"))


async def _work(command: ClaimedCommand, context: CommandContext, scopes: Scopes, machine: Machine) -> Work:
    iteration: dict[str, Any] = {}
    item = command.item
    if command.iter_index >= 0:
        index = command.iter_index
        value = await _item_value(item, index, machine) if item is not None else index
        iteration = {**_places(item, index, context.total), "loop_index": index, (context.iterator or "item"): value}
    handed = Carried({}, {}, {})
    if item is not None and item.prior is not None:
        reference = item.prior
        prior = await machine.payloads.settled(lambda: plain(machine.payloads.load(reference, None)))
        if not isinstance(prior, dict):
            raise ReferenceCorrupt(f"{reference.uri}: expected the results of earlier tasks by label")
        handed = carried_in(prior)
    shared = scopes.of(command, context)
    return Work(
        execution_id=command.execution_id,
        step=command.step,
        tasks=context.tasks,
        scope=shared.scope,
        rescoped=lambda variables: scopes.fresh(context, variables),
        is_pipeline=context.is_pipeline,
        idempotency_key=str(command.command_id),
        iteration=iteration,
        handed=handed,
        is_part=context.more or (item is not None and item.prior is not None),
        keychain=context.keychain,
        secretive=shared.secretive,
    )


def _places(item: Item | None, index: int, total: int) -> dict[str, Any]:
    """Return where an item stands: in its loop, or in its frame for a row of a cursor loop."""
    last = total - 1
    if item is not None and item.total:
        index, total = max(item.index, 0), item.total
        last = 0 if item.whole else total - 1
    return {"_index": index, "_total": total, "_first": index == 0, "_last": index == last}


async def _item_value(item: Item, index: int, machine: Machine) -> Any:
    reference = item.ref
    if reference is None:
        return item.v
    place = item.index if item.index >= 0 else index

    def value() -> Any:
        items = machine.payloads.load(reference, None)
        if reference.shape == "loop":
            items = items["results"]
        elif reference.shape == "pipeline" and isinstance(items, dict):
            items = merged(items)
        if item.whole:
            return plain(items)
        if not isinstance(items, list | Rows) or place >= len(items):
            raise ReferenceCorrupt(f"{reference.uri}: expected a list of more than {place} items")
        return plain(items[place])

    return await machine.payloads.settled(value)


async def _report(
    command: ClaimedCommand, context: CommandContext, ended: Ended, *, tables: Tables, store: ResultStore
) -> Report:
    completed = ended.status == "completed"
    rows: list[ResultRow] = []
    reference: Ref | None = None
    labelled = context.is_pipeline or context.more or (command.item is not None and command.item.prior is not None)
    payload = ended.labelled if labelled else ended.last.data
    breaks = context.more and completed and ended.breaks
    hands_on = completed and not breaks and (context.more or bool(ended.to))
    if hands_on:
        payload = Carried(ended.labelled, ended.names, ended.iteration).payload()
    is_claim = bool(context.tasks) and context.tasks[0].kind == "cursor"
    # A result of null is no payload: it needs no row, and routing names it without one.
    has_result = payload is not None and (completed or any(data is not None for data in ended.labelled.values()))
    if has_result:
        shape: Shape = "pipeline" if labelled else "plain"
        label = CLAIM_LABEL if is_claim else ""
        if rows_in(payload):
            payload = await asyncio.to_thread(tables.told, payload)
        reference, row = await persist_before_emit(
            command,
            payload,
            store=store,
            shape=shape,
            label=label,
            tabular=not is_claim,
            output=context.output or AS_USUAL,
        )
        if hands_on or not completed:
            row.iter_index = -1  # nobody shall take it for the result of the item in its loop
        rows.append(row)
    told: dict[str, Any] | None = {"row_count": len(payload or ())} if is_claim and completed else None
    if ended.variables:
        values, more = await persist_variables(command, ended.variables, store=store)
        rows += more
        told = {**(told or {}), "ctx": values}
    if breaks:
        told = {**(told or {}), "breaks": True}
    if ended.to:
        told = {**(told or {}), "to": ended.to}
    status = "COMPLETED" if completed else "FAILED"
    prior = command.item.prior if command.item is not None else None
    envelope = Envelope(
        status=status,
        reference=None if reference is None else reference_of(reference),
        parent_ref=None if prior is None else reference_of(prior),
        context=told,
        error=None if ended.error is None else _bounded(ended.error, command.step, ended.task),
    )
    report = _blank(command, "command.completed" if completed else "command.failed", envelope)
    report.results = rows
    return report


def _blank(command: ClaimedCommand, event_type: Any, envelope: Envelope) -> Report:
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


def _bounded(error: dict[str, Any], step: str, task: str) -> dict[str, Any]:
    """Return an error that fits an event: its message cut, of the rest what is small."""
    error = printable(error)
    message = str(error.get("message", ""))
    if len(message) > MESSAGE_CHARS_MAX:
        message = f"{message[:MESSAGE_CHARS_MAX]}... ({len(message)} characters)"
    bounded: dict[str, Any] = {
        "code": str(error.get("code", "TOOL_FAILED"))[:100],
        "message": message,
        "kind": str(error.get("kind", "unknown"))[:100],
        "retryable": bool(error.get("retryable", False)),
        "step": step[:200],
        **({"task": task[:200]} if task else {}),
    }
    while len(encoded(bounded)) > ERROR_BYTES_MAX and message:
        message = message[: len(message) // 2]  # characters of several bytes, or many that JSON escapes
        bounded["message"] = message
    for name, value in error.items():
        small = len(encoded(value)) <= FIELD_BYTES_MAX
        if name not in bounded and value is not None and small and len(bounded) < 16:
            bounded[name] = value
    return bounded


def _now() -> str:
    return datetime.now(UTC).isoformat()

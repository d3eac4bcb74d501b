"""Verify a system at one moment: the log by shards, what is made of it by runs, what hangs on it by sets."""

import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import msgspec

from noetl_common.core.events import Envelope, Event
from noetl_common.core.shard import last_id
from noetl_common.errors import NotFound
from noetl_common.store.results import ResultStore
from noetl_common.verify import judge_rows
from noetl_common.verify.judge_manifest import ManifestJudge
from noetl_common.verify.judge_run import Kept, RunJudge
from noetl_common.verify.payloads import find_orphans, judge_orphans, judge_payloads
from noetl_common.verify.reading import ByRun, Row, Scope, Snapshot, one_moment, the_present
from noetl_common.verify.report import Finding, Findings, Looked, Report

PARTS_AT_ONCE = 20
RUNS_AT_ONCE = 200
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
EVENT_FIELDS = (
    "event_id", "event_type", "step", "command_id", "attempt", "loop_epoch", "iter_index", "status", "result", "meta",
    "dedup_key", "catalog_id", "parent_execution_id", "worker_id", "event_time",
)  # fmt: skip

# Queries whose every row is a finding, and who says which.
BY_SETS: tuple[tuple[str, Callable[[Row], Finding]], ...] = (
    ("find_commands", judge_rows.command),
    ("find_timers", judge_rows.timer),
    ("find_places", judge_rows.place),
    ("find_references", judge_rows.reference),
    ("find_orphaned", judge_rows.parent),
    ("find_cycles", judge_rows.cycle),
)

OF_RUNS = ("find_timers", "find_places")  # queries of tables that no range of the log leaves with


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What to verify: all runs or one; how many payloads to read back (None: all), and up to which size."""

    execution_id: int | None = None
    sample: int | None = 1_000
    payload_bytes_max: int = PAYLOAD_BYTES_MAX


async def verify(dsn: str, store: ResultStore, asked: Asked = Asked()) -> Report:  # noqa: B008 - it is frozen
    """Return everything that does not hold at one moment; a system at work does not disturb it, nor it the system.

    Memory is that of the largest state of a run. The snapshot lasts as long as the verification.
    Errors: NotFound when the run asked for is not there; Unavailable and ConfigError when a tier cannot be read;
    psycopg errors pass through.
    """
    started_s = time.monotonic()
    findings, looked = Findings(), Looked()
    one = asked.execution_id
    async with the_present(dsn) as present, one_moment(dsn) as snapshot:
        shards = {row["shard_id"]: row for row in await snapshot.rows("read_shards")}
        [leaving] = await snapshot.rows("read_leaving")
        scope = Scope(**leaving) if one is None else Scope(low=one, high=one, **leaving)
        if one is None:
            await _judge_shards(snapshot, shards, findings)
            looked.shards = len(shards)
        await _judge_runs(snapshot, scope, shards=shards, findings=findings, looked=looked)
        if one is not None and not looked.executions:
            raise NotFound(f"expected an execution, found none with the id {one}")
        for query, judge in BY_SETS:
            async for row in snapshot.stream(query, **(scope.ids if query in OF_RUNS else scope.held)):
                findings.add(judge(row))
        await _judge_manifests(snapshot, scope, findings=findings, looked=looked)
        orphans = await find_orphans(present, scope, store)
        known = {finding.reference.split(" at ")[0] for finding in findings.kept if finding.reference}
        for finding in await judge_payloads(
            snapshot,
            present,
            scope,
            store=store,
            wanted=asked.sample,
            bytes_max=asked.payload_bytes_max,
            looked=looked,
        ):
            if finding.reference.split(" at ")[0] not in known:  # whose row is wrong, its payload need not be told too
                findings.add(finding)
        findings.add(*await judge_orphans(present, orphans))
    looked.seconds = round(time.monotonic() - started_s, 3)
    return findings.report(looked)


async def _judge_shards(snapshot: Snapshot, shards: dict[int, Row], findings: Findings) -> None:
    for shard_id, shard in shards.items():
        findings.add(*judge_rows.cursors(shard))
        head = shard["head_seq"]
        async for row in snapshot.stream("find_misplaced", shard_id=shard_id, head=head):
            findings.add(judge_rows.misplaced(row, head=head))


async def _judge_runs(
    snapshot: Snapshot, scope: Scope, *, shards: dict[int, Row], findings: Findings, looked: Looked
) -> None:
    """Go through rows and events side by side, in the order of execution ids."""
    args = scope.ids
    kept = ByRun(snapshot.stream("read_kept", fetch_rows=RUNS_AT_ONCE, **args))
    log = ByRun(snapshot.stream("read_log", **args))
    folded = ByRun(snapshot.stream("read_folded_log", fetch_rows=PARTS_AT_ONCE, **args))
    while True:
        firsts = [await kept.first(), await log.first(), await folded.first()]
        ids = [id_ for id_ in firsts if id_ is not None]
        if not ids:
            return
        execution_id = min(ids)
        looked.executions += 1
        rows = [row async for row in kept.of(execution_id)]
        if not rows:
            await _judge_unknown(log, folded, execution_id, findings)
            continue
        run = _kept(rows[0])
        shard = shards.get(run.shard_id)
        if shard is None:
            expected = f"a shard out of {len(shards)}"
            findings.add(
                Finding(check="log.runs", execution_id=execution_id, expected=expected, found=f"shard {run.shard_id}")
            )
            shard = {"routed_seq": 0, "projected": 0}
        routed = last_id(run.shard_id, shard["routed_seq"])
        judge = RunJudge(run, routed=routed, projected=min(routed, shard["projected"]))
        events = 0
        async for row in log.of(execution_id):
            judge.take(event_of(row))
            events += 1
        async for event in _folded_events(folded, execution_id):
            judge.take(event)
            events += 1
        findings.add(*judge.finish())
        looked.events += events


async def _judge_unknown(log: ByRun, folded: ByRun, execution_id: int, findings: Findings) -> None:
    """Pass over the events of a run that has no row."""
    events = [row["event_id"] async for row in log.of(execution_id)]
    parts = [row async for row in folded.of(execution_id)]
    findings.add(
        Finding(
            check="log.runs",
            execution_id=execution_id,
            event_id=events[0] if events else 0,
            expected="a row in noetl.execution",
            found=f"none, but {len(events)} events" if events else f"none, but {len(parts)} parts of a manifest",
        )
    )


async def _judge_manifests(snapshot: Snapshot, scope: Scope, *, findings: Findings, looked: Looked) -> None:
    args = scope.ids
    async for row in snapshot.stream("find_unmatched_manifests", **args):
        findings.add(judge_rows.unmatched(row))
    parts = ByRun(snapshot.stream("read_parts", fetch_rows=PARTS_AT_ONCE, **args))
    traced = ByRun(snapshot.stream("read_traced", **args))
    async for manifest in snapshot.stream("read_manifests", fetch_rows=RUNS_AT_ONCE, **args):
        looked.manifests += 1
        execution_id = manifest["execution_id"]
        judge = ManifestJudge(manifest)
        await _skip_to(parts, execution_id)
        await _skip_to(traced, execution_id)
        async for part in parts.of(execution_id):
            judge.take_part(part)
        async for row in traced.of(execution_id):
            judge.take_traced(row)
        findings.add(*judge.finish())
    async for row in snapshot.stream("find_untraced", **args):
        findings.add(judge_rows.untraced(row))


async def _skip_to(stream: ByRun, execution_id: int) -> None:
    """Pass over parts whose manifest is not there: that is found as a folded run without one."""
    while (first := await stream.first()) is not None and first < execution_id:
        async for _ in stream.of(first):
            pass


async def _folded_events(folded: ByRun, execution_id: int) -> AsyncIterator[Event]:
    async for part in folded.of(execution_id):
        for line in msgspec.json.decode(part["body"]):
            row = dict(zip(EVENT_FIELDS, line, strict=False))
            row["execution_id"] = execution_id
            row["event_time"] = datetime.fromisoformat(row["event_time"])
            yield event_of(row)


def event_of(row: Row) -> Event:
    """Return a row of the log as an Event, as fast as it can be done; null becomes empty."""
    result, index = row["result"], row["iter_index"]
    return Event(
        execution_id=row["execution_id"],
        event_type=row["event_type"],
        event_id=row["event_id"],
        step=row["step"] or "",
        command_id=row["command_id"] or 0,
        attempt=row["attempt"] or 0,
        loop_epoch=row["loop_epoch"] or 0,
        iter_index=-1 if index is None else index,
        status=row["status"] or "",
        result=None if result is None else Envelope(**result),
        meta=row["meta"] or {},
        catalog_id=row["catalog_id"] or 0,
        parent_execution_id=row["parent_execution_id"] or 0,
        event_time=row["event_time"].isoformat(),
    )


def _kept(row: Row) -> Kept:
    end_time: Any = row["end_time"]
    return Kept(**{**row, "end_time": None if end_time is None else end_time.isoformat()})

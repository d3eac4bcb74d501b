"""The short way: inputs that this process would route next are decided first, then committed with all they lead to.

One statement appends and routes, for many shards together, and leases what it issues to workers that wait. It is the
append and the decision of docs/adr/0001 and 0005 in one transaction, under the same fences. What it cannot take, or
finds changed meanwhile, goes the long way as if nothing had happened. Source: docs/adr/0034-the-short-way.md.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec

from noetl_common import metrics
from noetl_common.core.commands import Command, CommandContext, Item
from noetl_common.db import Pool, json_text, single
from noetl_common.event_log import events_text
from noetl_common.log import get_logger
from noetl_common.loop import is_expected
from noetl_common.sql import load_queries
from noetl_common.wire import ClaimedCommand, ResultRow, encode
from services.ingest import store
from services.ingest.claims import Claims
from services.ingest.decisions import Batch, context_rows, place_of, state_row, timer_rows
from services.ingest.held_claims import HeldClaim, give, give_doubt
from services.ingest.read_payloads import store_payloads
from services.ingest.router import Router
from services.ingest.works import PARTIAL, Work

log = get_logger(__name__)
SQL = load_queries("services.ingest")
T = TypeVar("T")

INPUTS_MAX = 128  # of a shard: more than that is a crowd, whose append and routing had better overlap
COMMANDS_MAX = 1_000  # in one commit; a single input may issue as many more as it likes
ROUNDS_MAX = 3  # of routing what stands in the way
ROUNDS_S_MAX = 1.0  # for all of them: reports must be answered before their workers turn to another ingest
BUSY_PAUSES_S = (0.005, 0.01, 0.02, 0.04)  # while someone renews the leases of what is reported
# How long a shard goes the long way after it was found changed; doubled each time in a row, for someone else may append
# to it as well.
REST_MIN_S, REST_MAX_S = 0.03, 1.0


class AtOnce:
    """The short way of one process: for shards that it routes and that are at rest."""

    def __init__(self, pool: Pool, router: Router, claims: Claims, *, lease_s: float) -> None:
        self._pool = pool
        self._router = router
        self._claims = claims
        self._lease_s = lease_s
        self._now_s = asyncio.get_running_loop().time
        self._resting_until_s: dict[int, float] = {}
        self._changes: Counter[int] = Counter()  # {shard: how often in a row it was found changed}

    def takes(self, shard_id: int, works: Collection[Work]) -> bool:
        """Return True when these, all that waits for the shard, may go the short way now."""
        return self._router.is_at_rest(shard_id) and self._would_take(shard_id, works)

    def _would_take(self, shard_id: int, works: Collection[Work]) -> bool:
        return (
            len(works) <= INPUTS_MAX
            and self._resting_until_s.get(shard_id, 0.0) <= self._now_s()
            and all(map(_fits, works))
            and not _has_chunk_behind_end(works)
        )

    async def may_take(self, shard_id: int, works: Collection[Work]) -> bool:
        """As `takes`, but where only what is not routed yet stands in the way, that is routed first.

        Else a shard that has work all the time would never come to rest, however little it is.
        """
        if not self._would_take(shard_id, works) or not self._router.handover.is_whole(shard_id):
            return False
        try:
            with self._router.leases.at_work(shard_id):
                async with asyncio.timeout(ROUNDS_S_MAX):
                    for _ in range(ROUNDS_MAX):
                        if await self._router.route_once(shard_id) == 0:
                            break
        except Exception as error:
            # The shard's loop tries again, as late as it finds right: not with each batch from here.
            self._resting_until_s[shard_id] = self._now_s() + REST_MAX_S
            if is_expected(error) or isinstance(error, TimeoutError):
                log.info("short_way.not_routed", shard_id=shard_id, error=error)
            else:
                log.exception("short_way.bug", shard_id=shard_id)
        return self.takes(shard_id, works)

    async def commit(self, parts: Mapping[int, list[Work]]) -> dict[int, list[store.Written]]:
        """Return what became of the works of each shard; a shard that is missing has to go the long way."""
        with ExitStack() as stack:
            for shard_id in parts:
                lock = self._router.lock(shard_id)
                await lock.acquire()  # free: who takes it was asked with nothing in between
                stack.callback(lock.release)
                stack.enter_context(self._router.leases.at_work(shard_id))
            batches = await self._decided(parts)
            return await self._committed(batches, parts) if batches else {}

    async def _decided(self, parts: Mapping[int, list[Work]]) -> list[Batch]:
        batches: list[Batch] = []
        commands = 0
        for shard_id, works in parts.items():
            rows = [row for work in works for row in work.rows]
            events = [work.event for work in works]
            batch = await self._router.decide_ahead(shard_id, events, rows, commands_max=COMMANDS_MAX)
            more = sum(len(decision.commands) for decision in batch.decisions) if batch else 0
            if batch is None or (batches and commands + more > COMMANDS_MAX):
                self._router.withdraw(shard_id)
            else:
                batches.append(batch)
                commands += more
            await asyncio.sleep(0)  # deciding is pure computing: who asks for a status must not wait for a batch
        return batches

    async def _committed(
        self, batches: Sequence[Batch], parts: Mapping[int, list[Work]]
    ) -> dict[int, list[store.Written]]:
        works = [work for batch in batches for work in parts[batch.shard_id]]
        decisions = [decision for batch in batches for decision in batch.decisions]
        commands = [command for decision in decisions for command in decision.commands]
        reserved = await self._reserved(commands)
        outcome = "failed"
        try:
            rows = [row for work in works for row in work.rows]
            rows += await store_payloads(self._router.store, decisions)
            tokens = await self._written(batches, works, rows=rows, reserved=reserved)
            outcome = "changed" if tokens is None else "committed"
            if tokens is None:
                give(reserved.values(), {})
                return {}
            contexts = {id_: _as_stored(one, CommandContext) for d in decisions for id_, one in d.contexts.items()}
            self._claims.keep(contexts, rows=rows)
            for batch in batches:
                self._changes.pop(batch.shard_id, None)
                await self._router.settle(batch)
            self._give(commands, reserved, tokens)
            await self._router.ring_pools({c.pool for c in commands if c.command_id not in reserved and not c.delay_s})
            return {batch.shard_id: [_accepted(work) for work in parts[batch.shard_id]] for batch in batches}
        except Exception as error:
            # Undone, or perhaps not: the long way finds out. The log refuses some report, or the connection is gone.
            outcome = "failed"
            log.info("short_way.failed", inputs=len(works), error=error)
            return {}
        finally:
            metrics.inc("noetl_short_way_total", len(works), outcome=outcome)
            give_doubt(reserved.values())  # to whom nothing was said yet
            if outcome != "committed":
                self._withdraw(batches)

    def _give(self, commands: Sequence[Command], reserved: Mapping[int, HeldClaim], tokens: Mapping[str, int]) -> None:
        """Send the workers that waited what was leased to them."""
        given: dict[HeldClaim, list[ClaimedCommand]] = {}
        for command in commands:
            if command.command_id in reserved:
                token = tokens[str(command.command_id)]
                given.setdefault(reserved[command.command_id], []).append(_claimed(command, token))
        give(reserved.values(), given)

    async def _reserved(self, commands: Sequence[Command]) -> dict[int, HeldClaim]:
        """Return {command: the worker that waits for it}, for as many as there are; most urgent first."""
        by_pool: dict[str, list[Command]] = {}
        for command in commands:
            if not command.delay_s:
                by_pool.setdefault(command.pool, []).append(command)
        reserved: dict[int, HeldClaim] = {}
        for pool, wanted in by_pool.items():
            wanted.sort(key=lambda command: (-command.priority, command.turn_s))
            claims = await self._claims.waiting.reserve(pool, len(wanted))
            reserved |= {command.command_id: claim for command, claim in zip(wanted, claims, strict=False)}
        return reserved

    async def _written(
        self,
        batches: Sequence[Batch],
        works: Sequence[Work],
        *,
        rows: Sequence[ResultRow],
        reserved: Mapping[int, HeldClaim],
    ) -> dict[str, int] | None:
        """Return the claim tokens of the commands that were leased, by id; None when nothing was written."""
        decisions = [decision for batch in batches for decision in batch.decisions]
        states = {decision.state.execution_id: decision.state for decision in decisions}
        events = [work.event for work in works] + [event for decision in decisions for event in decision.events]
        issued = [command for decision in decisions for command in decision.commands]
        args = {
            "shards": json_text([place_of(batch) for batch in batches]),
            "reports": json_text(_reports(works)),
            "executions": json_text([work.start.execution for work in works if work.start is not None]),
            "events": events_text(events),
            "results": json_text([store.result_record(row) for row in rows]),
            "contexts": json_text([row for decision in decisions for row in context_rows(decision)]),
            "commands": json_text([_issued(command, reserved.get(command.command_id)) for command in issued]),
            "timers": json_text([timer for decision in decisions for timer in timer_rows(decision)]),
            "states": json_text([state_row(state) for state in states.values()]),
            "ended": [state.execution_id for state in states.values() if state.is_terminal],
            "lease_s": self._lease_s,
        }
        for pause_s in (*BUSY_PAUSES_S, None):
            async with single(self._pool) as conn:
                row = await (await conn.execute(SQL["commit_at_once"], args)).fetchone()
            assert row is not None
            if row["is_open"]:
                return row["tokens"] or {}
            if pause_s is None or not row["is_busy"]:
                break
            await asyncio.sleep(pause_s)
        return None

    def _withdraw(self, batches: Sequence[Batch]) -> None:
        now_s = self._now_s()
        for batch in batches:
            self._router.withdraw(batch.shard_id, in_doubt=True)
            rest_s = REST_MIN_S * 2 ** self._changes[batch.shard_id]
            if rest_s < REST_MAX_S:
                self._changes[batch.shard_id] += 1
            self._resting_until_s[batch.shard_id] = now_s + min(rest_s, REST_MAX_S)


def _fits(work: Work) -> bool:
    """Return True for what can be decided before it is written: a start alone, or what a command's token says of it.

    An attempt after the first may repeat chunks of the one before it, which the log has.
    """
    if work.report is not None:
        may_be_repeated = work.event.event_type == PARTIAL and work.event.attempt != 1
        return work.report.claim_token != 0 and "foreign" not in work.event.meta and not may_be_repeated
    return work.start is not None and work.start.execution.group is None


def _has_chunk_behind_end(works: Iterable[Work]) -> bool:
    """Return True when a command that ends here streams on behind its end: what no claim stands for any more."""
    ended: set[int | None] = set()
    for work in works:
        if work.event.event_type != PARTIAL:
            ended.add(work.event.command_id)
        elif work.event.command_id in ended:
            return True
    return False


def _reports(works: Iterable[Work]) -> list[dict[str, Any]]:
    """Return each claim that is reported from, once, with what the last report says of its command.

    The decision took it at its word. One that only streamed has no status: it stays claimed.
    """
    reports: dict[tuple[Any, ...], dict[str, Any]] = {}
    for work in works:
        if work.report is not None:
            event = work.event
            said = {
                "execution_id": event.execution_id,
                "command_id": event.command_id,
                "claim_token": work.report.claim_token,
                "step": event.step,
                "attempt": event.attempt,
                "loop_epoch": event.loop_epoch,
                "iter_index": event.iter_index,
            }
            status = None if event.event_type == PARTIAL else store.COMMAND_STATUS[event.event_type]
            reports[tuple(said.values())] = {**said, "status": status}
    return list(reports.values())


def _issued(command: Command, held: HeldClaim | None) -> Command | dict[str, Any]:
    """Return a command as a record of its table, with the worker that it is leased to at once."""
    return command if held is None else {**msgspec.to_builtins(command), "worker_id": held.worker_id}


def _accepted(work: Work) -> store.Written:
    return store.Written(work.event.event_id, "accepted", is_new=True)


def _claimed(command: Command, claim_token: int) -> ClaimedCommand:
    return ClaimedCommand(
        execution_id=command.execution_id,
        command_id=command.command_id,
        event_id=command.issued_event_id,
        step=command.step,
        attempt=1,
        claim_token=claim_token,
        context_id=command.context_id,
        loop_epoch=command.loop_epoch,
        iter_index=command.iter_index,
        item=None if command.item is None else _as_stored(command.item, Item),
    )


def _as_stored(record: T, kind: type[T]) -> T:
    """Return a record as the database gives it back, so that a tool is given the same by whichever way it came."""
    return msgspec.convert(_in_order(msgspec.json.decode(encode(record))), kind, str_keys=True)


def _in_order(value: Any) -> Any:
    # jsonb keeps the keys of an object by length, then by bytes.
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: _in_order(value[key]) for key in keys}
    return [_in_order(part) for part in value] if isinstance(value, list) else value

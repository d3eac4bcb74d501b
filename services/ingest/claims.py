"""Claims: lease commands to workers and send along, once each, what they need to begin."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from noetl_common import metrics
from noetl_common.core.commands import CommandContext
from noetl_common.core.values import Ref
from noetl_common.db import Pool, is_poison
from noetl_common.errors import Conflict, Invalid, NotFound, Overloaded
from noetl_common.wire import (
    DETAILS_BYTES_MAX,
    Claim,
    Claimed,
    ClaimedCommand,
    Details,
    Heartbeat,
    HeartbeatAnswer,
    ResultRow,
    encode,
)
from services.ingest import store_claims as store
from services.ingest.bells import PoolBells
from services.ingest.held_claims import Gone, HeldClaim, HeldClaims

CLAIM_MAX = 256
CLAIMS_HELD_MAX = 1_000  # by one process, while nothing waits for them
WAIT_MAX_S = 5.0
# Of a command claimed by its event: public workers say that they live every 15 s, or not at all.
SINGLE_LEASE_S = 120.0
CACHE_BYTES_MAX = 32 * 1024 * 1024
ROWS_MAX = 2_000  # small results of reports, which the next commands are likely to name
ROW_BYTES = 400  # of a result's row beside its payload, roughly
# Into a pool that was found empty, though nothing rang: where bells ring one may be lost, where none do all are.
LOOK_AGAIN_S, LOOK_AGAIN_UNRUNG_S = 5.0, 1.0


class ActiveClaim(Conflict):
    """The command is on lease to someone; `retry_after_s` says for how long at most."""

    def __init__(self, worker_id: str, retry_after_s: float) -> None:
        super().__init__(f"the command is on lease to {worker_id}", code="active_claim")
        self.retry_after_s = retry_after_s


class Bundle(msgspec.Struct, frozen=True):
    """A context with the small results it names."""

    context: CommandContext
    rows: tuple[ResultRow, ...]
    bytes: int


class Looked(msgspec.Struct, frozen=True):
    """The last look into a pool that left nothing to claim: how often its bell had rung then, until when it counts."""

    mark: int
    until_s: float


NEVER = Looked(-1, 0.0)


class Claims:
    """The claiming side of one process. Contexts and results never change, so those seen are kept for a while."""

    def __init__(
        self, pool: Pool, bells: PoolBells, *, lease_s: float, is_rung: Callable[[], bool] = lambda: False
    ) -> None:
        self._pool = pool
        self._bells = bells
        self._lease_s = lease_s
        self._is_rung = is_rung
        self._bundles: OrderedDict[tuple[int, int], Bundle] = OrderedDict()
        self._bundles_bytes = 0
        self._rows: OrderedDict[tuple[int, int], ResultRow] = OrderedDict()
        self._looked: dict[str, Looked] = {}
        self._held = 0
        self.waiting = HeldClaims()

    async def claim(self, wanted: Claim, *, is_gone: Gone | None = None) -> Claimed:
        """Return commands on lease to the worker; hold the request up to `wait_s` while there are none.

        Holding costs no query: it ends at a ring of the pool's bell, or with commands that were issued to the worker.
        Who comes while the pool is known to be empty, by a look since the last ring, is held without another one.
        `is_gone` tells that the client went away meanwhile: nothing is leased to it then.
        Errors: Overloaded when too many claims are held already; Unavailable when it is not known what was leased.
        """
        if self._held >= CLAIMS_HELD_MAX:
            message = f"{self._held} claims are under way here, at most {CLAIMS_HELD_MAX} may be"
            raise Overloaded(message, retry_after_s=1.0)
        self._held += 1
        try:
            return await self._claimed(wanted, is_gone)
        finally:
            self._held -= 1

    async def _claimed(self, wanted: Claim, is_gone: Gone | None) -> Claimed:
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + min(max(wanted.wait_s, 0.0), WAIT_MAX_S)
        max_ = min(max(wanted.max, 1), CLAIM_MAX)
        commands: list[ClaimedCommand] = []
        while not commands:
            mark = self._bells.mark(wanted.pool)
            looked = self._looked.get(wanted.pool, NEVER)
            if wanted.wait_s <= 0 or looked.mark != mark or now_s() >= looked.until_s:
                looked = Looked(mark, now_s() + (LOOK_AGAIN_S if self._is_rung() else LOOK_AGAIN_UNRUNG_S))
                commands = await self._leased(wanted, max_, looked)
            left_s = deadline_s - now_s()
            if commands or left_s <= 0:
                break
            held = HeldClaim(wanted, room=max_, is_gone=is_gone)
            commands = await self._given(held, min(left_s, looked.until_s - now_s()), mark=mark)
            if not commands and is_gone is not None and await is_gone():
                break
        if commands:
            metrics.inc("noetl_commands_claimed_total", len(commands), pool=wanted.pool)
        return await self._with_contexts(commands)

    async def _leased(self, wanted: Claim, max_: int, looked: Looked) -> list[ClaimedCommand]:
        """Lease commands that wait; the look counts for others from now on, unless it finds something."""
        self._looked[wanted.pool] = looked
        commands: list[ClaimedCommand] | None = None
        try:
            commands = await store.claim_commands(
                self._pool, pool_name=wanted.pool, worker_id=wanted.worker_id, max_=max_, lease_s=self._lease_s
            )
            return commands
        finally:
            if commands != []:
                self._looked.pop(wanted.pool, None)

    async def _given(self, held: HeldClaim, wait_s: float, *, mark: int) -> list[ClaimedCommand]:
        """Return what a waiting worker is given; nothing when the pool's bell rings, or after `wait_s`."""
        ringing = asyncio.create_task(self._bells.wait(held.pool, wait_s, since=mark))
        ends: list[asyncio.Future[Any]] = [ringing, held.given]
        self.waiting.hold(held)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return await held.given if held.is_reserved else []
        finally:
            self.waiting.drop(held)
            ringing.cancel()

    async def held(self, worker_id: str) -> Claimed:
        """Return what the worker holds on lease: the answer to a claim that never reached it."""
        return await self._with_contexts(await store.read_claims(self._pool, worker_id))

    async def claim_one(self, event_id: int, worker_id: str) -> tuple[Claimed, str]:
        """Lease the command that a command.issued event announced; return it with its context, and its pool.

        Errors: NotFound; Conflict already_terminal; ActiveClaim while someone else holds it.
        """
        found = await store.read_command(self._pool, event_id)
        if found is None:
            raise NotFound(f"expected the event that issued a command, found none with the id {event_id}")
        lease_s = max(self._lease_s, SINGLE_LEASE_S)
        command = await store.claim_one(self._pool, found.claimed, worker_id=worker_id, lease_s=lease_s)
        if command is None:
            found = await store.read_command(self._pool, event_id) or found
            if found.status in ("completed", "failed", "cancelled"):
                raise Conflict(f"the command is {found.status}", code="already_terminal")
            raise ActiveClaim(found.worker_id or "nobody yet", max(found.lease_left_s, 1.0))
        metrics.inc("noetl_commands_claimed_total", 1, pool=found.pool)
        return await self._with_contexts([command]), found.pool

    async def renew_named(self, worker_id: str, commands: list[tuple[int, int]]) -> set[tuple[int, int]]:
        """Renew what a public worker, which knows no token, says it works on; return what of it the worker holds."""
        lease_s = max(self._lease_s, SINGLE_LEASE_S)
        return await store.renew_named(self._pool, commands, worker_id=worker_id, lease_s=lease_s)

    async def look(self, event_id: int) -> tuple[Claimed, str]:
        """Return the command that a command.issued event announced, without claiming it. Errors: NotFound."""
        found = await store.read_command(self._pool, event_id)
        if found is None:
            raise NotFound(f"expected the event that issued a command, found none with the id {event_id}")
        return await self._with_contexts([found.claimed]), found.pool

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Renew leases; say which commands to abandon."""
        rows = await store.renew_leases(self._pool, beat, lease_s=self._lease_s)
        return HeartbeatAnswer(
            cancelled=[row["command_id"] for row in rows if row["cancelled"] and not row["lost"]],
            lost=[row["command_id"] for row in rows if row["lost"]],
        )

    async def note_details(self, command_id: int, noted: Details) -> None:
        """Keep what an attempt notes down for the one after it.

        Errors: Conflict claim_lost when the claim is not the current one; Invalid when the details are too large.
        """
        size = len(encode(noted.details))
        if size > DETAILS_BYTES_MAX:
            raise Invalid(f"expected at most {DETAILS_BYTES_MAX} bytes of JSON, found {size}", pointer="/details")
        try:
            is_current = await store.note_details(self._pool, command_id, noted)
        except Exception as error:
            if not is_poison(error):
                raise
            message = f"expected details and results that can be stored, found {str(error).splitlines()[0][:300]}"
            raise Invalid(message, pointer="/details") from error
        if not is_current:
            message = "expected the claim that is current, found one that is another's now, or whose command has ended"
            raise Conflict(message, code="claim_lost")

    async def _with_contexts(self, commands: list[ClaimedCommand]) -> Claimed:
        keys = {(command.execution_id, command.context_id) for command in commands}
        bundles = await self._bundles_of(keys)
        rows = {(row.execution_id, row.ref_id): row for bundle in bundles.values() for row in bundle.rows}
        wanted = _small(ref for command in commands if command.item for ref in (command.item.ref, command.item.prior))
        rows |= {key: self._rows[key] for key in wanted if key not in rows and key in self._rows}
        missing = [key for key in wanted if key not in rows]
        if missing:
            for row in await store.read_results(self._pool, missing):
                rows[row.execution_id, row.ref_id] = row
        contexts = {context_id: bundle.context for (_execution_id, context_id), bundle in bundles.items()}
        return Claimed(commands=commands, contexts=contexts, results=list(rows.values()), lease_s=self._lease_s)

    def keep(self, contexts: Mapping[int, CommandContext], *, rows: Iterable[ResultRow]) -> None:
        """Keep contexts by id, and small results, that were committed just now: they need not be read."""
        for row in rows:
            if row.inline is not None:
                self._rows[row.execution_id, row.ref_id] = row
        while len(self._rows) > ROWS_MAX:
            self._rows.popitem(last=False)
        for context_id, context in contexts.items():
            keys = _small(refs_of(context))
            if all(key in self._rows for key in keys):
                self._bundle((context.execution_id, context_id), context, tuple(self._rows[key] for key in keys))

    async def _bundles_of(self, keys: set[tuple[int, int]]) -> dict[tuple[int, int], Bundle]:
        found = {key: self._bundles[key] for key in keys if key in self._bundles}
        for key in found:
            self._bundles.move_to_end(key)
        missing = [key for key in keys if key not in found]
        if not missing:
            return found
        contexts = await store.read_contexts(self._pool, missing)
        needs = {key for _execution_id, _context_id, context in contexts for key in _small(refs_of(context))}
        rows = {(row.execution_id, row.ref_id): row for row in await store.read_results(self._pool, list(needs))}
        for execution_id, context_id, context in contexts:
            mine = tuple(rows[key] for key in _small(refs_of(context)) if key in rows)
            found[execution_id, context_id] = self._bundle((execution_id, context_id), context, mine)
        return found

    def _bundle(self, key: tuple[int, int], context: CommandContext, rows: tuple[ResultRow, ...]) -> Bundle:
        if key in self._bundles:
            return self._bundles[key]
        size = len(encode(context)) + sum(row.bytes + ROW_BYTES for row in rows)
        bundle = self._bundles[key] = Bundle(context, rows, size)
        self._bundles_bytes += size
        while self._bundles_bytes > CACHE_BYTES_MAX:
            _key, dropped = self._bundles.popitem(last=False)
            self._bundles_bytes -= dropped.bytes
        return bundle


def refs_of(context: CommandContext) -> list[Ref]:
    """Return every reference that a context names."""
    values = (context.workload, *context.ctx.values())
    return [value.ref for value in values if value.ref is not None] + list(context.results.values())


def _small(refs: Iterable[Ref | None]) -> list[tuple[int, int]]:
    """Return the keys of those whose payload is in its row, each once."""
    keys = [
        (ref.execution_id, ref.ref_id) for ref in refs if ref is not None and ref.tier == "db" and ref.shape != "loop"
    ]
    return list(dict.fromkeys(keys))

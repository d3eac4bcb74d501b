"""Bugs that were planted to see whether they are found: each takes one rule of the protocol away.

None stands in the product: a mutant is a switch of the modelled database, or a function that stands in for the
product's own while a seed runs.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import psycopg

import services.compute.store as compute_store
from noetl_common import event_log
from noetl_common.core.events import Event
from noetl_common.db import Conn, Pool, pipelined, transaction
from noetl_common.errors import Fenced
from noetl_common.leases import SQL as LEASES_SQL
from noetl_common.leases import Leases
from noetl_common.subjects import shard_bell
from services.ingest import append, decisions, store
from services.ingest.decisions import Applied, Batch
from services.ingest.works import Start, work_of_start
from tests.simulation import files, ranges
from tests.simulation.loop import RUNNING
from tests.simulation.processes import Server

if TYPE_CHECKING:
    from tests.simulation.world import World

Plant = Callable[["World", ExitStack], None]
real_apply = decisions.apply
real_append = event_log.append
real_read_positions = compute_store.read_positions


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One planted bug: in a whole cluster (`plant`), or in one of the small worlds beside it (`explore` a seed).

    `seed`: one that found it, where a search may begin.
    """

    name: str
    says: str
    plant: Plant | None = None
    explore: Callable[[int], list[str]] | None = None
    seed: int = 0


def switch(*names: str) -> Plant:
    """Return a plant that has the statements' models leave something out."""
    return lambda world, stack: world.database.faults.update(names)


def stand_in(place: Any, name: str, function: Any) -> Plant:
    """Return a plant that puts a function in the place of the product's."""
    return lambda world, stack: stack.enter_context(mock.patch.object(place, name, function))


def without_keys(world: "World", stack: ExitStack) -> None:
    """No fence, and no constraint that would stop a second writer."""
    world.database.faults.add("no fence")
    for table in world.database.tables.values():
        table.checks_keys = False


async def apply_in_two(pool: Pool, batch: Batch, *, shard_count: int, fenced: bool = True) -> Applied:
    """Commit the cursor first, and what was decided in a second transaction."""
    await _move(pool, batch)
    return await real_apply(pool, _moved(batch), shard_count=shard_count)


async def apply_and_recount(pool: Pool, batch: Batch, *, shard_count: int, fenced: bool = True) -> Applied:
    """Commit the items' ends first, and that their loop is done in a second transaction."""
    done = [one for one in batch.decisions if any(event.event_type == "loop.done" for event in one.events)]
    if not done:
        return await real_apply(pool, batch, shard_count=shard_count)
    rest = [one for one in batch.decisions if one not in done]
    applied = await real_apply(pool, msgspec.structs.replace(batch, decisions=rest), shard_count=shard_count)
    later = msgspec.structs.replace(_moved(batch), decisions=done, payload_rows=[])
    more = await real_apply(pool, later, shard_count=shard_count)
    return Applied(inputs={**applied.inputs, **more.inputs}, pools=applied.pools | more.pools)


async def _move(pool: Pool, batch: Batch) -> None:
    args = {"shard_id": batch.shard_id, "old_seq": batch.old_seq, "new_seq": batch.new_seq, "epoch": batch.epoch}
    async with transaction(pool) as conn:
        if (await conn.execute(decisions.SQL["move_cursor"], args)).rowcount == 0:
            raise Fenced(batch.shard_id, batch.epoch)


def _moved(batch: Batch) -> Batch:
    return msgspec.structs.replace(batch, old_seq=batch.new_seq)


async def read_positions_of_the_head(pool: Pool, shards: Any) -> Any:
    """Take the greatest number seen for how far a shard is routed."""
    process = RUNNING.get()
    assert isinstance(process, Server)
    heads = process.world.database.shard_head.entries
    found = await real_read_positions(pool, shards)
    return [msgspec.structs.replace(one, routed_seq=(heads[one.shard_id,].now or {})["seq"]) for one in found]


async def append_batch_behind_dedup(pool: Pool, shard_id: int, entries: Sequence[store.Entry]) -> list[store.Written]:
    """Note the idempotency keys in a transaction of their own, and start the runs in the next one."""
    async with pipelined(pool) as conn:
        created = await store._insert_executions(conn, entries)
    async with pipelined(pool) as conn:
        outcomes = await store._finish_commands(conn, entries)
        takers = [
            place
            for place, entry in enumerate(entries)
            if outcomes[place] == "accepted" and (entry.execution is None or entry.execution.execution_id in created)
        ]
        await store.insert_results(conn, [row for place in takers for row in entries[place].rows])
        event_ids = await event_log.append(conn, shard_id, [entries[place].event for place in takers])
    taken = {place: event_id for place, event_id in zip(takers, event_ids, strict=True) if event_id}
    known = await store._find_known(pool, [entry for place, entry in enumerate(entries) if place not in taken])
    return [store._written(entry, outcomes[place], taken.get(place, 0), known) for place, entry in enumerate(entries)]


async def start_without_waiting(self: append.Appender, starts: Sequence[Start]) -> list[int | BaseException]:
    """Answer before the commit."""
    for start in starts:
        work = work_of_start(start)
        work.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._enqueue([work])
    return [1 for _start in starts]


async def append_and_ring(conn: Conn, shard_id: int, inputs: Sequence[Event], **more: Any) -> list[int]:
    """Ring inside of the transaction, and wait until it has been heard."""
    taken = await real_append(conn, shard_id, inputs, **more)
    process = RUNNING.get()
    if isinstance(process, Server) and inputs:
        await process.bus.publish_and_wait(shard_bell(shard_id))
    return taken


async def stop_behind_release(self: Server) -> None:
    """Give the shards back first, and then end the loops that work on them."""
    leases = self.leases
    if isinstance(leases, Leases):
        with suppress(psycopg.Error):
            async with transaction(self.pool) as conn:
                await conn.execute(LEASES_SQL["leave_role"], leases._args)
        await self.bus.publish("noetl.meta.wake")
    self.stop.set()
    await asyncio.gather(*self.loops, return_exceptions=True)
    self.world.faults.crash(self)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(name="M1", seed=159, says="the cursor moves whatever its number and epoch", plant=switch("no fence")),
    Mutant(name="M2", seed=159, says="as M1, and no unique key", plant=without_keys),
    Mutant(
        name="M3",
        seed=3,
        says="cursor and consequences in two transactions",
        plant=stand_in(decisions, "apply", apply_in_two),
    ),
    Mutant(
        name="M4", seed=2563, says="a report without the current token finishes", plant=switch("finish without token")
    ),
    Mutant(
        name="M5",
        seed=43,
        says="numbers from a sequence, without the head's lock",
        plant=switch("sequence without lock"),
    ),
    Mutant(
        name="M6",
        seed=3,
        says="a loop is counted again behind its last item's commit",
        plant=stand_in(decisions, "apply", apply_and_recount),
    ),
    Mutant(
        name="M7",
        seed=3,
        says="the projection goes on from the greatest number seen",
        plant=stand_in(compute_store, "read_positions", read_positions_of_the_head),
    ),
    Mutant(
        name="M8",
        seed=11,
        says="the idempotency key is noted outside of the transaction that starts the run",
        plant=stand_in(store, "append_batch", append_batch_behind_dedup),
    ),
    Mutant(
        name="M9",
        seed=3,
        says="a start is answered before it is durable",
        plant=stand_in(append.Appender, "start_many", start_without_waiting),
    ),
    Mutant(
        name="M10",
        says="a file gets its name before its bytes are synced",
        explore=lambda seed: files.run(seed, skips_sync=True),
    ),
    Mutant(
        name="M11",
        says="a range is compared with its manifests before it is detached",
        explore=lambda seed: ranges.run(seed, verifies_before=True),
    ),
    Mutant(name="M12", seed=7, says="the reaper takes back what has ended", plant=switch("reaper ignores ends")),
    Mutant(
        name="M13",
        seed=107,
        says="the bell is rung inside of the transaction",
        plant=stand_in(event_log, "append", append_and_ring),
    ),
    Mutant(name="M14", seed=3, says="leases are judged by a process's own clock", plant=switch("process clock")),
    Mutant(
        name="M15",
        seed=807,
        says="shards are given back before their loops have ended",
        plant=stand_in(Server, "_stopped", stop_behind_release),
    ),
)
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}

"""A range of the log on its way out: the compactor's real steps on a modelled store, with kills and late appends."""

import asyncio
import logging
import random
from contextlib import ExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from noetl_common.core.shard import EPOCH_MS
from services.compactor import store
from services.compactor.compactor import Compactor
from services.compactor.loops import drop_partitions
from services.compactor.store import Late, Leaving, Range, Table

TABLES = ("event", "command", "command_context", "result_ref")
STEPS_MAX = 60


class Killed(BaseException):
    """The compactor's process is gone."""


class Archive:
    """One range: its runs and how many events each has, its manifests, its tables, its row."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.events = {run: source.randint(1, 9) for run in range(source.randint(1, 5))}
        self.manifests = dict(self.events)
        self.tables = dict.fromkeys(TABLES, "attached")
        self.state: str | None = None
        self.noted = False
        self.lost: list[str] = []
        self.kills = source.choice([0.0, 0.05, 0.2])
        self.is_one = True

    def append_late(self) -> None:
        """A transaction that began before the range was sealed commits now; behind the detach it is refused."""
        if self.tables["event"] == "attached" and self.state not in (None, "verified", "dropped"):
            self.events[self.random.choice(list(self.events))] += 1

    async def reach(self) -> None:
        """Between two statements: late appends come, and the process may die."""
        if self.random.random() < 0.25:
            self.append_late()
        if self.random.random() < self.kills:
            raise Killed
        await asyncio.sleep(0)

    # What the steps call, in the place of services/compactor/store.py.

    async def find_ranges(self, _pool: Any, _before: int) -> list[Range]:
        await self.reach()
        return [RANGE] if self.state is None and "attached" in self.tables.values() else []

    async def read_leaving(self, _pool: Any) -> list[Leaving]:
        await self.reach()
        if self.state in (None, "dropped"):
            return []
        state = cast(Any, self.state)
        return [Leaving(low=0, high=1, suffix="p", state=state, executions=len(self.events), age_s=1.0)]

    async def hold_fence(self, _conn: Any, *, shard_id: int, epoch: int) -> bool:
        await self.reach()
        return True

    async def count_unfolded(self, _conn: Any, _range: Range) -> Any:
        return SimpleNamespace(unfolded=0, first=None)

    async def begin_range(self, _conn: Any, _range: Range) -> None:
        await self.reach()
        self.state = "folded"

    async def step(self, _conn: Any, name: str, low: int, **_more: Any) -> bool:
        await self.reach()
        if name == "seal_range" and self.state == "folded":
            self.state, self.noted = "sealed", False
            return True
        if name == "note_heads" and self.state == "sealed" and not self.noted:
            self.noted = True
            return True
        if name == "leave_range" and self.state == "sealed" and self.noted:
            self.state = "detaching"
            return True
        return False

    async def find_tables(self, _pool: Any, suffix: str) -> list[Table]:
        await self.reach()
        return [
            Table(parent=name, name=f"{name}_{suffix}", standing=cast(Any, standing))
            for name, standing in self.tables.items()
            if standing != "gone"
        ]

    async def detach(self, _pool: Any, table: Table, *, lock_timeout_ms: int, statement_timeout_s: float) -> None:
        if self.tables[table.parent] == "attached" and self.random.random() < 0.3:
            self.tables[table.parent] = "pending"  # interrupted between its two transactions
        await self.reach()
        self.tables[table.parent] = "alone"
        await self.reach()

    async def move(self, _conn: Any, low: int, *, from_: str, to: str, repaired: int = 0) -> bool:
        if self.state != from_:
            return False
        await self.reach()
        self.state = to
        return True

    async def find_late(self, _conn: Any, _range: Range) -> list[Late]:
        await self.reach()
        found = [run for run, count in self.events.items() if self.manifests.get(run) != count]
        return [Late(execution_id=run, is_unfolded=run not in self.manifests) for run in found]

    async def find_unfolded(self, _conn: Any, _range: Range) -> list[int]:
        return [run for run in self.events if run not in self.manifests]

    async def unfold(self, _conn: Any, ids: list[int]) -> None:
        await self.reach()

    async def fold(self, _conn: Any, _suffix: str, ids: list[int]) -> None:
        await self.reach()
        self.manifests.update({run: self.events[run] for run in ids})

    async def drop(self, _conn: Any, table: Table) -> None:
        await self.reach()
        if table.parent == "event":
            missing = {run: n - self.manifests[run] for run, n in self.events.items() if n != self.manifests[run]}
            if missing:
                self.lost.append(f"events that no manifest has were dropped: {missing}")
        self.tables[table.parent] = "gone"

    async def drop_states(self, _conn: Any, _range: Range) -> None:
        await self.reach()


RANGE = Range(low=0, high=1, suffix="p")


async def move_without_looking(conn: Any, range_: Range) -> int:
    """Take for verified what was compared with the manifests before it was detached."""
    return int(await store.move(conn, range_.low, from_="detached", to="verified"))


def run(seed: int, *, verifies_before: bool = False) -> list[str]:
    """Take a range out, killed and restarted on the way; return what was lost, or that it did not come to an end."""
    source = random.Random(seed)
    archive = Archive(source)

    @asynccontextmanager
    async def transaction(_pool: Any) -> Any:
        kept = dict(archive.manifests), dict(archive.tables), archive.state, archive.noted, list(archive.lost)
        try:
            yield None
        except BaseException:
            archive.manifests, archive.tables, archive.state, archive.noted, archive.lost = kept
            raise

    names = (name for name in dir(Archive) if hasattr(store, name) and not name.startswith("_"))
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(store, name, getattr(archive, name)))
        stack.enter_context(mock.patch.object(store, "find_tables_in", archive.find_tables))
        stack.enter_context(mock.patch.object(drop_partitions, "transaction", transaction))
        if verifies_before:
            stack.enter_context(mock.patch.object(drop_partitions, "_verify", move_without_looking))
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        asyncio.run(_until_dropped(archive))
    if archive.state != "dropped" and not archive.lost:
        return [f"the range stays {archive.state}"]
    return archive.lost


async def _until_dropped(archive: Archive) -> None:
    leases = SimpleNamespace(owned=lambda: {0: 1}, forget=lambda shard_id: None)
    clock = SimpleNamespace(unix_ms=lambda: EPOCH_MS + 10**11, monotonic_s=lambda: 0.0)
    for number in range(STEPS_MAX):
        if archive.state == "dropped":
            return
        if number == STEPS_MAX // 2:
            archive.kills = 0.0
        compactor = Compactor(
            pool=cast(Any, None), store=cast(Any, None), leases=cast(Any, leases), clock=clock, retention_days=1.0
        )
        try:
            await drop_partitions.drop_partitions_once(compactor)
        except Killed:
            continue

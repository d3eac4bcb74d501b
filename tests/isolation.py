"""Races spelled out, after Postgres' isolationtester: sessions with named steps on connections of their own.

Every order of the steps is tried, a step that waits for another session is told by pg_blocking_pids, and the outcome is
checked. A step whose session still waits is put off until that ends, so that each order is one that can happen. A step
that stays away although nobody stands in its way fails the order.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg.rows import dict_row

from noetl_common.db import Conn

LOOK_S = 0.002
STEP_S_MAX = 10.0
OPTIONS = "-c timezone=UTC -c deadlock_timeout=50ms -c lock_timeout=5s -c idle_in_transaction_session_timeout=0"

World = dict[str, Any]


class Step(msgspec.Struct, frozen=True):
    """One named step: it gets its session's connection and what all share, and its answer is kept under its name."""

    name: str
    run: Callable[[Conn, World], Awaitable[Any]]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions that race. `setup` makes what they race for; `check` raises when the outcome is not allowed."""

    name: str
    setup: Callable[[Conn], Awaitable[World]]
    sessions: Mapping[str, Sequence[Step]]
    check: Callable[[Conn, "Outcome"], Awaitable[None]]

    def orders(self) -> int:
        """Return how many orders of the steps there are."""
        lengths = [len(steps) for steps in self.sessions.values()]
        return math.factorial(sum(lengths)) // math.prod(math.factorial(length) for length in lengths)


class Outcome(msgspec.Struct, kw_only=True):
    """What came of one order: each step's answer (an error's too), the steps as they ended, those that had to wait."""

    world: World
    answers: dict[str, Any] = {}
    ended: list[str] = []
    waited: set[str] = set()

    def before(self, first: str, second: str) -> bool:
        """Return True when one step had ended before the other one did."""
        return self.ended.index(first) < self.ended.index(second)


def every_order(spec: Spec) -> Iterator[tuple[str, ...]]:
    """Yield every order in which the sessions can take their next steps, as the sessions' names."""

    def orders(left: dict[str, int]) -> Iterator[tuple[str, ...]]:
        if not any(left.values()):
            yield ()
        for name in left:
            if left[name]:
                for rest in orders({**left, name: left[name] - 1}):
                    yield (name, *rest)

    return orders({name: len(steps) for name, steps in spec.sessions.items()})


def some_orders(spec: Spec, count: int, *, seed: int) -> list[tuple[str, ...]]:
    """Return `count` orders drawn by chance; every order when there are no more."""
    if spec.orders() <= count:
        return list(every_order(spec))
    dice = random.Random(f"{spec.name}:{seed}")
    turns = [name for name, steps in spec.sessions.items() for _ in steps]
    drawn: dict[tuple[str, ...], None] = {}
    while len(drawn) < count:
        drawn[tuple(dice.sample(turns, len(turns)))] = None
    return list(drawn)


class Arena:
    """The connections of the sessions, and one that sets up, looks and checks."""

    def __init__(self, control: Conn, connections: Sequence[Conn]) -> None:
        self.control = control
        self._connections = connections

    async def run(self, spec: Spec, order: Sequence[str]) -> Outcome:
        """Run one order of a spec and check its outcome. Errors: AssertionError names the order."""
        outcome = Outcome(world=await spec.setup(self.control))
        sessions = {
            name: _Session(steps, conn)
            for (name, steps), conn in zip(spec.sessions.items(), self._connections, strict=False)
        }
        try:
            turns = list(order)
            while turns:
                name = next((turn for turn in turns if sessions[turn].task is None), None)
                if name is None:
                    await self._settle(sessions, outcome, until_one_ends=True)
                    continue
                turns.remove(name)
                sessions[name].begin(outcome)
                await self._settle(sessions, outcome)
            while any(session.task for session in sessions.values()):
                await self._settle(sessions, outcome, until_one_ends=True)
            await spec.check(self.control, outcome)
        except AssertionError as error:
            told = f"ended: {outcome.ended}\nwaited: {sorted(outcome.waited)}\nanswers: {outcome.answers}"
            raise AssertionError(f"{spec.name}, order {' '.join(order)}: {error}\n{told}") from error
        finally:
            for session in sessions.values():
                await session.close()
        return outcome

    async def _settle(
        self, sessions: Mapping[str, "_Session"], outcome: Outcome, *, until_one_ends: bool = False
    ) -> None:
        """Return once each step under way has ended or waits for another session."""
        deadline_s = time.monotonic() + STEP_S_MAX
        ended = len(outcome.ended)
        while running := [session for session in sessions.values() if session.task is not None]:
            await asyncio.wait([session.task for session in running if session.task], timeout=LOOK_S)
            for session in running:
                session.collect(outcome)
            waiting = [session for session in running if session.task is not None]
            blocked = [session for session in waiting if await self._is_blocked(session)]
            outcome.waited.update(session.current for session in blocked)
            if len(blocked) == len(waiting) and not (until_one_ends and len(outcome.ended) == ended):
                return
            assert time.monotonic() < deadline_s, (
                f"{[s.current for s in waiting]} did not end, and nobody holds them up"
            )

    async def _is_blocked(self, session: "_Session") -> bool:
        query = "SELECT cardinality(pg_blocking_pids(%s)) > 0 AS blocked"
        row = await (await self.control.execute(query, [session.pid])).fetchone()
        return bool(row and row["blocked"]) and session.task is not None and not session.task.done()


class _Session:
    """One session: its steps, and the one under way."""

    def __init__(self, steps: Sequence[Step], conn: Conn) -> None:
        self.pid = conn.info.backend_pid
        self.task: asyncio.Task[Any] | None = None
        self.current = ""
        self._steps = iter(steps)
        self._conn = conn

    def begin(self, outcome: Outcome) -> None:
        """Begin the next step."""
        step = next(self._steps)
        self.current = step.name
        self.task = asyncio.ensure_future(_answer_of(step, self._conn, outcome))

    def collect(self, outcome: Outcome) -> None:
        """Keep the answer of a step that has ended."""
        if self.task is not None and self.task.done():
            outcome.answers[self.current] = self.task.result()
            outcome.ended.append(self.current)
            self.task = None

    async def close(self) -> None:
        """Leave nothing under way and no transaction open."""
        if self.task is not None:
            self._conn.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        await self._conn.rollback()


async def _answer_of(step: Step, conn: Conn, outcome: Outcome) -> Any:
    try:
        return await step.run(conn, {**outcome.world, **outcome.answers})
    except psycopg.Error as error:
        return error


async def connect(dsn: str) -> Conn:
    """Return a connection for a session; a deadlock shows soon."""
    return await psycopg.AsyncConnection[dict[str, Any]].connect(
        dsn, autocommit=True, row_factory=dict_row, options=OPTIONS
    )


def statement(name: str, text: str, args: Callable[[World], Mapping[str, Any]] | None = None) -> Step:
    """Return a step that runs one statement; its answer is the rows it returned, or how many it touched."""

    async def run(conn: Conn, world: World) -> Any:
        done = await conn.execute(text.encode(), args(world) if args else None)
        return await done.fetchall() if done.description else done.rowcount

    return Step(name, run)


def begin(session: str) -> Step:
    """Return the step that opens a transaction."""
    return statement(f"{session}.begin", "BEGIN")


def commit(session: str) -> Step:
    """Return the step that commits; a transaction that failed before is rolled back by it."""
    return statement(f"{session}.commit", "COMMIT")

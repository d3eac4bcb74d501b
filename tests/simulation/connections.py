"""Pools and connections to the modelled database, with the part of psycopg's interface that the services use.

Each statement is a message to the server and an answer back. Before and behind each of them, and of each commit, the
process may be killed or frozen, the connection cut, or time may pass: the seed's plan of faults says which.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from tests.simulation.database import Database, Row, Transaction, broken
from tests.simulation.loop import RUNNING, SimLoop

LOCK_TIMEOUT_S = 2.0
IDLE_TIMEOUT_S = 3.0
STATEMENTS: dict[str, tuple[str, Callable[..., Any]]] = {}  # {text: (name, model)}


class Points(Protocol):
    """The plan of faults (tests/simulation/faults.py)."""

    async def reach(self, point: str, session: "Session | None" = None) -> None:
        """Return, or not: what is planned for this point happens."""

    def travel_s(self) -> float:
        """Return how long a message is under way."""


class Server:
    """The database server: it serves statements, loses connections, and restarts."""

    def __init__(self, database: Database, loop: SimLoop, points: Points) -> None:
        self.database = database
        self.loop = loop
        self.points = points
        self.sessions: set[Session] = set()
        self.is_down = False

    def restart(self, down_s: float) -> None:
        """Crash: every connection is cut, what was not committed is gone; come back after a while."""
        self.is_down = True
        self.database.session_locks.clear()
        for session in sorted(self.sessions, key=lambda one: one.number):
            session.cut()
        self.loop.after(down_s, self._come_back)

    def _come_back(self) -> None:
        self.is_down = False
        self.database.started_s = self.loop.now_s


class Session:
    """One server session: its transaction, and whether the client can still reach it."""

    numbers = 0

    def __init__(self, server: Server) -> None:
        self.server = server
        self.process = RUNNING.get() or server.loop.world
        self.tx: Transaction | None = None
        self.is_broken = False
        self.is_busy = False
        self.lock_timeout_s = LOCK_TIMEOUT_S
        Session.numbers += 1
        self.number = Session.numbers
        server.sessions.add(self)
        self.process.on_death.append(self._orphaned)
        self.process.on_pause.append(self._left_idle)

    def close(self) -> None:
        """Forget the session."""
        self.server.sessions.discard(self)
        self.process.on_death.remove(self._orphaned)
        self.process.on_pause.remove(self._left_idle)

    def cut(self) -> None:
        """Lose the connection: the server undoes what was not committed."""
        self.is_broken = True
        self.server.sessions.discard(self)
        if self.tx is not None:
            self.server.database.abort(self.tx)

    def serve(self, text: str, args: Mapping[str, Any], answer: Any) -> None:
        """Run a statement that has arrived, and answer when it is done."""
        if self.is_broken or self.server.is_down:
            self.cut()
            return self._answer(answer, error=broken())
        tx = self.tx
        if tx is None:
            tx = self.tx = Transaction(self.server.database, self)
        if tx.is_failed:
            return self._answer(answer, error=pg.InFailedSqlTransaction("current transaction is aborted"))
        name, model = STATEMENTS[text]
        self.is_busy = True
        if not tx.first_write and not name.startswith(("read", "find", "list", "prefer", "limit", "ping")):
            tx.first_write = name
        try:
            run = model(tx, args)
        except Exception as error:
            tx.is_failed = True
            return self._answer(answer, error=error)
        if not hasattr(run, "send"):
            return self._answer(answer, run)
        return self._go_on(tx, run, answer)

    def serve_whole(self, text: str, args: Mapping[str, Any], answer: Any) -> None:
        """Run a statement that is a transaction of its own."""
        done = self.server.loop.create_future()
        done.add_done_callback(lambda found: self._commit_whole(found, answer), context=self.server.loop.world.context)
        self.serve(text, args, done)

    def _commit_whole(self, done: Any, answer: Any) -> None:
        error = done.exception()
        if error is None and self.tx is not None and self.tx.is_open:
            self.server.database.commit(self.tx)
        elif self.tx is not None:
            self.server.database.abort(self.tx)
            error = error or broken()
        self.tx = None
        self._answer(answer, None if error else done.result(), error=error)

    def _go_on(self, tx: Transaction, run: Any, answer: Any) -> None:
        """Run a statement until it ends or has to wait for another transaction."""
        while True:
            if not tx.is_open:
                return self._answer(answer, error=broken())
            try:
                holder = next(run)
            except StopIteration as stop:
                return self._answer(answer, stop.value)
            except Exception as error:
                tx.is_failed = True
                return self._answer(answer, error=error)
            if self.server.database.blocks(tx, holder):
                tx.is_failed = True
                return self._answer(answer, error=pg.DeadlockDetected("deadlock detected"))
            if holder.is_open:
                tx.waits_for = holder
                return self._wait(tx, holder, run, answer)

    def _wait(self, tx: Transaction, holder: Transaction, run: Any, answer: Any) -> None:
        def resume() -> None:
            if tx.waits_for is holder:
                tx.waits_for = None
                limit.cancel()
                self._go_on(tx, run, answer)

        def give_up() -> None:
            if tx.waits_for is holder:
                tx.waits_for = None
                tx.is_failed = True
                self._answer(answer, error=pg.LockNotAvailable("canceling statement due to lock timeout"))

        limit = self.server.loop.after(self.lock_timeout_s, give_up)
        holder.waiters.append(resume)

    def commit(self, answer: Any) -> None:
        """Commit what has arrived."""
        if self.is_broken or self.server.is_down or self.tx is None or not self.tx.is_open:
            self.cut()
            return self._answer(answer, error=broken())
        tx, self.tx = self.tx, None
        if tx.is_failed:
            self.server.database.abort(tx)
        else:
            self.server.database.commit(tx)
        return self.server.loop.after(self.server.points.travel_s(), self._answer, answer)

    def rollback(self, answer: Any = None) -> None:
        """Undo what has arrived."""
        if self.tx is not None:
            self.server.database.abort(self.tx)
            self.tx = None
        if answer is not None:
            self._answer(answer)

    def _answer(self, answer: Any, found: Any = None, *, error: Exception | None = None) -> None:
        self.is_busy = False
        if self.process.is_dead or self.process.is_paused:
            self._left_idle()
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found)

    def _orphaned(self) -> None:
        """The client died: its server notices at once, or when the transaction has been idle too long."""
        delay_s = IDLE_TIMEOUT_S if self.server.loop.random.random() < 0.2 else 0.002
        self.server.loop.after(delay_s, self.cut)

    def _left_idle(self) -> None:
        """The client stands still: a transaction that stays idle is cut off."""
        tx = self.tx
        if tx is None or self.is_busy:
            return
        marks = len(tx.held), len(tx.undo)

        def cut_off() -> None:
            is_same = self.tx is tx and tx.is_open and (len(tx.held), len(tx.undo)) == marks
            if is_same and not self.is_busy and (self.process.is_dead or self.process.is_paused):
                self.cut()

        self.server.loop.after(IDLE_TIMEOUT_S, cut_off)


class SimCursor:
    """What a statement returned."""

    def __init__(self, found: Any) -> None:
        self._rows: list[Row] = found if isinstance(found, list) else []
        self.rowcount: int = len(found) if isinstance(found, list) else found or 0

    async def fetchall(self) -> list[Row]:
        return self._rows

    async def fetchone(self) -> Row | None:
        return self._rows[0] if self._rows else None


class SimConnection:
    """A connection as psycopg lends it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.session = Session(server)
        self.is_explicit = False  # inside of `transaction()`
        self._pipeline = None  # each statement is answered before the next: there is nothing to wait for

    @property
    def info(self) -> Any:
        """What psycopg tells of a connection: here only whether it is in a transaction."""
        return self

    @property
    def transaction_status(self) -> TransactionStatus:
        return TransactionStatus.INTRANS if self.is_explicit else TransactionStatus.IDLE

    @property
    def closed(self) -> bool:
        return self.session.is_broken

    async def execute(self, text: str, args: Mapping[str, Any] = {}) -> SimCursor:
        server, session = self.server, self.session
        if text not in STATEMENTS:
            raise AssertionError(f"this statement has no model in tests/simulation: {text[:200]}")
        name = STATEMENTS[text][0]
        await server.points.reach(f"{name}.before", session)
        answer = server.loop.create_future()
        serve = session.serve if self.is_explicit else session.serve_whole
        server.loop.after(server.points.travel_s(), serve, text, args, answer)
        found = await answer
        await server.points.reach(f"{name}.after", session)
        return SimCursor(found)

    def transaction(self) -> "_Block":
        return _Block(self)

    def pipeline(self) -> "_Pipeline":
        return _Pipeline()

    async def commit(self) -> None:
        session, server = self.session, self.server
        tx = session.tx
        if tx is None:
            return
        if session.is_broken or not tx.is_open:
            raise broken()
        if not tx.held and not tx.undo:
            session.rollback()  # it only read
            return
        point = f"commit of {tx.first_write}"
        await server.points.reach(f"{point}.before", session)
        answer = server.loop.create_future()
        server.loop.after(server.points.travel_s(), session.commit, answer)
        await answer
        await server.points.reach(f"{point}.after", session)

    async def rollback(self) -> None:
        if self.session.tx is None:
            return
        answer = self.server.loop.create_future()
        self.server.loop.after(self.server.points.travel_s(), self.session.rollback, answer)
        await answer


class _Block:
    """A transaction, or a savepoint inside of one."""

    def __init__(self, conn: SimConnection) -> None:
        self._conn = conn
        self._mark = 0
        self._is_outer = False

    async def __aenter__(self) -> None:
        self._is_outer = not self._conn.is_explicit
        if self._is_outer:
            self._conn.is_explicit = True
        elif self._conn.session.tx is not None:
            self._mark = len(self._conn.session.tx.undo)

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if kind is GeneratorExit:
            return
        tx = self._conn.session.tx
        if not self._is_outer:
            if error is not None and tx is not None and tx.is_open:
                tx.rollback_to(self._mark)
                tx.is_failed = False
            return
        self._conn.is_explicit = False
        if error is None:
            await self._conn.commit()
        else:
            await self._conn.rollback()


class _Pipeline:
    """Statements that are sent without waiting; here each is answered before the next, which allows for more orders."""

    async def __aenter__(self) -> "_Pipeline":
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        return None

    async def sync(self) -> None:
        return None


class SimPool:
    """A pool of connections to the modelled server."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.timeout = 10.0
        self.lock_timeout_s = LOCK_TIMEOUT_S

    def connection(self) -> "_Lent":
        return _Lent(self.server, self.lock_timeout_s)


class _Lent:
    def __init__(self, server: Server, lock_timeout_s: float) -> None:
        self._server = server
        self._lock_timeout_s = lock_timeout_s

    async def __aenter__(self) -> SimConnection:
        self._conn = SimConnection(self._server)
        self._conn.session.lock_timeout_s = self._lock_timeout_s
        return self._conn

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if kind is GeneratorExit:
            return
        if not self._conn.session.process.is_dead:
            self._conn.session.close()

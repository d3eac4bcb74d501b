"""The worker's desk: the commands under way, the reports that wait, the leases held. All loops meet here."""

import asyncio
import threading
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import msgspec

from noetl_common import metrics
from noetl_common.log import get_logger
from noetl_common.wire import ClaimedCommand, Report
from services.worker.outbox import Outbox
from services.worker.perform import cancellation
from services.worker.tools import CANCELLED

log = get_logger(__name__)

CLAIM_MIN = 16
CLAIM_MAX = 256
CROWD_SHARE = 8  # of the slots: a run that fills more than an eighth of them is a crowd
BACKLOG_FACTOR = 4  # reports that may wait, in slots, beside those under way: past that nothing more is claimed


class Running(msgspec.Struct):
    """One command under way."""

    command: ClaimedCommand
    task: asyncio.Task[None]
    is_cancelled: bool = False


class HeldLeases:
    """The leases this worker holds, [(execution_id, command_id, claim_token)]; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, tuple[int, int, int]] = {}
        self._of: Counter[int] = Counter()  # {execution: how many of them are its commands'}

    def add(self, commands: list[ClaimedCommand]) -> None:
        """Hold the leases of these claims."""
        with self._lock:
            for command in commands:
                if command.claim_token not in self._held:
                    self._of[command.execution_id] += 1
                self._held[command.claim_token] = (command.execution_id, command.command_id, command.claim_token)

    def drop(self, claim_token: int) -> None:
        """Let one go: it was reported, or it is another's now."""
        with self._lock:
            held = self._held.pop(claim_token, None)
            if held is not None:
                self._of[held[0]] -= 1
                if not self._of[held[0]]:
                    del self._of[held[0]]

    def count(self, execution_id: int) -> int:
        """Return how many commands of a run are held, those whose reports wait to be answered for included."""
        with self._lock:
            return self._of[execution_id]

    def tokens(self) -> set[int]:
        """Return the claim tokens held at this moment."""
        with self._lock:
            return set(self._held)

    def all(self) -> list[tuple[int, int, int]]:
        """Return those held at this moment."""
        with self._lock:
            return list(self._held.values())


class Desk:
    """What is under way, by claim token, and what is finished and not yet reported.

    Reports of a run that has a crowd of commands here wait in an outbox of their own: those of the others pass them.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.lease_s = 15.0
        self.claim_in_doubt = False  # a claim was sent and not answered: its commands may be on lease to us
        self.leases = HeldLeases()
        self.running: dict[int, Running] = {}
        self._tokens: dict[int, int] = {}  # the claim token that each command runs under
        self.outbox = Outbox(self.leases.drop)
        self.crowd_outbox = Outbox(self.leases.drop)
        self.outboxes = (self.outbox, self.crowd_outbox)
        self.bug: BaseException | None = None
        self._ended = 0  # commands, since the claim before
        self.slot_free = asyncio.Event()

    def free_slots(self) -> int:
        """Return how many more commands may be claimed now; 0 while too many reports wait."""
        if self.reports_waiting() >= self.slots * BACKLOG_FACTOR:
            return 0
        return max(0, self.slots - len(self.running))

    def reports_waiting(self) -> int:
        """Return how many reports wait to be sent."""
        return sum(map(len, self.outboxes))

    def appetite(self) -> int:
        """Return how many commands to ask for: twice as many as ended since this was asked last, within limits.

        So quick commands come many at a time, and slow ones a few, which leaves work to workers that ask as well.
        """
        wanted = max(CLAIM_MIN, 2 * self._ended)
        self._ended = 0
        return min(wanted, CLAIM_MAX, self.free_slots())

    def start(self, command: ClaimedCommand, work: Coroutine[Any, Any, Report]) -> None:
        """Run `work` as the command's task; its report joins those that wait."""
        older = self._tokens.get(command.command_id)
        if older is not None:
            # This worker lost the lease and was given the command again: only the newer claim can be reported.
            self.abandon(older, is_cancelled=False)
        self._tokens[command.command_id] = command.claim_token
        task = asyncio.create_task(self._run(command, work))
        self.running[command.claim_token] = Running(command, task)

    def abandon(self, claim_token: int, *, is_cancelled: bool) -> None:
        """End a command that was cancelled (which is reported) or lost to another claim (which is not)."""
        run = self.running.get(claim_token)
        if run is None:
            return
        command = run.command
        log.info(
            "command.abandoned",
            execution_id=command.execution_id,
            step=command.step,
            command_id=command.command_id,
            reason="cancelled" if is_cancelled else "lost",
        )
        run.is_cancelled = run.is_cancelled or is_cancelled
        if not is_cancelled:
            self.leases.drop(claim_token)
        # Said to the task, too: what runs outside of this worker ends with a run, not with a lease.
        run.task.cancel(CANCELLED if run.is_cancelled else None)

    def answer(self, sent: list[tuple[int, int, int]], *, cancelled: list[int], lost: list[int]) -> None:
        """Act on a heartbeat's answer. Only the claims that were sent are meant, not newer ones of the same command."""
        for _execution_id, command_id, claim_token in sent:
            if command_id in lost:
                self.abandon(claim_token, is_cancelled=False)
            elif command_id in cancelled:
                self.abandon(claim_token, is_cancelled=True)

    async def _run(self, command: ClaimedCommand, work: Coroutine[Any, Any, Report]) -> None:
        token = command.claim_token
        try:
            self._put(await work)
        except asyncio.CancelledError:
            run = self.running.get(token)
            if run is None or not run.is_cancelled:
                self.leases.drop(token)
                return
            self._put(cancellation(command))
        except BaseException as exc:
            # A bug of ours ends the process; the lease runs out and another worker, or the dead letters, get the
            # command.
            self.bug = exc
            log.exception(
                "command.bug", execution_id=command.execution_id, step=command.step, command_id=command.command_id
            )
            self.leases.drop(token)
        finally:
            work.close()
            self.running.pop(token, None)
            self._ended += 1
            if self._tokens.get(command.command_id) == token:
                del self._tokens[command.command_id]
            self.slot_free.set()

    def _put(self, report: Report) -> None:
        is_crowd = self.leases.count(report.execution_id) > max(1, self.slots // CROWD_SHARE)
        (self.crowd_outbox if is_crowd else self.outbox).put(report)

    def measure(self) -> None:
        """Export how the slots are used."""
        metrics.gauge("noetl_worker_slots", len(self.running), state="busy")
        metrics.gauge("noetl_worker_slots", max(0, self.slots - len(self.running)), state="free")

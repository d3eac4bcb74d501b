"""Claims that are held: workers that wait, and to whom new commands can be given before anyone else sees them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from noetl_common.errors import Unavailable
from noetl_common.wire import Claim, ClaimedCommand

Gone = Callable[[], Awaitable[bool]]


class HeldClaim:
    """One worker that waits for commands. `given` gets them once it is reserved; until then a bell may end the wait."""

    def __init__(self, wanted: Claim, *, room: int, is_gone: Gone | None) -> None:
        self.worker_id = wanted.worker_id
        self.pool = wanted.pool
        self.room = room
        self.is_gone = is_gone
        self.is_reserved = False
        self.given: asyncio.Future[list[ClaimedCommand]] = asyncio.get_running_loop().create_future()


class HeldClaims:
    """The waiting workers of one process, by pool; who has waited longest comes first."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[HeldClaim]] = {}

    def hold(self, claim: HeldClaim) -> None:
        """Have a worker wait."""
        self._waiting.setdefault(claim.pool, deque()).append(claim)

    def drop(self, claim: HeldClaim) -> None:
        """End the wait of a worker that is not reserved."""
        waiting = self._waiting.get(claim.pool)
        if waiting is not None and claim in waiting:
            waiting.remove(claim)
            if not waiting:
                del self._waiting[claim.pool]

    async def reserve(self, pool: str, count: int) -> list[HeldClaim]:
        """Return a worker for each of `count` commands, as many as can be served; each gets a fair part of them.

        Each worker named must be told what became of it, by `give` or `give_doubt`.
        """
        waiting = self._waiting.get(pool)
        if not waiting:
            return []
        part = -(-count // len(waiting))
        found: list[HeldClaim] = []
        while waiting and len(found) < count:
            claim = waiting[0]
            claim.is_reserved = True
            self.drop(claim)
            if claim.is_gone is not None and await claim.is_gone():
                give([claim], {})
            else:
                found += [claim] * min(part, claim.room, count - len(found))
        return found


def give(claims: Iterable[HeldClaim], commands: dict[HeldClaim, list[ClaimedCommand]]) -> None:
    """End the waits of reserved workers with what each was given: nothing means that it looks for itself."""
    for claim in dict.fromkeys(claims):
        if not claim.given.done():
            claim.given.set_result(commands.get(claim, []))


def give_doubt(claims: Iterable[HeldClaim]) -> None:
    """End the waits of reserved workers of which nobody knows whether they were given anything: they will ask."""
    for claim in dict.fromkeys(claims):
        if not claim.given.done():
            claim.given.set_exception(Unavailable("it is not known whether commands were leased: ask what you hold"))

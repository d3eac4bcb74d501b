"""Hand appended inputs to the router of this process in memory, so that it need not read them again.

A hint with a limit, never the truth: whatever is missing here is read from the log.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from noetl_common.core.events import Event
from noetl_common.core.shard import seq_in
from noetl_common.wire import ResultRow
from services.ingest.payloads import PayloadCache

WAITING_EVENTS_MAX = 20_000  # a shard; beyond it the queue is dropped and the router reads the log


class Handover:
    """One queue and one bell a shard. `payloads` gets the small results that came with the inputs."""

    def __init__(self, payloads: PayloadCache) -> None:
        self._payloads = payloads
        self._queues: dict[int, deque[Event]] = {}
        self._bells: dict[int, asyncio.Event] = {}
        self._whole: set[int] = set()

    def bell(self, shard_id: int) -> asyncio.Event:
        """Return the event that wakes the shard's loop."""
        return self._bells.setdefault(shard_id, asyncio.Event())

    def wake(self, shard_id: int) -> None:
        """Wake the shard's loop: something that is not here may have been appended to it."""
        self._whole.discard(shard_id)
        self.bell(shard_id).set()

    def is_whole(self, shard_id: int) -> bool:
        """Return True while, as far as is known, the shard's queue holds all that is not routed."""
        return shard_id in self._whole

    def is_at_rest(self, shard_id: int) -> bool:
        """Return True while, as far as is known, all of the shard's inputs are routed."""
        return shard_id in self._whole and not self._queues.get(shard_id)

    def set_whole(self, shard_id: int, is_whole: bool) -> None:
        """Note whether the shard's log holds more than its queue. Said before it is read, a bell meanwhile counts."""
        if is_whole:
            self._whole.add(shard_id)
        else:
            self._whole.discard(shard_id)

    def offer(self, shard_id: int, events: Sequence[Event], rows: Sequence[ResultRow] = ()) -> None:
        """Take inputs that this process has just committed, numbered and in order, with their results."""
        queue = self._queues.setdefault(shard_id, deque())
        if len(queue) + len(events) > WAITING_EVENTS_MAX:
            queue.clear()
            self._whole.discard(shard_id)
        else:
            queue.extend(events)
        for row in rows:
            self._payloads.put_row(row)
        self.bell(shard_id).set()

    def take(self, shard_id: int, *, after_seq: int, limit: int) -> list[Event]:
        """Return the inputs that follow `after_seq` without a gap; empty when the next one is not here."""
        queue = self._queues.get(shard_id)
        found: list[Event] = []
        while queue and len(found) < limit:
            seq = seq_in(queue[0].event_id)
            if seq > after_seq + 1:
                self._whole.discard(shard_id)
                break  # an input that another process appended comes first
            event = queue.popleft()
            if seq == after_seq + 1:
                found.append(event)
                after_seq = seq
        return found

    def put_back(self, shard_id: int, events: Sequence[Event]) -> None:
        """Return inputs that were taken and not routed after all; they stay the next ones."""
        self._queues.setdefault(shard_id, deque()).extendleft(reversed(events))

    def forget(self, shard_id: int) -> None:
        """Drop what waits: the shard is not ours any more, or its cursor is not where we believed."""
        self._queues.pop(shard_id, None)
        self._whole.discard(shard_id)

"""Reports that wait to be sent, in the order in which their commands ended."""

import asyncio
from collections import deque
from collections.abc import Callable

from noetl_common.wire import BATCH_EVENTS_MAX, Report

INLINE_BYTES_MAX = 2 * 1024 * 1024
REPORT_BYTES = 1500  # of a report and its row without payload, roughly


class Outbox:
    """One queue of reports; each stays ours until ingest has answered for it."""

    def __init__(self, drop_lease: Callable[[int], None]) -> None:
        self._drop_lease = drop_lease
        self._reports: deque[Report] = deque()
        self.due = asyncio.Event()

    def __len__(self) -> int:
        """Return how many wait, those of the batches under way left out."""
        return len(self._reports)

    def put(self, report: Report) -> None:
        """Add one behind the others."""
        self._reports.append(report)
        self.due.set()

    def let_go(self, report: Report) -> None:
        """Forget a report of a batch under way: ingest has answered for it."""
        self._drop_lease(report.claim_token)

    def put_back(self, reports: list[Report]) -> None:
        """Keep reports that could not be sent, in front of the others."""
        self._reports.extendleft(reversed(reports))
        self.due.set()

    def take(self) -> list[Report]:
        """Return as many as fit one request, oldest first."""
        batch: list[Report] = []
        size = 0
        while self._reports and len(batch) < BATCH_EVENTS_MAX:
            report = self._reports[0]
            size += REPORT_BYTES + sum(row.bytes for row in report.results if row.inline is not None)
            if batch and size > INLINE_BYTES_MAX:
                break
            batch.append(self._reports.popleft())
        return batch

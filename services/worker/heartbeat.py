"""The heartbeat: a thread of its own with a connection of its own, so that a busy event loop loses no lease."""

import asyncio
import threading

import httpx

from noetl_common.errors import NoetlError
from noetl_common.log import get_logger
from noetl_common.wire import Heartbeat
from services.worker.api import headers, heartbeat_once
from services.worker.desk import Desk
from services.worker.ingests import Ingests

log = get_logger(__name__)

FAILED_PAUSE_S = 1.0
TIMEOUT_S = 4.0
JOIN_S = 6.0


class Heart:
    """Renews every lease of the desk, and brings back what to abandon."""

    def __init__(self, desk: Desk, ingests: Ingests, *, worker_id: str, token: str, every_s: float) -> None:
        self._desk = desk
        self._worker_id = worker_id
        self._ingests = ingests
        self._token = token
        self._every_s = every_s
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._beat, name="noetl-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    async def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join, JOIN_S)

    def _beat(self) -> None:
        with httpx.Client(headers=headers(self._token), timeout=TIMEOUT_S, trust_env=False) as client:
            pause_s = self._pause_s()
            while not self._stop.wait(pause_s):
                pause_s = self._pause_s() if self._once(client) else FAILED_PAUSE_S

    def _pause_s(self) -> float:
        # Three chances within one lease, whatever lease the claims came with.
        return min(self._every_s, self._desk.lease_s / 3)

    def _once(self, client: httpx.Client) -> bool:
        sent = self._desk.leases.all()
        beat = Heartbeat(
            worker_id=self._worker_id, leases=sent, active=len(self._desk.running), capacity=self._desk.slots
        )
        try:
            answer = heartbeat_once(client, self._ingests, beat)
        except NoetlError as exc:
            log.warning("heartbeat.failed", leases=len(sent), error=exc)
            return False
        if answer.cancelled or answer.lost:
            try:
                self._loop.call_soon_threadsafe(self._tell, sent, answer.cancelled, answer.lost)
            except RuntimeError:
                return True  # the event loop has ended: so has all that could be abandoned
        return True

    def _tell(self, sent: list[tuple[int, int, int]], cancelled: list[int], lost: list[int]) -> None:
        self._desk.answer(sent, cancelled=cancelled, lost=lost)

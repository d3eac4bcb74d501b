"""Start the load's runs as a client would that has to get through: again and again, under one idempotency key."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx
import msgspec
import psycopg

from noetl_cli.chaos.load import PREFIX, Run
from noetl_common.sql import load_queries

SQL = load_queries("noetl_cli.chaos")
REQUEST_S_MAX = 10.0
PAUSE_S = 0.1
CANCEL_AFTER_S = 1.0
GONE = (404, 409)  # answers to a cancel that a repetition need not wait for


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A run that the API acknowledged."""

    run: Run
    execution_id: int


class Driver(threading.Thread):
    """Keeps `open_max` runs open until told to stop. `started` holds what was acknowledged, and nothing else."""

    def __init__(
        self, urls: Sequence[str], database_url: str, *, runs: Iterator[Run], ledger: Path, open_max: int
    ) -> None:
        super().__init__(name="chaos.driver", daemon=True)
        self.started: list[Started] = []
        self.refusals = 0
        self.error: Exception | None = None
        self._urls = list(urls)
        self._database_url = database_url
        self._runs = runs
        self._ledger = ledger
        self._open_max = open_max
        self._ended = threading.Event()
        self._cancels: list[tuple[float, int]] = []
        self._client = httpx.Client(timeout=REQUEST_S_MAX, trust_env=False)

    def ask_to_stop(self) -> None:
        """Start nothing more; what is under way goes on until it is acknowledged."""
        self._ended.set()

    def close(self) -> None:
        """Wait for the end. Errors: what ended the thread."""
        self.join()
        self._client.close()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        """Start and cancel runs until `stop`."""
        try:
            while not self._ended.is_set():
                self._cancel_due(time.monotonic())
                if self._open() < self._open_max:
                    self._start(next(self._runs))
                else:
                    self._ended.wait(PAUSE_S)
            self._cancel_due(float("inf"))
        except Exception as error:
            self.error = error

    def _open(self) -> int:
        try:
            with psycopg.connect(self._database_url, connect_timeout=2, autocommit=True) as conn:
                row = conn.execute(SQL["count_open"]).fetchone()
        except psycopg.Error:
            return self._open_max  # Postgres is the one that is down now
        return int(row[0]) if row is not None else 0

    def _start(self, run: Run) -> None:
        payload = {"run": run.name, "ledger": str(self._ledger), "items": run.items}
        body = {"path": f"{PREFIX}{run.kind}", "payload": payload}
        answer = self._sent("/api/execute", body, {"Idempotency-Key": f"chaos-{run.name}"})
        execution_id = int(answer["execution_id"])
        self.started.append(Started(run=run, execution_id=execution_id))
        if run.status == "CANCELLED":
            self._cancels.append((time.monotonic() + CANCEL_AFTER_S, execution_id))

    def _cancel_due(self, now_s: float) -> None:
        for due_s, execution_id in [each for each in self._cancels if each[0] <= now_s]:
            self._sent(f"/api/executions/{execution_id}/cancel", {"reason": "the load says so"}, {})
            self._cancels.remove((due_s, execution_id))

    def _sent(self, path: str, body: Mapping[str, object], headers: Mapping[str, str]) -> dict[str, str]:
        """Return the answer, from whichever server gives one; a refusal that time does not mend is an error."""
        while True:
            url = self._urls[0]
            try:
                answer = self._client.post(f"{url}{path}", json=body, headers=dict(headers))
                if answer.is_success or answer.status_code in GONE:
                    found: dict[str, str] = answer.json()
                    return found
                if answer.status_code < 500 and answer.status_code != 429:
                    answer.raise_for_status()
            except httpx.TransportError:
                pass  # it may have been done all the same: the repetition is told so by its key
            self.refusals += 1
            self._urls.append(self._urls.pop(0))
            time.sleep(PAUSE_S)

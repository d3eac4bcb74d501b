"""Clients that note down what ingest has acknowledged, and when: starts of runs, and reports of a worker's commands."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import httpx
import msgspec

from noetl_common.wire import Claim, Claimed, ReportBatch, Reported, decode, encode
from tests.ingesting import report_of

POOL = "by_hand"
PLAYBOOK = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: by_hand, path: tests/by_hand}}
workload: {{items: 10}}
workflow:
- step: start
  loop: {{in: "{{{{ items }}}}", iterator: n, spec: {{mode: parallel, max_in_flight: 32}}}}
  tool: {{kind: python, code: "result = n"}}
  spec: {{pool: {POOL}}}
"""
PAUSE_S = 0.03
AT_ONCE = 4


Moments = list[tuple[float, int]]


class Noted:
    """What was acknowledged, with its moment. Shapes: `starts` ids of runs, `reports` ids of the events they became."""

    def __init__(self) -> None:
        self.starts: Moments = []
        self.reports: Moments = []
        self.ended = threading.Event()

    def start_runs(self, client: httpx.Client) -> None:
        """Start runs of no item, one behind the other, until the end."""
        body = msgspec.json.encode({"path": "tests/faults", "payload": {"run": "load", "items": 0}})
        while not self.ended.is_set():
            answer = self._sent(client, "/api/execute", body)
            if answer:
                self.starts.append((time.monotonic(), int(msgspec.json.decode(answer)["execution_id"])))
            time.sleep(PAUSE_S)

    def report_commands(self, client: httpx.Client) -> None:
        """Take commands of the pool and report them, until the end."""
        worker_id = f"by-hand-{threading.get_ident()}"
        asked = encode(Claim(worker_id=worker_id, pool=POOL, max=AT_ONCE, wait_s=0.5))
        while not self.ended.is_set():
            claimed = self._sent(client, "/api/commands/claim", asked)
            commands = decode(claimed, Claimed).commands if claimed else []
            reports = [report_of(one, loop_epoch=one.loop_epoch, iter_index=one.iter_index) for one in commands]
            if reports:
                batch = encode(ReportBatch(worker_id=worker_id, events=reports))
                if answer := self._sent(client, "/api/events/batch", batch):
                    ids = [id_ for id_ in decode(answer, Reported).event_ids if id_]
                    self.reports += [(time.monotonic(), id_) for id_ in ids]
            time.sleep(PAUSE_S)

    def _sent(self, client: httpx.Client, path: str, body: bytes) -> bytes:
        """Return the answer to a request that is sent until it is answered; nothing at the end."""
        while not self.ended.is_set():
            try:
                answer = client.post(path, content=body, headers={"content-type": "application/json"})
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                return answer.content
            assert answer.status_code == 503 and answer.headers["retry-after"], answer.text
            time.sleep(PAUSE_S)
        return b""


@contextmanager
def acknowledged(url: str) -> Iterator[Noted]:
    """Have two clients start runs and two report commands, until the block ends. Errors: AssertionError."""
    noted = Noted()
    errors: list[BaseException] = []

    def work(what: Callable[[httpx.Client], None]) -> None:
        try:
            with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
                what(client)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=partial(work, what)) for what in (noted.start_runs, noted.report_commands) * 2]
    for thread in threads:
        thread.start()
    try:
        yield noted
    finally:
        noted.ended.set()
        for thread in threads:
            thread.join()
    assert errors == []


def longest_pause_s(moments: Moments) -> float:
    """Return for how long nothing was acknowledged."""
    return max(later - sooner for sooner, later in pairwise(sorted(moment for moment, _id in moments)))

"""Playbooks of every kind end as they always do, although ingest is killed again and again while they run."""

import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from noetl_cli.embedded.roles import Child
from noetl_cli.embedded.stack import Plan, Stack, throwaway_stack
from noetl_common.core.events import Event
from noetl_common.core.trace import canonical_trace
from tests.conformance.running import document
from tests.conformance.stub_api import stub_api
from tests.system.more_playbooks_to_kill import CASES
from tests.system.playbooks_to_kill import CHILDREN, Case
from tests.verifying import violations_in

SEED = int(os.environ.get("KILLS_SEED", "0")) or random.randrange(1, 1_000_000)
KILLED = tuple(os.environ.get("KILLS_ROLES", "ingest").split(","))
KILLS_MAX = int(os.environ.get("KILLS_MAX", "5"))
KILL_PAUSE_S = (0.1, 2.0)  # between a process's start and its end
POLL_S = 0.05
END_S_MAX = 100.0
REQUEST_S = 3.0
LONG_NUMBER = re.compile(r"\d{15,}")
# A payload that names its run or its time has another size and digest every time; payloads are compared themselves.
# How many others were under way when a child was started (`behind`) is a matter of time as well.
OF_ONE_ATTEMPT = {"duration_ms", "elapsed", "date", "Date", "sha256", "bytes", "behind"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    replicas = {"meta": 1, "ingest": 1, "compute": 1, "worker": 2}
    settings = {"NOETL_PYTHON_PROCESSES": "3", "NOETL_COMMAND_LEASE_SEC": "4", "NOETL_HEARTBEAT_SEC": "1"}
    # While the only ingest is away nobody's lease is renewed: on a busy machine one command may lose many.
    settings["NOETL_COMMAND_CRASHES_MAX"] = "20"
    plan = Plan(owner="test", replicas=replicas, settings=settings)
    with throwaway_stack(tmp_path_factory.mktemp("stack"), plan) as stack, stub_api() as stub:
        assert stack.running is not None
        with httpx.Client(base_url=stack.running.api_url, timeout=30) as api:
            texts = [document(workflow, path=path, workload={"n": 1}) for path, workflow in CHILDREN.items()]
            for case in CASES:
                workload = {"api_url": stub.url, **case.root.get("workload", {})}
                root = {**case.root, "workload": workload}
                texts.append(document(case.workflow, path=path_of(case), **root))
            for text in texts:
                answer = api.post("/api/catalog/register", json={"content": text})
                assert answer.status_code == 200, answer.text
        yield stack


def path_of(case: Case) -> str:
    return "kill/" + re.sub(r"[^a-z0-9]+", "_", case.name)


class Round:
    """All playbooks started at once, and watched to their ends, with or without kills."""

    def __init__(self, stack: Stack, *, name: str, seed: int | None) -> None:
        self.stack, self.name = stack, name
        self.random = random.Random(seed) if seed is not None else None
        self.kills: list[tuple[float, str]] = []
        self.due_s: dict[str, float] = {}
        self.runs: dict[str, int] = {}
        self.cancelled: set[str] = set()
        self.began_s = time.monotonic()

    def run(self) -> None:
        """Return when every run has ended."""
        assert self.stack.running is not None
        with (
            httpx.Client(base_url=self.stack.running.api_url, timeout=REQUEST_S) as api,
            psycopg.connect(self.stack.running.database_url, row_factory=dict_row, autocommit=True) as conn,
        ):
            while len(self.runs) < len(CASES) or self.live(conn):
                self.stack.tend()
                self.kill()
                with suppress(httpx.TransportError):
                    self.start(api)
                    self.cancel(api, conn)
                late = time.monotonic() - self.began_s > END_S_MAX
                assert not late, (self.said(), self.live(conn), set(map(path_of, CASES)) - self.runs.keys())
                time.sleep(POLL_S)
            self.ends = {
                path_of(case): ends_of(conn, self.runs[path_of(case)], without=case.by_chance) for case in CASES
            }
        self.violations = violations_in(self.stack)

    def said(self) -> str:
        return f"KILLS_SEED={SEED} killed " + ", ".join(f"{role} at {at_s:.2f} s" for at_s, role in self.kills)

    def kill(self) -> None:
        """End a process whose time has come; each that starts gets another time."""
        if self.random is None or len(self.kills) >= KILLS_MAX:
            return
        now_s = time.monotonic()
        for child in self.stack.children:
            if child.role.role not in KILLED or child.exit_status() is not None:
                continue
            key = f"{child.role.name} {child.pid}"
            due_s = self.due_s.setdefault(key, now_s + self.random.uniform(*KILL_PAUSE_S))
            if now_s >= due_s and len(self.kills) < KILLS_MAX:
                os.kill(child.pid, signal.SIGKILL)
                self.wait_dead(child)
                self.kills.append((now_s - self.began_s, child.role.name))

    def wait_dead(self, child: Child) -> None:
        while child.exit_status() is None:
            time.sleep(0.001)

    def start(self, api: httpx.Client) -> None:
        """Start what has not started; who was not answered asks again with the same key."""
        for case in CASES:
            if path_of(case) not in self.runs:
                key = {"Idempotency-Key": f"{self.name} {case.name}"}
                answer = api.post("/api/execute", json={"path": path_of(case)}, headers=key)
                if answer.status_code == 503:
                    return
                assert answer.status_code == 200, answer.text
                self.runs[path_of(case)] = int(answer.json()["execution_id"])
                self.kill()

    def cancel(self, api: httpx.Client, conn: psycopg.Connection[dict[str, Any]]) -> None:
        """Cancel the runs that are to be cancelled, once a command of their child has been issued."""
        for path in {path_of(case) for case in CASES if case.is_cancelled} & self.runs.keys() - self.cancelled:
            text = (
                "SELECT 1 FROM noetl.execution x JOIN noetl.command c USING (execution_id)"
                " WHERE x.parent_execution_id = %s"
            )
            if conn.execute(text, [self.runs[path]]).fetchone():
                answer = api.post(f"/api/executions/{self.runs[path]}/cancel", json={"reason": "enough"})
                if answer.status_code == 200:
                    self.cancelled.add(path)

    def live(self, conn: psycopg.Connection[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the executions, children too, that have not ended or are not shown so."""
        return conn.execute(
            "SELECT execution_id, path, status FROM noetl.execution"
            " WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')"
        ).fetchall()


TREE = """
WITH RECURSIVE tree AS (
    SELECT x.execution_id FROM noetl.execution x WHERE x.execution_id = %s
    UNION ALL
    SELECT x.execution_id FROM noetl.execution x JOIN tree t ON x.parent_execution_id = t.execution_id
)
SELECT execution_id, path, status FROM tree JOIN noetl.execution USING (execution_id)
"""


def ends_of(conn: psycopg.Connection[dict[str, Any]], execution_id: int, *, without: str) -> dict[str, Any]:
    """Return all that must be the same every time: of a run and its children, without ids, times and one step."""
    runs = {run["execution_id"]: run for run in conn.execute(TREE, [execution_id]).fetchall()}
    events = conn.execute(
        "SELECT * FROM noetl.event WHERE execution_id = ANY(%s) ORDER BY event_id", [list(runs)]
    ).fetchall()
    results = conn.execute("SELECT * FROM noetl.result_ref WHERE execution_id = ANY(%s)", [list(runs)]).fetchall()
    events, results = ([row for row in rows if not row["step"] or row["step"] != without] for rows in (events, results))
    traces: Counter[Any] = Counter()
    for run_id, run in runs.items():
        own = [event_of(row) for row in events if row["execution_id"] == run_id]
        traces[run["path"], run["status"], tuple(canonical_trace(own))] += 1
    path = {run_id: run["path"] for run_id, run in runs.items()}
    said = Counter(
        (path[row["execution_id"]], row["event_type"], row["step"], row["iter_index"], masked(row["result"]))
        for row in events
    )
    stored = Counter(
        (path[row["execution_id"]], row["step"], row["task_label"], row["shape"], row["iter_index"], payload(row))
        for row in results
    )
    return {"status": runs[execution_id]["status"], "traces": traces, "said": said, "results": stored}


def event_of(row: dict[str, Any]) -> Event:
    return Event(
        execution_id=row["execution_id"],
        event_type=row["event_type"],
        step=row["step"] or "",
        iter_index=-1 if row["iter_index"] is None else row["iter_index"],
        status=row["status"] or "",
    )


def payload(row: dict[str, Any]) -> str:
    if row["inline_payload"] is None:
        return str(row["sha256"])
    return masked(json.loads(row["inline_payload"]))


def masked(value: Any) -> str:
    """Return a value as text without ids, and without what an attempt measures of itself."""
    return LONG_NUMBER.sub("#", json.dumps(stripped(value), sort_keys=True))


def stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: stripped(item) for key, item in value.items() if key not in OF_ONE_ATTEMPT}
    return [stripped(item) for item in value] if isinstance(value, list) else value


def difference(found: dict[str, Any], expected: dict[str, Any]) -> Sequence[Any]:
    """Return what a run has too much and what it lacks."""
    said: list[Any] = [(found["status"], expected["status"])] if found["status"] != expected["status"] else []
    for name in ("traces", "said", "results"):
        more, less = found[name] - expected[name], expected[name] - found[name]
        said += [(name, "too much", key, n) for key, n in more.items()] + [
            (name, "lacks", key, n) for key, n in less.items()
        ]
    return said


@pytest.mark.timeout(250)
def test_runs_with_ingest_killed_at_random_moments_end_as_runs_without(stack: Stack) -> None:
    assert len(CASES) >= 20
    calm = Round(stack, name="calm", seed=None)
    calm.run()
    assert {case.name: calm.ends[path_of(case)]["status"] for case in CASES} == {case.name: case.ends for case in CASES}
    assert calm.violations == []
    disturbed = Round(stack, name="disturbed", seed=SEED)
    disturbed.run()
    print(disturbed.said())
    assert disturbed.kills, "the runs were over before anything was killed"
    assert disturbed.violations == [], disturbed.said()
    for path, expected in calm.ends.items():
        for found in difference(disturbed.ends[path], expected):
            print(path, *found)
    assert disturbed.ends == calm.ends, disturbed.said()

"""Runs under a concurrency limit while the servers that count them are killed: in order, never too many, none lost."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from noetl_cli.embedded.stack import Plan, Stack, throwaway_stack
from tests.verifying import violations_in

LIMIT, RUNS, KEYS = 3, 30, ("a", "b")
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: limited, path: tests/limited}
executor: {spec: {concurrency: {key: "{{ tenant }}", limit: 3}}}
workload: {tenant: a}
workflow:
- step: start
  tool: {kind: python, code: "import time; time.sleep(0.2); result = 1"}
"""


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    replicas = {"meta": 1, "ingest": 2, "compute": 1, "worker": 1}
    with throwaway_stack(tmp_path_factory.mktemp("stack"), Plan(owner="test", replicas=replicas)) as stack:
        yield stack


def query(stack: Stack, text: str, *args: Any) -> list[dict[str, Any]]:
    assert stack.running is not None
    with psycopg.connect(stack.running.database_url, row_factory=dict_row, autocommit=True) as conn:
        return conn.execute(text.encode(), args).fetchall()


@pytest.mark.timeout(300)
def test_servers_killed_while_runs_wait_lose_no_place(stack: Stack) -> None:
    assert stack.running is not None
    with httpx.Client(base_url=stack.running.api_url, timeout=30, trust_env=False) as client:
        assert client.post("/api/catalog/register", json={"content": PLAYBOOK}).status_code == 200
        items = [{"path": "tests/limited", "payload": {"tenant": KEYS[n % 2]}} for n in range(RUNS)]
        answer = client.post("/api/execute/batch", json={"executions": items}).json()
    runs = [int(one["execution_id"]) for one in answer["results"]]
    line = query(stack, "SELECT execution_id FROM noetl.concurrency ORDER BY ticket")
    order = {row["execution_id"]: place for place, row in enumerate(line)}
    killed, deadline = 0, time.monotonic() + 120
    ended = "SELECT count(*) AS n FROM noetl.event WHERE event_type = 'playbook.completed'"
    while (done := query(stack, ended)[0]["n"]) < RUNS:
        stack.tend()
        if killed < 3 and done >= (killed + 1) * 5:
            servers = [child for child in stack.children if child.role.role == "ingest"]
            os.kill(servers[killed % len(servers)].pid, signal.SIGKILL)
            killed += 1
        assert time.monotonic() < deadline, f"{done} of {RUNS} runs ended"
        time.sleep(0.05)
    assert killed == 3
    log = query(
        stack,
        "SELECT e.execution_id, e.event_type, x.result #>> '{context,group,key}' AS key FROM noetl.event e JOIN"
        " noetl.event x ON x.execution_id = e.execution_id AND x.event_type = 'playbook.started'"
        " WHERE e.event_type IN ('playbook.admitted', 'playbook.completed') ORDER BY e.created_at",
    )
    for key in KEYS:
        going: set[int] = set()
        admitted: list[int] = []
        for row in (row for row in log if row["key"] == key):
            if row["event_type"] == "playbook.admitted":
                going.add(row["execution_id"])
                admitted.append(row["execution_id"])
            else:
                going.discard(row["execution_id"])
            assert len(going) <= LIMIT
        places = [order.get(run, -1) for run in admitted]
        assert len(set(admitted)) == RUNS // 2
        # Those that one decision admits together have no order among them.
        assert all(place < later for n, place in enumerate(places) for later in places[n + LIMIT :] if place >= 0)
    assert sorted(runs) == sorted({row["execution_id"] for row in log})
    assert query(stack, "SELECT 1 FROM noetl.concurrency") == []
    assert violations_in(stack) == []

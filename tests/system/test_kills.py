"""Roles as separate processes, killed or cut off half-way: nothing lost, nothing twice, the same trace.

`NOETL_TEST_KILL_ITEMS=10000` has the loop that is disturbed be longer.
"""

import os
import secrets
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from noetl_cli.embedded.stack import Plan, Stack, throwaway_stack
from noetl_common.core.events import Event
from noetl_common.core.trace import trace_digest
from tests.verifying import violations_in

ITEMS = int(os.environ.get("NOETL_TEST_KILL_ITEMS", "1000"))
RUN_S_MAX = 90.0 + ITEMS / 50
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: kills, path: tests/kills}
workload: {items: 10}
workflow:
- step: start
  loop: {in: "{{ items }}", iterator: n, spec: {mode: parallel, max_in_flight: 100}}
  tool:
    kind: python
    input: {n: "{{ n }}"}
    code: |
      import time
      time.sleep(0.004)
      result = {"n": n, "square": n * n}
  next: {arcs: [{step: end}]}
- step: end
  tool:
    kind: python
    input: {results: "{{ start.results }}"}
    code: |
      result = {"total": sum(r["square"] for r in results), "count": len(results)}
"""
SQUARES = sum(n * n for n in range(ITEMS))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    replicas = {"meta": 1, "ingest": 1, "compute": 1, "worker": 2}
    with throwaway_stack(tmp_path_factory.mktemp("stack"), Plan(owner="test", replicas=replicas)) as stack:
        assert stack.running is not None
        answer = httpx.post(f"{stack.running.api_url}/api/catalog/register", json={"content": PLAYBOOK}, timeout=30)
        assert answer.status_code == 200, answer.text
        yield stack


def execute(stack: Stack) -> int:
    """Start a run as clients do: 503 is what an ingest answers that was frozen, until it has new sessions."""
    assert stack.running is not None
    body, headers = {"path": "tests/kills", "payload": {"items": ITEMS}}, {"Idempotency-Key": secrets.token_hex(8)}
    deadline = time.monotonic() + 30
    while True:
        answer = httpx.post(f"{stack.running.api_url}/api/execute", json=body, headers=headers, timeout=30)
        if answer.status_code != 503 or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["execution_id"])


def query(stack: Stack, text: str, *args: Any) -> list[dict[str, Any]]:
    assert stack.running is not None
    with psycopg.connect(stack.running.database_url, row_factory=dict_row, autocommit=True) as conn:
        return conn.execute(text, args).fetchall()


def wait(stack: Stack, condition: Any, *, timeout_s: float, what: str, tend: bool = True) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if tend:
            stack.tend()
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.02)


def completed(stack: Stack, execution_id: int) -> int:
    text = "SELECT count(*) AS n FROM noetl.event WHERE execution_id = %s AND event_type = 'command.completed'"
    return int(query(stack, text, execution_id)[0]["n"])


def status(stack: Stack, execution_id: int) -> str:
    text = "SELECT status FROM noetl.execution WHERE execution_id = %s"
    return str(query(stack, text, execution_id)[0]["status"])


def events(stack: Stack, execution_id: int) -> list[Event]:
    rows = query(stack, "SELECT * FROM noetl.event WHERE execution_id = %s ORDER BY event_id", execution_id)
    return [
        Event(
            execution_id=row["execution_id"],
            event_id=row["event_id"],
            event_type=row["event_type"],
            step=row["step"] or "",
            command_id=row["command_id"] or 0,
            iter_index=-1 if row["iter_index"] is None else row["iter_index"],
            status=row["status"] or "",
        )
        for row in rows
    ]


def assert_nothing_lost_or_twice(stack: Stack, execution_id: int) -> list[Event]:
    log = events(stack, execution_id)
    kinds = [e.event_type for e in log]
    of_items = defaultdict(list)
    for event in log:
        if event.event_type.startswith("command.") and event.iter_index >= 0:
            of_items[event.iter_index].append(event.event_type)
    assert of_items == {index: ["command.issued", "command.completed"] for index in range(ITEMS)}
    assert kinds.count("loop.done") == 1
    assert kinds.count("playbook.completed") == 1
    assert not {"playbook.failed", "playbook.cancelled", "command.failed"} & set(kinds)
    (row,) = query(
        stack,
        "SELECT convert_from(r.inline_payload, 'UTF8') AS payload FROM noetl.result_ref r"
        " WHERE r.execution_id = %s AND r.step = 'end'",
        execution_id,
    )
    assert f'"total":{SQUARES}' in row["payload"] and f'"count":{ITEMS}' in row["payload"]
    return log


def finish(stack: Stack, execution_id: int, *, tend: bool = True) -> list[Event]:
    wait(
        stack,
        lambda: status(stack, execution_id) != "RUNNING",
        timeout_s=RUN_S_MAX,
        what="the end of the run",
        tend=tend,
    )
    assert status(stack, execution_id) == "COMPLETED"
    assert violations_in(stack) == []
    return assert_nothing_lost_or_twice(stack, execution_id)


def wait_for_share(stack: Stack, execution_id: int, share: float) -> None:
    """Return when this share of the loop is done."""
    done = int(ITEMS * share)
    wait(stack, lambda: completed(stack, execution_id) >= done, timeout_s=RUN_S_MAX, what=f"{done} items")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("role", ["ingest", "worker", "compute", "meta"])
def test_a_role_killed_half_way_costs_time_and_nothing_else(stack: Stack, role: str):
    execution_id = execute(stack)
    wait_for_share(stack, execution_id, 0.5)
    child = next(child for child in stack.children if child.role.role == role)
    os.kill(child.pid, signal.SIGKILL)
    finish(stack, execution_id)


@pytest.fixture(scope="module")
def undisturbed(stack: Stack) -> str:
    """The canonical digest of a run that nothing disturbs."""
    return trace_digest(finish(stack, execute(stack)))


@pytest.mark.timeout(300 + RUN_S_MAX)
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_run_without_nats_has_the_trace_of_an_undisturbed_run(stack: Stack, undisturbed: str, share: float):
    stack.tend()  # NATS, which the last of these killed
    execution_id = execute(stack)
    wait_for_share(stack, execution_id, share)
    nats = stack.servers["nats"]
    os.kill(nats.pid, signal.SIGKILL)
    disturbed = finish(stack, execution_id, tend=False)  # nothing brings NATS back before the run is over
    assert not nats.alive()
    assert trace_digest(disturbed) == undisturbed

"""Runs that end before their time, and what becomes of their children: what a table of cases cannot show."""

import time

import httpx

from tests.conformance.running import document, failed, play, register


def test_a_child_that_takes_too_long_fails_its_step_and_is_cancelled(api: httpx.Client) -> None:
    register(
        api,
        document(
            "[{step: start, tool: {kind: python, code: 'import time; time.sleep(30)'}}]", path="language/slow_child"
        ),
    )
    began = time.monotonic()
    run = failed(
        api,
        "[{step: start, tool: {kind: playbook, path: language/slow_child, timeout: 0.5}}]",
    )
    assert time.monotonic() - began < 10
    for part in ("'start'", "language/slow_child", "0.5 s"):
        assert part in run.message
    children = [e for e in run.events() if e["event_type"] == "child.started"]
    child_id = children[0]["result"]["context"]["child_id"]
    deadline = time.monotonic() + 15
    while (status := api.get(f"/api/executions/{child_id}/status").json()["status"]) == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert status == "CANCELLED"


def test_a_run_that_is_cancelled_ends_so_and_its_child_too(api: httpx.Client) -> None:
    register(
        api,
        document(
            "[{step: start, tool: {kind: python, code: 'import time; time.sleep(30)'}}]", path="language/endless_child"
        ),
    )
    path = register(
        api,
        document(
            """
            - {step: start, tool: {kind: playbook, path: language/endless_child}, next: {arcs: [{step: end}]}}
            - {step: end, tool: {kind: noop}}
            """
        ),
    )
    started = api.post("/api/execute", json={"path": path}).json()["execution_id"]
    child_id = ""
    deadline = time.monotonic() + 15
    while not child_id:
        assert time.monotonic() < deadline
        events = api.get(f"/api/executions/{started}/events").json()["events"]
        children = [e for e in events if e["event_type"] == "child.started"]
        child_id = str(children[0]["result"]["context"]["child_id"]) if children else ""
        time.sleep(0.02)
    assert api.post(f"/api/executions/{started}/cancel", json={"reason": "enough"}).status_code == 200
    for execution_id in (started, child_id):
        while (status := api.get(f"/api/executions/{execution_id}/status").json()["status"]) == "RUNNING":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert status == "CANCELLED"
    assert play(api, "[{step: start, tool: {kind: noop}}]").status["status"] == "COMPLETED"

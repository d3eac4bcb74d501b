"""What clients written for the public servers read: starts in every spelling, events, results, errors, one end each."""

import base64
import json

import httpx
import pytest

from tests.conformance.running import Run, document, execute, failed, register

HELLO = """
    - step: start
      tool: {kind: python, input: {}, code: "result = {'status': 'initialized'}"}
      next: {spec: {mode: exclusive}, arcs: [{step: test_step}]}
    - step: test_step
      tool:
        - name: say
          kind: python
          input: {message: "{{ message }}"}
          code: "result = {'status': 'ok', 'data': {'message': message}}"
          spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.said: "{{ output.data.data.message }}"}}}}]}}
      next: {arcs: [{step: end}]}
    - {step: end, tool: {kind: python, code: "result = {'status': 'complete'}"}}
"""
DOCUMENT = document(HELLO, path="look/hello", workload={"message": "Hello World"})


@pytest.mark.parametrize("in_base64", [False, True])
def test_a_document_is_registered_as_text_and_in_base64(api: httpx.Client, in_base64: bool):
    content = base64.b64encode(DOCUMENT.encode()).decode() if in_base64 else DOCUMENT
    answer = api.post("/api/catalog/register", json={"content": content, "resource_type": "Playbook"}).json()
    assert answer["path"] == "look/hello" and answer["status"] == "success" and answer["kind"] == "Playbook"
    assert int(answer["catalog_id"]) > 0 and answer["version"] >= 1


@pytest.mark.parametrize("spelling", ["payload", "workload", "input", "args"])
@pytest.mark.parametrize("named_by", ["path", "catalog_id"])
def test_a_run_is_started_by_path_or_catalog_id_with_any_word_for_its_payload(
    api: httpx.Client, spelling: str, named_by: str
):
    registered = api.post("/api/catalog/register", json={"content": DOCUMENT}).json()
    body = {named_by: registered[named_by], spelling: {"message": "Hi"}, "resource_kind": "playbook"}
    started = api.post("/api/execute", json=body).json()
    assert started["status"] == "started" and started["commands_generated"] >= 1
    run = Run(api, started["execution_id"])
    run.wait()
    assert run.result("test_step")["data"] == {"message": "Hi"}


def test_an_execution_shows_what_each_step_returned_in_its_events(api: httpx.Client):
    run = execute(api, register(api, DOCUMENT), {})
    shown = api.get(f"/api/executions/{run.id}").json()
    assert shown["status"] == "COMPLETED" and shown["workload"] == {"message": "Hello World"}
    ended = {e["node_name"]: e for e in shown["events"] if e["event_type"] == "command.completed"}
    assert list(ended) == ["start", "test_step", "end"]
    result = ended["test_step"]["result"]
    assert result["status"] == "COMPLETED" and result["reference"]["ref"].startswith("noetl://")
    assert result["context"]["status"] == "ok" and result["context"]["data"]["message"] == "Hello World"
    assert result["context"]["ctx"] and ended["end"]["result"]["context"] == {"status": "complete"}
    assert api.get(f"/api/result/{run.id}/test_step").json()["data"]["data"]["message"] == "Hello World"
    terminal = [e["event_type"] for e in shown["events"] if e["event_type"].startswith(("playbook.c", "playbook.f"))]
    assert terminal == ["playbook.completed"]


def test_a_failed_execution_shows_its_error_in_the_context_of_its_events(api: httpx.Client):
    run = failed(api, "- {step: start, tool: {kind: postgres, auth: pg_local, command: 'SELECT a, FROM b'}}")
    shown = api.get(f"/api/executions/{run.id}").json()
    errors = [
        e["result"]["context"]["error"]
        for e in shown["events"]
        if ((e["result"] or {}).get("context") or {}).get("error")
    ]
    assert errors and "42601" in json.dumps(errors[0]) and "syntax error" in errors[0]["message"]
    assert shown["status"] == "FAILED" and shown["error"]["step"] == "start"


def test_a_large_result_is_named_in_its_event_and_read_by_its_reference(api: httpx.Client):
    run = execute(
        api,
        register(api, document("- {step: start, tool: {kind: python, code: \"result = {'x': 'y' * 20000}\"}}")),
        {},
    )
    ended = next(e for e in run.events() if e["event_type"] == "command.completed")
    assert ended["context"] is None and ended["result"]["reference"]["bytes"] > 20000
    found = api.get("/api/result/resolve", params={"ref": ended["result"]["reference"]["ref"]}).json()
    assert len(found["x"]) == 20000


ODD_TOOLS = [
    {"kind": "shell", "cmds": ["echo {{ `x` }}", "docker ps --format '{{.Names}}'"]},
    {"kind": "agent", "framework": "noetl", "entrypoint": "a/b", "payload": {}},
    {"kind": "container", "image": "busybox", "command": ["sh"], "args": ["-c", "true"]},
    {"kind": "script", "script": {"uri": "gs://bucket/x.py", "source": {"type": "gcs"}}, "job": {"image": "python"}},
    {"kind": "subscription", "source": "kafka", "operation": "poll", "brokers": "b:9092"},
    {"kind": "snowflake", "auth": "sf_test", "commands": "SELECT 1; SELECT 2"},
    {"kind": "ducklake", "catalog_connection": "c", "commands": ["SELECT 1"]},
    [{"fetch": {"kind": "noop"}}],
]


@pytest.mark.parametrize("tool", ODD_TOOLS, ids=str)
def test_a_document_that_another_machine_runs_is_registered(api: httpx.Client, tool: object):
    steps = [
        {"step": "start", "tool": tool, "next": {"arcs": [{"step": "end", "cond": "exit_code == 100"}]}},
        {"step": "end"},
    ]
    text = document(json.dumps(steps), keychain=[{"name": "k", "kind": "google_id_token", "scope": "global"}])
    answer = api.post("/api/catalog/register", json={"content": text})
    assert answer.status_code == 200, answer.text
    assert any("cond" in warning["where"] for warning in answer.json()["warnings"])

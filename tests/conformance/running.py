"""What conformance tests share: playbooks registered, run and read back through the HTTP API."""

import itertools
import textwrap
import time
from typing import Any, NamedTuple

import httpx
import yaml

RUN_S_MAX = 60.0
_numbers = itertools.count(1)


class Run:
    """One finished execution, as the HTTP API shows it."""

    def __init__(self, api: httpx.Client, execution_id: str) -> None:
        self.api = api
        self.id = execution_id
        self.status: dict[str, Any] = {}

    def wait(self) -> None:
        """Return when the execution has ended."""
        deadline = time.monotonic() + RUN_S_MAX
        while time.monotonic() < deadline:
            self.status = self.api.get(f"/api/executions/{self.id}/status").json()
            if self.status["status"] in ("COMPLETED", "FAILED", "CANCELLED"):
                return
            time.sleep(0.02)
        raise AssertionError(f"still running: {self.status}")

    @property
    def message(self) -> str:
        """The message of the execution's error."""
        return str((self.status.get("error") or {}).get("message", ""))

    def events(self) -> list[dict[str, Any]]:
        """Return all events in their order."""
        found: list[dict[str, Any]] = []
        page = 1
        while True:
            answer = self.api.get(f"/api/executions/{self.id}/events", params={"page": page, "page_size": 500}).json()
            found += answer["events"]
            if not answer["pagination"]["has_next"]:
                return found
            page += 1

    def kinds(self, step: str) -> list[str]:
        """Return the types of a step's events."""
        return [e["event_type"] for e in self.events() if e["node_name"] == step]

    def entered(self) -> list[str]:
        """Return the steps that were entered, in order."""
        return [e["node_name"] for e in self.events() if e["event_type"] == "step.enter"]

    def results(self, step: str) -> list[Any]:
        """Return every result that a step stored, of a loop each item's."""
        chain = self.api.get(f"/api/executions/{self.id}/trace/{step}").json()["chain"]
        found = []
        for link in chain:
            if link.get("shape") != "loop" and not str(link["name"]).startswith("ctx."):
                found.append(self.api.get("/api/result/resolve", params={"ref": link["ref"]}).json())
        return found

    def result(self, step: str) -> Any:
        """Return the last result of a step; of a pipeline of one item that item's."""
        value = self.results(step)[-1]
        if isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value.values())), dict):
            return next(iter(value.values()))
        return value


def rows(api: httpx.Client, sql: str, **params: Any) -> list[dict[str, Any]]:
    """Return what a query with `%(name)s` finds in the database of the credentials, through a playbook of its own."""
    tool = {"kind": "postgres", "auth": "pg_local", "command": sql, **({"params": params} if params else {})}
    run = execute(api, register(api, document(yaml.safe_dump([{"step": "start", "tool": tool}]))), {})
    assert run.status["status"] == "COMPLETED", run.status
    return list(run.result("start")["rows"])


def register(api: httpx.Client, text: str) -> str:
    """Register a document; return its path."""
    answer = api.post("/api/catalog/register", json={"content": text})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["path"])


def execute(api: httpx.Client, path: str, payload: dict[str, Any]) -> Run:
    """Run a registered playbook to its end."""
    started = api.post("/api/execute", json={"path": path, "payload": payload})
    assert started.status_code == 200, started.text
    found = Run(api, str(started.json()["execution_id"]))
    found.wait()
    return found


def document(workflow: str, *, path: str = "", **root: Any) -> str:
    """Return a playbook of this workflow; `root` are further keys of the document."""
    name = path or f"language/{next(_numbers)}"
    fields = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": name}, **root}
    return yaml.safe_dump({**fields, "workflow": yaml.safe_load(textwrap.dedent(workflow))}, sort_keys=False)


def play(api: httpx.Client, workflow: str, *, payload: dict[str, Any] | None = None, **root: Any) -> Run:
    """Run a workflow to its end, whatever that is."""
    return execute(api, register(api, document(workflow, **root)), payload or {})


def completed(api: httpx.Client, workflow: str, *, payload: dict[str, Any] | None = None, **root: Any) -> Run:
    """Run a workflow that must complete."""
    run = play(api, workflow, payload=payload, **root)
    assert run.status["status"] == "COMPLETED", run.status
    return run


def failed(api: httpx.Client, workflow: str, *, payload: dict[str, Any] | None = None, **root: Any) -> Run:
    """Run a workflow that must fail."""
    run = play(api, workflow, payload=payload, **root)
    assert run.status["status"] == "FAILED", run.status
    return run


class Case(NamedTuple):
    """A playbook and what it must come to: `expected` is a part of the result of each step named."""

    name: str
    workflow: str
    expected: dict[str, Any]
    root: dict[str, Any] = {}
    payload: dict[str, Any] = {}
    status: str = "COMPLETED"
    says: str = ""


def check(api: httpx.Client, case: Case, **payload: Any) -> Run:
    """Run a case with `payload` besides its own; return the run when it came to what was expected."""
    run = play(api, case.workflow, payload={**payload, **case.payload}, **case.root)
    assert run.status["status"] == case.status, run.status["error"]
    assert case.says in str(run.status["error"])
    for step, expected in case.expected.items():
        found = run.result(step)
        if isinstance(found, dict) and all(isinstance(value, dict) for value in found.values()):
            # A pipeline's labels, and under them the fields that its step shows.
            found = {**found, **{key: value for task in found.values() for key, value in task.items()}}
        assert part_of(found, expected) == expected, (step, found)
    return run


def part_of(found: Any, expected: Any) -> Any:
    """Return of `found` only the keys that `expected` names, all the way down."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: part_of(found.get(key), value) for key, value in expected.items()}
    return found

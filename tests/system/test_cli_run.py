"""The `noetl` command on a machine where nothing runs: start, run, look, stop."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 120.0
HELLO = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: tests/hello}
workload: {count: 3, who: world}
workflow:
  - step: start
    tool:
      kind: python
      input: {count: "{{ workload.count }}", who: "{{ workload.who }}"}
      code: |
        result = {"items": list(range(count)), "greeting": "hello " + who}
    next:
      arcs: [{step: each}]
  - step: each
    loop: {in: "{{ start.items }}", iterator: item, spec: {mode: parallel, max_in_flight: 10}}
    tool: {kind: noop}
    next:
      arcs: [{step: keep}]
  - step: keep
    tool:
      kind: postgres
      auth: local_postgres
      command: |
        CREATE TABLE IF NOT EXISTS greeting (text text);
        INSERT INTO greeting VALUES ('{{ start.greeting }}');
        SELECT count(*) AS total FROM greeting;
"""
BROKEN = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: broken, path: tests/broken}
workflow:
  - step: start
    tool:
      kind: python
      code: |
        raise ValueError("no such luck")
"""
SLOW = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: slow, path: tests/slow}
workflow:
  - step: start
    tool:
      kind: python
      code: |
        import time
        time.sleep(100)
"""


class Machine:
    """A folder with a state directory, and the command run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / ".noetl"
        hidden = ("NOETL_", "DATABASE_URL", "NATS_URL")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.environ["NOETL_HOME"] = str(self.state)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def noetl(self, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "noetl_cli.main", *arguments]

    def json_of(self, *arguments: str) -> Any:
        return json.loads(self.noetl(*arguments, "-o", "json").stdout)

    def logs(self) -> str:
        files = sorted((self.state / "logs").glob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(encoding='utf-8')[-3000:]}" for file in files)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.noetl("down", "--purge")
    assert not made.state.exists(), "what the stack made is gone"


def test_run_starts_everything_runs_a_file_and_leaves_nothing_running(machine: Machine) -> None:
    hello = machine.write("hello.yaml", HELLO)
    done = machine.noetl("run", str(hello), "--set", "count=7", "--json")
    answer = json.loads(done.stdout)
    assert answer["status"] == "COMPLETED"
    steps = {step["step"]: step for step in answer["steps"]}
    assert list(steps) == ["start", "each", "keep"]
    items = steps["each"]["items"]
    assert items.pop("rate") > 0
    assert items == {"total": 7, "done": 7, "failed": 0, "in_flight": 0, "more": False}
    assert {step["status"] for step in answer["steps"]} == {"COMPLETED"}
    assert not (machine.state / "stack.json").exists()
    machine.noetl("status", code=4)
    begun = time.monotonic()
    table = machine.noetl("run", str(hello))
    assert time.monotonic() - begun < 30
    assert "COMPLETED" in table.stderr and "each" in table.stdout


def test_a_run_that_fails_says_why_and_exits_1(machine: Machine) -> None:
    broken = machine.write("broken.yaml", BROKEN)
    done = machine.noetl("run", str(broken), code=1)
    assert "no such luck" in done.stderr
    assert "FAILED" in done.stdout


def test_a_document_that_is_wrong_starts_nothing(machine: Machine) -> None:
    wrong = machine.write("wrong.yaml", HELLO.replace("{step: each}", "{step: eech}"))
    done = machine.noetl("run", str(wrong), code=1)
    assert f"{wrong}:" in done.stderr and "each" in done.stderr
    assert not machine.state.exists()


def test_up_keeps_a_stack_that_the_other_verbs_use_and_down_stops_it(machine: Machine) -> None:
    hello = machine.write("hello.yaml", HELLO)
    machine.noetl("up", "--detach", "--port", "0")
    machine.noetl("up", "--detach", "--port", "0", code=1)
    answer = machine.json_of("run", str(hello))
    execution_id = answer["execution_id"]
    assert machine.json_of("status", execution_id)["status"] == "COMPLETED"
    assert [run["execution_id"] for run in machine.json_of("list")] == [execution_id]
    kinds = [event["event_type"] for event in machine.json_of("events", execution_id)]
    assert "loop.done" in kinds and "playbook.completed" in kinds
    assert machine.json_of("trace", execution_id, "keep")["chain"]
    assert machine.json_of("run", "tests/hello", "--set", "count=2")["status"] == "COMPLETED"
    assert "COMPLETED" in machine.noetl("list").stdout
    assert "step.enter" in machine.noetl("events", execution_id).stdout
    machine.noetl("trace", execution_id, "keep")
    machine.noetl("status", "1", code=1)
    started = machine.json_of("exec", "tests/hello", "--set", "count=1", "--priority", "5", "--key", "once")
    starts = machine.write("starts.jsonl", '{"path": "tests/hello"}\n{"path": "tests/nowhere"}\n')
    first = json.loads(machine.noetl("exec", "--batch", str(starts), "--key", "b", "-o", "json", code=1).stdout)
    again = json.loads(machine.noetl("exec", "--batch", str(starts), "--key", "b", "-o", "json", code=1).stdout)
    assert [one["status"] for one in first + again] == ["started", "failed", "duplicate", "failed"]
    assert first[0]["execution_id"] == again[0]["execution_id"] != started["execution_id"]
    findings = {check["check"]: check["status"] for check in machine.json_of("doctor")}
    assert "missing" not in findings.values()
    assert findings["migrations"] == findings["partitions"] == findings["nats"] == "ok"
    machine.noetl("credential", "set", "mine", "--type", "bearer", "--data", "token=abcdefgh")
    assert {item["name"] for item in machine.json_of("credential", "list")} == {"local_postgres", "mine"}
    assert "abcdefgh" not in machine.noetl("credential", "list", "-o", "json").stdout
    machine.noetl("credential", "delete", "mine")
    running = machine.json_of("status")
    machine.noetl("down")
    assert not any(is_alive(role["pid"]) for role in running["roles"])
    machine.noetl("list", code=4)


def test_a_role_that_dies_is_started_again_and_the_run_goes_on(machine: Machine) -> None:
    hello = machine.write("hello.yaml", HELLO)
    machine.noetl("up", "--detach", "--processes", "1", "--port", "0")
    before = {role["role"]: role["pid"] for role in machine.json_of("status")["roles"]}
    assert set(before) == {"meta", "compute", "ingest", "worker"}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + TIMEOUT_S
    while set(before.values()) & {role["pid"] for role in machine.json_of("status")["roles"]}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert wait_for_run(machine, hello)["status"] == "COMPLETED"


def test_postgres_and_nats_that_die_are_started_again_at_their_ports(machine: Machine) -> None:
    hello = machine.write("hello.yaml", HELLO)
    machine.noetl("up", "--detach", "--port", "0")
    up_pid = machine.json_of("status")["pid"]
    before = children_of(up_pid)
    servers = {pid for pid, name in before.items() if name in ("postgres", "nats-server")}
    assert len(servers) == 2
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        now = {pid for pid, name in children_of(up_pid).items() if name in ("postgres", "nats-server")}
        if len(now - servers) == 2:
            break
        assert time.monotonic() < deadline, machine.logs()
        time.sleep(0.05)
    assert wait_for_run(machine, hello)["status"] == "COMPLETED"


def test_ctrl_c_cancels_the_run_and_stops_what_it_started(machine: Machine) -> None:
    slow = machine.write("slow.yaml", SLOW)
    process = subprocess.Popen(
        machine.command("run", str(slow)),
        cwd=machine.folder,
        env=machine.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("start"):
            if line.startswith("starting"):
                continue
            break
    process.send_signal(signal.SIGINT)
    _out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1, errors
    assert "CANCELLED" in errors
    assert machine.noetl("status", code=4)


def test_a_taken_port_is_named(machine: Machine) -> None:
    import socket

    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        done = machine.noetl("up", "--port", str(port), code=4)
    assert f"port {port}" in done.stderr


def wait_for_run(machine: Machine, file: Path) -> Any:
    """Run the file; just after a restart the API may need a moment to take requests."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        done = subprocess.run(
            machine.command("run", str(file), "-o", "json"),
            cwd=machine.folder,
            env=machine.environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert done.returncode == 4 and time.monotonic() < deadline, f"{done.stderr}\n{machine.logs()}"
        time.sleep(0.2)


def children_of(parent_pid: int) -> dict[int, str]:
    """Return {pid: program} of the living children of a process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, rest = text.split("(", 1)[1].rsplit(")", 1)
        state, parent = rest.split()[:2]
        if int(parent) == parent_pid and state != "Z":
            found[int(folder.name)] = name
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

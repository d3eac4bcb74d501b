"""Playbooks of the public NoETL project, run through the HTTP API, and what each must come to.

They are not part of this repository: NOETL_CONFORMANCE_DIR names the folder that holds them under `playbooks/`.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_cli.embedded.stack import Plan, Stack
from noetl_cli.state_dir import StateDir

FOLDER = os.environ.get("NOETL_CONFORMANCE_DIR", "")
pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="NOETL_CONFORMANCE_DIR is not set"),
    pytest.mark.xdist_group("conformance"),
]

ALIASES = ("pg_local", "pg_k8s", "pg_noetl_k8s", "pg_auth", "pg_test", "test_postgres")


class Run:
    """One finished execution, as the HTTP API shows it."""

    def __init__(self, api: httpx.Client, execution_id: str) -> None:
        self.api = api
        self.id = execution_id
        self.status: dict[str, Any] = {}

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self.status = self.api.get(f"/api/executions/{self.id}/status").json()
            if self.status["status"] in ("COMPLETED", "FAILED", "CANCELLED"):
                return
            time.sleep(0.05)
        raise AssertionError(f"still running: {self.status}")

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        page = 1
        while True:
            answer = self.api.get(f"/api/executions/{self.id}/events", params={"page": page, "page_size": 500}).json()
            found += answer["events"]
            if not answer["pagination"]["has_next"]:
                return found
            page += 1

    def kinds(self, step: str) -> list[str]:
        return [e["event_type"] for e in self.events() if e["node_name"] == step]

    def entered(self) -> list[str]:
        return [e["node_name"] for e in self.events() if e["event_type"] == "step.enter"]

    def results(self, step: str) -> list[Any]:
        chain = self.api.get(f"/api/executions/{self.id}/trace/{step}").json()["chain"]
        found = []
        for link in chain:
            if link.get("shape") != "loop" and not str(link["name"]).startswith("ctx."):
                found.append(self.api.get("/api/result/resolve", params={"ref": link["ref"]}).json())
        return found

    def result(self, step: str) -> Any:
        value = self.results(step)[-1]
        if isinstance(value, dict) and len(value) == 1 and isinstance(next(iter(value.values())), dict):
            return next(iter(value.values()))
        return value


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    stack = Stack(StateDir(tmp_path_factory.mktemp("conformance")), Plan(owner="test"))
    try:
        running = stack.start()
        url = httpx.URL(running.database_url.replace("postgresql://", "http://"))
        user, _, password = url.userinfo.decode().partition(":")
        data = {"db_host": url.host, "db_port": url.port, "db_user": user, "db_password": password}
        with httpx.Client(base_url=running.api_url, timeout=30) as client:
            for alias in ALIASES:
                body = {"name": alias, "type": "postgres", "data": {**data, "db_name": url.path.strip("/")}}
                assert client.post("/api/credentials", json=body).status_code == 200
            yield client
    finally:
        stack.stop()


def run(api: httpx.Client, file: str, **payload: Any) -> Run:
    text = (Path(FOLDER) / "playbooks" / f"{file}.yaml").read_text(encoding="utf-8")
    answer = api.post("/api/catalog/register", json={"content": text})
    assert answer.status_code == 200, answer.text
    started = api.post("/api/execute", json={"path": answer.json()["path"], "payload": payload})
    assert started.status_code == 200, started.text
    found = Run(api, str(started.json()["execution_id"]))
    found.wait()
    return found


def _simple(run: Run) -> None:
    assert run.result("start")["message"] == "Hello from NoETL"


def _hello(run: Run) -> None:
    assert run.results("test_step")[-1]["data"]["message"] == "Hello World"
    assert run.entered() == ["start", "test_step", "end"]


def _start_with_action(run: Run) -> None:
    assert run.result("process")["data"]["from_start"] is True


def _args(run: Run) -> None:
    assert run.result("use_vars")["result"] == 300


def _loop_in_order(run: Run) -> None:
    assert [r["doubled"] for r in run.results("loop_test")] == [20, 40, 60]


def _loop(run: Run) -> None:
    verified = run.result("verify")
    assert (verified["status"], verified["original_sum"], verified["doubled_sum"]) == ("passed", 15, 30)
    assert run.result("end")["test_passed"] is True


def _hot(run: Run) -> None:
    entered = run.entered()
    assert "hot_task_a" in entered and "hot_task_b" in entered and "cold_task" not in entered
    assert entered.count("end") == 1


def _fanout(run: Run) -> None:
    events = run.events()
    order = [(e["event_type"], e["node_name"]) for e in events]
    assert order.count(("step.enter", "reduce_customer")) == 1
    entered = order.index(("step.enter", "reduce_customer"))
    assert all(order.index(("command.completed", s)) < entered for s in ("normalize_customer", "enrich_customer"))


def _comprehensive(run: Run) -> None:
    taken = {"process_high", "process_low"} & set(run.entered())
    assert len(taken) == 1
    assert run.result("summarize")["processing_path"] == taken.pop().removeprefix("process_")


def _heavy(run: Run) -> None:
    assert run.result("validate_results")["all_checks_passed"] is True
    assert run.result("aggregate_results")["summary"]["total_processed"] == 100


def _scorer(run: Run) -> None:
    assert {"profile_score", "score_category"} <= set(run.result("finalize_result"))


def _composition(run: Run) -> None:
    assert run.kinds("process_users").count("child.started") == 4
    assert run.result("validate_results")["all_valid"] is True


def _broken(run: Run) -> None:
    assert "42601" in str(run.status["error"])
    assert "end" not in run.entered()


def _nothing(run: Run) -> None:
    return None


CASES: list[tuple[str, str, Callable[[Run], None], int]] = [
    ("simple_python", "COMPLETED", _simple, 1),
    ("hello_world/hello_world", "COMPLETED", _hello, 1),
    ("test_start_with_action", "COMPLETED", _start_with_action, 1),
    ("test_args_passing", "COMPLETED", _args, 1),
    ("root_scripts/test_simple_loop", "COMPLETED", _loop_in_order, 1),
    ("loop_test", "COMPLETED", _loop, 1),
    ("control_flow_workbook/control_flow_workbook", "COMPLETED", _hot, 1),
    ("fanout_reduce/fanout_reduce_phase6", "COMPLETED", _fanout, 1),
    ("comprehensive_test", "COMPLETED", _comprehensive, 10),
    ("load_test/heavy_loop_aggregation/heavy_loop_aggregation", "COMPLETED", _heavy, 1),
    ("playbook_composition/user_profile_scorer", "COMPLETED", _scorer, 1),
    ("playbook_composition/playbook_composition", "COMPLETED", _composition, 1),
    ("postgres_test", "COMPLETED", _nothing, 1),
    ("broken_sql", "FAILED", _broken, 1),
    ("iterator_save_test/iterator_save_test", "COMPLETED", _nothing, 1),
    ("root_scripts/test_implicit_end_routing", "COMPLETED", _nothing, 1),
    ("root_scripts/test_keychain", "COMPLETED", _nothing, 1),
    ("vars_test/test_vars_simple", "COMPLETED", _nothing, 1),
    ("vars_test/test_vars_block", "COMPLETED", _nothing, 1),
    ("actions_test", "COMPLETED", _nothing, 1),
    ("test_large_result_extraction", "COMPLETED", _nothing, 1),
    ("save_storage_test/create_tables", "COMPLETED", _nothing, 1),
    ("save_storage_test/save_simple_test", "COMPLETED", _nothing, 1),
]


@pytest.mark.parametrize(("file", "status", "check", "times"), CASES, ids=[case[0] for case in CASES])
def test_a_public_playbook_comes_to_its_end(
    api: httpx.Client, file: str, status: str, check: Callable[[Run], None], times: int
):
    for _ in range(times):
        finished = run(api, file)
        assert finished.status["status"] == status, finished.status
        check(finished)


def test_a_cold_day_takes_the_other_branch(api: httpx.Client):
    finished = run(api, "control_flow_workbook/control_flow_workbook", temperature_c=10)
    entered = finished.entered()
    assert "cold_task" in entered and not {"hot_task_a", "hot_task_b"} & set(entered)

"""Playbooks of the public NoETL project, run through the HTTP API, and what each must come to.

They are not part of this repository: NOETL_CONFORMANCE_DIR names the folder that holds them under `playbooks/`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.running import Run, execute, register, rows
from tests.conformance.stub_api import StubApi

FOLDER = os.environ.get("NOETL_CONFORMANCE_DIR", "")
pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="NOETL_CONFORMANCE_DIR is not set"),
]


def run(api: httpx.Client, file: str, **payload: Any) -> Run:
    text = (Path(FOLDER) / "playbooks" / f"{file}.yaml").read_text(encoding="utf-8")
    return execute(api, register(api, text), payload)


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


def _vars_simple(run: Run) -> None:
    assert run.result("get_var")["verification"] is True


def _vars_block(run: Run) -> None:
    assert run.result("verify_vars")["status"] == "success"


def _large(run: Run) -> None:
    assert run.result("check_extraction")["test_passed"] is True


def _helper(run: Run) -> None:
    assert run.result("helper")["helper_called"] is True


def _offset(run: Run) -> None:
    verified = run.result("validate_results")
    assert verified["status"] == "success" and run.entered().count("fetch_page") == 4


def _overlap(run: Run) -> None:
    assert run.result("validate_results")["max_active"] >= 2


def _retried(run: Run) -> None:
    asked = [step for step in run.entered() if step.endswith("_retry")]
    assert asked == ["boolean_retry", "integer_retry", "full_config_retry"]
    for step in asked:
        page = run.result(step)["body"]
        assert len(page["data"]) == 10 and page["paging"]["total"] == 35


def _retried_status(run: Run) -> None:
    assert run.result("start")["status_code"] == 200


def _posts(run: Run) -> None:
    assert len(run.result("show_sample")["rows"]) == 3


def _pages(run: Run) -> None:
    verified = run.result("verify_pages")["rows"][0]
    assert verified["status"] == "passed" and verified["complete_pairs"] == 40
    assert verified["records_fetched"] > 40 and run.entered() == ["start", "fetch_pages", "verify_pages", "end"]


def _canonical(run: Run) -> None:
    assert run.entered() == ["start", "fetch_data", "process_data", "store_results", "end"]
    assert run.kinds("store_results").count("command.issued") == 2
    assert run.result("end")["context"] == {"fetch_completed": True, "transform_done": True}


def _kv(run: Run) -> None:
    found = run.result("kv_get")
    assert found["status"] == "success" and found["value"]["email"] == "test@example.com"
    assert run.result("kv_put")["revision"] >= 1 and run.result("kv_delete")["status"] == "success"


def _selected(run: Run) -> None:
    summary = run.result("summary")
    assert summary["test_result"] == "PASSED" and summary["full_data_items_processed"] == 1000


def _duckdb(run: Run) -> None:
    assert [row["name"] for row in run.result("start")["rows"]] == ["Alice", "Charlie"]


def _implicit_end(run: Run) -> None:
    assert run.result("step1")["status"] == "step1_complete"


def _counted_catalog(run: Run) -> None:
    assert any(row["count"] >= 1 for row in run.result("start")["rows"])


def _three_rows(run: Run) -> None:
    sql = "SELECT item_name FROM public.iterator_save_test WHERE execution_id = %(id)s ORDER BY item_name"
    assert [row["item_name"] for row in rows(run.api, sql, id=run.id)] == ["item1", "item2", "item3"]


def _tables(run: Run) -> None:
    for name in ("simple_test_flat", "simple_test_nested", "test_summary"):
        assert rows(run.api, "SELECT to_regclass(%(name)s)::text AS found", name=name)[0]["found"] == name


def _saved(run: Run) -> None:
    order = [(e["event_type"], e["node_name"]) for e in run.events()]
    assert order.index(("child.ended", "create_tables")) < order.index(("step.enter", "truncate_tables"))
    sql = """
        SELECT test_id FROM simple_test_flat WHERE test_execution = %(id)s
        UNION ALL SELECT test_id FROM simple_test_nested WHERE test_execution = %(id)s ORDER BY 1
    """
    assert [row["test_id"] for row in rows(run.api, sql, id=run.id)] == ["100", "200"]


def _tiers(run: Run) -> None:
    summary = run.result("final_summary")
    assert summary["test_result"] == "PASSED", summary
    assert summary["load_details"]["large_count"] == 5000


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
    ("postgres_test", "COMPLETED", _counted_catalog, 1),
    ("broken_sql", "FAILED", _broken, 1),
    ("iterator_save_test/iterator_save_test", "COMPLETED", _three_rows, 1),
    ("root_scripts/test_implicit_end_routing", "COMPLETED", _implicit_end, 1),
    ("vars_test/test_vars_simple", "COMPLETED", _vars_simple, 1),
    ("vars_test/test_vars_block", "COMPLETED", _vars_block, 1),
    ("actions_test", "COMPLETED", _helper, 1),
    ("test_large_result_extraction", "COMPLETED", _large, 1),
    ("duckdb_test", "COMPLETED", _duckdb, 1),
    ("test_nats_kv", "COMPLETED", _kv, 1),
    ("test_output_select", "COMPLETED", _selected, 1),
    ("save_storage_test/create_tables", "COMPLETED", _tables, 1),
    ("save_storage_test/save_simple_test", "COMPLETED", _saved, 1),
    ("test_storage_tiers", "COMPLETED", _tiers, 1),
]


@pytest.mark.parametrize(("file", "status", "check", "times"), CASES, ids=[case[0] for case in CASES])
def test_a_public_playbook_comes_to_its_end(
    api: httpx.Client, file: str, status: str, check: Callable[[Run], None], times: int
):
    for _ in range(times):
        finished = run(api, file)
        assert finished.status["status"] == status, finished.status["error"]
        check(finished)


def test_a_cold_day_takes_the_other_branch(api: httpx.Client):
    finished = run(api, "control_flow_workbook/control_flow_workbook", temperature_c=10)
    entered = finished.entered()
    assert "cold_task" in entered and not {"hot_task_a", "hot_task_b"} & set(entered)


def test_a_keychain_that_no_step_reads_asks_nobody_for_anything(api: httpx.Client, stub: StubApi):
    text = (Path(FOLDER) / "playbooks" / "root_scripts/test_keychain.yaml").read_text(encoding="utf-8")
    asked_before = list(stub.requests)
    moved = text.replace("https://test.api.amadeus.com", stub.url)
    finished = execute(api, register(api, moved), {})
    assert finished.status["status"] == "COMPLETED", finished.status["error"]
    assert stub.url in moved and stub.requests == asked_before
    told = [event for event in finished.events() if event["event_type"].startswith(("command.", "step."))]
    assert told and "default-secret" not in str(told) and "sk-default-key" not in str(told)


STUB_CASES: list[tuple[str, dict[str, Any], Callable[[Run], None]]] = [
    ("pagination/offset/test_pagination_offset", {"api_url": ""}, _offset),
    ("pagination/basic/test_pagination_basic", {"api_url": "", "slow_delay_seconds": 1.5}, _overlap),
    ("retry_test/retry_simple_config", {"api_url": ""}, _retried),
    ("retry_test/http_retry_status_code", {"test_url": "/get"}, _retried_status),
    ("data_transfer/http_to_postgres_simple/http_to_postgres_simple", {"api_url": "/posts"}, _posts),
    ("pft_flow_test/test_pft_page_continuation", {"api_url": ""}, _pages),
    ("v10_canonical_example", {"api_url": ""}, _canonical),
]


@pytest.mark.parametrize(("file", "payload", "check"), STUB_CASES, ids=[case[0] for case in STUB_CASES])
def test_a_public_playbook_that_calls_an_api_completes(
    api: httpx.Client, stub: StubApi, file: str, payload: dict[str, Any], check: Callable[[Run], None]
):
    given = {name: stub.url + value if isinstance(value, str) else value for name, value in payload.items()}
    httpx.post(f"{stub.url}/api/v1/flaky/reset")
    finished = run(api, file, **given)
    assert finished.status["status"] == "COMPLETED", finished.status["error"]
    check(finished)

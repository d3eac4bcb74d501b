"""A dry run: the workload as it would be, steps in the order of reach, what is needed; and nothing is started."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from noetl_cli import main
from noetl_cli.graph.model import graph_of
from noetl_cli.plan import plain_plan, plan_of
from noetl_common.core.parse import parse

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: tests/demo}\n"
TEXT = (
    HEAD
    + """\
workload:
  pages: 3
  alias: pg_{{ region }}
  region: eu
  stamp: "{{ now() }}"
keychain: [{name: api, kind: credential, credential: api_key}]
executor: {spec: {final_step: report}}
workflow:
- {step: report, tool: {kind: noop}}
- step: start
  tool: {kind: postgres, auth: "{{ alias }}", command: SELECT 1}
  next: {spec: {mode: inclusive}, arcs: [{step: pages, when: "{{ start.ok }}"}, {step: child}]}
- step: pages
  loop: {in: "{{ range(pages) | list }}", iterator: page, spec: {mode: parallel, max_in_flight: "{{ pages }}"}}
  tool:
  - {name: get, kind: http, url: "http://example.org", auth: "{{ keychain.api }}"}
  - {name: keep, kind: python, code: result = 1, spec: {policy: {rules: [{else: {do: continue}}]}}}
- {step: forgotten, tool: {kind: noop}}
- {step: child, tool: {kind: playbook, path: "tests/{{ region }}"}}
"""
)


def plan(**given: Any) -> dict[str, Any]:
    return plain_plan(plan_of(TEXT, given))


def test_the_workload_is_what_a_run_would_start_from() -> None:
    assert plan()["workload"] == {"pages": 3, "alias": "pg_eu", "region": "eu", "stamp": "{{ now() }}"}
    assert plan(region="us", more=1)["workload"]["alias"] == "pg_us"
    assert plan(more=1)["workload"]["more"] == 1


def test_steps_come_in_the_order_a_run_can_reach_them() -> None:
    steps = plan()["steps"]
    assert [step["step"] for step in steps] == ["start", "pages", "child", "report", "forgotten"]
    assert [step["step"] for step in steps if not step["reached"]] == ["forgotten"]


def test_a_loop_is_counted_when_the_workload_says_how_long_it_is() -> None:
    [loop] = [step["loop"] for step in plan(pages=7)["steps"] if step["loop"]]
    assert loop["mode"] == "parallel" and loop["items"] == loop["max_in_flight"] == 7


def test_what_a_run_needs_is_named() -> None:
    found = plan()
    assert found["credentials"] == ["api_key", "pg_eu", "{{ keychain.api }}"]
    assert found["keychain"] == ["api"]
    assert found["playbooks"] == ["tests/eu"]
    assert any("'forgotten' is never reached" in warning["message"] for warning in found["warnings"])


def test_tools_come_with_their_labels_and_the_verbs_of_their_rules() -> None:
    [pages] = [step for step in plan()["steps"] if step["step"] == "pages"]
    assert [tool["kind"] for tool in pages["tools"]] == ["http", "python"]
    assert pages["tools"][1] == {"label": "keep", "kind": "python", "rules": ["continue"]}


def test_the_command_shows_the_plan_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "demo.yaml"
    file.write_text(TEXT, encoding="utf-8")
    shown = CliRunner().invoke(main.app, ["run", "--dry-run", str(file), "--set", "pages=2", "-o", "json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["workload"]["pages"] == 2
    table = CliRunner().invoke(main.app, ["run", "--dry-run", str(file)])
    assert "http → python  3 items, parallel 3" in table.stdout and "pages if start.ok, child" in table.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["demo.yaml"]


def test_a_dry_run_needs_a_file_that_is_valid(tmp_path: Path) -> None:
    assert CliRunner().invoke(main.app, ["run", "--dry-run", "some/path"]).exit_code != 0
    file = tmp_path / "demo.yaml"
    file.write_text(HEAD + "workflow: []\n", encoding="utf-8")
    assert CliRunner().invoke(main.app, ["run", "--dry-run", str(file)]).exit_code != 0


def test_the_plan_tells_of_cursors_fan_outs_and_chunks() -> None:
    text = HEAD + (
        "workflow:\n- step: start\n  tool: {kind: python, code: x}\n"
        "  loop: {iterator: row, cursor: {auth: pg, claim: select 1}, spec: {max_in_flight: 2, frame: {max_rows: 5}}}\n"
        "  next: {arcs: [{step: takes, on: call.partial}, {step: shards}]}\n"
        "- step: takes\n  tool: {kind: noop}\n"
        "- step: shards\n  tool: {kind: noop}\n"
        "  loop: {in: [1, 2], iterator: n, spec: {mode: fanout, max_failures: 1, fanout: {max_shard_retries: 4}}}\n"
    )
    found = plan_of(text, {})
    start, takes, shards = found["steps"]
    assert start["loop_text"] == "each row in what is claimed, cursor 2" and takes["loop"] is None
    assert start["loop"]["claim"] == "select 1" and start["loop"]["frame"]["max_rows"] == 5
    assert [arc["text"] for arc in start["arcs"]] == ["takes for each chunk", "shards"]
    assert shards["loop_text"] == "2 items, fanout"
    assert (shards["loop"]["max_failures"], shards["loop"]["max_shard_retries"]) == (1, 4)
    assert found["credentials"] == ["pg"]
    graph = graph_of(parse(text)[0])
    assert [edge.label for edge in graph.edges] == ["each chunk", ""]
    assert graph.nodes[0].lines == ("python", "each row, cursor 2")

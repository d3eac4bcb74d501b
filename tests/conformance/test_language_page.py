"""The page of the language keeps its word: each whole playbook on it runs and ends as its first line says."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl_common.core.lint import lint
from noetl_common.core.parse import parse
from noetl_common.core.parse_tool import RUNNABLE
from tests.conformance.running import execute, register
from tests.conformance.stub_api import StubApi

PAGE = (Path(__file__).parents[2] / "docs/LANGUAGE.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```yaml\n(# Ends (COMPLETED|FAILED) with ([^\n]*)\napiVersion.*?)```", re.DOTALL)
SHOWN = {parse(text)[0].path: (text, status, ending) for text, status, ending in BLOCK.findall(PAGE)}


def test_every_whole_playbook_of_the_page_says_how_it_ends() -> None:
    assert len(SHOWN) == PAGE.count("apiVersion: noetl.io/v2\nkind: Playbook") >= 18


@pytest.mark.parametrize("path", SHOWN)
def test_a_playbook_of_the_page_has_nothing_to_remark_on(path: str) -> None:
    playbook, warnings = parse(SHOWN[path][0])
    assert [*warnings, *lint(SHOWN[path][0], playbook)] == []


@pytest.mark.parametrize("path", SHOWN)
def test_a_playbook_of_the_page_ends_as_it_says(api: httpx.Client, stub: StubApi, path: str) -> None:
    text, status, ending = SHOWN[path]
    for task in (task for step in parse(text)[0].steps.values() for task in step.tasks if task.kind == "playbook"):
        register(api, SHOWN[task.config["path"]][0])
    payload: dict[str, Any] = {"api_url": stub.url} if "api_url" in parse(text)[0].workload else {}
    run = execute(api, register(api, text), payload)
    assert run.status["status"] == status, run.status
    if status == "FAILED":
        assert ending in run.message
        return
    reference = api.get(f"/api/executions/{run.id}").json()["result"]
    assert api.get("/api/result/resolve", params={"ref": reference["ref"]}).json() == json.loads(ending)


def test_the_page_names_the_tools_that_run() -> None:
    named = {kind for line in re.findall(r"^\*\*.*", PAGE, re.MULTILINE) for kind in re.findall(r"\*\*(\w+)\*\*", line)}
    assert {"python", "http", "postgres", "playbook", "mcp"} <= named
    assert named - {"workbook"} <= RUNNABLE, "the page describes a tool that does not run"

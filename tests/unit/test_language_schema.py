"""The JSON Schema of the language: what the parser takes is valid, what it refuses or remarks on is not."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from noetl_cli.language_schema import PATH, schema
from noetl_common.core import parse_step, parse_tool
from noetl_common.core.parse import parse
from noetl_common.core.yaml_source import read
from tests.unit.test_parse import WHOLE

ROOT = Path(__file__).parents[2]
VALIDATOR = Draft202012Validator(schema())
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: tests/demo}\n"
PAGES = ("README.md", "docs/LANGUAGE.md")
NOOP = "tool: {kind: noop}"


def documents() -> dict[str, str]:
    """Return the examples, and every whole playbook that a page shows."""
    found = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "examples").rglob("*.yaml")}
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8") if (ROOT / page).exists() else ""
        for number, block in enumerate(re.findall(r"```yaml\n((?:#[^\n]*\n)?apiVersion.*?)```", text, re.DOTALL)):
            found[f"{page} {number}"] = block
    return found


def mistakes(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(read(text).value)]


VALID = {
    "next as a name": f"workflow: [{{step: start, {NOOP}, next: b}}, {{step: b, {NOOP}}}]",
    "next as names": f"workflow: [{{step: start, {NOOP}, next: [b, b]}}, {{step: b, {NOOP}}}]",
    "a step named by name": f"workflow: [{{name: start, {NOOP}}}]",
    "items by label": "workflow: [{step: start, tool: [{get: {kind: http, url: x}}, {name: b, kind: noop}]}]",
    "a boolean condition": f"workflow: [{{step: start, {NOOP}, next: {{arcs: [{{step: start, when: false}}]}}}}]",
    "three shapes of else": "workflow: [{step: start, tool: {kind: noop, spec: {policy: {rules: ["
    "{else: {then: {do: continue}}}, {else: {do: fail}}, {else: null, then: {do: break}}]}}}}]",
    "fields under spec": "workflow: [{step: start, tool: {kind: http, spec: {url: x, policy: {rules: []}}}}]",
    "admission": "workflow: [{step: start, tool: {kind: noop}, spec: {policy: {admit: {rules: ["
    "{else: {then: {allow: true}}}]}}}}]",
    "nothing in optional places": f"workload: null\nkeychain: null\nworkflow: [{{step: a, {NOOP}, next: null}}]",
    "a loop with a template as limit": "workflow: [{step: start, loop: {in: 3, iterator: x, spec: {mode: parallel,"
    f" max_in_flight: '{{{{ n }}}}'}}}}, {NOOP}}}]",
}
BROKEN = {
    "no steps": "workflow: []",
    "a step without a name": f"workflow: [{{{NOOP}}}]",
    "an unknown key of the root": f"workflows: []\nworkflow: [{{step: start, {NOOP}}}]",
    "an unknown key of a step": f"workflow: [{{step: start, {NOOP}, nxt: b}}]",
    "an unknown kind": "workflow: [{step: start, tool: {kind: pyhton}}]",
    "a tool without a kind": "workflow: [{step: start, tool: {code: x}}]",
    "a key that another kind has": "workflow: [{step: start, tool: {kind: http, code: x}}]",
    "an empty pipeline": "workflow: [{step: start, tool: []}]",
    "an unknown verb": "workflow: [{step: start, tool: {kind: noop, spec: {policy: {rules: [{then: {do: stop}}]}}}}]",
    "a jump to nowhere": "workflow: [{step: start, tool: {kind: noop, spec: {policy: {rules: [{then: {do: jump}}]}}}}]",
    "an unknown backoff": "workflow: [{step: start, tool: {kind: noop, spec: {policy: {rules: [{then: {do: retry,"
    " backoff: cubic}}]}}}}]",
    "a loop without an iterator": f"workflow: [{{step: start, loop: {{in: 3}}, {NOOP}}}]",
    "an iterator that is no name": f"workflow: [{{step: start, loop: {{in: 3, iterator: a b}}, {NOOP}}}]",
    "an unknown mode of a loop": f"workflow: [{{step: start, loop: {{in: 3, iterator: a, mode: both}}, {NOOP}}}]",
    "no place for an item": f"workflow: [{{step: start, loop: {{in: 3, iterator: a, max_in_flight: 0}}, {NOOP}}}]",
    "an unknown mode of next": f"workflow: [{{step: start, {NOOP}, next: {{spec: {{mode: all}}, arcs: []}}}}]",
    "an arc to nowhere": f"workflow: [{{step: start, {NOOP}, next: {{arcs: [{{when: x}}]}}}}]",
    "an arc with an old word": f"workflow: [{{step: start, {NOOP}, next: {{arcs: [{{step: start, cond: x}}]}}}}]",
    "a condition that is a list": f"workflow: [{{step: start, {NOOP}, next: {{arcs: [{{step: start, when: [1]}}]}}}}]",
    "a workload that is a list": f"workload: [1]\nworkflow: [{{step: start, {NOOP}}}]",
    "an entry of the keychain without a name": f"keychain: [{{kind: static}}]\nworkflow: [{{step: start, {NOOP}}}]",
    "an action without a tool": f"workbook: [{{name: a}}]\nworkflow: [{{step: start, {NOOP}}}]",
    "a timeout below nothing": f"executor: {{spec: {{timeout_s: -1}}}}\nworkflow: [{{step: start, {NOOP}}}]",
    "an unknown key of the executor": f"executor: {{spec: {{entry: start}}}}\nworkflow: [{{step: start, {NOOP}}}]",
}


def test_the_schema_is_one_and_stands_in_the_documents() -> None:
    Draft202012Validator.check_schema(schema())
    assert json.loads((ROOT / PATH).read_text(encoding="utf-8")) == json.loads(json.dumps(schema()))


@pytest.mark.parametrize("name", documents())
def test_a_playbook_that_is_shown_is_valid(name: str) -> None:
    assert mistakes(documents()[name]) == []


@pytest.mark.parametrize("name", VALID)
def test_what_the_parser_takes_is_valid(name: str) -> None:
    parse(HEAD + VALID[name])
    assert mistakes(HEAD + VALID[name]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_the_parser_refuses_or_remarks_on_is_not_valid(name: str) -> None:
    assert mistakes(HEAD + BROKEN[name])


def test_a_whole_document_is_valid_and_a_damaged_head_is_not() -> None:
    assert mistakes(WHOLE) == []
    for damaged in ("noetl.io/v1", "Playbooks", "{path: x}"):
        text = {"noetl.io/v1": "noetl.io/v2", "Playbooks": "Playbook", "{path: x}": "{name: demo, path: tests/demo}"}
        assert mistakes(WHOLE.replace(text[damaged], damaged, 1))


def test_the_schema_has_every_key_that_the_parser_reads() -> None:
    definitions: dict[str, Any] = schema()["$defs"]
    assert set(definitions["step"]["properties"]) == parse_step.STEP_KEYS
    assert set(definitions["then"]["properties"]) == parse_tool.THEN_KEYS
    kinds = set(definitions["tool"]["properties"]["kind"]["enum"])
    assert kinds >= parse_tool.RUNNABLE and "workbook" in kinds

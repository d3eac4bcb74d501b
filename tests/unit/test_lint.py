"""Lint: what a document may say and rarely means is told with its place, and nothing else is."""

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from noetl_cli import main
from noetl_common.core.lint import lint
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Finding
from noetl_common.errors import PlaybookError
from tests.unit.test_parse import WHOLE

ROOT = Path(__file__).parents[2]
HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo, path: tests/demo}
workload: {limit: 2, items: [1]}
"""
LIMIT_READ = "input: {limit: '{{ limit }}', items: '{{ items }}'}"


def findings(body: str) -> list[Finding]:
    text = HEAD + dedent(body)
    return lint(text, parse(text)[0])


def said(body: str) -> list[str]:
    return [finding.message for finding in findings(body) if not finding.message.startswith("nothing reads")]


ODD = {
    "a name of nobody": (
        "workflow: [{step: start, tool: {kind: noop, result: '{{ limt }}'}}]",
        "'limt' is no step, workload key, variable, input or label",
        "did you mean 'limit'?",
        "step 'start', tool.result",
    ),
    "a key of the workload": (
        "workflow: [{step: start, tool: {kind: noop, result: '{{ workload.limt }}'}}]",
        "workload.limt is set nowhere",
        "did you mean 'limit'?",
        "step 'start', tool.result",
    ),
    "a variable nobody sets": (
        "workflow: [{step: start, set: {ctx.page: 1}, tool: {kind: noop, result: '{{ ctx.pages }}'}}]",
        "ctx.pages is set nowhere",
        "did you mean 'page'?",
        "step 'start', tool.result",
    ),
    "a condition without braces": (
        "workflow: [{step: start, tool: {kind: noop}, next: {arcs: [{step: start, when: stat.ok == limit}]}}]",
        "'stat' is no step",
        "did you mean 'start'?",
        "step 'start', next.arcs[0].when",
    ),
    "the item of a loop after it": (
        "workflow: [{step: start, loop: {in: '{{ items }}', iterator: it}, tool: {kind: noop},"
        " set: {ctx.x: '{{ it }}'}}]",
        "'it' is the item of the loop of step 'start'",
        "a loop is left with its results: <step>.results",
        "step 'start', set.ctx.x",
    ),
    "iter outside of a loop": (
        "workflow: [{step: start, tool: {kind: noop, result: '{{ iter.it }}'}}]",
        "'iter' is known in the body of a loop only",
        "a loop is left with its results: <step>.results",
        "step 'start', tool.result",
    ),
    "a key of iter": (
        "workflow: [{step: start, loop: {in: '{{ items }}', iterator: page},"
        " tool: {kind: noop, result: '{{ iter.pag }}'}}]",
        "iter.pag is set nowhere",
        "did you mean 'page'?",
        "step 'start', tool.result",
    ),
    "a secret outside of tools": (
        "workflow: [{step: start, tool: {kind: noop}, set: {ctx.x: '{{ keychain.api.token }}'}}]",
        "'keychain' is undefined here",
        "secrets are read in the fields of tools only",
        "step 'start', set.ctx.x",
    ),
    "a task of another step": (
        "workflow: [{step: start, tool: [{name: get, kind: noop}], next: b}, {step: b, tool: {kind: noop,"
        " result: '{{ get.x }}'}}]",
        "'get' is a task of step 'start'",
        "from other steps it is start.get",
        "step 'b', tool.result",
    ),
    "a step nobody goes to": (
        "workflow: [{step: start, tool: {kind: noop}}, {step: end, tool: {kind: noop}}]",
        "step 'end' is never reached: no way leads to it from 'start'",
        "step 'start' above it has no next; steps do not follow each other by themselves",
        "step 'end', step",
    ),
    "an arc behind one that always fires": (
        "workflow: [{step: start, tool: {kind: noop}, next: {arcs: [{step: b}, {step: b, when: '{{ limit }}'}]}},"
        " {step: b, tool: {kind: noop}}]",
        "the arc to 'b' can never fire: the arc to 'b' before it always does",
        "put the one without when last",
        "step 'start', next.arcs[1]",
    ),
    "a step whose arcs are all false": (
        "workflow: [{step: start, tool: {kind: noop}, next: {arcs: [{step: start, when: false}]}}]",
        "step 'start' is never left: none of its arcs can fire",
        "",
        "step 'start', next",
    ),
    "a circle of steps": (
        "workflow: [{step: start, tool: {kind: noop}, next: b}, {step: b, tool: {kind: noop}, next: start}]",
        "the circle start -> b -> start has no exit",
        "give an arc a `when`",
        "step 'start', next",
    ),
    "a circle of tasks": (
        "workflow: [{step: start, tool: [{name: a, kind: noop}, {name: b, kind: noop,"
        " spec: {policy: {rules: [{then: {do: jump, to: a}}]}}}]}]",
        "task 'b' jumps to 'a' and nothing ends that",
        "give the rule a `when`, or add a rule that breaks",
        "step 'start', tool",
    ),
    "SQL from a template": (
        "workflow: [{step: start, tool: {kind: postgres, auth: pg, command: \"SELECT '{{ limit }}'\"}}]",
        "SQL is put together from a template",
        "use params, or the filters sqlstr and sqljson",
        "step 'start', tool.command",
    ),
    "a key of the workload nobody reads": (
        "workflow: [{step: start, tool: {kind: noop, result: '{{ items }}'}}]",
        "nothing reads the workload key 'limit'",
        "",
        "workload.limit",
    ),
}

FINE = {
    "an input whose name is that of conditions": """
        workflow: [{step: start, tool: {kind: noop, input: {when: monday}}}]
    """,
    "every name that a step may read": """
        workflow:
        - step: start
          loop: {in: "{{ items }}", iterator: it, spec: {mode: parallel, max_in_flight: "{{ limit }}"}}
          input: {given: 1}
          tool:
          - {name: a, kind: noop, input: {mine: "{{ given }}"}, result: "{{ mine }} {{ it }} {{ iter.it }}"}
          - name: b
            kind: noop
            result: "{{ a.x }} {{ _prev }} {{ _index }} {{ loop_index }} {{ keep }} {{ job.id }} {{ now() }}"
            set: {keep: "{{ output.data }}", iter.note: 1, ctx.total: 2}
            spec: {policy: {rules: [{when: "{{ output.error and _attempt < 3 }}", then: {do: retry}},
              {else: {do: continue, set: {ctx.seen: "{{ iter.note }}"}}}]}}
          set: {ctx.sum: "{{ start.results | length }}"}
          next: {arcs: [{step: end, when: "{{ event.name == 'loop.done' and sum }}", set: {last: "{{ output.data }}"}}]}
        - step: end
          tool: {kind: noop, result: "{{ last }} {{ ctx.total }} {{ workload.limit }} {{ steps.start }} {{ seen }}"}
    """,
    "names that may be missing, and say so": """
        workflow:
        - step: start
          tool: {kind: noop, result: "{{ zip | default('x') }} {{ a.b.c | default(1) }} {{ q if q is defined else 0 }}
            {{ ctx.page | default(1) }}"}
    """,
    "names that a template makes itself": """
        workflow:
        - step: start
          tool: {kind: noop, result: "{% for x in items %}{{ x }}{% endfor %}{% set y = 1 %}{{ y }}"}
    """,
    "a circle with a way out": """
        workflow:
        - {step: start, tool: {kind: noop}, set: {ctx.n: 1}, next: {arcs: [{step: b, when: n < limit}, {step: end}]}}
        - {step: b, tool: {kind: noop}, next: start}
        - {step: end, tool: {kind: noop}}
    """,
    "a handler behind an arc that always fires": """
        workflow:
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: end}, {step: mend, when: "{{ event.name == 'call.error' }}"}]}
        - {step: end, tool: {kind: noop}}
        - {step: mend, tool: {kind: noop, result: "{{ error }}"}}
    """,
    "SQL whose values go beside it": """
        workflow:
        - step: start
          tool:
            kind: postgres
            auth: pg
            command: "SELECT %(x)s, {{ limit | sqlstr }}, {{ items | sqljson }}, {{ limit | int }}"
            params: {x: "{{ limit }}"}
    """,
    "a jump back that a rule ends": """
        workflow:
        - step: start
          tool:
          - {name: a, kind: noop}
          - name: b
            kind: noop
            spec: {policy: {rules: [{when: "{{ output.data }}", then: {do: break}}, {then: {do: jump, to: a}}]}}
    """,
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_rarely_meant_is_told_with_its_place(what: str) -> None:
    body, message, hint, where = ODD[what]
    found = [finding for finding in findings(body) if finding.message.startswith(message)]
    assert [(finding.hint, finding.where, finding.severity) for finding in found] == [(hint, where, "warning")], found
    assert found[0].line > 3


@pytest.mark.parametrize("what", FINE)
def test_what_is_meant_is_not_remarked_on(what: str) -> None:
    body = FINE[what].replace("{{ error }}", "{{ error | default('') }}")
    assert said(body) == []


def test_a_finding_in_a_text_of_several_lines_names_the_line() -> None:
    text = HEAD + "workflow:\n- step: start\n  tool:\n    kind: noop\n    result: |\n      one\n      {{ tow }}\n"
    [finding] = [each for each in lint(text, parse(text)[0]) if "tow" in each.message]
    assert finding.line == text.splitlines().index("      {{ tow }}") + 1


def test_a_workload_that_is_read_whole_has_no_unused_keys() -> None:
    assert findings("workflow: [{step: start, tool: {kind: noop, result: '{{ workload }}'}}]") == []
    assert findings("workflow: [{step: start, tool: {kind: python, code: 'result = context[\"limit\"]'}}]") == []


@pytest.mark.parametrize("file", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_have_no_findings(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert lint(text, parse(text)[0]) == []


@settings(deadline=None, database=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(start=st.integers(0, len(WHOLE)), length=st.integers(0, 30), replacement=st.text(max_size=8))
def test_any_document_that_parses_can_be_looked_at(start: int, length: int, replacement: str) -> None:
    text = WHOLE[:start] + replacement + WHOLE[start + length :]
    try:
        playbook = parse(text)[0]
    except PlaybookError:
        return
    assert all(finding.severity == "warning" and finding.message for finding in lint(text, playbook))


def test_the_command_ends_with_1_for_warnings_only_when_strict(tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(HEAD + "workflow: [{step: start, tool: {kind: noop, result: '{{ limt }}'}}]\n", encoding="utf-8")
    shown = CliRunner().invoke(main.app, ["lint", str(file)])
    assert shown.exit_code == 0
    assert f"{file}:5:" in shown.stderr and "did you mean 'limit'?" in shown.stderr
    assert CliRunner().invoke(main.app, ["lint", "--strict", str(file)]).exit_code == 1
    assert "'limt'" in CliRunner().invoke(main.app, ["validate", str(file)]).stderr
    assert CliRunner().invoke(main.app, ["lint", "--strict", str(ROOT / "examples/hello/hello.yaml")]).exit_code == 0
    file.write_text("workflow: []\n", encoding="utf-8")
    assert CliRunner().invoke(main.app, ["lint", str(file)]).exit_code == 1

"""Parsing: what a document may say, and how every problem of one is told."""

from textwrap import dedent, indent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl_common.core.parse import parse
from noetl_common.core.playbook import Finding, Playbook, Step
from noetl_common.errors import PlaybookError

# A slow machine is no failure, and nothing is left behind.
CALM = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo, path: tests/demo}
"""
WHOLE = (
    HEAD
    + """\
workload: {limit: 2}
workbook:
- name: scale
  tool: {kind: python, input: {n: 1, factor: 10}, code: "result = n * factor"}
workflow:
- step: start
  tool: {kind: python, code: "result = 1"}
  next: {arcs: [{step: fetch, when: "{{ start.ok }}"}]}
- step: fetch
  loop: {in: "{{ start.items }}", iterator: item, spec: {mode: parallel, max_in_flight: 3}}
  tool:
  - name: get
    kind: http
    url: "{{ base }}/{{ iter.item }}"
    spec: {policy: {rules: [{when: "{{ output.error }}", then: {do: retry, delay: 1}}, {else: {then: {do: continue}}}]}}
  - name: keep
    kind: postgres
    auth: pg
    command: "values ({{ get.id }})"
  next: {spec: {mode: inclusive}, arcs: [{step: end, when: "{{ event.name == 'loop.done' }}"}]}
- step: end
  tool: {kind: noop}
"""
)


def steps(body: str, *, root: str = "") -> str:
    return HEAD + dedent(root) + "workflow:\n" + indent(dedent(body), "")


def parsed(body: str, *, root: str = "") -> tuple[Playbook, list[Finding]]:
    return parse(steps(body, root=root))


def only_step(body: str, *, root: str = "") -> Step:
    return next(iter(parsed(body, root=root)[0].steps.values()))


def problems(text: str) -> list[dict[str, Any]]:
    with pytest.raises(PlaybookError) as refused:
        parse(text)
    return refused.value.problems


def test_a_whole_document_becomes_records() -> None:
    playbook, warnings = parse(WHOLE)
    assert warnings == []
    assert (playbook.path, playbook.name, playbook.entry_step) == ("tests/demo", "demo", "start")
    fetch = playbook.steps["fetch"]
    assert fetch.is_pipeline
    assert [task.label for task in fetch.tasks] == ["get", "keep"]
    assert fetch.loop is not None
    assert (fetch.loop.mode, fetch.loop.max_in_flight, fetch.mode) == ("parallel", 3, "inclusive")
    assert [rule.do for rule in fetch.tasks[0].rules] == ["retry", "continue"]
    assert fetch.tasks[0].rules[0].backoff == "fixed"
    assert fetch.arcs[0].tests_event
    assert not playbook.steps["start"].arcs[0].tests_event
    assert fetch.names == {"start", "base", "iter", "output", "get", "event"}


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("a: [1, 2\nb: 3", 2, 2, "expected valid YAML"),
        ("a: 1\n  b: 2\n", 2, 4, "expected valid YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, 1, "found 'a' again"),
        ("a: {{ name }}\n", 1, 5, "expected a text as the key"),
        ("a: !!python/object:os.system 1\n", 1, 4, "is not allowed"),
        ("a: *nobody\n", 1, 4, "alias"),
        ("a: &x [*x]\n", 1, 8, "inside what it names"),
        ("a: 1\n---\nb: 2\n", 2, 1, "expected one document"),
        ("", 1, 1, "empty"),
        ("a: \x07\n", 1, 4, "expected valid YAML"),
    ],
)
def test_malformed_yaml_is_placed_by_line_and_column(text: str, line: int, column: int, what: str) -> None:
    found = problems(text)[0]
    assert what in found["message"]
    assert (found["line"], found["column"]) == (line, column)


def test_a_document_has_limits() -> None:
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
        for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert "aliases counted" in problems(bomb)[0]["message"]
    assert "found a part nested deeper" in problems("a: " + "[" * 1000 + "]" * 1000)[0]["message"]
    assert "at most 1048576 bytes, found" in problems("a: " + "x" * 1_100_000)[0]["message"]
    assert "64 bits" in problems("a: 99999999999999999999999")[0]["message"]


def test_yaml_values_are_json_values() -> None:
    playbook, _ = parse(
        HEAD.replace(
            "metadata", "workload: {d: 2024-01-02, t: 12:30:00, b: yes, o: 0x1f, f: 1.5, n: ~, 1: k}\nmetadata"
        )
        + "workflow: [{step: a, tool: {kind: noop}}]"
    )
    assert playbook.workload == {
        "d": "2024-01-02",
        "t": "12:30:00",
        "b": True,
        "o": 31,
        "f": 1.5,
        "n": None,
        "1": "k",
    }


def test_merge_keys_and_anchors_are_resolved() -> None:
    step = only_step(
        """
        - step: a
          tool: {<<: *common, url: here}
        """,
        root="workload: {common: &common {kind: http, method: GET, url: there}}\n",
    )
    assert step.tasks[0].config == {"method": "GET", "url": "here"}


@pytest.mark.parametrize(
    ("body", "message", "where", "hint"),
    [
        (
            "- step: a\n  tool: {kind: pyhton}",
            "unknown tool kind 'pyhton'",
            "step 'a', tool.kind",
            "did you mean 'python'?",
        ),
        (
            "- {step: a, tool: {kind: noop}, next: {arcs: [{step: b1}]}}\n- {step: b, tool: {kind: noop}}",
            "unknown step 'b1'",
            "step 'a', next.arcs[0].step",
            "did you mean 'b'?",
        ),
        ("- {step: a, tool: {kind: noop}}\n- {step: a, tool: {kind: noop}}", "found 'a' again", "step 'a', step", ""),
        ("- {tool: {kind: noop}}", "expected `step`, the name of the step, found nothing", "step 0", ""),
        (
            "- {step: a, tool: [{name: x, kind: noop}, {name: x, kind: noop}]}",
            "found 'x' again",
            "step 'a', tool[1]",
            "",
        ),
        (
            "- {step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: jump, to: b}}}]}}}}",
            "expected a jump to one of a, found 'b'",
            "step 'a', tool.spec.policy.rules[0].then.to",
            "",
        ),
        (
            "- {step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: retri}}}]}}}}",
            "unknown verb 'retri'",
            "step 'a', tool.spec.policy.rules[0].then.do",
            "did you mean 'retry'?",
        ),
        (
            "- {step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {do: retry, backoff: lineal}}]}}}}",
            "unknown backoff",
            "step 'a', tool.spec.policy.rules[0].then.backoff",
            "did you mean 'linear'?",
        ),
        (
            "- {step: a, tool: {kind: noop}, loop: {iterator: x}}",
            "expected `in`, what to loop over, found none",
            "step 'a', loop",
            "",
        ),
        (
            "- {step: a, tool: {kind: noop}, loop: {in: [1]}}",
            "expected `iterator`, the name of the loop's item",
            "step 'a', loop",
            "",
        ),
        (
            "- {step: a, tool: {kind: noop}, loop: {in: [1], iterator: x, spec: {mode: paralel}}}",
            "unknown loop mode",
            "step 'a', loop.spec.mode",
            "did you mean 'parallel'?",
        ),
        (
            "- {step: a, tool: {kind: noop}, next: {spec: {mode: any}, arcs: []}}",
            "unknown mode",
            "step 'a', next.spec.mode",
            "",
        ),
        (
            "- {step: a, tool: {kind: noop}, next: {arcs: [{step: a, when: '{ x }'}]}}",
            "single brace",
            "step 'a', next.arcs[0].when",
            "write {{ ... }}, or no braces at all",
        ),
        (
            "- {step: a, tool: {kind: http, url: '{{ base | uper }}'}}",
            "{{ base | uper }}",
            "step 'a', tool.url",
            "",
        ),
        ("- {step: a, tool: {kind: noop}, next: {spec: {mode: [x]}}}", "unknown mode", "step 'a', next.spec.mode", ""),
        (
            "- {step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {do: {}, backoff: []}}]}}}}",
            "found unknown verb a mapping",
            "step 'a', tool.spec.policy.rules[0].then.do",
            "",
        ),
        (
            "- {step: a, tool: {kind: workbook, name: scle}}",
            "expected an action of the workbook (none), found 'scle'",
            "step 'a', tool",
            "",
        ),
        (
            "- {step: a, tool: {url: x}}",
            "expected a tool with a kind, found nothing",
            "step 'a', tool.kind",
            "add kind",
        ),
        ("- {step: a, tool: {kind: noop}, case: []}", "found `case`", "step 'a', case", "arcs of `next`"),
    ],
)
def test_a_problem_says_where_and_what_was_meant(body: str, message: str, where: str, hint: str) -> None:
    found = problems(HEAD + "workflow:\n" + body)
    first = next(problem for problem in found if message in problem["message"])
    assert first["where"] == where
    assert hint in first.get("hint", "")
    assert first["line"] >= 5


def test_every_problem_of_a_document_is_told_at_once() -> None:
    found = problems("apiVersion: v1\nkind: Playbok\nmetadata: {}\nworkflow:\n- step: a\n  tool: {kind: nop}\n- {}\n")
    assert [(problem["line"], problem["severity"]) for problem in found if problem["severity"] == "error"] == [
        (1, "error"),
        (2, "error"),
        (3, "error"),
        (6, "error"),
        (7, "error"),
    ]


def test_unknown_keys_and_unavailable_kinds_are_warnings() -> None:
    _, warnings = parsed(
        """
        - {step: a, tol: 1, tool: {kind: rhai}, next: {arcs: [{step: end, cond: x}]}}
        - {step: b}
        """
    )
    told = {(warning.where, warning.hint) for warning in warnings}
    assert ("step 'a', tol", "did you mean 'tool'?") in told
    assert ("step 'a', next.arcs[0].cond", "did you mean 'when'?") in told
    messages = " | ".join(warning.message for warning in warnings)
    assert "kind 'rhai' is not available in this release; the step fails when it runs" in messages
    assert "there is no step 'end'; the branch ends here" in messages
    assert "the step has no tool" in messages


@pytest.mark.parametrize(
    "rule",
    [
        "{else: {then: {do: break, set: {ctx.x: 1}}}}",
        "{else: {do: break, set: {ctx.x: 1}}}",
        "{else: null, then: {do: break, set: {ctx.x: 1}}}",
        "{when: true, then: {do: break, set: {ctx.x: 1}}}",
        "{then: {do: break, set: {ctx.x: 1}}}",
    ],
)
def test_every_shape_of_a_rule_is_understood(rule: str) -> None:
    step = only_step(f"- {{step: a, tool: {{kind: noop, spec: {{policy: {{rules: [{rule}]}}}}}}}}")
    (found,) = step.tasks[0].rules
    assert (found.do, found.set, found.when in (None, True)) == ("break", {"ctx.x": 1}, True)


def test_a_tool_takes_fields_from_its_spec_and_input_from_its_step() -> None:
    step = only_step(
        """
        - step: a
          input: {x: step, y: step}
          tool:
            kind: http
            args: {x: tool}
            url: mine
            timeout_seconds: 5
            pool: fast
            spec: {url: theirs, method: POST, policy: {rules: []}}
        """
    )
    assert step.tasks[0].config == {"url": "mine", "method": "POST", "timeout": 5}
    assert step.tasks[0].input == {"x": "tool", "y": "step"}
    assert (step.pool, step.is_pipeline, step.tasks[0].label) == ("fast", False, "a")


def test_references_to_the_workbook_are_resolved_in_tools_and_lists() -> None:
    playbook, warnings = parsed(
        """
        - {step: a, tool: {kind: workbook, name: scale, input: {n: 2}}}
        - {step: b, tool: [{name: scale, kind: workbook}, {mine: {kind: workbook, name: scale}}]}
        """,
        root="""\
        workbook: [{name: scale, tool: {kind: python, input: {n: 1, factor: 10}, code: result = n}}]
        """,
    )
    (task,) = playbook.steps["a"].tasks
    assert (task.kind, task.input, task.config) == ("python", {"n": 2, "factor": 10}, {"code": "result = n"})
    assert [(item.label, item.kind) for item in playbook.steps["b"].tasks] == [("scale", "python"), ("mine", "python")]
    assert warnings == []


def test_a_retry_field_is_a_rule() -> None:
    playbook, warnings = parsed(
        "- {step: a, tool: {kind: http, url: x, retry: {max_attempts: 2, retry_on_status: [503]}}}"
    )
    (rule,) = playbook.steps["a"].tasks[0].rules
    assert (rule.do, rule.attempts, rule.backoff) == ("retry", 2, "fixed")
    assert rule.when == "{{ output.status == 'error' and (output.http.status in [503]) }}"
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("ways", "targets", "mode"),
    [
        ("b", ["b"], "exclusive"),
        ("[b, a]", ["b", "a"], "inclusive"),
        ("[{step: b, when: x}, {step: a}]", ["b", "a"], "exclusive"),
        ("{arcs: [{step: b}]}", ["b"], "exclusive"),
        ("null", [], "exclusive"),
    ],
)
def test_every_shape_of_next_is_understood(ways: str, targets: list[str], mode: str) -> None:
    step = only_step(f"- {{step: a, tool: {{kind: noop}}, next: {ways}}}\n- {{step: b, tool: {{kind: noop}}}}")
    assert ([arc.step for arc in step.arcs], step.mode) == (targets, mode)


@pytest.mark.parametrize(
    ("executor", "names", "entry"),
    [
        ("", "abc", "a"),
        ("", "a start b", "start"),
        ("executor: {spec: {entry_step: b, final_step: a}}\n", "start a b", "b"),
    ],
)
def test_the_entry_is_the_one_named_else_start_else_the_first(executor: str, names: str, entry: str) -> None:
    listed = "".join(
        f"- {{step: {name}, tool: {{kind: noop}}}}\n" for name in (names.split() if " " in names else names)
    )
    assert parsed(listed, root=executor)[0].entry_step == entry


@pytest.mark.parametrize("when", ["x > 1", "{{ x }}", True, False, None])
def test_a_step_may_have_a_condition_of_its_own(when: str | bool | None) -> None:
    playbook, warnings = parsed(f"- {{step: a, tool: {{kind: noop}}, when: {'null' if when is None else repr(when)}}}")
    assert playbook.steps["a"].when == when
    assert warnings == []


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("{kind: http, url: '{{ ctx.base }}/{{ workload.page }}/{{ x }}'}", {"ctx", "base", "workload", "page", "x"}),
        ("{kind: http, json: '{{ ctx }}'}", None),
        ("{kind: http, json: '{{ workload.get(key) }}'}", None),
        ("{kind: http, json: '{{ steps[name] }}'}", None),
        ("{kind: python, code: 'result = context.get(1)'}", None),
        ("{kind: python, code: 'result = 1if 2else 3'}", set()),
        ("{kind: python, code: 'result = {\"context\": 1}  # context'}", set()),
    ],
)
def test_the_names_a_step_reads_are_known_or_said_to_be_unknown(tool: str, expected: Any) -> None:
    step = only_step(f"- {{step: a, tool: {tool}}}")
    assert step.names == (expected if expected is None else frozenset(expected))


def test_a_template_of_a_shell_command_that_does_not_parse_is_only_a_warning() -> None:
    _, warnings = parsed("- step: a\n  tool: {kind: shell, cmds: ['docker ps --format {{`x`}}']}")
    assert any("does not parse" in warning.message for warning in warnings)


def test_comments_in_code_may_say_anything() -> None:
    parsed('- step: a\n  tool: {kind: python, code: "# {{ ctx.* }}\\nresult = 1"}')


def test_a_sequence_of_retries_and_jumps_back_is_resolved_to_labels() -> None:
    step = only_step(
        """
        - step: a
          tool:
          - {name: x, kind: noop}
          - {name: y, kind: noop, spec: {policy: {rules: [{else: {do: jump, to: previous}}]}}}
        """
    )
    assert step.tasks[1].rules[0].to == "x"


@CALM
@given(
    st.integers(0, len(WHOLE) - 1),
    st.integers(0, 40),
    st.text(alphabet="{}[]:-&*!|>'\"\n \t#ab0~%@,?", max_size=6),
)
def test_a_damaged_document_parses_or_is_refused(start: int, length: int, replacement: str) -> None:
    try:
        parse(WHOLE[:start] + replacement + WHOLE[start + length :])
    except PlaybookError as refused:
        assert refused.problems
        assert all(problem["message"] and "severity" in problem for problem in refused.problems)


@CALM
@given(st.text(max_size=200))
def test_any_text_parses_or_is_refused(text: str) -> None:
    with pytest.raises(PlaybookError):
        parse(text)


def test_admission_rules_are_read_in_order_and_must_say_whether_they_allow() -> None:
    rules = "[{when: x, then: {allow: true}}, {else: {then: {allow: false}}}]"
    playbook, _ = parsed(f"- {{step: a, tool: {{kind: noop}}, spec: {{policy: {{admit: {{rules: {rules}}}}}}}}}")
    assert [(rule.when, rule.allow) for rule in playbook.steps["a"].admit] == [("x", True), (None, False)]
    with pytest.raises(PlaybookError) as refused:
        parsed("- {step: a, tool: {kind: noop}, spec: {policy: {admit: {rules: [{when: x, then: {}}]}}}}")
    assert "expected `then: {allow: true}` or false" in str(refused.value.problems)


def test_inputs_of_a_step_come_between_the_workbooks_defaults_and_the_tools_own() -> None:
    book = "workbook: [{name: w, tool: {kind: python, code: x, input: {a: 1, b: 1, c: 1}}}]\n"
    playbook, _ = parsed("- {step: a, input: {b: 2, c: 2}, tool: {kind: workbook, name: w, args: {c: 3}}}", root=book)
    assert playbook.steps["a"].tasks[0].input == {"a": 1, "b": 2, "c": 3}

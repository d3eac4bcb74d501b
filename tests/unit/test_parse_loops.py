"""Loops and streams as they are written: what is read, what is refused, and what is warned of."""

import pytest

from noetl_common.core.lint import lint
from noetl_common.core.parse import parse
from noetl_common.core.playbook import Finding, Frame, Loop
from noetl_common.errors import PlaybookError

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: t}\nworkflow:\n"
TOOL = "tool: {kind: python, code: 'x = 1'}"
CURSOR = "cursor: {auth: pg, claim: 'select {{ __frame_max_rows }}'}"


def loop_of(loop: str, spec: str = "") -> tuple[Loop, list[Finding]]:
    more = f", spec: {{{spec}}}" if spec else ""
    playbook, warnings = parse(f"{HEAD}- {{step: start, {TOOL}, loop: {{iterator: n, {loop}}}{more}}}\n")
    found = playbook.steps["start"].loop
    assert found is not None
    return found, warnings


def refused(text: str) -> list[str]:
    with pytest.raises(PlaybookError) as caught:
        parse(HEAD + text)
    return [f"{finding['where']}: {finding['message']}" for finding in caught.value.problems]


@pytest.mark.parametrize(
    ("loop", "spec", "expected"),
    [
        ("in: [1]", "", {"mode": "sequential", "source": [1]}),
        ("in: [1], mode: parallel, max_in_flight: 3", "", {"mode": "parallel", "max_in_flight": 3}),
        ("in: [1], spec: {mode: parallel, max_failures: 2}", "", {"max_failures": 2}),
        ("in: [1], spec: {mode: fanout}", "", {"mode": "fanout", "max_shard_retries": None}),
        ("in: [1]", "loop_mode: fanout", {"mode": "fanout"}),
        ("in: [1], spec: {mode: fanout, fanout: {max_shard_retries: 5}}", "", {"max_shard_retries": 5}),
        ("in: [1], spec: {mode: fanout}", "fanout: {max_shard_retries: '{{ 1 }}'}", {"max_shard_retries": "{{ 1 }}"}),
        (CURSOR, "", {"mode": "cursor", "source": None, "frame": Frame()}),
        (
            f"{CURSOR}, spec: {{mode: cursor, frame: {{max_rows: 5, row_concurrency: 2, process: frame}}}}",
            "",
            {"mode": "cursor", "frame": Frame(max_rows=5, row_concurrency=2, process="frame")},
        ),
    ],
)
def test_a_loop_is_read_in_each_way_it_is_written(loop: str, spec: str, expected: dict[str, object]) -> None:
    found, warnings = loop_of(loop, spec)
    assert {name: getattr(found, name) for name in expected} == expected
    assert not warnings


def test_a_claim_is_a_task_of_its_own_whose_names_the_step_ships() -> None:
    loop = "{iterator: n, cursor: {claim: 'select {{ ctx.a }}', kind: PostgreSQL}}"
    step = parse(f"{HEAD}- {{step: start, {TOOL}, loop: {loop}}}\n")[0].steps["start"]
    assert step.loop is not None and step.loop.claim is not None
    claim = step.loop.claim
    assert (claim.label, claim.kind, claim.config) == (
        "claim",
        "cursor",
        {"claim": "select {{ ctx.a }}", "kind": "postgres"},
    )
    assert step.names is not None and {"ctx", "a"} <= step.names


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (
            "in: [1], spec: {mode: paralel}",
            "expected one of sequential, parallel, fanout, cursor, found unknown loop mode 'paralel'",
        ),
        ("spec: {mode: cursor}", "expected `cursor`: {kind: postgres, auth, claim}"),
        (f"{CURSOR}, spec: {{mode: parallel}}", "expected mode 'cursor' for a loop with `cursor`, found 'parallel'"),
        (
            "cursor: {claim: x, kind: mysql}",
            "expected a cursor of kind 'postgres', the only one there is, found 'mysql'",
        ),
        ("cursor: {auth: pg}", "expected `claim`"),
        ("cursor: 3", "cursor: expected a mapping"),
        ("spec: {mode: fanout}", "expected `in`"),
        ("spec: {mode: parallel}", "expected `in`"),
        ("in: [1], spec: {max_failures: -1}", "max_failures: expected a number from 0 or a template, found -1"),
        ("in: [1], spec: {mode: parallel, max_in_flight: 0}", "max_in_flight: expected a number from 1"),
        (
            "in: [1], spec: {mode: fanout, fanout: {max_shard_retries: yes}}",
            "max_shard_retries: expected a number from 0",
        ),
        (
            f"{CURSOR}, spec: {{frame: {{max_rows: many}}}}",
            "max_rows: expected a number from 1 or a template, found 'many'",
        ),
        (
            f"{CURSOR}, spec: {{frame: {{process: rows}}}}",
            "expected one of row, frame, found unknown way 'rows'",
        ),
    ],
)
def test_a_loop_that_cannot_be_meant_is_refused_with_its_place(loop: str, expected: str) -> None:
    problems = refused(f"- {{step: start, {TOOL}, loop: {{iterator: n, {loop}}}}}\n")
    assert any(expected in problem and problem.startswith("step 'start', loop") for problem in problems), problems


@pytest.mark.parametrize(
    ("loop", "spec", "expected"),
    [
        (f"{CURSOR}, in: [1]", "", "`in` is ignored"),
        (f"{CURSOR}, spec: {{frame: {{max_seconds: 3}}}}", "", "'max_seconds' of a frame has no effect here"),
        (f"{CURSOR}, spec: {{frame: {{rows: 3}}}}", "", "a frame has no key 'rows'; it is ignored"),
        ("cursor: {claim: select, clam: 3}", "", "a cursor has no key 'clam'; it is ignored"),
        ("in: [1], spec: {mode: fanout, fanout: {retries: 3}}", "", "fanout has no key 'retries'; it is ignored"),
        ("in: [1], spec: {frame: {max_rows: 3}}", "", "'frame' is ignored: the mode of the loop is 'sequential'"),
        ("in: [1], spec: {mode: parallel, fanout: {}}", "", "'fanout' is ignored: the mode of the loop is 'parallel'"),
    ],
)
def test_what_a_loop_says_in_vain_is_warned_of(loop: str, spec: str, expected: str) -> None:
    _loop, warnings = loop_of(loop, spec)
    assert [finding.message for finding in warnings if expected in finding.message]


def steps(*arcs: str, takes: str = "", more: str = "") -> str:
    ways = "".join(f"    - {{{arc}}}\n" for arc in arcs)
    start = f"- step: start\n  {TOOL}\n  next:\n    arcs:\n{ways}"
    return f"{start}- step: takes\n  {TOOL}\n{takes}- step: end\n  {TOOL}\n{more}"


@pytest.mark.parametrize(
    ("arc", "carries"),
    [
        ("on: call.partial", True),
        ("when: \"{{ event.name == 'call.partial' }}\"", True),
        ("when: \"event.name == 'call.partial' and output.data.n > 1\"", True),
        ("when: \"{{ 'call.partial' == event['name'] }}\"", True),
        ("when: \"{{ event.name != 'call.partial' }}\"", False),
        ("when: \"{{ event.name == 'call.done' }}\"", False),
    ],
)
def test_an_arc_carries_chunks_when_it_says_so(arc: str, carries: bool) -> None:
    playbook, warnings = parse(HEAD + steps(f"step: takes, {arc}", "step: end"))
    assert playbook.steps["start"].arcs[0].on_partial is carries
    assert not warnings


@pytest.mark.parametrize("name", ["event", "fanin"])
def test_an_arc_that_reads_the_event_or_the_figures_of_a_loop_may_handle_a_failure(name: str) -> None:
    playbook, _warnings = parse(HEAD + steps(f"step: takes, when: '{{{{ {name}.x == 1 }}}}'", "step: end"))
    assert [arc.tests_event for arc in playbook.steps["start"].arcs] == [True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (steps("step: takes, on: call.done"), "expected 'call.partial' for `on` of an arc, found 'call.done'"),
        (steps("step: takes, on: [1]"), "expected 'call.partial' for `on` of an arc, found a list"),
        (
            steps("step: takes, when: \"{{ event.name in ['call.partial', 'call.done'] }}\""),
            "expected a condition that holds for 'call.partial' alone or not at all",
        ),
        (
            steps("step: takes, when: \"{{ event.name == 'call.partial' or x }}\""),
            "expected a condition that holds for 'call.partial' alone or not at all",
        ),
        (
            steps("step: takes, on: call.partial, set: {ctx.x: 1}"),
            "expected no `set` on an arc that carries chunks, found one",
        ),
        (steps("step: gone, on: call.partial"), "expected a step that takes the chunks, found no step 'gone'"),
        (
            steps("step: takes, on: call.partial", takes="  loop: {in: [1], iterator: n}\n"),
            "expected no loop of step 'takes', which takes chunks of step 'start' one by one; found one",
        ),
        (
            steps("step: takes, on: call.partial", "step: takes"),
            "which takes chunks of step 'start'; found one from step 'start' when it ends",
        ),
        (
            steps("step: takes, on: call.partial", "step: end", more="  next: {arcs: [{step: takes}]}\n"),
            "which takes chunks of step 'start'; found one from step 'end' when it ends",
        ),
        (
            steps("step: takes, on: call.partial", more="  next: {arcs: [{step: takes, on: call.partial}]}\n"),
            "found one from step 'end' with its chunks",
        ),
        (steps("step: start, on: call.partial"), "expected another entry or final step, found 'start'"),
        (
            steps("step: takes", takes="  next: {arcs: [{step: takes, on: call.partial}]}\n"),
            "found one from step 'start' when it ends",
        ),
    ],
)
def test_what_a_consumer_cannot_be_is_refused_with_its_place(text: str, expected: str) -> None:
    problems = refused(text)
    assert any(expected in problem and problem.startswith("step '") for problem in problems), problems


def test_a_step_cannot_take_its_own_chunks() -> None:
    text = steps("step: end", takes="  next: {arcs: [{step: takes, on: call.partial}]}\n")
    assert any(
        "expected another step to take the chunks of step 'takes', found itself" in problem for problem in refused(text)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (steps("step: takes, on: call.partial", "step: end"), []),
        (
            steps("step: takes, on: call.partial", "step: end").replace("python, code: 'x = 1'", "http, url: x", 1),
            ["step 'start' streams no chunks: it runs http without chunk_size"],
        ),
        (
            steps(
                "step: takes, on: call.partial, when: '{{ chunk.n > 0 }}'",
                "step: end, when: '{{ output.n }}'",
            ),
            [],
        ),
        (
            f"- step: start\n  loop: {{{CURSOR}, iterator: row}}\n"
            "  tool: {kind: python, code: x, input: {a: '{{ row }}'}}\n"
            "  next: {arcs: [{step: end, when: '{{ fanin.failed == 0 }}'}]}\n"
            f"- step: end\n  {TOOL}\n",
            [],
        ),
        (
            "- step: start\n  tool: {kind: python, code: x, input: {a: '{{ __frame_max_rows }}'}}\n"
            "  next: {arcs: [{step: end, when: '{{ fanin.failed == 0 }}'}]}\n"
            f"- step: end\n  {TOOL}\n",
            [
                "'__frame_max_rows' is known in the claim of a cursor only; it is undefined here",
                "'fanin' is known in the arcs of a loop only; it is undefined here",
            ],
        ),
    ],
)
def test_lint_knows_the_names_of_loops_and_streams(text: str, expected: list[str]) -> None:
    playbook, _warnings = parse(HEAD + text)
    assert [finding.message for finding in lint(HEAD + text, playbook)] == expected


def test_lint_knows_the_item_of_a_consumer() -> None:
    text = HEAD + steps("step: takes, on: call.partial", "step: end")
    reads = "- step: takes\n  tool: {kind: python, code: x, input: {a: '{{ chunk }}', b: '{{ iter.chunk }}'}}\n"
    text = text.replace(f"- step: takes\n  {TOOL}\n", reads)
    assert lint(text, parse(text)[0]) == []

"""The language, run whole: entry, variables, arcs, fan-in, cycles, failure, and what the end of a run is."""

import httpx

from tests.conformance.running import completed, failed, play
from tests.conformance.stub_api import StubApi


def test_the_entry_step_is_the_one_named_then_start_then_the_first(api: httpx.Client):
    steps = """
        - {step: alpha, tool: {kind: noop}}
        - {step: beta, tool: {kind: noop}}
    """
    assert completed(api, steps).entered() == ["alpha"]
    assert completed(api, steps, executor={"spec": {"entry_step": "beta"}}).entered() == ["beta"]
    started = completed(api, f"{steps.rstrip()}\n        - {{step: start, tool: {{kind: noop}}}}")
    assert started.entered() == ["start"]


def test_workload_templates_are_rendered_once_and_ids_cannot_be_shadowed(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            kind: python
            input:
              run: "{{ execution_id }}"
              uuid: "{{ job_id }}"
              name: "{{ user.name }}"
              when: "{{ stamp }}"
              unknown: "{{ env.NO_SUCH | default('fallback') }}"
              kept: "{{ raw }}"
              zip: "{{ zip }}"
            code: |
              result = dict(input_data)
        """,
        workload={
            "execution_id": "mine",
            "job_id": "{{ job.uuid }}",
            "user": {"name": "{{ payload.who }}"},
            "stamp": "{{ now() }}",
            "raw": "{{ broken",
            "zip": "default",
        },
        payload={"who": "Ann", "zip": "007"},
    )
    found = run.result("start")
    assert found["run"] == found["uuid"] == run.id
    assert (found["name"], found["unknown"], found["kept"], found["zip"]) == ("Ann", "fallback", "{{ broken", "007")
    assert found["when"].startswith("20")


def test_variables_shadow_results_which_shadow_the_workload(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool: {kind: python, code: "result = {'n': 1}"}
          set: {ctx.offset: 10, step.page: 2, bare: 3, ctx.start_n: "{{ start.n + 1 }}"}
          next: {arcs: [{step: middle}]}
        - step: middle
          tool: {kind: python, code: "result = {'n': 5}"}
          next: {arcs: [{step: check}]}
        - step: check
          tool:
            kind: python
            input:
              all: ["{{ offset }}", "{{ ctx.offset }}", "{{ workload.offset }}", "{{ page }}", "{{ bare }}"]
              start_n: "{{ start_n }}"
              middle: "{{ middle.n }}"
              kept: "{{ workload.middle }}"
              through_ctx: "{{ ctx.other }}"
            code: result = dict(input_data)
        """,
        workload={"offset": 0, "middle": "workload", "other": [1]},
    )
    assert run.result("check") == {
        "all": [10, 10, 0, 2, 3],
        "start_n": 2,
        "middle": 5,
        "kept": "workload",
        "through_ctx": [1],
    }


def test_expressions_keep_their_types_and_other_text_stays_text(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            kind: python
            code: |
              result = {"n": 7, "none": None, "items": [1, 2], "digits": "10", "keys": "k", "flag": True}
          next: {arcs: [{step: check}]}
        - step: check
          tool:
            kind: python
            input:
              native: ["{{ start.n }}", "{{ start.items }}", "{{ start.digits }}", "{{ start.flag }}",
                  "{{ start.keys }}"]
              undefined: "{{ nobody.knows.this }}"
              defined: ["{{ start.none is defined }}", "{{ start.nope is defined }}", "{{ start.none is none }}"]
              text: "{{ start.n }}{{ start.n }}"
              plus: "{{ (start.digits | int) + 1 }}"
              literal: ["10", "true", 10, true]
              fallback: ["{{ start.none | default(3) }}", "{{ start.nope | default(4) }}"]
              lower: "{{ start.flag | string | lower }}"
              spaced: "  {{ start.n }}  "
              json: "{{ start.items | tojson }}"
            code: result = dict(input_data)
        """,
    )
    assert run.result("check") == {
        "native": [7, [1, 2], "10", True, "k"],
        "undefined": None,
        "defined": [True, False, True],
        "text": "77",
        "plus": 11,
        "literal": ["10", "true", 10, True],
        "fallback": [3, 4],
        "lower": "true",
        "spaced": 7,
        "json": "[1, 2]",
    }


def test_an_arc_set_lasts_beyond_the_arcs_target(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool: {kind: python, code: "result = {'n': 4}"}
          next: {arcs: [{step: middle, set: {ctx.given: "{{ start.n }}", ctx.same: "{{ output.n + output.data.n }}"}}]}
        - {step: middle, tool: {kind: noop}, next: {arcs: [{step: check}]}}
        - step: check
          tool: {kind: python, input: {x: "{{ given }}", y: "{{ ctx.same }}"}, code: "result = [x, y]"}
        """,
    )
    assert run.result("check") == [4, 8]


def test_event_name_is_known_on_every_step(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool: {kind: noop}
          next:
            arcs:
              - {step: wrong, when: "{{ event.name == 'loop.done' }}"}
              - {step: right, when: "{{ event.name == 'call.done' }}"}
        - {step: wrong, tool: {kind: noop}}
        - {step: right, tool: {kind: noop}}
        """,
    )
    assert run.entered() == ["start", "right"]


def test_exclusive_takes_the_first_true_arc_and_inclusive_every_one(api: httpx.Client):
    steps = """
        - step: start
          tool: {kind: noop}
          next:
            spec: {mode: MODE}
            arcs: [{step: a, when: "0"}, {step: b, when: "yes_please"}, {step: c, when: "{{ 1 < 2 }}"}]
        - {step: a, tool: {kind: noop}, next: {arcs: [{step: join}]}}
        - {step: b, tool: {kind: noop}, next: {arcs: [{step: join}]}}
        - {step: c, tool: {kind: python, code: "import time; time.sleep(0.2); result = 1"},
            next: {arcs: [{step: join}]}}
        - {step: join, tool: {kind: python, input: {c: "{{ c }}", a: "{{ a is defined }}"}, code: "result = [c, a]"}}
    """
    workload = {"yes_please": "yes"}
    assert completed(api, steps.replace("MODE", "exclusive"), workload=workload).entered() == ["start", "b", "join"]
    run = completed(api, steps.replace("MODE", "inclusive"), workload=workload)
    assert sorted(run.entered()) == ["b", "c", "join", "start"]
    assert run.entered()[-1] == "join" and run.result("join") == [1, False]


def test_no_matching_arc_ends_the_branch_unless_the_playbook_forbids_it(api: httpx.Client):
    steps = """
        - {step: start, tool: {kind: noop}, next: {arcs: [{step: end, when: "{{ false }}"}]}}
        - {step: end, tool: {kind: noop}}
    """
    assert completed(api, steps).entered() == ["start"]
    run = failed(api, steps, executor={"spec": {"no_next_is_error": True}})
    assert "'start'" in run.message and "no arc matched" in run.message


def test_a_step_may_follow_itself_and_sees_its_last_result(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            kind: python
            input: {page: "{{ ctx.page | default(1) }}", before: "{{ start.seen }}"}
            code: "result = {'seen': (before or []) + [page]}"
          set: {ctx.page: "{{ (ctx.page | default(1) | int) + 1 }}"}
          next:
            arcs:
              - {step: start, when: "{{ ctx.page <= 4 }}"}
              - {step: done, when: "{{ ctx.page > 4 }}"}
        - {step: done, tool: {kind: python, input: {seen: "{{ start.seen }}"}, code: "result = seen"}}
        """,
    )
    assert run.result("done") == [1, 2, 3, 4]


def test_an_admission_rule_skips_a_step_that_it_denies(api: httpx.Client):
    steps = """
        - {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: gate}, {step: other}]}}
        - {step: other, tool: {kind: noop}, next: {arcs: [{step: last}]}}
        - step: gate
          spec:
            policy:
              admit:
                mode: exclusive
                rules:
                  - {when: "{{ enabled }}", then: {allow: true}}
                  - else: {then: {allow: false}}
          tool: {kind: noop}
          next: {arcs: [{step: last}]}
        - {step: last, tool: {kind: noop}}
    """
    admitted = completed(api, steps, workload={"enabled": True})
    assert sorted(admitted.entered()) == ["gate", "last", "other", "start"]
    denied = completed(api, steps, workload={"enabled": False})
    assert sorted(denied.entered()) == ["last", "other", "start"]
    assert "step.skipped" in denied.kinds("gate")


def test_a_failed_step_fails_the_run_unless_an_arc_asks_for_the_error(api: httpx.Client):
    steps = """
        - step: start
          tool: {kind: python, code: "raise ValueError('broken pipe')"}
          next:
            arcs: ARCS
        - step: rescue
          tool:
            kind: python
            input: {said: "{{ ctx.said }}", kind: "{{ ctx.kind }}"}
            code: result = [said, kind]
    """
    run = failed(api, steps.replace("ARCS", "[{step: rescue}]"))
    assert run.entered() == ["start"] and "broken pipe" in run.message
    arc = (
        "[{step: rescue, when: \"{{ event.name == 'call.error' }}\","
        ' set: {ctx.said: "{{ output.error.message }}", ctx.kind: "{{ output.status }}"}}]'
    )
    handled = completed(api, steps.replace("ARCS", arc))
    said, kind = handled.result("rescue")
    assert "broken pipe" in said and kind == "error"


def test_a_template_that_cannot_be_evaluated_names_step_field_and_expression(api: httpx.Client):
    in_tool = failed(
        api,
        "[{step: start, tool: {kind: python, input: {x: \"{{ 1 / zero }}\"}, code: 'result = x'}}]",
        workload={"zero": 0},
    )
    for part in ("'start'", "input.x", "1 / zero"):
        assert part in in_tool.message
    in_arc = failed(
        api,
        """
        - {step: start, tool: {kind: noop}, next: {arcs: [{step: end, when: "{{ n + 1 > 2 }}"}]}}
        - {step: end, tool: {kind: noop}}
        """,
        workload={"n": "text"},
    )
    for part in ("'start'", "'end'", "when", "n + 1 > 2"):
        assert part in in_arc.message


def test_a_run_shows_the_result_of_its_last_step_that_is_no_noop(api: httpx.Client):
    run = completed(
        api,
        """
        - {step: start, tool: {kind: python, code: "result = {'answer': 42}"}, next: {arcs: [{step: end}]}}
        - {step: end, tool: {kind: noop}}
        """,
    )
    last = run.events()[-1]
    assert last["event_type"] == "playbook.completed" and "/start/" in str(last["result"])


def test_result_is_the_step_before(api: httpx.Client):
    run = completed(
        api,
        """
        - {step: start, tool: {kind: python, code: "result = {'status': 'success'}"}, next: {arcs: [{step: end}]}}
        - {step: end, tool: {kind: python, input: {seen: "{{ result }}"}, code: "result = seen['status']"}}
        """,
    )
    assert run.result("end") == "success"
    own = completed(
        api,
        "[{step: start, tool: {kind: python, input: {x: '{{ result }}'}, code: 'result = x'}}]",
        workload={"result": 1},
    )
    assert own.result("start") == 1


def test_code_that_takes_too_long_fails_its_step(api: httpx.Client):
    run = failed(
        api,
        "[{step: start, tool: {kind: python, code: 'import time; time.sleep(20)', timeout: 0.3}}]",
    )
    assert "0.3 s" in run.message and run.status["error"]["step"] == "start"


def test_one_branch_failing_lets_the_other_end_and_starts_nothing(api: httpx.Client):
    run = play(
        api,
        """
        - {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: bad}, {step: slow}]}}
        - {step: bad, tool: {kind: python, code: "raise KeyError('bad')"}}
        - {step: slow, tool: {kind: python, code: "import time; time.sleep(0.4); result = 1"},
            next: {arcs: [{step: after}]}}
        - {step: after, tool: {kind: noop}}
        """,
    )
    assert run.status["status"] == "FAILED"
    assert "after" not in run.entered() and "step.exit" in run.kinds("slow")


def test_an_arc_that_cannot_be_evaluated_does_not_hide_why_the_tool_failed(api: httpx.Client):
    run = failed(
        api,
        """
        - step: start
          tool: {kind: python, code: "raise ValueError('the tool broke')"}
          next: {arcs: [{step: end, when: "{{ event.name == 'call.error' and output.data.x + 1 > 2 }}"}]}
        - {step: end, tool: {kind: noop}}
        """,
    )
    assert "the tool broke" in run.message and "output.data.x + 1" in run.message


def test_a_timeout_may_have_a_unit_and_nonsense_is_named(api: httpx.Client, stub: StubApi):
    steps = """
        - step: start
          tool: {kind: http, url: "{{ url }}", params: {delay_seconds: 1}, timeout: TIMEOUT}
    """
    workload = {"url": f"{stub.url}/api/v1/concurrency/probe"}
    assert "0.2 s" in failed(api, steps.replace("TIMEOUT", "200ms"), workload=workload).message
    wrong = failed(api, steps.replace("TIMEOUT", "soon"), workload=workload)
    assert "timeout" in wrong.message and "'soon'" in wrong.message and "'start'" in wrong.message

"""The language, run whole: pipelines, what their tasks see of each other, and the rules that steer them."""

import time

import httpx

from tests.conformance.running import completed, failed
from tests.conformance.stub_api import StubApi


def test_tasks_see_each_other_by_label_and_by_what_was_set(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            - {name: one, kind: python, code: "result = {'a': 1, 'data': {'deep': 5}}", set: {raw: "{{ output }}",
                a: "{{ output.a }}", ctx.kept: "{{ output.data.deep }}", iter.mine: 3}}
            - {two: {kind: python, input: {x: "{{ one.a }}", y: "{{ one.data.deep }}", z: "{{ raw }}", w: "{{ a }}",
                i: "{{ iter.mine }}", c: "{{ ctx.kept }}"}, code: "result = [x, y, z, w, i, c]"}}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {kept: "{{ ctx.kept }}", two: "{{ start.two }}",
            mine: "{{ mine is defined }}"}, code: "result = [kept, two, mine]"}}
        """,
    )
    assert run.result("check") == [5, [1, 5, {"a": 1, "data": {"deep": 5}}, 1, 3, 5], False]


def test_a_pipelines_result_is_flat_and_its_labels_stay_addressable(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            - {name: first, kind: python, code: "result = {'score': 7, 'shared': 'first', 'first': 'field'}"}
            - {name: nothing, kind: noop}
            - {name: last, kind: python, code: "result = {'shared': 'last', 'has_more': True}"}
          next: {arcs: [{step: check}]}
        - step: check
          tool:
            kind: python
            input:
              whole: "{{ start }}"
              paths: ["{{ start.score }}", "{{ start.data.shared }}", "{{ start.result.has_more }}",
                  "{{ start.results.first.shared }}", "{{ start.last.has_more }}", "{{ start.results.last.shared }}",
                  "{{ start.first }}"]
            code: "result = {'whole': whole, 'paths': paths, 'got': whole.get('score')}"
        """,
    )
    assert run.result("check") == {
        "whole": {"score": 7, "shared": "last", "first": "field", "has_more": True},
        "paths": [7, "last", True, "first", True, "last", "field"],
        "got": 7,
    }


def test_a_list_of_one_is_its_only_item(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool: [{name: only, kind: python, code: "result = [4, 5, 6]"}]
          next: {arcs: [{step: check}]}
        - step: check
          tool:
            kind: python
            input: {all: "{{ start }}", count: "{{ start.count }}", second: "{{ start[1] }}",
                label: "{{ start.only }}", length: "{{ start | length }}"}
            code: "result = [all, count, second, label, length]"
        """,
    )
    assert run.result("check") == [[4, 5, 6], 3, 5, [4, 5, 6], 3]


def test_all_shapes_of_else_are_rules(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            - name: a
              kind: python
              code: result = 1
              spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: fail}},
                  {else: {then: {do: continue, set: {ctx.a: "{{ output.data }}"}}}}]}}
            - name: b
              kind: python
              code: result = 2
              spec: {policy: {rules: [{else: {do: continue, set: {ctx.b: "{{ output.data }}"}}}]}}
            - name: c
              kind: python
              code: result = 3
              spec: {policy: {rules: [{else: null, then: {do: continue, set: {ctx.c: "{{ output.data }}"}}}]}}
            - name: d
              kind: python
              code: result = 4
              spec: {policy: {rules: [{when: true, then: {do: continue, set: {ctx.d: "{{ output.data }}",
                  e: "{{ ctx.d is defined }}"}}}]}}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {x: ["{{ a }}", "{{ ctx.b }}", "{{ c }}", "{{ d }}",
            "{{ ctx.e }}"]}, code: "result = x"}}
        """,
    )
    assert run.result("check") == [1, 2, 3, 4, False]


def test_retry_counts_all_attempts_and_a_delay_alone_is_waited_for(api: httpx.Client, stub: StubApi):
    steps = """
        - step: start
          tool:
            kind: http
            url: "{{ api_url }}/api/v1/errors"
            params: {error_type: "500"}
            spec: {policy: {rules: [{when: "{{ output.http.status in [500, 503] and output.error.retryable }}",
                then: {do: retry, attempts: "{{ tries }}", delay: 0.2}}, {else: {then: {do: continue}}}]}}
    """
    before = len(stub.requests)
    began = time.monotonic()
    run = failed(api, steps, workload={"api_url": stub.url, "tries": "3"})
    assert len(stub.requests) - before == 3 and time.monotonic() - began >= 0.4
    assert "500" in run.message and run.status["error"]["http_status"] == 500


def test_a_task_that_fails_at_first_is_tried_again_and_its_count_starts_over(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            - name: init
              kind: noop
              spec: {policy: {rules: [{else: {do: continue, set: {iter.n: 0}}}]}}
            - name: flaky
              kind: python
              input: {n: "{{ iter.n }}"}
              code: |
                if n % 2 == 0:
                    raise RuntimeError("even")
                result = {"n": n}
              spec:
                policy:
                  rules:
                    - {when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2,
                        set: {iter.n: "{{ iter.n + 1 }}"}}}
                    - {when: "{{ output.data.n < 5 }}", then: {do: jump, to: flaky, set: {iter.n: "{{ iter.n + 1 }}"}}}
                    - {when: "{{ output.data.n == 5 }}", then: {do: break}}
            - {name: never, kind: python, code: "raise SystemExit"}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {n: "{{ start.n }}"}, code: "result = n"}}
        """,
    )
    assert run.result("check") == 5


def test_jump_previous_goes_back_and_continue_accepts_an_error(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            - {name: fetch, kind: python, input: {page: "{{ iter.page | default(1) }}"},
                code: "result = {'page': page}"}
            - name: save
              kind: python
              input: {page: "{{ fetch.page }}"}
              code: "raise ValueError(f'page {page}')"
              spec:
                policy:
                  rules:
                    - when: "{{ fetch.page < 3 }}"
                      then: {do: jump, to: previous, set: {iter.page: "{{ fetch.page + 1 }}",
                          ctx.errors: "{{ (ctx.errors or []) + [output.error.message] }}"}}
                    - when: "{{ output.status == 'error' and output.error.kind == 'exception' }}"
                      then: {do: continue}
            - {name: after, kind: python, input: {e: "{{ ctx.errors }}"},
                code: "result = {'errors': e, 'page': 'after'}"}
        """,
    )
    last = run.results("start")[-1]["after"]
    assert len(last["errors"]) == 2 and "page 2" in last["errors"][1] and last["page"] == "after"


def test_fail_by_rule_fails_even_a_success_and_names_the_task(api: httpx.Client):
    run = failed(
        api,
        """
        - step: start
          tool:
            - name: check_rows
              kind: python
              code: "result = {'rows': 0}"
              spec: {policy: {rules: [{when: "{{ output.data.rows == 0 }}", then: {do: fail}}]}}
            - {name: never, kind: noop}
          next: {arcs: [{step: end}]}
        - {step: end, tool: {kind: noop}}
        """,
    )
    assert "check_rows" in run.message and run.status["error"]["step"] == "start" and run.entered() == ["start"]


def test_an_error_that_no_rule_covers_fails(api: httpx.Client):
    run = failed(
        api,
        "[{step: start, tool: {kind: python, code: 'raise ValueError(1)',"
        " spec: {policy: {rules: [{when: '{{ output.data }}', then: {do: continue}}]}}}}]",
    )
    assert "ValueError" in run.message


def test_a_rule_that_cannot_be_evaluated_names_its_place(api: httpx.Client):
    run = failed(
        api,
        "[{step: start, tool: [{name: one, kind: noop,"
        " spec: {policy: {rules: [{when: '{{ 1 + nothing }}', then: {do: continue}}]}}}]}]",
        workload={"nothing": None},
    )
    for part in ("'start'", "one", "rule 1", "when", "1 + nothing"):
        assert part in run.message


def test_the_outcome_of_http_reads_in_every_spelling(api: httpx.Client, stub: StubApi):
    run = completed(
        api,
        """
        - step: start
          tool:
            kind: http
            url: "{{ api_url }}/api/v1/assessments"
            params: {page: 2, pageSize: "{{ size }}", nothing: "{{ nobody }}", flag: true}
            spec:
              policy:
                rules:
                  - else:
                      do: continue
                      set:
                        ctx.seen: ["{{ output.status }}", "{{ output.http.status }}", "{{ output.data.status_code }}",
                            "{{ output.data.data.paging.page }}", "{{ output.data.body.paging.page }}",
                            "{{ output.data.paging.page }}", "{{ output.response.paging.page }}",
                            "{{ output.paging.page }}"]
          set:
            ctx.step: ["{{ output.http.status }}", "{{ output.data.paging.page }}",
                "{{ output.data.data.paging.page }}", "{{ output.body.paging.page }}", "{{ output.status_code }}",
                "{{ start.data.paging.page }}", "{{ start.paging.page }}", "{{ output.status }}"]
          next: {arcs: [{step: check, when: "{{ output.http.status == 200 and output.data.paging.hasMore }}"}]}
        - {step: check, tool: {kind: python, input: {seen: "{{ ctx.seen }}", step_seen: "{{ ctx.step }}",
            got: "{{ start }}"},
            code: "result = [seen, step_seen, got.get('body', {}).get('data')[0]['id'], got['status_code']]"}}
        """,
        workload={"api_url": stub.url, "size": 10},
    )
    seen, step_seen, first, status = run.result("check")
    assert seen == ["success", 200, 200, 2, 2, 2, 2, 2]
    assert step_seen == [200, 2, 2, 2, 200, 2, 2, "success"]
    assert (first, status) == (11, 200)


def test_an_http_error_carries_its_status_and_is_the_authors_to_accept(api: httpx.Client, stub: StubApi):
    run = completed(
        api,
        """
        - step: start
          tool:
            - name: get
              kind: http
              url: "{{ api_url }}/api/v1/errors"
              params: {error_type: auth}
              spec:
                policy:
                  rules:
                    - when: "{{ output.status == 'error' and output.http.status == 401
                        and not output.error.retryable }}"
                      then:
                        do: continue
                        set:
                          ctx.k: ["{{ output.error.kind }}", "{{ output.error.status }}",
                              "{{ output.data.data.detail }}"]
              set: {response: "{{ output }}", failed: "{{ output.status }}"}
            - {name: look, kind: python, input: {r: "{{ response }}", f: "{{ failed }}", k: "{{ ctx.k }}"},
                code: "result = [r.get('data'), r['status_code'], f, k]"}
        """,
        workload={"api_url": stub.url},
    )
    assert run.results("start")[-1]["look"] == [{"detail": "as asked"}, 401, "error", ["auth", 401, "as asked"]]


def test_fields_under_spec_count_as_the_tools_own(api: httpx.Client, stub: StubApi):
    run = completed(
        api,
        """
        - step: start
          tool:
            - name: get
              kind: http
              spec: {method: POST, endpoint: "{{ api_url }}/anything/x", params: {a: "{{ n }}"},
                  payload: {id: "{{ n }}"}, policy: {rules: [{else: {do: continue,
                  set: {ctx.items: "{{ output.data.json.id }}"}}}]}}
        """,
        workload={"api_url": stub.url, "n": 3},
    )
    body = run.results("start")[-1]["get"]["data"]
    assert body["args"] == {"a": "3"} and body["json"] == {"id": 3} and body["method"] == "POST"


def test_workbook_actions_run_in_single_tools_and_in_pipelines(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          input: {temperature: 20}
          tool: {kind: workbook, name: classify, input: {unit: C}}
          next: {arcs: [{step: many}]}
        - step: many
          tool:
            - {name: classify, kind: workbook, input: {temperature: 1}}
            - {name: second, kind: workbook, task: classify, input: {temperature: "{{ classify.t + 1 }}"}}
        """,
        workbook=[
            {
                "name": "classify",
                "tool": {
                    "kind": "python",
                    "input": {"temperature": None, "unit": "F"},
                    "code": "result = {'t': temperature, 'u': unit}",
                },
            }
        ],
    )
    assert run.result("start") == {"t": 20, "u": "C"}
    assert run.results("many")[-1] == {"classify": {"t": 1, "u": "F"}, "second": {"t": 2, "u": "F"}}


def test_break_before_a_playbook_ends_the_pipeline(api: httpx.Client):
    steps = """
        - step: start
          LOOP
          tool:
            - {name: first, kind: python, code: "result = {'n': 1}", spec: {policy: {rules: [{else: {do: break}}]}}}
            - {name: sub, kind: playbook, path: no/such/playbook}
            - {name: never, kind: python, code: "raise SystemExit"}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {x: "{{ start.n }}", r: "{{ start.results }}"},
            code: "result = [x, r]"}}
    """
    once = completed(api, steps.replace("LOOP", "desc: once"))
    assert once.result("check") == [1, {"first": {"n": 1}}]
    looped = completed(api, steps.replace("LOOP", "loop: {in: 3, iterator: i, spec: {mode: parallel}}"))
    assert looped.result("check") == [None, [{"n": 1}] * 3]


def test_a_step_set_can_keep_the_whole_outcome_and_templates_read_deep_into_it(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool: {kind: python, code: "result = {'rows': [{'x': {'y': 3}}], 'keys': [1]}"}
          set: {ctx.all: "{{ output }}", ctx.y: "{{ output.data.rows[0].x.y }}",
              ctx.first: "{{ (output.data.rows | default(output.data) | first).x }}"}
          next: {arcs: [{step: check}]}
        - step: check
          tool:
            kind: python
            input: {s: "{{ ctx.all.status }}", d: "{{ ctx.all.data.keys }}", y: "{{ y }}", f: "{{ ctx.first }}"}
            code: "result = [s, d, y, f]"
        """,
    )
    assert run.result("check") == ["success", [1], 3, {"y": 3}]

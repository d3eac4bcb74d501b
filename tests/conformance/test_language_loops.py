"""The language, run whole: loops over all that can be looped over, their variables, results and failures."""

import httpx
import pytest

from tests.conformance.running import completed, failed
from tests.conformance.stub_api import StubApi

COLLECTIONS = [
    ([3, "a", None], [3, "a", None]),
    ({"x": 1, "y": 2}, [{"key": "x", "value": 1}, {"key": "y", "value": 2}]),
    (3, [0, 1, 2]),
    (2.0, [0, 1]),
    ("a, b\nc", ["a", "b", "c"]),
    ('[{"id": 1}]', [{"id": 1}]),
    ([], []),
    ("", []),
    (0, []),
]


@pytest.mark.parametrize(("given", "items"), COLLECTIONS, ids=[str(given) for given, _ in COLLECTIONS])
def test_a_loop_goes_over_lists_objects_numbers_and_texts(api: httpx.Client, given: object, items: list[object]):
    run = completed(
        api,
        """
        - step: start
          loop: {in: "{{ source }}", iterator: it, spec: {mode: parallel}}
          tool: {kind: python, input: {x: "{{ iter.it }}"}, code: "result = x"}
          next: {arcs: [{step: check, when: "{{ event.name == 'loop.done' }}"}]}
        - step: check
          tool:
            kind: python
            input: {all: "{{ start.results }}", data: "{{ start.data }}", count: "{{ start.count }}",
                stats: "{{ start.stats }}"}
            code: result = dict(input_data)
        """,
        workload={"source": given},
    )
    count = len(items)
    stats = {"total": count, "success": count, "failed": 0}
    assert run.result("check") == {"all": items, "data": items, "count": count, "stats": stats}
    assert run.kinds("start").count("loop.done") == 1


@pytest.mark.parametrize("expression", ["{{ nothing }}", "{{ absent.key }}", "{{ yes }}"])
def test_a_loop_over_nothing_iterable_fails_and_says_where(api: httpx.Client, expression: str):
    run = failed(
        api,
        f"[{{step: start, loop: {{in: '{expression}', iterator: it}}, tool: {{kind: noop}}}}]",
        workload={"nothing": None, "yes": True},
    )
    assert "'start'" in run.message and "loop.in" in run.message and "iterable" in run.message
    assert expression.strip("{} ") in str(run.status["error"])


def test_a_sequential_loop_sees_what_the_items_before_wrote(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          loop: {in: "{{ [1, 2, 3] + (ctx.more | default([])) }}", iterator: num, spec: {mode: sequential}}
          tool:
            kind: python
            input: {seen: "{{ ctx.seen | default([]) }}"}
            code: "result = seen + [num]"
            spec:
              policy:
                rules:
                  - else: {do: continue, set: {ctx.seen: "{{ output.data }}", ctx.more: [9, 9],
                      iter.own: "{{ iter.num }}"}}
          next: {arcs: [{step: check}]}
        - step: check
          tool: {kind: python, input: {seen: "{{ ctx.seen }}", own: "{{ own is defined }}"},
              code: "result = [seen, own]"}
        """,
    )
    assert run.result("check") == [[1, 2, 3], False]


def test_items_know_their_place_and_their_name_bare_and_under_iter(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          loop: {in: ["a", "b"], iterator: it, spec: {mode: parallel,
              max_in_flight: "{{ (limit | default(1) | int) or 1 }}"}}
          tool:
            kind: python
            input: {x: ["{{ it }}", "{{ iter.it }}", "{{ _index }}", "{{ loop_index }}", "{{ _total }}",
                "{{ iter._index }}"]}
            code: "result = x + [it, _index, _total]"
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {all: "{{ start }}"}, code: "result = all['results']"}}
        """,
    )
    assert run.result("check") == [["a", "a", 0, 0, 2, 0, "a", 0, 2], ["b", "b", 1, 1, 2, 1, "b", 1, 2]]


def test_a_parallel_loop_overlaps_as_far_as_max_in_flight_allows(api: httpx.Client, stub: StubApi):
    steps = """
        - {step: start, tool: {kind: http, method: POST, url: "{{ api_url }}/api/v1/concurrency/reset"},
            next: {arcs: [{step: probe}]}}
        - step: probe
          loop: {in: 4, iterator: n, spec: {mode: parallel, max_in_flight: LIMIT}}
          tool: {kind: http, url: "{{ api_url }}/api/v1/concurrency/probe", params: {delay_seconds: 0.3, label: null}}
          next: {arcs: [{step: stats}]}
        - {step: stats, tool: {kind: http, url: "{{ api_url }}/api/v1/concurrency/stats"}}
    """
    wide = completed(api, steps.replace("LIMIT", "4"), workload={"api_url": stub.url})
    assert wide.result("stats")["data"]["max_active"] >= 2
    narrow = completed(api, steps.replace("LIMIT", "1"), workload={"api_url": stub.url})
    assert narrow.result("stats")["data"]["max_active"] == 1


def test_a_variable_that_parallel_items_write_has_the_last_writers_value(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          loop: {in: 5, iterator: n, spec: {mode: parallel}}
          tool: [{name: one, kind: noop, spec: {policy: {rules: [{when: true, then: {do: continue,
              set: {ctx.last: "{{ n }}"}}}]}}}]
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {last: "{{ ctx.last }}"}, code: "result = last"}}
        """,
    )
    assert run.result("check") in range(5)


def test_an_item_that_fails_stops_the_loop_and_fails_its_step(api: httpx.Client):
    steps = """
        - step: start
          loop: {in: 6, iterator: n, spec: {mode: sequential}}
          tool: {kind: python, code: "assert n != 2, 'not two'; result = n"}
          next: {arcs: [{step: done, when: "{{ event.name == 'loop.done' }}"} EXTRA]}
        - {step: done, tool: {kind: noop}}
        - {step: rescue, tool: {kind: python, input: {s: "{{ start.stats }}", r: "{{ start.results }}"},
            code: "result = [s, r]"}}
    """
    run = failed(api, steps.replace("EXTRA", ""))
    assert run.entered() == ["start"]
    assert run.kinds("start").count("command.issued") == 3
    for part in ("'start'", "item 2", "not two"):
        assert part in run.message
    handled = completed(api, steps.replace("EXTRA", ", {step: rescue, when: \"{{ event.name == 'call.error' }}\"}"))
    stats, results = handled.result("rescue")
    assert stats["failed"] == 1 and results[:2] == [0, 1]


def test_a_loop_entered_again_starts_anew(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          loop: {in: "{{ range((ctx.round | default(1)) * 2) | list }}", iterator: n, spec: {mode: parallel,
              max_in_flight: 2}}
          tool:
            - {name: one, kind: python, code: "result = {'n': n}"}
          set: {ctx.round: "{{ (ctx.round | default(1)) + 1 }}", ctx.sizes: "{{ (ctx.sizes or []) + [output.count] }}"}
          next:
            arcs:
              - {step: start, when: "{{ ctx.round <= 3 }}"}
              - {step: check}
        - step: check
          tool: {kind: python, input: {s: "{{ ctx.sizes }}", all: "{{ start.results }}"},
              code: "result = [s, [x['n'] for x in all]]"}
        """,
    )
    assert run.result("check") == [[2, 4, 6], [0, 1, 2, 3, 4, 5]]
    assert run.kinds("start").count("loop.done") == 3


def test_step_inputs_and_a_pipeline_body_reach_every_item(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          loop: {in: [1, 2], iterator: num, spec: {mode: sequential}}
          input: {num: "{{ iter.num }}", factor: 10, shared: step}
          tool:
            - {name: one, kind: python, input: {factor: 2},
                code: "result = {'one': input_data['num'] * factor, 'both': shared}"}
            - {name: two, kind: python, input: {x: "{{ one.one }}"}, code: "result = {'two': x * factor}"}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {r: "{{ start.data }}"}, code: "result = r"}}
        """,
    )
    assert run.result("check") == [{"one": 2, "both": "step", "two": 20}, {"one": 4, "both": "step", "two": 40}]


def test_large_items_and_results_pass_through_a_loop(api: httpx.Client):
    run = completed(
        api,
        """
        - {step: start, tool: {kind: python,
            code: "result = {'rows': [{'id': n, 'x': 'y' * 3000} for n in range(40)]}"}, next: {arcs: [{step: each}]}}
        - step: each
          loop: {in: "{{ start.rows }}", iterator: row, spec: {mode: parallel, max_in_flight: 8}}
          tool: {kind: python, code: "result = {'id': row['id'], 'twice': row['x'] * 4}"}
          next: {arcs: [{step: check, when: "{{ each.results | length == 40 and each.results[39].id == 39 }}"}]}
        - {step: check, tool: {kind: python, input: {r: "{{ each }}", ref: "{{ start._ref is defined }}"},
            code: "result = [sum(len(x['twice']) for x in r['results']), ref]"}}
        """,
    )
    assert run.result("check") == [40 * 12000, True]

"""The language, run whole: the conventions of python and postgres, and playbooks that call playbooks."""

import time
from pathlib import Path

import httpx

from tests.conformance.running import completed, document, failed, play, register
from tests.conformance.stub_api import StubApi


def test_python_answers_by_return_by_main_and_by_result(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            - {name: by_return, kind: python, input: {n: 2},
                code: "result = 1\\nif n == 2:\\n    return {'r': n}\\nreturn None"}
            - {name: by_main, kind: python, input: {a: 1, b: 2, c: 3},
                code: "def main(a, b=9, **more):\\n    return [a, b, more]"}
            - {name: by_async, kind: python, code: "async def main():\\n    return 'async'"}
            - {name: both, kind: python, code: "def main():\\n    return 'main'\\nresult = 'result'"}
            - {name: neither, kind: python, code: "print('hello')"}
            - {name: args, kind: python, args: {x: 1}, code: "result = [args, input_data, x]"}
            - {name: named, kind: python, input: {input_data: {table: t}},
                code: "result = input_data.get('table', 'unknown')"}
            - {name: libs, kind: python, libs: {t: time, j: {from: json, import: dumps}},
                code: "result = [j([1]), t.time() > 0]"}
            - {name: pip, kind: python, libs: [psycopg2-binary],
                code: "import json, datetime; result = {'d': datetime.date(2026, 1, 2), 's': {1}}"}
            - {name: names, kind: python, input: {x: 4},
                code: "n = context.keys(); ok = context.get('execution_id') == execution_id;
                result = [context.get('planet'), ok, 'planet' in n, context['x'], step]"}
            - {name: inline, kind: python, script: {source: {type: inline, code: "{{ body }}"}}}
        """,
        workload={"planet": "Mars", "body": "def main():\n    return 'from a script'"},
    )
    found = run.results("start")[-1]
    assert found["by_return"] == {"r": 2} and found["by_main"] == [1, 2, {"c": 3}] and found["by_async"] == "async"
    assert found["both"] == "result" and found["neither"]["stdout"] == "hello\n"
    assert found["args"] == [{"x": 1}, {"x": 1}, 1] and found["named"] == "t"
    assert found["libs"] == ["[1]", True] and found["pip"] == {"d": "2026-01-02", "s": [1]}
    assert found["names"] == ["Mars", True, True, 4, "start"] and found["inline"] == "from a script"


def test_python_code_is_rendered_where_it_holds_templates_outside_comments(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            kind: python
            code: |
              # the page ({{ fetch_page }} -> {body})
              size = {{ kb }} * 2
              listed = {{ items }}
              result = {"size": size, "listed": listed, "set": {1: {}}, "text": "{{ who }}"}
        """,
        workload={"kb": 4, "items": ["a", 1], "who": "Ann"},
    )
    assert run.result("start") == {"size": 8, "listed": ["a", 1], "set": {"1": {}}, "text": "Ann"}


def test_a_script_is_read_from_a_file(api: httpx.Client, tmp_path: Path):
    (tmp_path / "greet.py").write_text("def main(name, count=1):\n    return {'said': name * count}\n")
    (tmp_path / "two.sql").write_text("SELECT 1 AS n; SELECT 2 AS n;")
    run = completed(
        api,
        """
        - step: start
          tool:
            - {name: py, kind: python, input: {name: ab, count: 2}, script: {uri: "{{ folder }}/greet.py",
                source: {type: file}}}
            - {name: sql, kind: postgres, auth: pg_local, script: {uri: "{{ folder }}/two.sql", source: {type: file}}}
        """,
        workload={"folder": str(tmp_path)},
    )
    found = run.results("start")[-1]
    assert found["py"] == {"said": "abab"} and found["sql"]["rows"] == [{"n": 2}]
    missing = failed(api, "[{step: start, tool: {kind: python, script: {uri: /no/such.py, source: {type: file}}}}]")
    assert "/no/such.py" in missing.message


def test_postgres_returns_rows_and_each_commands_own(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            kind: postgres
            auth: "{{ pg }}"
            command: |
              -- it's a comment; with a semicolon
              CREATE TABLE IF NOT EXISTS public.lang_t (id int primary key, j jsonb, t text, n numeric);
              DELETE FROM public.lang_t;
              DO $$ BEGIN PERFORM 1; END $$;
              INSERT INTO public.lang_t VALUES (1, $${{ doc | tojson }}$$, 'it''s; {{ doc.name }}', 1.50) RETURNING id;
              UPDATE public.lang_t SET t = t WHERE id = 1
          next: {arcs: [{step: one}]}
        - step: one
          tool: {kind: postgres, credential: pg_local,
              query: "SELECT * FROM public.lang_t WHERE id = %s AND t LIKE '%%s; An%%'",
              params: ["{{ start.rows[0].id }}"]}
          next: {arcs: [{step: check,
              when: "{{ output.data.row_count == 1 and output.data.rows[0].j.name == 'Ann' }}"}]}
        - step: check
          tool:
            kind: python
            input: {one: "{{ one }}", many: "{{ start }}", paths: ["{{ one.command_0.rows[0].id }}",
                "{{ start.command_3.rows[0].id }}", "{{ start.command_4.row_count }}", "{{ one.rows[0].n }}",
                "{{ one.data.rows | length }}"]}
            code: |
              legacy = one.get("command_0", {}).get("rows", [{}])[0].get("id")
              result = {"legacy": legacy, "t": one["rows"][0]["t"], "many": many["command_1"]["status"], "paths": paths}
        """,
        workload={"pg": "pg_local", "doc": {"name": "Ann", "x": [1, None]}},
    )
    assert run.result("check") == {"legacy": 1, "t": "it's; Ann", "many": "success", "paths": [1, 1, 1, "1.50", 1]}


def test_a_statement_that_fails_says_which_and_undoes_the_others(api: httpx.Client):
    run = failed(
        api,
        """
        - step: start
          tool: {kind: postgres, auth: pg_local,
              command: "CREATE TABLE public.lang_gone (id int); SELECT 1 FROM nowhere_at_all;"}
          next: {arcs: [{step: end}]}
        - {step: end, tool: {kind: noop}}
        """,
    )
    assert "42P01" in run.message and "statement 2 of 2" in run.message and run.entered() == ["start"]
    check = "SELECT to_regclass('public.lang_gone') IS NULL AS gone"
    assert completed(api, f'[{{step: start, tool: {{kind: postgres, auth: pg_local, command: "{check}"}}}}]').result(
        "start"
    )["rows"] == [{"gone": True}]


def test_what_a_step_lacks_is_named(api: httpx.Client):
    cases = {
        "[{step: start, tool: {kind: postgres, auth: pg_local}}]": "no SQL command provided",
        "[{step: start, tool: {kind: postgres, auth: nobody_knows, command: SELECT 1}}]": "nobody_knows",
        "[{step: start, tool: {kind: http, url: '{{ nowhere }}'}}]": "url",
        "[{step: start, tool: {kind: python}}]": "code",
        "[{step: start, tool: {kind: playbook, path: no/such/child}}]": "no/such/child",
        "[{step: start, when: '{{ true }}', tool: {kind: noop}}]": "`when` on a step",
    }
    for steps, part in cases.items():
        run = failed(api, steps)
        assert part in run.message and run.status["error"]["step"] == "start", run.status["error"]


CHILD = """
    - {step: start, tool: {kind: python, input: {n: "{{ n | int }}", who: "{{ who }}"},
        code: "result = {'n': n, 'who': who}"}, next: {arcs: [{step: score}]}}
    - {step: score, tool: {kind: python, input: {n: "{{ start.n }}", parent: "{{ parent_execution_id }}",
        at: "{{ at }}"}, code: "assert n < 100, 'too much'; result = {'score': n * 10, 'parent': parent, 'at': at}"},
        next: {arcs: [{step: end}]}}
    - {step: end, tool: {kind: noop}}
"""


def child(api: httpx.Client) -> str:
    """Register the playbook that others call; return its path."""
    defaults = {"n": 1, "who": "default", "at": "{{ now() }}"}
    return register(api, document(CHILD, path="language/child", workload=defaults))


def test_a_playbook_waits_for_its_child_and_takes_its_data(api: httpx.Client):
    child(api)
    run = completed(
        api,
        """
        - {step: start, tool: {kind: playbook, path: "{{ folder }}/child", input: {n: "7"}},
            next: {arcs: [{step: named}]}}
        - {step: named, tool: {kind: playbook, path: language/child, return_step: start,
            payload: {who: "{{ start.score }}"}}, next: {arcs: [{step: loose}]}}
        - {step: loose, tool: {kind: playbook, path: language/child, async: true}, next: {arcs: [{step: check}]}}
        - step: check
          tool: {kind: python, input: {a: "{{ start }}", s: "{{ start.status }}", id: "{{ start.execution_id }}",
              b: "{{ named }}", c: "{{ loose }}"}, code: "result = dict(input_data)"}
        """,
        workload={"folder": "language"},
    )
    found = run.result("check")
    assert found["a"]["score"] == 70 and found["a"]["parent"] == run.id and found["a"]["at"].startswith("20")
    assert found["s"] == "success" and found["id"] not in (None, run.id)
    assert found["b"] == {"n": 1, "who": 70}
    assert found["c"]["status"] == "started" and found["c"]["async"] is True


def test_a_playbook_in_a_pipeline_sees_and_is_seen_by_its_neighbours(api: httpx.Client):
    child(api)
    run = completed(
        api,
        """
        - step: start
          loop: {in: [1, 2], iterator: num, spec: {mode: parallel}}
          tool:
            - name: before
              kind: python
              code: "result = {'n': num + 1}"
              set: {plain: "{{ output.n }}", iter.mine: "{{ num }}"}
              spec: {policy: {rules: [{else: {do: continue, set: {iter.ruled: "{{ num * 100 }}"}}}]}}
            - name: sub
              kind: playbook
              path: language/child
              return_step: score
              input: {n: "{{ plain }}", who: "{{ iter.mine }}"}
              set: {scored: "{{ output.score }}"}
              spec: {policy: {rules: [{else: {do: continue, set: {iter.after: "{{ output.data.score }}",
                  ctx.seen: true}}}]}}
            - name: after
              kind: python
              input: {all: ["{{ before.n }}", "{{ plain }}", "{{ sub.score }}", "{{ scored }}", "{{ iter.mine }}",
                  "{{ iter.ruled }}", "{{ iter.after }}", "{{ num }}"]}
              code: "result = {'all': all}"
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {r: "{{ start.results }}",
            left: "{{ scored is defined or plain is defined }}", seen: "{{ ctx.seen }}"},
            code: "result = [[x['all'] for x in r], left, seen, sorted(r[0])]"}}
        """,
    )
    seen, left, noted, keys = run.result("check")
    assert seen == [[2, 2, 20, 20, 1, 100, 20, 1], [3, 3, 30, 30, 2, 200, 30, 2]]
    assert left is False and noted is True
    assert keys == ["all", "at", "n", "parent", "score"]


def test_a_childs_failure_is_an_error_that_rules_may_accept(api: httpx.Client):
    child(api)
    steps = """
        - step: start
          tool: {kind: playbook, path: language/child, input: {n: 100}, spec: {policy: {rules: RULES}}}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {e: "{{ ctx.e }}"}, code: "result = e"}}
    """
    run = failed(api, steps.replace("RULES", "[]"))
    assert "'start'" in run.message and "too much" in run.message
    rules = (
        '[{when: "{{ output.status == \'error\' }}", then: {do: continue, set: {ctx.e: "{{ output.error.message }}"}}}]'
    )
    assert "too much" in completed(api, steps.replace("RULES", rules)).result("check")


def test_a_child_that_takes_too_long_fails_its_step_and_is_cancelled(api: httpx.Client):
    register(
        api,
        document(
            "[{step: start, tool: {kind: python, code: 'import time; time.sleep(30)'}}]", path="language/slow_child"
        ),
    )
    began = time.monotonic()
    run = failed(
        api,
        "[{step: start, tool: {kind: playbook, path: language/slow_child, timeout: 0.5}}]",
    )
    assert time.monotonic() - began < 10
    for part in ("'start'", "language/slow_child", "0.5 s"):
        assert part in run.message
    children = [e for e in run.events() if e["event_type"] == "child.started"]
    child_id = children[0]["result"]["context"]["child_id"]
    deadline = time.monotonic() + 15
    while (status := api.get(f"/api/executions/{child_id}/status").json()["status"]) == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert status == "CANCELLED"


def test_a_payload_wins_over_defaults_and_pages_are_fetched_by_cursor(api: httpx.Client, stub: StubApi):
    run = completed(
        api,
        """
        - {step: start, tool: {kind: noop}, set: {ctx.cursor: null, ctx.events: []}, next: {arcs: [{step: fetch}]}}
        - step: fetch
          tool: {kind: http, url: "{{ api_url }}/api/v1/events", params: {cursor: "{{ ctx.cursor }}",
              limit: "{{ limit }}"}}
          next: {arcs: [{step: collect}]}
        - step: collect
          tool:
            kind: python
            input: {page: "{{ fetch }}", known: "{{ ctx.events }}"}
            code: |
              body = page.get("body", {})
              result = {"events": known + body["events"], "cursor": body["next_cursor"]}
          set: {ctx.events: "{{ collect.events }}", ctx.cursor: "{{ collect.cursor }}"}
          next: {arcs: [{step: fetch, when: "{{ ctx.cursor }}"}, {step: check, when: "{{ not ctx.cursor }}"}]}
        - {step: check, tool: {kind: python, input: {n: "{{ ctx.events | length }}", last: "{{ ctx.events[-1].id }}"},
            code: "result = [n, last]"}}
        """,
        workload={"api_url": "http://127.0.0.1:1", "limit": 10},
        payload={"api_url": stub.url},
    )
    assert run.result("check") == [35, 35] and run.entered().count("fetch") == 4


def test_only_so_many_pages_are_fetched_by_a_pipeline_that_follows_itself(api: httpx.Client, stub: StubApi):
    run = completed(
        api,
        """
        - step: start
          tool:
            - {name: fetch, kind: http, url: "{{ api_url }}/api/v1/assessments",
                params: {page: "{{ ctx.page | default(1) }}", pageSize: 10}, set: {response: "{{ output }}"}}
            - name: check_page
              kind: python
              input: {input_data: {page: "{{ response.data }}", number: "{{ ctx.page | default(1) }}",
                  items: "{{ ctx.items | default([]) }}"}}
              code: |
                page = input_data["page"]
                items = input_data["items"] + page["data"]
                result = {"items": items, "next": input_data["number"] + 1,
                    "has_more": page["paging"]["hasMore"] and input_data["number"] < 2}
          set: {ctx.items: "{{ start.items }}", ctx.page: "{{ start.results.check_page.next }}",
              ctx.more: "{{ start.check_page.has_more }}"}
          next: {arcs: [{step: start, when: "{{ ctx.more }}"}, {step: check}]}
        - {step: check, tool: {kind: python, input: {n: "{{ ctx.items | length }}"}, code: "result = n"}}
        """,
        workload={"api_url": stub.url},
    )
    assert run.result("check") == 20


def test_a_run_that_is_cancelled_ends_so_and_its_child_too(api: httpx.Client):
    register(
        api,
        document(
            "[{step: start, tool: {kind: python, code: 'import time; time.sleep(30)'}}]", path="language/endless_child"
        ),
    )
    path = register(
        api,
        document(
            """
            - {step: start, tool: {kind: playbook, path: language/endless_child}, next: {arcs: [{step: end}]}}
            - {step: end, tool: {kind: noop}}
            """
        ),
    )
    started = api.post("/api/execute", json={"path": path}).json()["execution_id"]
    child_id = ""
    deadline = time.monotonic() + 15
    while not child_id:
        assert time.monotonic() < deadline
        events = api.get(f"/api/executions/{started}/events").json()["events"]
        children = [e for e in events if e["event_type"] == "child.started"]
        child_id = str(children[0]["result"]["context"]["child_id"]) if children else ""
        time.sleep(0.02)
    assert api.post(f"/api/executions/{started}/cancel", json={"reason": "enough"}).status_code == 200
    for execution_id in (started, child_id):
        while (status := api.get(f"/api/executions/{execution_id}/status").json()["status"]) == "RUNNING":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert status == "CANCELLED"
    assert play(api, "[{step: start, tool: {kind: noop}}]").status["status"] == "COMPLETED"


def test_a_task_may_jump_back_across_a_playbook(api: httpx.Client):
    child(api)
    run = completed(
        api,
        """
        - step: start
          tool:
            - {name: a, kind: python, input: {p: "{{ iter.p | default(0) }}"}, code: "result = {'a': p + 1}"}
            - {name: sub, kind: playbook, path: language/child, input: {n: "{{ a.a }}"}, return_step: start}
            - name: c
              kind: python
              input: {v: "{{ sub.n }}"}
              code: "result = {'c': v}"
              spec:
                policy:
                  rules:
                    - when: "{{ output.data.c < 3 }}"
                      then: {do: jump, to: a, set: {iter.p: "{{ output.data.c }}"}}
        """,
    )
    assert run.results("start")[-1]["c"] == {"c": 3}
    assert run.kinds("start").count("child.started") == 3

"""Playbooks like the public ones that show single traits: results and their spellings, variables, scripts, shapes."""

from pathlib import Path

import httpx
import pytest

from tests.conformance.running import Case, check, completed, document, execute, register
from tests.conformance.stub_api import StubApi

CASES = [
    Case(
        "an end step cleans up by an input named input_data",
        """
        - step: start
          tool:
            - name: init
              kind: python
              code: "result = {'data': {'temp_table': 'temp_session_12345'}}"
          next: {arcs: [{step: process_data, set: {ctx.temp_table: "{{ start.data.temp_table }}"}}]}
        - step: process_data
          tool:
            - name: work
              kind: python
              input: {input_data: {table: "{{ ctx.temp_table }}"}}
              code: "result = {'data': {'temp_table': input_data.get('table', 'unknown')}}"
          next: {arcs: [{step: end, set: {ctx.cleanup: "{{ process_data.data.temp_table }}"}}]}
        - step: end
          tool:
            - name: cleanup
              kind: python
              input: {input_data: {temp_table: "{{ ctx.cleanup }}"}}
              code: |
                table = input_data.get('temp_table', 'unknown')
                result = {"data": {"table": table, "cleaned_up": True}, "message": f"dropped {table}"}
        """,
        {"end": {"data": {"table": "temp_session_12345", "cleaned_up": True}, "message": "dropped temp_session_12345"}},
    ),
    Case(
        "two loops, one after the other, each with results of its own",
        """
        - step: start
          tool: {kind: python, code: "result = {'users': ['a', 'b'], 'products': [1, 2]}"}
          next: {arcs: [{step: loop_users}]}
        - step: loop_users
          loop: {in: "{{ start.users }}", iterator: user, spec: {mode: sequential}}
          input: {name: "{{ iter.user }}", i: "{{ loop_index }}"}
          tool: {kind: python, code: "result = {'user': input_data['name'].upper(), 'i': i}"}
          next: {arcs: [{step: loop_products}]}
        - step: loop_products
          loop: {in: "{{ start.products }}", iterator: product, spec: {mode: sequential}}
          input: {n: "{{ product }}"}
          tool: {kind: python, code: "return {'double': n * 2}"}
          next: {arcs: [{step: verify}]}
        - step: verify
          input: {users_result: "{{ loop_users }}", products_result: "{{ loop_products }}"}
          tool:
            kind: python
            code: |
              users, products = users_result.get("results", []), products_result.get("results", [])
              result = {"users_count": len(users), "products_count": len(products), "all": [users, products]}
        """,
        {
            "verify": {
                "users_count": 2,
                "products_count": 2,
                "all": [[{"user": "A", "i": 0}, {"user": "B", "i": 1}], [{"double": 2}, {"double": 4}]],
            }
        },
    ),
    Case(
        "a code kept in the workload, run as a script, its answer read as result",
        """
        - step: start
          tool:
            kind: python
            script: {uri: inline, source: {type: inline, code: "{{ test_code }}"}}
            input: {n: 4}
          next: {arcs: [{step: end}]}
        - step: end
          tool:
            kind: python
            input: {result: "{{ result }}", before: "{{ start.value }}"}
            code: |
              assert input_data["result"].get("status") == "success"
              result = {"test": "passed", "before": before}
        """,
        {"end": {"test": "passed", "before": 8}},
        {"workload": {"test_code": "def main(n):\n    return {'status': 'success', 'value': n * 2}\n"}},
    ),
    Case(
        "a tree of widgets from one step without a way on",
        """
        - step: start
          tool:
            kind: python
            input: {title: "{{ title }}"}
            code: |
              result = {"widgets": [{"type": t, "props": {"title": title, "rows": [[1, "a"], [2, None]]}}
                  for t in ("table", "chart", "markdown")], "render": {"markdown": "# {{ title }}"}}
        """,
        {"start": {"render": {"markdown": "# Board"}}},
        {"workload": {"title": "Board"}},
    ),
    Case(
        "a large table whose rows are read by place",
        """
        - step: start
          tool:
            - name: table
              kind: python
              code: |
                result = {"columns": ["id", "text"], "rows": [[n, "row %d " % n + "x" * 80] for n in range(1200)]}
          next: {arcs: [{step: middle}]}
        - {step: middle, tool: {kind: noop}, next: {arcs: [{step: done}]}}
        - step: done
          tool:
            - name: check
              kind: python
              input: {cell: "{{ start.rows[1100][0] }}", length: "{{ start.rows | length }}",
                  columns: "{{ start.columns is defined }}", ref: "{{ start._ref is defined }}", all: "{{ start }}"}
              code: |
                assert all["rows"][1199][0] == 1199 and len(all["rows"]) == 1200
                result = {"test_passed": cell == 1100 and length == 1200, "tabular_externalized": columns, "ref": ref}
        """,
        {"done": {"test_passed": True, "tabular_externalized": True, "ref": True}},
    ),
    Case(
        "nine hundred kilobytes through the next command",
        """
        - step: start
          tool:
            - name: make
              kind: python
              code: "result = {'blob': 'b' * 900 * 1024, 'size_kb': 900}"
          next: {arcs: [{step: verify, set: {ctx.kept: "{{ start.blob }}"}}]}
        - step: verify
          tool:
            - name: check
              kind: python
              input: {blob: "{{ start.blob }}", kept: "{{ ctx.kept }}", ref: "{{ start._ref }}"}
              code: |
                assert blob == kept and ref
                result = {"verified_size_kb": len(blob) // 1024}
        """,
        {"verify": {"verified_size_kb": 900}},
    ),
    Case(
        "a consumer of two producers",
        """
        - step: start
          tool: {kind: noop}
          next: {spec: {mode: inclusive}, arcs: [{step: producer_a}, {step: producer_b}]}
        - {step: producer_a, tool: {kind: python, code: "result = {'value': 'AAA_KEEP'}"}, next: {arcs: [{step:
            consumer}]}}
        - {step: producer_b, tool: {kind: python, code: "result = {'value': 'B' * 2000}"}, next: {arcs: [{step:
            consumer}]}}
        - step: consumer
          tool: {kind: python, input: {a: "{{ producer_a.value }}"}, code: "result = {'consumed': a}"}
          next: {arcs: [{step: end}]}
        - {step: end, tool: {kind: noop}}
        """,
        {"consumer": {"consumed": "AAA_KEEP"}},
    ),
    Case(
        "ways on by the name of the event, rules on single tools, a list that grows in a variable",
        """
        - step: start_validate
          desc: "{{ not rendered }} {% nor this"
          spec: {policy: {admit: {mode: exclusive, rules: [{when: "{{ enabled }}", then: {allow: true}},
              {else: {then: {allow: false}}}]}}}
          tool:
            kind: http
            url: "{{ mesh_url }}/nowhere"
            spec: {policy: {rules: [{when: "{{ output.status == 'error' and output.http.status == 404 }}",
                then: {do: continue, set: {ctx.notes: "{{ (ctx.notes or []) + ['no mesh'] }}"}}},
                {else: {then: {do: continue}}}]}}
          next:
            spec: {mode: exclusive}
            arcs:
              - {step: broken, when: "{{ event.name == 'call.error' }}"}
              - {step: plan, when: "{{ event.name == 'call.done' }}"}
        - {step: broken, tool: {kind: noop}}
        - step: plan
          tool:
            kind: python
            input: {shots: "{{ env.QUANTUM_SHOTS | default(100) | int }}", provider: "{{ provider }}"}
            code: |
              result = {"sweep": [{"theta": n / 4, "shots": shots} for n in range(3)], "provider": provider}
          set: {ctx.simulations: []}
          next: {arcs: [{step: simulate, when: "{{ plan.provider in ['nvidia_simulator', 'local'] }}"}, {step: broken}]}
        - step: simulate
          loop: {in: "{{ plan.sweep }}", iterator: point, spec: {mode: sequential}}
          tool:
            kind: python
            input: {point: "{{ iter.point }}", so_far: "{{ ctx.simulations }}"}
            code: |
              if point["theta"] == 0.25:
                  raise RuntimeError("no such angle")
              result = {"theta": point["theta"], "seen": len(so_far)}
            spec:
              policy:
                rules:
                  - when: "{{ output.status == 'error' }}"
                    then: {do: continue, set: {ctx.notes: "{{ (ctx.notes or []) + [output.error.message] }}"}}
                  - else:
                      do: continue
                      set: {ctx.simulations: "{{ (ctx.simulations or []) + [output.data.theta] }}"}
          next:
            arcs: [{step: summarize, when: "{{ event.name == 'loop.done' }}"}]
        - step: summarize
          tool:
            kind: postgres
            auth: pg_k8s
            command: "SELECT nothing FROM no_such_table"
          next:
            arcs:
              - {step: end, when: "{{ event.name == 'call.done' }}"}
              - step: end
                when: "{{ event.name == 'call.error' }}"
                set: {ctx.notes: "{{ ctx.notes + ['no table'] }}"}
        - step: end
          tool:
            kind: python
            input: {notes: "{{ ctx.notes }}", runs: "{{ simulate.results | length }}", kept: "{{ ctx.simulations }}",
                whole: "{{ ctx }}"}
            code: |
              result = {"runs": runs, "notes": len(notes), "kept": kept, "first": notes[0],
                        "same": whole["notes"] == notes}
        """,
        {"end": {"runs": 3, "notes": 3, "kept": [0.0, 0.5], "first": "no mesh", "same": True}},
        {"workload": {"enabled": True, "provider": "nvidia_simulator"}},
    ),
    Case(
        "a state machine at the root that nothing knows, a way out by what is not there",
        """
        - step: start
          tool: {kind: python, libs: {requests_like: urllib.request}, code: "result = {'checked': True}"}
          next:
            spec: {mode: exclusive}
            arcs: [{step: end, when: "{{ spec.state != 'ready' }}"}, {step: call}]
        - {step: call, tool: {kind: python, code: "raise AssertionError('asks the internet')"}}
        - {step: end, tool: {kind: python, code: "result = {'done': True}"}}
        """,
        {"end": {"done": True}},
        {"tracing": {"enabled": True}},
    ),
    Case(
        "types that last through variables of a rule",
        """
        - step: start
          tool:
            - name: make
              kind: python
              libs: {time: time, os: os, log: logging}
              code: |
                log.getLogger("x").info(os.getcwd())
                result = {"n": 42, "f": 1.5, "t": True, "none": None, "l": [1, "2"], "m": {"k": {"d": 1}}, "z": "007",
                          "at": time.time() > 0}
              spec: {policy: {rules: [{when: true, then: {do: continue, set: {ctx.all: "{{ output.data }}",
                  ctx.n: "{{ output.response.n }}", ctx.z: "{{ output.data.z }}", step.t: "{{ output.data.t }}"}}}]}}
          next: {arcs: [{step: update}]}
        - step: update
          tool:
            - name: more
              kind: python
              input: {n: "{{ ctx.n }}"}
              code: "result = {'n': n + 1, 'type': type(n).__name__}"
              spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.n: "{{ output.data.n }}"}}}}]}}
          next: {arcs: [{step: verify}]}
        - step: verify
          desc: Use {{ ctx.n }} in step data
          tool:
            - name: check
              kind: python
              input: {n: "{{ ctx.n }}", all: "{{ ctx.all }}", z: "{{ z }}", text: "n={{ ctx.n }}", t: "{{ t }}"}
              code: |
                checks = [n == 43, all["l"] == [1, "2"], all["m"]["k"]["d"] == 1, z == "007", text == "n=43", t is True,
                          all["none"] is None, context.get("update")["type"] == "int", context.get("n") == 43]
                result = {"all_checks_passed": False not in checks, "checks": checks}
        """,
        {"verify": {"all_checks_passed": True}},
        {"workload": {"execution_id": "{{ job.uuid }}"}},
    ),
    Case(
        "a host that does not exist and an end without a tool",
        """
        - step: hit_non_routable
          tool: {kind: http, url: "http://does-not-exist.invalid/x", timeout: 2}
          next: {arcs: [{step: end}]}
        - step: end
        """,
        {},
        status="FAILED",
        says="does-not-exist.invalid",
    ),
    Case(
        "a command that stands on the step and not in its tool",
        """
        - {step: start, tool: {kind: python, code: "result = 1"}, next: {arcs: [{step: query}]}}
        - {step: query, command: SELECT 1, tool: {kind: postgres, auth: pg_local}, next: {arcs: [{step: end}]}}
        - {step: end}
        """,
        {},
        status="FAILED",
        says="no SQL command provided",
    ),
    Case(
        "step-level inputs of a request, and of what reads it",
        """
        - step: start
          input: {base: "{{ api_url }}"}
          tool: {kind: http, method: GET, url: "{{ base }}/health"}
          next: {arcs: [{step: process}]}
        - step: process
          input: {http_response: "{{ start }}"}
          tool:
            kind: python
            code: |
              result = {"code": http_response.get("status_code"), "healthy": http_response["body"]["status"] == "ok"}
          next: {arcs: [{step: verify}]}
        - step: verify
          input: {process_result: "{{ process }}"}
          tool: {kind: python, code: "result = {'status': 'passed' if process_result['code'] == 200 else 'failed'}"}
        """,
        {"verify": {"status": "passed"}},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_means_what_its_author_meant(api: httpx.Client, stub: StubApi, case: Case):
    check(api, case, api_url=stub.url, mesh_url=stub.url)


def test_a_script_is_read_from_a_file_and_from_a_server(api: httpx.Client, stub: StubApi, tmp_path: Path):
    (tmp_path / "hello.py").write_text("def main(name='World', count=1):\n    return {'said': name * int(count)}\n")
    (tmp_path / "table.sql").write_text(
        "CREATE TEMP TABLE t (a INT);\nINSERT INTO t VALUES (1), (2);\nSELECT a FROM t;"
    )
    case = Case(
        "scripts",
        """
        - step: start
          tool:
            kind: python
            script: {uri: "{{ folder }}/hello.py", source: {type: file}}
            input: {name: ab, count: 2}
          next: {arcs: [{step: fetched}]}
        - step: fetched
          tool:
            kind: python
            script: {uri: hello.py, source: {type: http, endpoint: "{{ api_url }}/scripts/hello.py", method: GET,
                timeout: 10}}
            input: {name: "{{ start.said }}", count: 3}
          next: {arcs: [{step: stored}]}
        - step: stored
          tool: {kind: postgres, auth: pg_local, script: {uri: "{{ folder }}/table.sql", source: {type: file}}}
          next: {arcs: [{step: verify}]}
        - step: verify
          tool:
            kind: python
            input: {a: "{{ start.said }}", b: "{{ fetched }}", rows: "{{ stored.rows }}"}
            code: |
              assert b["status"] == "success" and b["count"] == 3
              result = {"said": a, "message": b["message"], "rows": len(rows)}
        """,
        {"verify": {"said": "abab", "message": "Hello abab", "rows": 2}},
    )
    check(api, case, api_url=stub.url, folder=str(tmp_path))


def test_an_effect_before_a_slow_step_happens_once(api: httpx.Client, stub: StubApi):
    workflow = """
        - step: start
          tool:
            - name: mark
              kind: python
              input: {host: "{{ gcs_host }}", name: "marker-{{ execution_id }}"}
              code: |
                import json
                import urllib.request
                url = f"{host}/upload/storage/v1/b/marks/o?uploadType=media&name={name}"
                asked = urllib.request.Request(url, data=b"1", method="POST")
                with urllib.request.urlopen(asked, timeout=10) as answer:
                    result = json.load(answer)
          next: {arcs: [{step: barrier}]}
        - {step: barrier, tool: [{name: wait, kind: noop}], next: {arcs: [{step: slow}]}}
        - step: slow
          tool: {kind: python, code: "import time; time.sleep(0.3); result = 1"}
          next: {arcs: [{step: count}]}
        - step: count
          tool:
            - name: count
              kind: python
              input: {host: "{{ gcs_host }}", name: "marker-{{ execution_id }}", made: "{{ start.name }}"}
              code: |
                import json
                import urllib.request
                with urllib.request.urlopen(f"{host}/storage/v1/b/marks/o?prefix={name}", timeout=10) as answer:
                    found = json.load(answer)["items"]
                assert found[0]["name"] == made
                result = {"count": len(found)}
    """
    check(api, Case("barrier", workflow, {"count": {"count": 1}}), gcs_host=stub.url)
    assert stub.requests.count("POST /upload/storage/v1/b/marks/o") == 1


def test_two_playbooks_of_one_name_and_odd_metadata_are_kept_apart(api: httpx.Client):
    step = "- {step: start, tool: {kind: python, code: \"result = {'n': N}\"}}"
    for number, path in enumerate(("/look/with slash/a", "look/with.dots-b"), start=1):
        metadata = {
            "name": "same_name",
            "path": path,
            "version": 2,
            "labels": {"flag": True, "count": 2, "none": None},
            "tags": ["a", 1],
            "exposes_as_mcp": True,
        }
        text = document(step.replace("N", str(number)), metadata=metadata, spec={"state": "ready"}, workload=None)
        assert register(api, text) == path
        assert execute(api, path, {}).result("start") == {"n": number}
    assert execute(api, "/look/with slash/a", {}).result("start") == {"n": 1}


def test_one_step_follows_after_the_branch_that_ran(api: httpx.Client):
    workflow = """
        - {step: start, tool: {kind: python, code: "result = {'value': 7}"}, next: {spec: {mode: exclusive}, arcs: [
            {step: process_high, when: "{{ start.value > 5 }}"}, {step: process_low, when: "{{ start.value <= 5 }}"}]}}
        - {step: process_high, tool: {kind: python, code: "result = {'category': 'high'}"}, next: {arcs: [{step: sum}]}}
        - {step: process_low, tool: {kind: python, code: "result = {'category': 'low'}"}, next: {arcs: [{step: sum}]}}
        - {step: sum, tool: {kind: python, input: {
            c: "{{ process_high.category if process_high else process_low.category }}"}, code: "result = {'c': c}"}}
    """
    run = completed(api, workflow)
    assert run.entered() == ["start", "process_high", "sum"] and run.result("sum") == {"c": "high"}

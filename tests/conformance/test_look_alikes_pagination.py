"""Playbooks like the public ones that follow pages: each shape of going round, and what the pages must add up to."""

import httpx
import pytest

from tests.conformance.running import Case, check, rows
from tests.conformance.stub_api import StubApi

BY_CURSOR = Case(
    "a cursor through a circle of steps, braces in a comment of the code",
    """
    - step: start
      tool: {kind: python, input: {}, code: "result = {'status': 'initialized'}"}
      set: {ctx.cursor: "", ctx.found: []}
      next: {spec: {mode: exclusive}, arcs: [{step: fetch_page}]}
    - step: fetch_page
      tool:
        kind: http
        method: GET
        url: "{{ api_url }}/api/v1/events"
        params: {cursor: "{{ ctx.cursor }}", limit: 10}
        spec:
          policy:
            rules:
              - when: "{{ output.status == 'error' and output.error.retryable }}"
                then: {do: retry, attempts: 3, backoff: exponential, delay: 0.05}
              - when: "{{ output.status == 'error' }}"
                then: {do: fail}
              - else: {then: {do: continue}}
      next: {spec: {mode: exclusive}, arcs: [{step: collect}]}
    - step: collect
      tool:
        kind: python
        input: {page: "{{ fetch_page }}", before: "{{ ctx.found }}"}
        code: |
          # the whole answer ({{ fetch_page }} -> {status_code, body, ...})
          body = page.get("body") or page.get("data") or {}
          result = {"all": (before or []) + [e["id"] for e in body["events"]], "cursor": body.get("next_cursor")}
      set: {ctx.found: "{{ collect.all }}", ctx.cursor: "{{ collect.cursor }}"}
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: fetch_page, when: "{{ collect.cursor is not none and collect.cursor != '' }}"}
          - {step: validate}
    - step: validate
      tool:
        kind: python
        input: {found: "{{ ctx.found }}"}
        code: |
          assert len(found) == len(set(found))
          result = {"status": "success" if len(found) == 35 else "failed", "total": len(found)}
    """,
    {"validate": {"status": "success", "total": 35}},
)

FOLLOWING_ITSELF = """
    - step: start
      tool: {kind: noop}
      set: {ctx.page: 1, ctx.found: [], ctx.turns: 0}
      next: {arcs: [{step: fetch_page}]}
    - step: fetch_page
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/api/v1/ROUTE"
          params: {page: "{{ ctx.page }}", pageSize: 10, fail_on: "{{ fail_on }}"}
          set: {http_response: "{{ output }}"}
          spec:
            policy:
              rules:
                - when: "{{ output.status == 'error' and output.http.status in [500, 503] }}"
                  then: {do: retry, attempts: 3, backoff: fixed, delay: 0.05}
                - when: "{{ output.status == 'error' }}"
                  then: {do: fail}
                - else: {then: {do: continue}}
        - name: collect
          kind: python
          input:
            input_data: {response: "{{ http_response }}", before: "{{ ctx.found }}"}
          code: |
            body = input_data["response"].get("data", {})
            items = body.get("data", [])
            result = {"all": input_data["before"] + items, "has_more": body["paging"]["hasMore"]}
      set:
        ctx.found: "{{ fetch_page.all }}"
        ctx.page: "{{ (ctx.page | int) + 1 }}"
        ctx.turns: "{{ (ctx.turns | int) + 1 }}"
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: fetch_page, when: "{{ output.has_more and (ctx.turns | int) < (max_iterations | int) }}"}
          - {step: validate}
    - step: validate
      tool:
        kind: python
        input: {found: "{{ ctx.found }}", limit: "{{ max_iterations }}"}
        code: |
          assert len(found) == min(35, limit * 10), f"expected {limit} pages, got {len(found)} items"
          result = {"total": len(found), "first": found[0]["id"], "last": found[-1]["id"]}
"""

STOPPED = Case(
    "a step that follows itself only so often, an input named input_data",
    FOLLOWING_ITSELF.replace("ROUTE", "assessments"),
    {"validate": {"total": 20, "first": 1, "last": 20}},
    {"workload": {"max_iterations": 2, "fail_on": "none"}},
)
RETRIED = Case(
    "a page that fails once on the way",
    FOLLOWING_ITSELF.replace("ROUTE", "flaky"),
    {"validate": {"total": 35, "last": 35}},
    {"workload": {"max_iterations": 10, "fail_on": "2"}},
)

FOUR_IN_A_PIPELINE = Case(
    "one page through three tasks, items checked by the code",
    """
    - step: start
      tool: {kind: python, code: "result = {'page': 1}"}
      next: {arcs: [{step: fetch_transform_store}]}
    - step: fetch_transform_store
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/api/v1/assessments"
          params: {page: "{{ start.page }}", pageSize: 5, ignored: "{{ nothing.here }}"}
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 3,
                backoff: linear, delay: 0.05}}, {else: {then: {do: continue}}}]}}
          set: {response: "{{ output }}"}
        - name: transform
          kind: python
          input: {response: "{{ response }}"}
          code: |
            result = [{"id": one["id"], "double": one["score"] * 2} for one in response["data"]["data"]]
          set: {items: "{{ output }}"}
        - name: store
          kind: python
          input: {items: "{{ items }}", direct: "{{ transform }}"}
          code: |
            assert items == direct
            result = {"stored": len(items), "ids": [one["id"] for one in items]}
      next: {arcs: [{step: validate}]}
    - step: validate
      tool:
        kind: python
        input: {done: "{{ fetch_transform_store }}", label: "{{ fetch_transform_store.store.stored }}"}
        code: |
          assert done["stored"] == label == 5 and done["ids"] == [1, 2, 3, 4, 5]
          result = {"status": "ok"}
    """,
    {"validate": {"status": "ok"}},
)

HEAVY = Case(
    "pages of a size that the code is written with, counted by rules on single tools",
    """
    - step: start
      tool:
        kind: python
        code: |
          # the size below is put in before the code runs
          result = {"payload_kb": {{ payload_kb_per_item }}, "names": {{ names }}}
        spec:
          policy:
            rules:
              - when: "{{ output.status == 'error' }}"
                then: {do: fail}
              - else: {then: {do: continue, set: {ctx.page: 1, ctx.total_bytes: 0, ctx.count: 0}}}
      next: {arcs: [{step: fetch}]}
    - step: fetch
      tool:
        - name: init
          kind: noop
          spec: {policy: {rules: [{else: {then: {do: continue, set: {iter.page: "{{ ctx.page }}"}}}}]}}
        - name: page
          kind: http
          url: "{{ api_url }}/api/v1/heavy"
          params: {page: "{{ iter.page }}", pageSize: 10, payload_kb: "{{ start.payload_kb }}"}
          set: {answer: "{{ output }}"}
        - name: measure
          kind: python
          input: {answer: "{{ answer }}", total: "{{ ctx.total_bytes }}"}
          code: |
            items = answer["data"]["data"]
            result = {"bytes": total + sum(len(one["payload"]) for one in items), "count": len(items),
                      "more": answer["data"]["paging"]["hasMore"]}
      set:
        ctx.total_bytes: "{{ fetch.bytes }}"
        ctx.count: "{{ ctx.count + fetch.count }}"
        ctx.page: "{{ (ctx.page | int) + 1 }}"
      next:
        arcs: [{step: fetch, when: "{{ fetch.more }}"}, {step: validate}]
    - step: validate
      tool:
        kind: python
        input: {total: "{{ ctx.total_bytes }}", count: "{{ ctx.count }}", names: "{{ start.names }}"}
        code: |
          assert count == 35 and total == 35 * 64 * 1024, (count, total)
          assert names == ["a 'b'", 3]
          result = {"status": "success"}
    """,
    {"validate": {"status": "success"}},
    {"workload": {"payload_kb_per_item": 64, "names": ["a 'b'", 3]}},
)

NESTED = Case(
    "a circle in a circle: pages of two endpoints, read under .results and .command_0",
    """
    - step: start
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          -- the rows of an earlier run aren't wanted
          DROP TABLE IF EXISTS look_pages;
          CREATE TABLE look_pages (endpoint TEXT, item INT, UNIQUE (endpoint, item));
      set: {ctx.endpoint: 0}
      next: {arcs: [{step: load_endpoint}]}
    - step: load_endpoint
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        query: |
          SELECT name FROM (VALUES (0, 'assessments'), (1, 'flaky')) AS e(n, name)
          WHERE n = {{ ctx.endpoint | int }}
      set: {ctx.page: 1, ctx.name: "{{ load_endpoint.command_0.rows[0].name }}"}
      next: {arcs: [{step: fetch_page}]}
    - step: fetch_page
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/api/v1/{{ ctx.name }}"
          params: {page: "{{ ctx.page }}", pageSize: 20}
          set: {answer: "{{ output }}"}
        - name: save
          kind: postgres
          auth: "{{ pg_auth }}"
          command: |
            INSERT INTO look_pages
            SELECT '{{ ctx.name }}', (one->>'id')::int
            FROM jsonb_array_elements('{{ answer.data.data | tojson | replace("'", "''") }}'::jsonb) AS one
            ON CONFLICT DO NOTHING
        - name: check_pagination
          kind: python
          input: {answer: "{{ answer }}"}
          code: "result = {'has_more': answer['data']['paging']['hasMore']}"
      set: {ctx.page: "{{ (ctx.page | int) + 1 }}"}
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: fetch_page, when: "{{ fetch_page.results.check_pagination.has_more }}"}
          - {step: next_endpoint}
    - step: next_endpoint
      tool: {kind: python, input: {n: "{{ ctx.endpoint }}"}, code: "result = {'n': n + 1}"}
      set: {ctx.endpoint: "{{ next_endpoint.n }}"}
      next:
        arcs: [{step: load_endpoint, when: "{{ next_endpoint.n < 2 }}"}, {step: count}]
    - step: count
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: SELECT endpoint, count(*) AS items FROM look_pages GROUP BY 1 ORDER BY 1
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {counted: "{{ count }}"}
        code: |
          found = {row["endpoint"]: row["items"] for row in counted.get("command_0", {}).get("rows", [])}
          assert found == {"assessments": 35, "flaky": 35}, found
          result = {"status": "completed"}
    """,
    {"end": {"status": "completed"}},
    {"workload": {"pg_auth": "pg_local"}},
)

THROUGH_A_DRIVER = Case(
    "pages stored by a driver of the author's own, its libraries named as packages",
    """
    - step: start
      tool: {kind: postgres, auth: pg_k8s, command: "DROP TABLE IF EXISTS look_driver;
          CREATE TABLE look_driver (id INT PRIMARY KEY, name TEXT);"}
      set: {ctx.page: 1}
      next: {arcs: [{step: initialize}]}
    - {step: initialize, tool: {kind: noop}, next: {arcs: [{step: fetch_transform_store}]}}
    - step: fetch_transform_store
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/api/v1/assessments"
          params: {page: "{{ ctx.page }}", pageSize: 10}
          set: {fetched: "{{ output }}"}
        - name: transform
          kind: python
          input: {fetched: "{{ fetched }}"}
          code: |
            rows = [(one["id"], one["name"]) for one in fetched.get("data", {}).get("data", [])]
            result = {"rows": rows, "has_more": fetched["data"]["paging"]["hasMore"]}
          set: {made: "{{ output }}"}
        - name: store
          kind: python
          libs: [psycopg]
          input: {made: "{{ made }}", dsn: "{{ dsn }}"}
          code: |
            import psycopg
            with psycopg.connect(dsn) as conn:
                for one in made["rows"]:
                    conn.execute("INSERT INTO look_driver VALUES (%s, %s)", one)
            result = {"stored": len(made["rows"]), "has_more": made["has_more"]}
      set: {ctx.page: "{{ (ctx.page | int) + 1 }}", ctx.again: "{{ fetch_transform_store.has_more }}"}
      next:
        spec: {mode: exclusive}
        arcs: [{step: fetch_transform_store, when: "{{ ctx.again }}"}, {step: validate}]
    - step: validate
      tool:
        kind: postgres
        auth: pg_k8s
        command: "SELECT count(*) AS stored, min(id) AS least, max(id) AS most FROM look_driver"
    """,
    {"validate": {"rows": [{"stored": 35, "least": 1, "most": 35}]}},
)

ERRORS = Case(
    "errors that are retried, accepted and, at last, made to fail",
    """
    - step: start
      tool: {kind: python, code: "result = {}"}
      next: {arcs: [{step: test_continue}]}
    - step: test_continue
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/api/v1/errors"
          params: {error_type: "404"}
          spec: {policy: {rules: [{when: "{{ output.http.status == 404 }}", then: {do: continue}},
                {else: {then: {do: fail}}}]}}
          set: {answered: "{{ output }}"}
        - name: after
          kind: python
          input: {answered: "{{ answered }}"}
          code: "result = {'went_on': True, 'status_code': answered.get('status_code')}"
      next: {arcs: [{step: test_retry}]}
    - step: test_retry
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/api/v1/flaky"
          params: {page: 3, fail_on: "3"}
          spec: {policy: {rules: [
                {when: "{{ output.status == 'error' and output.error.kind == 'server_error' }}",
                  then: {do: retry, attempts: 2, delay: 0.05}}, {else: {then: {do: continue}}}]}}
        - {name: after, kind: noop}
      next: {arcs: [{step: test_fail_auth}]}
    - step: test_fail_auth
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/api/v1/errors"
          params: {error_type: auth}
          spec: {policy: {rules: [{when: "{{ output.http.status in [401, 403] }}", then: {do: fail}},
                {else: {then: {do: continue}}}]}}
        - {name: never, kind: python, code: "result = {'ran': True}"}
      next: {arcs: [{step: end}]}
    - {step: end, tool: {kind: python, code: "result = {'done': True}"}}
    """,
    {"test_continue": {"went_on": True, "status_code": 404}},
    status="FAILED",
    says="test_fail_auth",
)

CASES = (BY_CURSOR, STOPPED, RETRIED, FOUR_IN_A_PIPELINE, HEAVY, NESTED, ERRORS)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_pages_add_up(api: httpx.Client, stub: StubApi, case: Case):
    httpx.post(f"{stub.url}/api/v1/flaky/reset")
    check(api, case, api_url=stub.url)


def test_pages_are_stored_by_the_authors_own_driver(api: httpx.Client, stub: StubApi, database_url: str):
    check(api, THROUGH_A_DRIVER, api_url=stub.url, dsn=database_url)
    assert rows(api, "SELECT count(*) AS n FROM look_driver")[0]["n"] == 35


def test_a_parameter_that_the_server_refuses_fails_with_its_status(api: httpx.Client, stub: StubApi):
    case = Case(
        "an empty page",
        """
        - step: start
          tool: {kind: http, url: "{{ api_url }}/api/v1/assessments", params: {page: "", pageSize: 10}}
          next: {arcs: [{step: refused, when: "{{ event.name == 'call.error' and output.http.status == 422 }}"}]}
        - {step: refused, tool: {kind: python, input: {told: "{{ output }}"}, code: "result = {'told': told}"}}
        """,
        {},
    )
    run = check(api, case, api_url=stub.url)
    assert run.entered() == ["start", "refused"]


def test_a_parameter_without_a_value_is_not_sent(api: httpx.Client, stub: StubApi):
    case = Case(
        "no page",
        """
        - step: start
          tool: {kind: http, url: "{{ api_url }}/get", params: {page: "{{ nowhere.page }}", a: true, b: [1, 2], c: 0}}
        """,
        {"start": {"data": {"args": {"a": "true", "b": "[1,2]", "c": "0"}}}},
    )
    run = check(api, case, api_url=stub.url)
    assert "page" not in run.result("start")["data"]["args"]

"""Playbooks like the public ones that ask, and ask again: retries, bodies, fields under spec, overlap."""

import time

import httpx
import pytest

from tests.conformance.running import Case, check, completed
from tests.conformance.stub_api import StubApi

RETRIES = [
    Case(
        "with a stop: an error that is not worth a retry",
        """
        - step: start
          tool:
            kind: http
            url: "{{ api_url }}/api/v1/errors"
            params: {error_type: "404"}
            spec:
              policy:
                rules:
                  - when: "{{ output.http.status in [500, 502, 503] }}"
                    then: {do: retry, attempts: 5, backoff: exponential, delay: 5}
                  - when: "{{ output.status == 'error' and output.http.status == 404 }}"
                    then: {do: fail}
                  - else: {then: {do: continue}}
          next: {arcs: [{step: end}]}
        - {step: end, tool: {kind: noop}}
        """,
        {},
        status="FAILED",
        says="404",
    ),
    Case(
        "attempts are all tries, then the tool's own error",
        """
        - step: start
          tool:
            kind: python
            libs: {random: random}
            code: |
              if random.random() < 2:
                  raise ValueError("always so")
              result = 1
            spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 3,
                backoff: exponential, delay: 0.05}}, {else: {then: {do: continue}}}]}}
          next: {arcs: [{step: end}]}
        - {step: end, tool: {kind: noop}}
        """,
        {},
        status="FAILED",
        says="always so",
    ),
    Case(
        "a query of DuckDB and one of Postgres under rules that never fire",
        """
        - step: start
          tool:
            kind: duckdb
            database: ":memory:"
            query: SELECT 42 AS answer, 'success' AS status
            spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 3,
                backoff: linear, delay: 1}}, {else: {then: {do: continue}}}]}}
          next: {arcs: [{step: postgres}]}
        - step: postgres
          tool:
            kind: postgres
            auth: "{{ pg_auth }}"
            query: SELECT 1 AS test_value
            spec: {policy: {rules: [{when: "{{ output.status == 'error' and output.error.kind == 'db_connection' }}",
                then: {do: retry, attempts: "{{ 3 }}", backoff: exponential, delay: "1.0"}}]}}
          next: {arcs: [{step: end}]}
        - {step: end, tool: {kind: python, input: {a: "{{ start.rows[0] }}", b: "{{ postgres.rows[0].test_value }}"},
            code: "result = {'a': a, 'b': b}"}}
        """,
        {"end": {"a": {"answer": 42, "status": "success"}, "b": 1}},
        {"workload": {"pg_auth": "pg_k8s"}},
    ),
    Case(
        "a limited server is asked until it answers, as it says when",
        """
        - step: start
          loop: {in: "{{ [1, 2, 3, 4] }}", iterator: page, spec: {mode: parallel, max_in_flight: 4}}
          tool:
            kind: http
            url: "{{ api_url }}/api/v1/rate-limited"
            params: {page: "{{ iter.page }}", requests_per_second: 3}
            spec: {policy: {rules: [{when: "{{ output.status == 'error' and output.error.kind == 'rate_limit' }}",
                then: {do: retry, attempts: 6, backoff: fixed, delay: 0.3}},
                {when: "{{ output.status == 'error' }}", then: {do: fail}}, {else: {then: {do: continue}}}]}}
          next: {arcs: [{step: end, when: "{{ event.name == 'loop.done' }}"}]}
        - step: end
          tool:
            kind: python
            input: {pages: "{{ start.results }}"}
            code: "result = {'items': sum(len(one['body']['data']) for one in pages)}"
        """,
        {"end": {"items": 35}},
    ),
    Case(
        "a server that does not answer in time",
        """
        - step: start
          tool: {kind: http, url: "{{ api_url }}/api/v1/errors", params: {error_type: timeout}, timeout: 0.3,
              spec: {policy: {rules: [{when: "{{ output.error.kind == 'timeout' and output.error.retryable }}",
              then: {do: continue, set: {ctx.late: true}}}, {else: {then: {do: fail}}}]}}}
          next: {arcs: [{step: end}]}
        - {step: end, tool: {kind: python, input: {late: "{{ ctx.late }}"}, code: "result = {'late': late}"}}
        """,
        {"end": {"late": True}},
    ),
]

UNDER_SPEC = Case(
    "fields under spec, pages by jump, an else of its own shape, the body read straight from the outcome",
    """
    - step: start
      tool: {kind: python, spec: {code: "result = {'limit': 3}", policy: {rules: [{else: {then: {do: continue}}}]}}}
      set: {ctx.all_items: []}
      next: {arcs: [{step: fetch_all, set: {ctx.limit: "{{ start.limit }}"}}]}
    - step: fetch_all
      tool:
        - name: init
          kind: noop
          spec: {policy: {rules: [{else: {do: continue, set: {iter.page: 1, iter.seen: 0}}}]}}
        - name: fetch_page
          kind: http
          spec:
            method: GET
            endpoint: "{{ api_url }}/api/v1/assessments"
            params: {page: "{{ iter.page }}", pageSize: 10}
            headers: {Accept: application/json}
            policy:
              rules:
                - when: "{{ output.status == 'error' and output.http.status in [429, 500] }}"
                  then: {do: retry, attempts: 3, backoff: exponential, delay: 0.1}
                - when: "{{ output.status == 'error' }}"
                  then: {do: fail}
                - else:
                    do: continue
                    set: {iter.more: "{{ output.data.paging.hasMore }}", ctx.all_items:
                        "{{ ctx.all_items + output.data.data.data }}"}
        - name: count
          kind: python
          spec:
            input: {n: "{{ ctx.all_items | length }}"}
            code: "result = {'n': n}"
            policy: {rules: [{else: {do: continue, set: {iter.seen: "{{ output.data.n }}"}}}]}
        - name: decide
          kind: noop
          spec:
            policy:
              rules:
                - when: "{{ iter.more and iter.page < ctx.limit }}"
                  then: {do: jump, to: fetch_page, set: {iter.page: "{{ iter.page + 1 }}"}}
                - else: {do: break}
      next: {arcs: [{step: end}]}
    - step: end
      tool: {kind: python, spec: {input: {items: "{{ ctx.all_items }}"}, code: "result = {'n': len(items)}"}}
    """,
    {"end": {"n": 30}},
)

WEATHER = Case(
    "the weather of each place, its body read straight from the outcome and collected",
    """
    - step: start
      tool: {kind: python, spec: {input: {cities: "{{ cities }}"}, code: "result = {'cities': cities}"}}
      set: {ctx.warm: []}
      next: {arcs: [{step: each}]}
    - step: each
      loop: {in: "{{ start.cities }}", iterator: city, spec: {mode: sequential}}
      tool:
        - name: fetch
          kind: http
          spec:
            method: GET
            url: "{{ api_url }}/v1/forecast"
            params: {latitude: "{{ iter.city.lat }}", longitude: 0, current_weather: true}
            policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, delay: 0.1}},
              {else: {then: {do: continue, set: {iter.now: "{{ output.data.current_weather }}"}}}}]}
        - name: judge
          kind: python
          input: {now: "{{ iter.now }}", city: "{{ iter.city }}"}
          code: "result = {'name': city['name'], 'warm': now['temperature'] > 25}"
          spec: {policy: {rules: [{when: "{{ output.data.warm }}", then: {do: continue,
              set: {ctx.warm: "{{ ctx.warm + [output.data.name] }}"}}}, {else: {then: {do: continue}}}]}}
      next: {arcs: [{step: end, when: "{{ event.name == 'loop.done' }}"}]}
    - {step: end, tool: {kind: python, input: {warm: "{{ ctx.warm }}"}, code: "result = {'warm': warm}"}}
    """,
    {"end": {"warm": ["Quito", "Lagos"]}},
    {"workload": {"cities": [{"name": "Quito", "lat": 0}, {"name": "Oslo", "lat": 60}, {"name": "Lagos", "lat": 6}]}},
)

LIFECYCLE = Case(
    "a variable through its life: made, read by a request, kept by a rule, read by the way on",
    """
    - step: start
      tool: {kind: python, spec: {code: "result = {'user_id': 3}"}}
      set: {ctx.user_id: "{{ start.user_id }}", ctx.stage: begun}
      next: {arcs: [{step: load_user}]}
    - step: load_user
      tool:
        kind: http
        spec:
          method: GET
          endpoint: "{{ api_url }}/users/{{ ctx.user_id }}"
          policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: fail}},
              {else: {then: {do: continue, set: {ctx.email: "{{ output.data.email }}", ctx.stage: loaded}}}}]}
      next:
        arcs:
          - {step: unknown, when: "{{ ctx.stage != 'loaded' or load_user.status_code != 200 }}"}
          - {step: known, when: "{{ load_user.data.email == ctx.email }}"}
    - {step: unknown, tool: {kind: noop}}
    - step: known
      tool:
        - name: shape
          kind: python
          spec: {input: {mail: "{{ ctx.email }}"}, code: "result = {'at': mail.index('@')}"}
      next: {arcs: [{step: end}]}
    - {step: end, tool: {kind: python, input: {s: "{{ ctx.stage }}", at: "{{ known.at }}"}, code: "result = {'s': s,
        'at': at}"}}
    """,
    {"end": {"s": "loaded", "at": 2}},
)

CASES = (*RETRIES, UNDER_SPEC, WEATHER, LIFECYCLE)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_requests_come_to_what_was_meant(api: httpx.Client, stub: StubApi, case: Case):
    check(api, case, api_url=stub.url)


BODIES = [
    ('json: {a: "{{ n }}", b: null}', "application/json", {"a": 1, "b": None}, None),
    ('payload: {a: "{{ n }}", l: [1]}', "application/json", {"a": 1, "l": [1]}, None),
    ('data: {a: "{{ n }}"}', "application/json", {"a": 1}, None),
    ("data: {a: x y}\n  headers: {Content-Type: application/x-www-form-urlencoded}", "urlencoded", None, "a=x+y"),
    ('form: {a: "{{ n }}", b: its}', "urlencoded", None, "a=1"),
    ('body: "plain {{ n }}"', "", None, "plain 1"),
    ('body: {a: "{{ n }}"}', "application/json", {"a": 1}, None),
]


@pytest.mark.parametrize(("field", "content_type", "parsed", "text"), BODIES, ids=[one[0][:30] for one in BODIES])
def test_a_body_is_sent_in_the_form_its_field_says(
    api: httpx.Client, stub: StubApi, field: str, content_type: str, parsed: object, text: str | None
):
    tool = f"kind: http\n  method: POST\n  url: '{{{{ api_url }}}}/post'\n  {field}"
    run = completed(
        api,
        f"- step: start\n  tool:\n    {tool.replace(chr(10), chr(10) + '  ')}",
        payload={"api_url": stub.url, "n": 1},
    )
    sent = run.result("start")["data"]
    assert content_type in sent["headers"].get("Content-Type", "")
    assert sent["json"] == parsed if text is None else text in sent["body"]


NON_BLOCKING = Case(
    "slow tools of every kind at a time, judged by the events of the run itself",
    """
    - step: start
      tool: {kind: python, code: "result = {'tools': ['http', 'postgres', 'duckdb', 'nats']}"}
      set: {ctx.delay: 0.4}
      next: {arcs: [{step: reset}]}
    - {step: reset, tool: {kind: http, method: POST, url: "{{ api_url }}/api/v1/concurrency/reset"},
        next: {spec: {mode: inclusive}, arcs: [{step: probes}, {step: slow_sql}, {step: in_duckdb}, {step: in_nats}]}}
    - step: probes
      loop: {in: "{{ [ctx.delay, 0, 0] }}", iterator: item, spec: {mode: parallel, max_in_flight: 3}}
      tool:
        kind: http
        url: "{{ api_url }}/api/v1/concurrency/probe"
        params: {delay_seconds: "{{ iter.item }}", label: "p{{ loop_index }}"}
        spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: fail}}, {else: {then: {do:
            continue}}}]}}
      next: {arcs: [{step: analyze, when: "{{ event.name == 'loop.done' }}"}]}
    - {step: slow_sql, tool: {kind: postgres, auth: pg_k8s, command: "SELECT pg_sleep({{ ctx.delay }}), 1 AS done"},
        next: {arcs: [{step: analyze}]}}
    - {step: in_duckdb, tool: {kind: duckdb, query: SELECT count(*) AS n FROM range(100000)}, next: {arcs: [{step:
        analyze}]}}
    - step: in_nats
      tool: {kind: nats, auth: nats_credential, operation: kv_put, bucket: look_probes, key: k, value: 1}
      next: {arcs: [{step: analyze}]}
    - step: analyze
      tool:
        kind: python
        input: {noetl_api_url: "{{ noetl_api_url }}", id: "{{ execution_id }}", api_url: "{{ api_url }}"}
        code: |
          import json
          import urllib.request
          from datetime import datetime

          def get(url):
              with urllib.request.urlopen(url, timeout=10) as answer:
                  return json.load(answer)

          found = get(f"{noetl_api_url}/api/executions/{id}/events?page=1&page_size=500")["events"]
          at = {}
          for event in found:
              if event["event_type"] in ("command.issued", "command.completed"):
                  stamp = datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00"))
                  at.setdefault(event["node_name"], {}).setdefault(event["event_type"], stamp)
          overlaps = [one for one in ("probes", "in_duckdb", "in_nats")
              if at[one]["command.issued"] < at["slow_sql"]["command.completed"]]
          stats = get(f"{api_url}/api/v1/concurrency/stats")
          assert context.get("execution_id") == id
          assert get(f"{noetl_api_url}/api/executions/{id}")["status"] == "RUNNING"
          result = {"overlaps": len(overlaps), "completed": stats["completed"], "many": stats["max_active"] >= 2}
    """,
    {"analyze": {"overlaps": 3, "completed": 3, "many": True}},
)


def test_slow_tools_do_not_wait_for_each_other(api: httpx.Client, stub: StubApi):
    started = time.monotonic()
    check(api, NON_BLOCKING, api_url=stub.url, noetl_api_url=str(api.base_url).rstrip("/"))
    assert time.monotonic() - started < 5


def test_variables_of_a_run_are_read_and_written_over_http_while_it_waits(api: httpx.Client):
    case = Case(
        "variables",
        """
        - step: start
          tool:
            - name: setter
              kind: python
              libs: {time: time}
              code: "result = {'counter': 42, 'user': 'api_tester', 'at': time.time()}"
              spec: {policy: {rules: [{when: true, then: {do: continue, set: {ctx.counter: "{{ output.data.counter }}",
                  ctx.user: "{{ output.data.user }}"}}}]}}
          next: {arcs: [{step: through_the_api}]}
        - step: through_the_api
          tool:
            kind: python
            input: {url: "{{ noetl_api_url }}", id: "{{ execution_id }}"}
            code: |
              import json
              import urllib.request
              body = json.dumps({"variables": {"counter": 999, "score": 85}}).encode()
              asked = urllib.request.Request(f"{url}/api/vars/{id}", data=body, method="POST",
                                             headers={"Content-Type": "application/json"})
              urllib.request.urlopen(asked, timeout=10).close()
              with urllib.request.urlopen(f"{url}/api/vars/{id}", timeout=10) as answer:
                  result = json.load(answer)
          next: {arcs: [{step: verify}]}
        - step: verify
          tool:
            kind: python
            input: {counter: "{{ ctx.counter }}", user: "{{ ctx.user }}", score: "{{ ctx.score | default(0) }}"}
            code: |
              if (counter, user, score) != (999, "api_tester", 85):
                  raise ValueError(f"{counter} {user} {score}")
              result = {"verified": True}
        """,
        {"verify": {"verified": True}},
    )
    check(api, case, noetl_api_url=str(api.base_url).rstrip("/"))

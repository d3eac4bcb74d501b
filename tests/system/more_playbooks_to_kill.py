"""More playbooks for runs that are disturbed: pipelines, tools, rows and chunks that many share; and all of them."""

from tests.system.playbooks_to_kill import LOOPS_AND_FLOW, Case

PIPELINES = [
    Case(
        "retries with backoff that succeed",
        "COMPLETED",
        """
        - step: start
          tool:
            - {name: init, kind: noop, spec: {policy: {rules: [{else: {do: continue, set: {iter.n: 0}}}]}}}
            - name: flaky
              kind: python
              input: {n: "{{ iter.n }}"}
              code: |
                if n < 4:
                    raise RuntimeError(f"try {n}")
                result = {"n": n}
              spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 6,
                  backoff: exponential, delay: 0.1, set: {iter.n: "{{ iter.n + 1 }}"}}}]}}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {n: "{{ start.n }}"}, code: "result = n"}}
        """,
    ),
    Case(
        "retries of playbooks that all fail",
        "FAILED",
        """
        - step: start
          tool: {kind: playbook, path: kill/failing_child, spec: {policy: {rules: [
              {when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 3, backoff: fixed, delay: 0.2}}]}}}
        """,
    ),
    Case(
        "a jump back across a playbook",
        "COMPLETED",
        """
        - step: start
          tool:
            - {name: a, kind: python, input: {p: "{{ iter.p | default(0) }}"}, code: "result = {'a': p + 1}"}
            - {name: sub, kind: playbook, path: kill/child, input: {n: "{{ a.a }}"}, return_step: last}
            - name: c
              kind: python
              input: {v: "{{ sub.n }}"}
              code: "result = {'c': v}"
              spec: {policy: {rules: [{when: "{{ output.data.c < 3 }}",
                  then: {do: jump, to: a, set: {iter.p: "{{ output.data.c }}"}}}]}}
        """,
    ),
    Case(
        "a child's failure that a rule accepts",
        "COMPLETED",
        """
        - step: start
          tool: {kind: playbook, path: kill/failing_child, spec: {policy: {rules: [
              {when: "{{ output.status == 'error' }}",
              then: {do: continue, set: {ctx.e: "{{ output.error.message }}"}}}]}}}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {e: "{{ ctx.e }}"}, code: "result = 'the child broke' in e"}}
        """,
    ),
    Case(
        "a child that goes on by itself",
        "COMPLETED",
        """
        - {step: start, tool: {kind: playbook, path: kill/child, async: true, input: {n: 6}},
            next: {arcs: [{step: check}]}}
        - {step: check, tool: {kind: python, input: {s: "{{ start.status }}"}, code: "result = s"}}
        """,
    ),
    Case(
        "a child that takes too long is cancelled",
        "FAILED",
        "- {step: start, tool: {kind: playbook, path: kill/endless_child, timeout: 1.5}}\n",
    ),
    Case(
        "a tool that takes too long",
        "FAILED",
        "- {step: start, tool: {kind: shell, command: sleep 60, timeout: 700ms}}\n",
    ),
    Case(
        "a rule that fails a success",
        "FAILED",
        """
        - step: start
          tool:
            - {name: check_rows, kind: python, code: "import time; time.sleep(0.3); result = {'rows': 0}",
                spec: {policy: {rules: [{when: "{{ output.data.rows == 0 }}", then: {do: fail}}]}}}
            - {name: never, kind: noop}
        """,
    ),
    Case(
        "workbook actions",
        "COMPLETED",
        """
        - {step: start, input: {temperature: 20}, tool: {kind: workbook, name: classify, input: {unit: C}},
            next: {arcs: [{step: many}]}}
        - step: many
          loop: {in: 6, iterator: k, spec: {mode: sequential}}
          tool: [{name: classify, kind: workbook, input: {temperature: "{{ k }}"}}]
        """,
        {
            "workbook": [
                {
                    "name": "classify",
                    "tool": {
                        "kind": "python",
                        "input": {"temperature": None, "unit": "F"},
                        "code": "import time; time.sleep(0.05); result = {'t': temperature, 'u': unit}",
                    },
                }
            ]
        },
    ),
    Case(
        "cancelled with its child",
        "CANCELLED",
        """
        - {step: start, tool: {kind: playbook, path: kill/endless_child}, next: {arcs: [{step: end}]}}
        - {step: end, tool: {kind: noop}}
        """,
        is_cancelled=True,
    ),
]
TOOLS = [
    Case(
        "rows written and read in Postgres",
        "COMPLETED",
        """
        - {step: start, tool: {kind: postgres, auth: local_postgres,
            command: "CREATE TABLE IF NOT EXISTS kill_rows (id int PRIMARY KEY, square int);"},
            next: {arcs: [{step: put}]}}
        - step: put
          loop: {in: "{{ range(12) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 3}}
          tool: {kind: postgres, auth: local_postgres, params: ["{{ n }}", "{{ n * n }}"],
              command: "INSERT INTO kill_rows VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET square = excluded.square"}
          next: {arcs: [{step: sum}]}
        - {step: sum, tool: {kind: postgres, auth: local_postgres,
            command: "SELECT count(*)::int AS n, sum(square)::int AS total FROM kill_rows"}}
        """,
    ),
    Case(
        "pages fetched by a cycle",
        "COMPLETED",
        """
        - {step: start, tool: {kind: noop}, set: {ctx.cursor: null, ctx.ids: []}, next: {arcs: [{step: fetch}]}}
        - step: fetch
          tool: {kind: http, url: "{{ api_url }}/api/v1/events", params: {cursor: "{{ ctx.cursor }}", limit: 5}}
          next: {arcs: [{step: collect}]}
        - step: collect
          tool:
            kind: python
            input: {page: "{{ fetch }}", known: "{{ ctx.ids }}"}
            code: |
              body = page["body"]
              result = {"ids": known + [event["id"] for event in body["events"]], "cursor": body["next_cursor"]}
          set: {ctx.ids: "{{ collect.ids }}", ctx.cursor: "{{ collect.cursor }}"}
          next: {arcs: [{step: fetch, when: "{{ ctx.cursor }}"}, {step: check, when: "{{ not ctx.cursor }}"}]}
        - {step: check, tool: {kind: python, input: {ids: "{{ ctx.ids }}"}, code: "result = ids"}}
        """,
    ),
    Case(
        "an http error, tried again and given up",
        "FAILED",
        """
        - step: start
          tool: {kind: http, url: "{{ api_url }}/api/v1/errors", params: {error_type: "503"},
              spec: {policy: {rules: [{when: "{{ output.error.retryable }}",
              then: {do: retry, attempts: 3, backoff: linear, delay: 0.2}}]}}}
        """,
    ),
    Case(
        "a secret of the keychain in each item",
        "COMPLETED",
        """
        - step: start
          loop: {in: 8, iterator: n, spec: {mode: parallel, max_in_flight: 2}}
          tool: {kind: python, input: {token: "{{ keychain.app.key }}"},
              code: "import time; time.sleep(0.05); result = len(token) + n"}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {r: "{{ start.results }}"}, code: "result = r"}}
        """,
        {"keychain": [{"name": "app", "kind": "static", "map": {"key": "a-long-enough-secret"}}]},
    ),
    Case(
        "shell, duckdb and python in one pipeline",
        "COMPLETED",
        """
        - step: start
          tool:
            - {name: sh, kind: shell, command: "sleep 0.3; echo hello"}
            - {name: duck, kind: duckdb, command: "SELECT 6 * 7 AS n"}
            - {name: both, kind: python, input: {said: "{{ sh.stdout }}", n: "{{ duck.rows[0].n }}"},
                code: "result = [said, n]"}
        """,
    ),
]
SHARED = [
    Case(
        "items fanned out, some tried again and some given up",
        "COMPLETED",
        """
        - step: start
          loop: {in: "{{ range(30) | list }}", iterator: n, spec: {mode: fanout, max_in_flight: 10,
              fanout: {max_shard_retries: 1}}}
          tool: {kind: python, code: "import time; time.sleep(0.05); assert n % 10 != 7, f'not {n}'; result = n"}
          next: {arcs: [{step: check, when: "{{ fanin.status == 'partial' }}",
              set: {ctx.f: ["{{ fanin.done }}", "{{ fanin.failed }}", "{{ fanin.total }}"]}}]}
        - {step: check, tool: {kind: python, input: {f: "{{ ctx.f }}", r: "{{ start.results }}"},
            code: "result = [f, r]"}}
        """,
    ),
    Case(
        "playbooks fanned out",
        "COMPLETED",
        """
        - step: start
          loop: {in: 6, iterator: n, spec: {mode: fanout}}
          tool: {kind: playbook, path: kill/child, input: {n: "{{ n + 1 }}"}, return_step: last}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {r: "{{ start.results }}"}, code: "result = [x['n'] for x in r]"}}
        """,
    ),
    Case(
        "rows claimed through a cursor, each once",
        "COMPLETED",
        """
        - step: start
          tool: {kind: postgres, auth: local_postgres, command: "
              CREATE TABLE IF NOT EXISTS kill_queue (run text, id int, claims int, PRIMARY KEY (run, id));
              CREATE TABLE IF NOT EXISTS kill_done (run text, id int, PRIMARY KEY (run, id));
              INSERT INTO kill_queue SELECT '{{ execution_id }}', n, 0 FROM generate_series(1, 60) n
                  ON CONFLICT DO NOTHING"}
          next: {arcs: [{step: drain}]}
        - step: drain
          loop:
            iterator: row
            cursor:
              kind: postgres
              auth: local_postgres
              claim: |
                UPDATE kill_queue q SET claims = claims + 1 FROM (
                    SELECT id FROM kill_queue WHERE run = '{{ execution_id }}' AND claims = 0 ORDER BY id LIMIT 7
                    FOR UPDATE SKIP LOCKED) f
                WHERE q.run = '{{ execution_id }}' AND q.id = f.id RETURNING q.id
            spec: {mode: cursor, max_in_flight: 2}
          tool: {kind: postgres, auth: local_postgres, params: ["{{ execution_id }}", "{{ row.id }}"],
              command: "INSERT INTO kill_done VALUES (%s, %s) ON CONFLICT DO NOTHING"}
          next: {arcs: [{step: sum}]}
        - {step: sum, tool: {kind: postgres, auth: local_postgres,
            command: "SELECT count(*)::int AS n, sum(id)::int AS total, sum(claims)::int AS claims
            FROM kill_done JOIN kill_queue USING (run, id) WHERE run = '{{ execution_id }}'"}}
        """,
        by_chance="drain",
    ),
    Case(
        "chunks streamed to a step that takes each",
        "COMPLETED",
        """
        - step: start
          tool:
            kind: python
            code: |
              import time
              for n in range(15):
                  time.sleep(0.1)
                  emit({"n": n})
              result = {"sent": 15}
          next: {spec: {mode: inclusive}, arcs: [{step: taker, "on": call.partial}, {step: after}]}
        - step: taker
          tool: {kind: python, input: {n: "{{ chunk.n }}"}, code: "result = n * n"}
          next: {arcs: [{step: check}]}
        - {step: after, tool: {kind: python, input: {s: "{{ start.sent }}"}, code: "result = s"}}
        - {step: check, tool: {kind: python, input: {r: "{{ taker.results }}"}, code: "result = sum(r)"}}
        """,
    ),
]
CASES = [*LOOPS_AND_FLOW, *PIPELINES, *TOOLS, *SHARED]

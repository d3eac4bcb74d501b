"""Playbooks like the public ones that share work out over child playbooks: batches claimed in SQL, none twice."""

import httpx
import pytest

from tests.conformance.running import Case, check, document, register, rows
from tests.conformance.stub_api import StubApi

CLAIMING_CHILD = """
    - step: start
      tool:
        kind: python
        input: {parent: "{{ parent_execution_id }}", number: "{{ batch_number | int }}"}
        code: |
          assert parent.isdigit() and isinstance(number, int)
          result = {"number": number}
      next: {spec: {mode: exclusive}, arcs: [{step: claim_items}]}
    - step: claim_items
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          INSERT INTO look_batch_runs (parent, batch_number) VALUES ('{{ parent_execution_id }}', {{ start.number }});
          SELECT pg_sleep({{ worker_delay_seconds | default(0) }});
          WITH chosen AS (
            SELECT id FROM look_batch_items
            WHERE parent = '{{ parent_execution_id }}' AND batch_number = {{ batch_number | int }} AND state = 'new'
            FOR UPDATE SKIP LOCKED
          )
          UPDATE look_batch_items i SET state = 'claimed' FROM chosen c WHERE i.id = c.id
          RETURNING i.id, i.payload;
      next: {spec: {mode: exclusive}, arcs: [
          {step: process_items, when: "{{ claim_items.row_count > 0 }}"}, {step: nothing_to_do}]}
    - {step: nothing_to_do, tool: {kind: noop}, next: {arcs: [{step: end}]}}
    - step: process_items
      loop:
        in: "{{ claim_items.command_2.rows }}"
        iterator: item
        spec: {mode: parallel, max_in_flight: 5, policy: {exec: distributed}}
      tool:
        - name: compute
          kind: python
          input: {item: "{{ iter.item }}"}
          code: "result = {'id': item['id'], 'value': item['payload']['n'] * 2}"
        - name: save
          kind: postgres
          auth: "{{ pg_auth }}"
          command: |
            UPDATE look_batch_items SET state = 'done', value = {{ compute.value }} WHERE id = {{ iter.item.id }}
          spec:
            policy:
              rules:
                - when: "{{ output.status == 'error' and output.error.retryable }}"
                  then: {do: retry, attempts: 3, backoff: exponential, delay: 0.1}
                - when: "{{ output.status == 'error' }}"
                  then: {do: fail}
                - else: {then: {do: break}}
        - {name: never, kind: python, code: "raise AssertionError('a break was not a break')"}
      next: {spec: {mode: exclusive}, arcs: [{step: end, when: "{{ event.name == 'loop.done' }}"}]}
    - step: end
      tool:
        kind: python
        input: {number: "{{ start.number }}", claimed: "{{ claim_items.row_count }}", loop: "{{ process_items }}"}
        code: |
          values = [one["value"] for one in (loop or {}).get("results", [])]
          assert len(values) == claimed, (values, claimed)
          result = {"batch_number": number, "processed": claimed, "sum": sum(values)}
"""

PARENT = """
    - step: start
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          CREATE TABLE IF NOT EXISTS look_batch_items (
            id BIGSERIAL PRIMARY KEY, parent TEXT, batch_number INT, state TEXT, payload JSONB, value INT);
          CREATE TABLE IF NOT EXISTS look_batch_runs (parent TEXT, batch_number INT);
          INSERT INTO look_batch_items (parent, batch_number, state, payload)
          SELECT '{{ execution_id }}', n % {{ batches | int }}, 'new', jsonb_build_object('n', n)
          FROM generate_series(0, {{ total_items | int }} - 1) AS n;
          SELECT DISTINCT batch_number FROM look_batch_items WHERE parent = '{{ execution_id }}' ORDER BY 1;
      set: {ctx.batch_rows: "{{ start.rows }}"}
      next: {spec: {mode: exclusive}, arcs: [{step: run_batches}]}
    - step: run_batches
      desc: "Run every batch (max_in_flight: {{ concurrent_batches }})"
      loop:
        in: "{{ start.command_3.rows }}"
        iterator: batch
        spec: {mode: MODE, max_in_flight: '{{ (concurrent_batches | default(1) | int) or 1 }}'}
      tool:
        kind: playbook
        path: "{{ chunk_worker_path }}"
        return_step: end
        timeout: 60
        input:
          parent_execution_id: "{{ job.execution_id }}"
          batch_number: "{{ iter.batch.batch_number }}"
          pg_auth: "{{ pg_auth }}"
          worker_delay_seconds: "{{ worker_delay_seconds }}"
      next: {spec: {mode: exclusive}, arcs: [{step: validate, when: '{{ event.name == "loop.done" }}'}]}
    - step: validate
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        query: |
          SELECT (SELECT count(*) FROM look_batch_items WHERE parent = '{{ execution_id }}' AND state = 'done') AS done,
            (SELECT count(DISTINCT id) FROM look_batch_items WHERE parent = '{{ execution_id }}') AS distinct_items,
            (SELECT count(*) FROM (SELECT batch_number FROM look_batch_runs WHERE parent = '{{ execution_id }}'
              GROUP BY 1 HAVING count(*) > 1) AS twice) AS twice
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {found: "{{ validate }}", loop: "{{ run_batches }}", batches: "{{ batches }}",
            total: "{{ total_items }}"}
        code: |
          counts = found.get("command_0", {}).get("rows", [{}])[0]
          assert counts == {"done": total, "distinct_items": total, "twice": 0}, counts
          numbers = [one["batch_number"] for one in loop["results"]]
          assert numbers == list(range(batches)), numbers
          assert loop["stats"] == {"total": batches, "success": batches, "failed": 0}
          result = {"all_processed": True, "sum": sum(one["sum"] for one in loop["results"])}
"""


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_every_batch_runs_once_in_a_child_whose_path_is_a_template(api: httpx.Client, mode: str):
    child = register(api, document(CLAIMING_CHILD, path=f"look/claim_worker_{mode}"))
    workload = {
        "pg_auth": "pg_k8s",
        "batches": 4,
        "total_items": 20,
        "concurrent_batches": "3",
        "worker_delay_seconds": 0.05,
        "chunk_worker_path": child,
    }
    case = Case(
        mode,
        PARENT.replace("MODE", mode),
        {"end": {"all_processed": True, "sum": 380}},
        {"workload": workload, "workbook": [{"name": "unused", "tool": {"kind": "noop"}}]},
    )
    run = check(api, case)
    assert run.kinds("run_batches").count("child.started") == 4


TRAVELLERS = """
    - step: start
      tool: {kind: python, code: "result = {'travellers': [{'id': n, 'name': f'T{n}'} for n in range(4)]}"}
      next: {arcs: [{step: enrich}]}
    - step: enrich
      loop: {in: "{{ start.travellers }}", iterator: traveller, spec: {mode: parallel, max_in_flight: 4}}
      tool:
        kind: http
        method: POST
        url: "{{ profile_api_url }}"
        headers: {Content-Type: application/json}
        json: {id: "{{ iter.traveller.id }}", name: "{{ iter.traveller.name }}"}
      next: {arcs: [{step: save, when: "{{ event.name == 'loop.done' }}"}]}
    - step: save
      tool:
        kind: python
        libs: {j: json, stats: {from: statistics, import: mean}}
        input: {http_loop_result: "{{ enrich }}", rows: "{{ start.travellers }}"}
        code: |
          answers = http_loop_result.get("results", [])
          bodies = [one.get("data", {}).get("json", {}) for one in answers]
          assert j.loads(j.dumps(bodies)) == rows, bodies
          result = {"enriched": len(answers), "mean": stats([one["id"] for one in bodies])}
      next: {arcs: [{step: end}]}
    - {step: end, tool: {kind: python, input: {saved: "{{ save }}"}, code: "result = dict(saved, status='completed')"}}
"""


def test_results_of_a_loop_of_requests_are_read_in_their_order(api: httpx.Client, stub: StubApi):
    check(
        api,
        Case("travellers", TRAVELLERS, {"end": {"enriched": 4, "mean": 1.5, "status": "completed"}}),
        profile_api_url=f"{stub.url}/post",
    )


HEAVY_CHILD = """
    - step: start
      tool:
        kind: postgres
        auth: pg_k8s
        command: |
          SELECT id, body FROM look_heavy WHERE id % 3 = {{ batch | int }} ORDER BY id
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: send, when: "{{ (start.command_0.rows | length) > 0 }}"}
          - {step: summarize}
    - step: send
      loop: {in: "{{ start.rows }}", iterator: row, spec: {mode: parallel, max_in_flight: 10}}
      tool:
        - name: build
          kind: python
          input: {row: "{{ iter.row }}", kb: "{{ payload_kb }}"}
          code: "result = {'id': row['id'], 'text': row['body'], 'padding': 'p' * (kb * 1024)}"
        - name: post
          kind: http
          method: POST
          url: "{{ details_api_url }}"
          headers: {Content-Type: application/json}
          payload: {id: "{{ build.id }}", text: "{{ build.text }}", padding: "{{ build.padding }}"}
          timeout: 30
          spec: {policy: {rules: [{when: "{{ output.status == 'error' and output.error.retryable }}",
                then: {do: retry, attempts: 3, backoff: exponential, delay: 0.1}},
                {when: "{{ output.status == 'error' }}", then: {do: fail}}, {else: {then: {do: continue}}}]}}
        - name: shrink
          kind: python
          input: {answer: "{{ post }}"}
          code: |
            got = answer["data"]["json"]
            result = {"id": got["id"], "bytes": len(got["padding"]), "text": got["text"]}
        - name: record
          kind: postgres
          auth: pg_k8s
          command: |
            INSERT INTO look_heavy_done VALUES ({{ shrink.id }}, {{ shrink.bytes }},
              '{{ shrink.text | replace("'", "''") }}') ON CONFLICT DO NOTHING
        - {name: tail, kind: noop}
      next: {arcs: [{step: summarize, when: "{{ event.name == 'loop.done' }}"}]}
    - step: summarize
      tool:
        kind: python
        input: {sent: "{{ send.stats.total | default(0) }}"}
        code: "result = {'sent': sent or 0}"
"""

HEAVY_PARENT = """
    - step: start
      tool:
        kind: postgres
        auth: pg_k8s
        command: |
          DROP TABLE IF EXISTS look_heavy;
          DROP TABLE IF EXISTS look_heavy_done;
          CREATE TABLE look_heavy AS SELECT n AS id, 'it''s row ' || n AS body FROM generate_series(1, 6) AS n;
          CREATE TABLE look_heavy_done (id INT PRIMARY KEY, bytes INT, text TEXT);
      next: {arcs: [{step: batches}]}
    - step: batches
      loop: {in: "{{ [0, 1, 2, 3] }}", iterator: batch, spec: {mode: parallel, max_in_flight: 3}}
      tool:
        kind: playbook
        path: "{{ batch_worker_path }}"
        return_step: summarize
        input: {batch: "{{ iter.batch }}", payload_kb: 256, details_api_url: "{{ details_api_url }}"}
      next: {arcs: [{step: counted, when: "{{ event.name == 'loop.done' }}"}]}
    - step: counted
      tool:
        kind: postgres
        auth: pg_k8s
        command: "SELECT count(*) AS n, sum(bytes) AS bytes, min(text) AS text FROM look_heavy_done"
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {sent: "{{ batches.results }}", counted: "{{ counted.command_0.rows[0] }}"}
        code: |
          assert [one["sent"] for one in sent] == [2, 2, 2, 0], sent
          result = {"n": counted["n"], "bytes": int(counted["bytes"]), "text": counted["text"]}
"""


def test_heavy_payloads_go_through_children_and_an_empty_batch_is_summed_up(api: httpx.Client, stub: StubApi):
    child = register(api, document(HEAVY_CHILD, path="look/heavy_worker"))
    expected = {"n": 6, "bytes": 6 * 256 * 1024, "text": "it's row 1"}
    case = Case("heavy", HEAVY_PARENT, {"end": expected}, payload={"batch_worker_path": child})
    check(api, case, details_api_url=f"{stub.url}/anything/details")


SET_CHILD = """
    - step: start
      tool: {kind: python, input: {low: "{{ start_id }}", high: "{{ end_id }}"}, code: "result = {'n': high - low}"}
      next: {arcs: [{step: work}]}
    - step: work
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          UPDATE look_stress SET done = true WHERE id >= {{ start_id }} AND id < {{ end_id }};
          SELECT count(*) AS processed FROM look_stress WHERE done AND id >= {{ start_id }} AND id < {{ end_id }};
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {work: "{{ work }}"}
        code: "result = {'processed': work['command_1']['rows'][0]['processed']}"
"""


def stress_workflow(contexts: int) -> str:
    """Return a playbook of many steps whose results pile up before it shares out its work."""
    steps = "".join(
        f"""
    - step: context_{n:02d}
      tool:
        kind: python
        input: {{before: "{{{{ {f"context_{n - 1:02d}" if n else "start"} }}}}"}}
        code: "result = {{'n': {n}, 'pad': 'c' * 5000, 'sum': (before.get('sum') or 0) + {n}}}"
      next: {{spec: {{mode: exclusive}}, arcs: [{{step: {f"context_{n + 1:02d}" if n + 1 < contexts else "seed"}}}]}}
"""
        for n in range(contexts)
    )
    return f"""
    - step: start
      tool: {{kind: python, code: "result = {{'sum': 0}}"}}
      next: {{arcs: [{{step: context_00}}]}}
{steps}
    - step: seed
      tool:
        kind: postgres
        auth: "{{{{ pg_auth }}}}"
        command: |
          CREATE TABLE IF NOT EXISTS look_stress (id INT PRIMARY KEY, done BOOL DEFAULT false);
          TRUNCATE look_stress;
          INSERT INTO look_stress (id) SELECT generate_series(0, {{{{ total_items | int }}}} - 1);
      next: {{arcs: [{{step: plan}}]}}
    - step: plan
      tool:
        kind: python
        input: {{total: "{{{{ total_items }}}}", size: "{{{{ chunk_size }}}}"}}
        code: |
          result = {{"chunks": [{{"start": n, "end": n + size}} for n in range(0, total, size)]}}
      next: {{arcs: [{{step: run_chunks}}]}}
    - step: run_chunks
      loop:
        in: "{{{{ plan.chunks }}}}"
        iterator: chunk
        spec: {{mode: parallel, max_in_flight: '{{{{ (concurrent_batches | default(1) | int) or 1 }}}}'}}
      tool:
        kind: playbook
        path: "{{{{ chunk_worker_path }}}}"
        return_step: end
        input: {{start_id: "{{{{ iter.chunk.start }}}}", end_id: "{{{{ chunk.end }}}}", pg_auth: "{{{{ pg_auth }}}}"}}
        spec:
          policy:
            rules:
              - when: "{{{{ output.status == 'error' and output.error.retryable }}}}"
                then: {{do: retry, attempts: 2, backoff: fixed, delay: 0.1}}
              - when: "{{{{ output.status == 'error' }}}}"
                then: {{do: fail}}
              - else: {{then: {{do: break}}}}
      next: {{arcs: [{{step: summary, when: "{{{{ event.name == 'loop.done' }}}}"}}]}}
    - step: summary
      tool:
        kind: python
        input: {{results: "{{{{ run_chunks.data }}}}", first: "{{{{ context_00.n }}}}",
            piled: "{{{{ context_{contexts - 1:02d}.sum }}}}"}}
        code: |
          result = {{"processed": sum(one["processed"] for one in results), "first": first, "piled": piled}}
"""


def test_work_is_shared_out_after_many_steps_whose_results_stay_addressable(api: httpx.Client):
    child = register(api, document(SET_CHILD, path="look/stress_worker"))
    workload = {
        "pg_auth": "pg_k8s",
        "total_items": 60,
        "chunk_size": 10,
        "concurrent_batches": 4,
        "chunk_worker_path": child,
    }
    case = Case(
        "stress",
        stress_workflow(21),
        {"summary": {"processed": 60, "first": 0, "piled": 210}},
        {"workload": workload},
    )
    check(api, case)
    assert rows(api, "SELECT count(*) AS n FROM look_stress WHERE done")[0]["n"] == 60


def test_children_one_after_the_other_with_variables_of_arcs_and_other_keys_for_the_input(api: httpx.Client):
    child = """
        - {step: start, tool: {kind: python, input: {who: "{{ who }}"}, code: "result = {'hello': who}"}, next: {arcs:
            [{step: end}]}}
        - {step: end, tool: {kind: python, input: {start: "{{ start }}"}, code: "result = {'greeted': start['hello']}"}}
    """
    path = register(api, document(child, path="/look/leading/slash", workload={"who": "nobody"}))
    assert path == "/look/leading/slash"
    case = Case(
        "three children",
        """
        - step: start
          tool: {kind: python, code: "result = {'n': 1}"}
          next: {arcs: [{step: first, set: {ctx.batch: "b{{ start.n }}", batch_started: true}}]}
        - {step: first, tool: {kind: playbook, path: /look/leading/slash, input: {who: "{{ ctx.batch }}"}},
            next: {arcs: [{step: second, set: {ctx.done: ["{{ first.greeted }}"]}}]}}
        - {step: second, tool: {kind: playbook, path: /look/leading/slash, payload: {who: two}, task: ignored},
            next: {arcs: [{step: third, set: {ctx.done: "{{ ctx.done + [second.greeted] }}"}}]}}
        - {step: third, tool: {kind: playbook, path: /look/leading/slash, args: {who: three}, return_step: start},
            next: {arcs: [{step: end}]}}
        - step: end
          tool:
            kind: python
            input: {done: "{{ ctx.done }}", third: "{{ third }}", batch: "{{ batch }}", flag: "{{ batch_started }}"}
            code: "result = {'done': done + [third['hello']], 'batch': batch, 'flag': flag}"
        """,
        {"end": {"done": ["b1", "two", "three"], "batch": "b1", "flag": True}},
    )
    check(api, case)

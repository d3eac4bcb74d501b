"""Playbooks like the public ones that drain queues kept in tables: by jumps, by circles and by claims."""

import httpx
import pytest

from tests.conformance.running import Case, check, rows
from tests.conformance.stub_api import StubApi
from tests.conformance.stub_pages import CHAIN_ITEMS

FETCH_AND_LOAD = Case(
    "every page of every patient by jumps within one command",
    """
    - step: start
      tool:
        kind: postgres
        auth: pg_k8s
        command: |
          DROP TABLE IF EXISTS look_records;
          CREATE TABLE look_records (patient INT, page INT, bytes INT, pages INT, PRIMARY KEY (patient, page));
      next: {arcs: [{step: fetch_all}]}
    - step: fetch_all
      loop:
        in: "{{ patients }}"
        iterator: patient_id
        spec: {mode: parallel, max_in_flight: 4}
      tool:
        - name: init
          kind: noop
          spec: {policy: {rules: [{else: {then: {do: continue, set: {iter.page: 1, iter.pages_done: 0}}}}]}}
        - name: fetch_page
          kind: http
          url: "{{ api_url }}/api/v1/patient-records"
          params: {patient_id: "{{ iter.patient_id }}", page: "{{ iter.page }}", payload_kb: "{{ api_payload_kb }}",
            min_delay: "{{ api_min_delay }}", rate_limit: "{{ api_rate_limit }}"}
          timeout: 20
          spec:
            policy:
              rules:
                - when: "{{ output.status == 'error' and output.http.status == 429 }}"
                  then: {do: retry, attempts: 10, backoff: fixed, delay: 0.2}
                - when: "{{ output.status == 'error' }}"
                  then: {do: fail}
                - else:
                    then:
                      do: continue
                      set:
                        iter.has_more: "{{ output.data.meta.has_more }}"
                        iter.pages: "{{ output.data.meta.total_pages }}"
                        iter.entries: "{{ output.data.entry }}"
        - name: save_page
          kind: postgres
          auth: pg_k8s
          command: |
            INSERT INTO look_records VALUES ({{ iter.patient_id }}, {{ iter.page }},
              {{ (iter.entries | first).resource.text | length }}, {{ iter.pages }})
            ON CONFLICT (patient, page) DO NOTHING
          output: {store: {kind: auto}}
          spec: {policy: {rules: [{else: {then: {do: continue,
              set: {iter.page: "{{ (iter.page | int) + 1 }}", iter.pages_done: "{{ iter.pages_done + 1 }}"}}}}]}}
        - name: next_page
          kind: noop
          spec:
            policy:
              rules:
                - when: "{{ iter.has_more }}"
                  then: {do: jump, to: fetch_page}
                - else: {then: {do: break}}
      next: {arcs: [{step: validate, when: "{{ event.name == 'loop.done' }}"}]}
    - step: validate
      tool:
        kind: postgres
        auth: pg_k8s
        command: |
          SELECT count(DISTINCT patient) AS patients, bool_and(n = pages) AS complete
          FROM (SELECT patient, count(*) AS n, max(pages) AS pages FROM look_records GROUP BY patient) AS p
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {found: "{{ validate.rows[0] }}", expected: "{{ patients | length }}"}
        code: |
          assert found == {"patients": expected, "complete": True}, found
          result = {"patients": expected}
    """,
    {"end": {"patients": 12}},
    {
        "workload": {
            "patients": list(range(1, 13)),
            "api_payload_kb": 1,
            "api_min_delay": 0,
            "api_rate_limit": 5000,
        }
    },
)

REFERENCE_CHAIN = Case(
    "pages of references, each page's items followed by a loop inside the circle",
    """
    - step: start
      tool: {kind: python, code: "result = {'ok': True}"}
      set: {ctx.page: 1, ctx.processed: 0, ctx.pages: 0}
      next: {arcs: [{step: fetch_page}]}
    - step: fetch_page
      tool:
        kind: http
        url: "{{ api_url }}/api/v1/reference-chain/items"
        params: {page: "{{ ctx.page }}", pageSize: 128}
      output: {store: {kind: auto}, output_select: [items]}
      set: {ctx.items: "{{ fetch_page.body.items }}", ctx.has_more: "{{ output.data.paging.hasMore }}"}
      next: {arcs: [{step: process_records}]}
    - step: process_records
      loop: {in: "{{ ctx.items }}", iterator: item, spec: {mode: parallel, max_in_flight: 200}}
      tool:
        - name: fetch_detail
          kind: http
          url: "{{ api_url }}{{ iter.item.ref }}"
          set: {detail: "{{ output }}"}
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 3, delay: 0.1}},
              {else: {then: {do: continue}}}]}}
        - name: check_detail
          kind: noop
          result: {id: "{{ detail.data.id }}", value: "{{ detail.body.value }}"}
      next: {arcs: [{step: count_records, when: "{{ event.name == 'loop.done' }}"}]}
    - step: count_records
      tool:
        kind: python
        input: {done: "{{ process_records.results }}", stats: "{{ process_records.stats }}", page: "{{ ctx.page }}"}
        code: |
          low = (page - 1) * 128 + 1
          assert [one["id"] for one in done] == list(range(low, low + len(done)))
          assert all(one["value"] == one["id"] * 3 for one in done) and stats["success"] == len(done)
          result = {"count": len(done)}
      set:
        ctx.processed: "{{ ctx.processed + count_records.count }}"
        ctx.pages: "{{ ctx.pages + 1 }}"
        ctx.page: "{{ ctx.page + 1 }}"
      next: {arcs: [{step: fetch_page, when: "{{ ctx.has_more }}"}, {step: finalize}]}
    - step: finalize
      tool:
        kind: python
        input: {processed: "{{ ctx.processed }}", pages: "{{ ctx.pages }}"}
        code: |
          assert processed == 382, processed
          result = {"processed": processed, "pages": pages}
    """,
    {"finalize": {"processed": CHAIN_ITEMS, "pages": 3}},
)

PATIENT_QUEUE = Case(
    "a queue drained by a circle of slots, batches claimed until none is left",
    """
    - step: start
      tool:
        kind: postgres
        auth: pg_k8s
        command: |
          DROP TABLE IF EXISTS look_queue;
          CREATE TABLE look_queue (patient INT PRIMARY KEY, state TEXT NOT NULL DEFAULT 'new', answered INT);
          INSERT INTO look_queue (patient) SELECT generate_series(1, {{ patients | int }});
      next: {arcs: [{step: process_slots}]}
    - step: process_slots
      loop: {in: "{{ slots }}", iterator: slot, spec: {mode: parallel, max_in_flight: 5}}
      tool:
        - name: claim_batch
          kind: postgres
          auth: pg_k8s
          command: |
            UPDATE look_queue q SET state = 'claimed' FROM (
              SELECT patient FROM look_queue WHERE state = 'new' ORDER BY patient
              FOR UPDATE SKIP LOCKED LIMIT {{ batch_size | int }}) AS c
            WHERE q.patient = c.patient RETURNING q.patient
          spec:
            policy:
              rules:
                - when: "{{ output.status == 'error' }}"
                  then: {do: retry, attempts: 3, backoff: exponential, delay: 0.1}
                - when: "{{ output.data.row_count == 0 }}"
                  then: {do: break, set: {iter.claimed: []}}
                - else: {then: {do: continue, set: {iter.claimed: "{{ output.data.rows }}"}}}
        - name: send_batch
          kind: http
          method: POST
          url: "{{ api_url }}/anything/slot-{{ slot }}"
          json: {patients: "{{ iter.claimed }}"}
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: fail}},
              {else: {then: {do: continue, set: {iter.answered: "{{ output.data.data.json.patients }}"}}}}]}}
        - name: complete_batch
          kind: postgres
          auth: pg_k8s
          command: |
            UPDATE look_queue SET state = 'done', answered = (
              SELECT count(*) FROM jsonb_array_elements('{{ iter.answered | tojson }}'::jsonb))
            WHERE patient IN (SELECT (one->>'patient')::int
              FROM jsonb_array_elements('{{ iter.answered | tojson }}'::jsonb) AS one)
      next: {arcs: [{step: count_left, when: "{{ event.name == 'loop.done' }}"}]}
    - step: count_left
      tool:
        kind: postgres
        auth: pg_k8s
        command: SELECT count(*) FILTER (WHERE state <> 'done') AS left_over FROM look_queue
      set: {ctx.turns: "{{ (ctx.turns | default(0) | int) + 1 }}"}
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: process_slots, when: "{{ output.data.rows[0].left_over > 0 and ctx.turns < 50 }}"}
          - {step: check_results}
    - step: check_results
      tool:
        kind: postgres
        auth: pg_k8s
        command: |
          SELECT count(*) AS done_count, min(answered) AS least FROM look_queue WHERE state = 'done'
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {found: "{{ check_results.rows[0] }}", turns: "{{ ctx.turns }}"}
        code: "result = {'done_count': found['done_count'], 'turns': turns, 'least': found['least']}"
    """,
    {"end": {"done_count": 60, "turns": 3, "least": 5}},
    {"workload": {"patients": 60, "batch_size": 5, "slots": [1, 2, 3, 4, 5]}},
)

FLOW = Case(
    "slots that claim, fetch and save by a jump until a claim is empty, statements of 100 KB, a check that raises",
    """
    - step: start
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          -- the patients' queue: it's dropped first; a semicolon here; isn't the end of a statement
          DROP TABLE IF EXISTS look_flow_batches;
          DROP TABLE IF EXISTS look_flow_rows;
          CREATE TABLE look_flow_batches (id SERIAL PRIMARY KEY, data_type TEXT, patients INT[], state TEXT);
          CREATE TABLE look_flow_rows (data_type TEXT, patient INT, page INT, facility INT, records JSONB);
          DO $$
          DECLARE kind TEXT; -- the DO's own comment; with an apostrophe
          BEGIN
            FOREACH kind IN ARRAY ARRAY['assessments', 'conditions', 'demographics'] LOOP
              INSERT INTO look_flow_batches (data_type, patients, state)
              SELECT kind, array_agg(p ORDER BY p), 'new'
              FROM generate_series(1, {{ num_facilities | int }} * {{ patients_per_facility | int }}) AS p
              GROUP BY (p - 1) / {{ pft_batch_size | int }};
            END LOOP;
          END $$;
          SELECT count(*) AS batches FROM look_flow_batches;
      next: {arcs: [{step: process_batches}]}
    - step: process_batches
      loop: {in: "{{ batch_slots }}", iterator: slot, spec: {mode: parallel, max_in_flight: 16}}
      tool:
        - name: claim_batch
          kind: postgres
          auth: "{{ pg_auth }}"
          command: |
            UPDATE look_flow_batches b SET state = 'claimed' FROM (
              SELECT id FROM look_flow_batches WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) AS c
            WHERE b.id = c.id
            RETURNING b.id, b.data_type, array_to_string(b.patients, ',') AS patient_ids, '{{ slot }}' AS slot;
          spec:
            policy:
              rules:
                - when: "{{ output.status == 'error' }}"
                  then: {do: retry, backoff: fixed, delay: 0.1}
                - when: "{{ output.data.row_count == 0 }}"
                  then: {do: break}
                - else:
                    then:
                      do: continue
                      set:
                        iter.batch_id: "{{ output.data.rows[0].id }}"
                        iter.data_type: "{{ output.data.rows[0].data_type }}"
                        iter.patient_ids: "{{ output.data.rows[0].patient_ids }}"
        - name: fetch_batch
          kind: http
          url: "{{ api_url }}/api/v1/pft/batch/{{ iter.data_type | default(\\"unknown\\") }}"
          params: {patientIds: "{{ iter.patient_ids }}", pageSize: "{{ page_size }}",
            patientsPerFacility: "{{ workload.patients_per_facility }}"}
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, delay: 0.1}},
              {else: {then: {do: continue, set: {iter.batch_rows: "{{ output.data.data.data }}"}}}}]}}
        - name: save_batch
          kind: postgres
          auth: "{{ pg_auth }}"
          command: |
            {% if iter.data_type == 'assessments' %}
            INSERT INTO look_flow_rows
            SELECT 'assessments', (r->>'patient_id')::int, (r->>'page')::int, (r->>'facility_id')::int, r->'records'
            FROM jsonb_array_elements('{{ iter.batch_rows | tojson | replace("'", "''") }}'::jsonb) AS r;
            {% elif iter.data_type == 'conditions' %}
            INSERT INTO look_flow_rows
            SELECT 'conditions', (r->>'patient_id')::int, (r->>'page')::int, (r->>'facility_id')::int, r->'records'
            FROM jsonb_array_elements('{{ iter.batch_rows | tojson | replace("'", "''") }}'::jsonb) AS r;
            {% else %}
            INSERT INTO look_flow_rows
            SELECT '{{ iter.data_type }}', (r->>'patient_id')::int, 1, (r->>'facility_id')::int, r->'records'
            FROM jsonb_array_elements($json${{ iter.batch_rows | tojson }}$json$::jsonb) AS r;
            {% endif %}
            UPDATE look_flow_batches SET state = 'done' WHERE id = {{ iter.batch_id }};
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: fail}},
              {else: {then: {do: jump, to: claim_batch}}}]}}
      next: {arcs: [{step: check_results, when: "{{ event.name == 'loop.done' }}"}]}
    - step: check_results
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          DO $$
          DECLARE found INT;
          BEGIN
            SELECT count(*) INTO found FROM (
              SELECT data_type, facility FROM look_flow_rows GROUP BY 1, 2
              HAVING count(DISTINCT patient) = {{ patients_per_facility | int }}) AS full_ones;
            IF found <> 3 * {{ num_facilities | int }} THEN
              RAISE EXCEPTION 'expected every patient''s rows in % groups, found %', 3 * {{ num_facilities }}, found;
            END IF;
          END $$;
          SELECT 'completed' AS status, (SELECT max(length(records::text)) FROM look_flow_rows) AS longest;
      set: {ctx.final_check_status: "{{ output.data.rows[0].status }}"}
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: SELECT '{{ ctx.final_check_status }}' AS status
    """,
    {"end": {"rows": [{"status": "completed"}]}},
    {
        "workload": {
            "pg_auth": "pg_k8s",
            "page_size": 10,
            "num_facilities": 2,
            "patients_per_facility": 100,
            "pft_batch_size": 50,
            "batch_slots": list(range(1, 17)),
        }
    },
)

CASES = (FETCH_AND_LOAD, REFERENCE_CHAIN, PATIENT_QUEUE, FLOW)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_queue_is_drained(api: httpx.Client, stub: StubApi, case: Case):
    check(api, case, api_url=stub.url)


def test_a_check_in_sql_that_raises_fails_the_run_with_its_words(api: httpx.Client, stub: StubApi):
    run = check(
        api,
        Case(
            "raises",
            """
            - step: start
              tool:
                kind: postgres
                auth: pg_k8s
                command: |
                  DO $$ BEGIN RAISE EXCEPTION 'expected % pages, found %', 3, 2; END $$;
                  SELECT 'never' AS status;
              next: {arcs: [{step: end}]}
            - {step: end, tool: {kind: noop}}
            """,
            {},
            status="FAILED",
            says="expected 3 pages, found 2",
        ),
    )
    assert run.entered() == ["start"] and "P0001" in str(run.status["error"])
    assert rows(api, "SELECT 1 AS one") == [{"one": 1}]

"""Playbooks like the public ones that claim their work row by row: cursors entered again, work that makes work."""

import httpx
import pytest

from tests.conformance.running import Case, check
from tests.conformance.stub_api import StubApi
from tests.conformance.stub_clinic import MOST_PAGES, mds_ids, pages_of

SEED = """
    - step: start
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          CREATE TABLE IF NOT EXISTS look_claim_facilities (run TEXT, id INT, state TEXT, PRIMARY KEY (run, id));
          CREATE TABLE IF NOT EXISTS look_claim_work (
            run TEXT, facility INT, kind TEXT, patient TEXT, state TEXT, tries INT DEFAULT 0,
            PRIMARY KEY (run, kind, patient));
          CREATE TABLE IF NOT EXISTS look_claim_pages (
            run TEXT, facility INT, kind TEXT, patient TEXT, payload JSONB, PRIMARY KEY (run, kind, patient));
          INSERT INTO look_claim_facilities
          SELECT '{{ execution_id }}', f, 'pending' FROM generate_series(1, {{ num_facilities | int }}) AS f;
          INSERT INTO look_claim_work (run, facility, kind, patient, state)
          SELECT '{{ execution_id }}', f, k, ((f - 1) * {{ patients }} + p)::text, 'pending'
          FROM generate_series(1, {{ num_facilities | int }}) AS f, generate_series(1, {{ patients | int }}) AS p,
            unnest(ARRAY['assessments', 'conditions']) AS k;
          SELECT count(*) AS seeded FROM look_claim_work WHERE run = '{{ execution_id }}';
      next: {spec: {mode: exclusive}, arcs: [{step: load_next_facility}]}
    - step: load_next_facility
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          UPDATE look_claim_facilities SET state = 'active' WHERE run = '{{ execution_id }}' AND id = (
            SELECT min(id) FROM look_claim_facilities WHERE run = '{{ execution_id }}' AND state = 'pending')
          RETURNING id AS facility_mapping_id
        spec:
          policy:
            rules:
              - when: "{{ output.status == 'error' }}"
                then: {do: retry, attempts: 6, backoff: fixed, delay: 0.2}
              - when: "{{ output.data.row_count > 0 }}"
                then: {do: continue, set: {ctx.facility_mapping_id: "{{ output.data.rows[0].facility_mapping_id }}"}}
              - else: {then: {do: continue, set: {ctx.facility_mapping_id: 0}}}
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: fetch_assessments, when: "{{ (ctx.facility_mapping_id | int) > 0 }}"}
          - {step: validate}
"""

FETCH = """
    - step: fetch_KIND
      loop:
        cursor:
          kind: postgres
          auth: pg_k8s
          claim: |
            WITH candidate AS (
              SELECT patient FROM look_claim_work
              WHERE run = '{{ execution_id }}' AND facility = {{ ctx.facility_mapping_id | int }} AND kind = 'KIND'
                AND state = 'pending' AND tries < {{ turn_limit | default(9) }}
              ORDER BY patient::int FOR UPDATE SKIP LOCKED LIMIT {{ __frame_max_rows | default(1) | int }})
            UPDATE look_claim_work w SET state = 'claimed', tries = tries + 1 FROM candidate c
            WHERE w.run = '{{ execution_id }}' AND w.kind = 'KIND' AND w.patient = c.patient
            RETURNING w.patient, w.facility;
        iterator: patient
        spec:
          mode: cursor
          max_in_flight: 2
          frame: {max_rows: 3, row_concurrency: 2, process: row, max_seconds: 30, max_bytes: 67108864,
            lease_seconds: 120, heartbeat_seconds: 30}
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/api/v1/patient/KIND"
          params: {patientId: "{{ iter.patient.patient }}", page: 1, pageSize: 1}
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 6,
              delay: 0.2}}, {else: {then: {do: continue, set: {iter.payload: "{{ output.data.data }}"}}}}]}}
        - name: save
          kind: postgres
          auth: "{{ pg_auth }}"
          command: |
            INSERT INTO look_claim_pages VALUES ('{{ execution_id }}', {{ iter.patient.facility }}, 'KIND',
              '{{ iter.patient.patient }}', '{{ iter.payload | tojson | replace("'", "''") }}'::jsonb)
            ON CONFLICT DO NOTHING;
            -- every other patient isn't done at its first turn
            UPDATE look_claim_work SET state = CASE WHEN tries > {{ iter.patient.patient | int }} % 2
              THEN 'done' ELSE 'again' END
            WHERE run = '{{ execution_id }}' AND kind = 'KIND' AND patient = '{{ iter.patient.patient }}';
      next:
        spec: {mode: exclusive, on_no_match: quiet}
        arcs: [{step: mark_KIND_done, when: "{{ event.name == 'loop.done' }}"}]
    - step: mark_KIND_done
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          UPDATE look_claim_work SET state = 'pending' WHERE run = '{{ execution_id }}' AND state = 'again';
          SELECT count(*) FILTER (WHERE state <> 'done') AS left_over, count(*) = 0 AS none
          FROM look_claim_work WHERE run = '{{ execution_id }}' AND kind = 'KIND'
            AND facility = {{ ctx.facility_mapping_id | int }};
        spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 3, delay: 0.2}},
            {else: {then: {do: continue,
              set: {ctx.KIND_left: "{{ (output.data.rows | default(output.data) | first).left_over | int }}"}}}}]}}
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: fetch_KIND, when: "{{ ctx.KIND_left > 0 }}"}
          - {step: FOLLOWING}
"""

MDS = """
    - step: queue_mds
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          INSERT INTO look_claim_work (run, facility, kind, patient, state)
          SELECT p.run, p.facility, 'mds', mds, 'pending'
          FROM look_claim_pages p, jsonb_array_elements(p.payload->'data') AS r,
            jsonb_array_elements_text(r->'mdsIds') AS mds
          WHERE p.run = '{{ execution_id }}' AND p.kind = 'assessments'
            AND p.facility = {{ ctx.facility_mapping_id | int }}
          ON CONFLICT DO NOTHING
      next: {arcs: [{step: fetch_mds}]}
    - step: fetch_mds
      loop:
        cursor:
          kind: postgres
          auth: "{{ pg_auth }}"
          claim: |
            UPDATE look_claim_work SET state = 'claimed' WHERE run = '{{ execution_id }}' AND kind = 'mds'
              AND patient IN (SELECT patient FROM look_claim_work WHERE run = '{{ execution_id }}' AND kind = 'mds'
                AND state = 'pending' FOR UPDATE SKIP LOCKED LIMIT {{ __frame_max_rows }})
            RETURNING patient AS mds_id
        iterator: mds
        spec: {mode: cursor, max_in_flight: 2, frame: {max_rows: 25, row_concurrency: 5}}
      tool:
        - {name: fetch, kind: http, url: "{{ api_url }}/api/v1/mds/assessment/{{ mds.mds_id }}"}
        - name: save
          kind: postgres
          auth: "{{ pg_auth }}"
          command: |
            UPDATE look_claim_work SET state = '{{ "done" if fetch.data.data.status == "complete" else "bad" }}'
            WHERE run = '{{ execution_id }}' AND kind = 'mds' AND patient = '{{ iter.mds.mds_id }}'
      next: {spec: {on_no_match: quiet}, arcs: [{step: check_facility, when: "{{ event.name == 'loop.done' }}"}]}
    - step: check_facility
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          DO $$ BEGIN
            IF EXISTS (SELECT FROM look_claim_work WHERE run = '{{ execution_id }}' AND state <> 'done'
                AND facility = {{ ctx.facility_mapping_id | int }}) THEN
              RAISE EXCEPTION 'facility % isn''t done', {{ ctx.facility_mapping_id | int }};
            END IF;
          END $$;
          UPDATE look_claim_facilities SET state = 'done' WHERE run = '{{ execution_id }}'
            AND id = {{ ctx.facility_mapping_id | int }};
      next: {arcs: [{step: load_next_facility}]}
    - step: validate
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          SELECT (SELECT count(*) FROM look_claim_facilities WHERE run = '{{ execution_id }}' AND state = 'done')
              AS facilities,
            (SELECT count(*) FROM look_claim_pages WHERE run = '{{ execution_id }}') AS pages,
            (SELECT count(*) FROM look_claim_work WHERE run = '{{ execution_id }}' AND kind = 'mds') AS mds,
            (SELECT max(tries) FROM look_claim_work WHERE run = '{{ execution_id }}') AS tries
      next: {arcs: [{step: end}]}
    - {step: end, tool: {kind: python, input: {found: "{{ validate.rows[0] }}"}, code: "result = dict(found)"}}
"""


def fetching(kind: str, following: str) -> str:
    """Return the steps that fetch one kind of page for every patient, round and round until none is left."""
    return FETCH.replace("KIND", kind).replace("FOLLOWING", following)


@pytest.mark.parametrize("facilities", [2])
def test_every_facility_is_drained_by_cursors_that_are_entered_again(api: httpx.Client, stub: StubApi, facilities: int):
    workload = {"pg_auth": "pg_k8s", "num_facilities": facilities, "patients": 2}
    workflow = SEED + fetching("assessments", "fetch_conditions") + fetching("conditions", "queue_mds") + MDS
    patients = range(1, facilities * 2 + 1)
    mds = sum(len(mds_ids(patient, 1)) for patient in patients)
    expected = {"facilities": facilities, "pages": 2 * len(patients), "mds": mds, "tries": 2}
    run = check(api, Case("clinic", workflow, {"end": expected}, {"workload": workload}), api_url=stub.url)
    assert run.entered().count("fetch_assessments") == 2 * facilities
    assert run.entered().count("load_next_facility") == facilities + 1


def test_a_body_that_makes_more_work_is_followed_to_the_last_page(api: httpx.Client, stub: StubApi):
    workflow = """
        - step: start
          tool:
            kind: postgres
            auth: pg_k8s
            command: |
              DROP TABLE IF EXISTS look_growing;
              CREATE TABLE look_growing (
                kind TEXT, patient INT, page INT, state TEXT, PRIMARY KEY (kind, patient, page));
              INSERT INTO look_growing SELECT k, p, 1, 'pending' FROM generate_series(1, 3) AS p,
                unnest(ARRAY['assessments', 'conditions', 'medications', 'vital_signs']) AS k;
          next: {arcs: [{step: fetch_pages}]}
        - step: fetch_pages
          loop:
            cursor:
              kind: postgres
              auth: pg_k8s
              claim: |
                UPDATE look_growing g SET state = 'claimed' FROM (SELECT kind, patient, page FROM look_growing
                  WHERE state = 'pending' LIMIT {{ __frame_max_rows | default(1) | int }} FOR UPDATE SKIP LOCKED) AS c
                WHERE (g.kind, g.patient, g.page) = (c.kind, c.patient, c.page)
                RETURNING g.kind, g.patient, g.page
            iterator: work
            spec: {mode: cursor, max_in_flight: 1, frame: {max_rows: 50, row_concurrency: 1}}
          tool:
            - name: fetch
              kind: http
              url: "{{ api_url }}/api/v1/patient/{{ iter.work.kind }}"
              params: {patientId: "{{ iter.work.patient }}", page: "{{ iter.work.page }}"}
              spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: fail}},
                  {else: {then: {do: continue, set: {iter.more: "{{ output.data.paging.hasMore }}"}}}}]}}
            - name: save
              kind: postgres
              auth: pg_k8s
              command: |
                UPDATE look_growing SET state = 'done' WHERE kind = '{{ iter.work.kind }}'
                  AND patient = {{ iter.work.patient }} AND page = {{ iter.work.page }};
                {% if iter.more %}
                INSERT INTO look_growing
                VALUES ('{{ iter.work.kind }}', {{ iter.work.patient }}, {{ iter.work.page }} + 1, 'pending');
                {% endif %}
          next: {arcs: [{step: verify, when: "{{ event.name == 'loop.done' }}"}]}
        - step: verify
          tool:
            kind: postgres
            auth: pg_k8s
            command: SELECT count(*) AS pages, count(*) FILTER (WHERE state <> 'done') AS open FROM look_growing
    """
    pages = sum(pages_of(kind, patient) for kind in MOST_PAGES for patient in (1, 2, 3))
    check(api, Case("growing", workflow, {"verify": {"rows": [{"pages": pages, "open": 0}]}}), api_url=stub.url)

"""Playbooks like the public ones that move rows: from HTTP into Postgres in every way, JSON and text kept."""

import httpx
import pytest

from tests.conformance.running import Case, check, rows
from tests.conformance.stub_api import StubApi

CITIES = Case(
    "one request and one row per city, one after the other",
    """
    - step: start
      tool:
        kind: postgres
        auth: pg_k8s
        command: |
          DROP TABLE IF EXISTS look_weather;
          CREATE TABLE look_weather (run TEXT, city TEXT, temperature NUMERIC, hours JSONB);
      next: {arcs: [{step: per_city}]}
    - step: per_city
      loop: {in: "{{ workload.cities }}", iterator: city, spec: {mode: sequential}}
      tool:
        - name: fetch
          kind: http
          method: GET
          endpoint: "{{ api_url }}/v1/forecast"
          headers: {User-Agent: look-alike}
          params: {latitude: "{{ iter.city.lat }}", longitude: "{{ iter.city.lon }}", hourly: temperature_2m}
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: fail}},
              {else: {then: {do: continue}}}]}}
        - name: save
          kind: postgres
          credential: pg_k8s
          command: |
            INSERT INTO look_weather VALUES ('{{ execution_id }}', '{{ city.name | replace("'", "''") }}',
              {{ fetch.data.current.temperature_2m }}, '{{ fetch.data.hourly.time | tojson }}'::jsonb)
      next: {arcs: [{step: validate, when: "{{ event.name == 'loop.done' }}"}]}
    - step: validate
      tool:
        kind: postgres
        auth: pg_k8s
        query: |
          SELECT city, temperature, jsonb_array_length(hours) AS hours FROM look_weather
          WHERE run = '{{ execution_id }}' ORDER BY city
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {found: "{{ validate }}"}
        code: |
          cities = found.get("command_0", {}).get("rows", [])
          assert [one["city"] for one in cities] == ["Ber'gen", "Lagos", "Quito"], cities
          result = {"hours": sum(one["hours"] for one in cities), "warmest": str(cities[2]["temperature"])}
    """,
    {"end": {"hours": 72, "warmest": "39.9"}},
    {
        "workload": {
            "cities": [
                {"name": "Ber'gen", "lat": 60.4, "lon": 5.3},
                {"name": "Lagos", "lat": 6.5, "lon": 3.4},
                {"name": "Quito", "lat": -0.2, "lon": -78.5},
            ]
        }
    },
)

FOR_IN_SQL = Case(
    "a hundred rows by a for in the SQL, then by a loop and by the author's own driver",
    """
    - step: start
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          DROP TABLE IF EXISTS look_posts;
          CREATE TABLE look_posts (id INT, way TEXT, title TEXT, body TEXT, PRIMARY KEY (id, way));
      next: {arcs: [{step: load}]}
    - step: load
      tool:
        - name: fetch
          kind: http
          url: "{{ api_url }}/posts"
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, delay: 0.1}},
              {else: {then: {do: continue}}}]}}
          set: {posts: "{{ output.data }}"}
        - name: insert
          kind: postgres
          auth: "{{ pg_auth }}"
          command: |
            INSERT INTO look_posts (id, way, title, body) VALUES
            {% for post in posts %}
            ({{ post.id }}, 'direct', '{{ post.title | replace("'", "''") }}', $${{ post.body }}$$)
            {% if not loop.last %},{% endif %}
            {% endfor %}
            ON CONFLICT (id, way) DO NOTHING;
      next: {arcs: [{step: fetch_posts}]}
    - step: fetch_posts
      tool: {kind: http, method: get, url: "{{ api_url }}/posts"}
      next: {arcs: [{step: one_by_one}]}
    - step: one_by_one
      loop: {in: "{{ fetch_posts.data }}", iterator: post, spec: {mode: parallel, max_in_flight: 20}}
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          INSERT INTO look_posts VALUES ({{ iter.post.id }}, 'iterator', $${{ post.title }}$$, $${{ iter.post.body }}$$)
          ON CONFLICT DO NOTHING
      next: {arcs: [{step: bulk}]}
    - step: bulk
      tool:
        kind: python
        libs: {psycopg: psycopg, dumps: {from: json, import: dumps}}
        input: {posts: "{{ fetch_posts.body }}", dsn: "{{ dsn }}"}
        code: |
          def main(posts, dsn):
              with psycopg.connect(dsn) as conn, conn.cursor() as cursor:
                  cursor.executemany(
                      "INSERT INTO look_posts VALUES (%s, 'bulk', %s, %s)",
                      [(one["id"], one["title"], dumps(one["body"])) for one in posts],
                  )
                  return {"inserted": cursor.rowcount}
      next: {arcs: [{step: show_count}]}
    - step: show_count
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: SELECT way, count(*) AS n, min(title) AS title FROM look_posts GROUP BY way ORDER BY way
      next: {arcs: [{step: validate_count}]}
    - step: validate_count
      tool:
        kind: python
        input: {show_count: "{{ show_count }}", inserted: "{{ bulk.inserted }}"}
        code: |
          found = show_count.get("command_0", {}).get("rows", [{}])
          assert found[0].get("n"), "no rows were inserted"
          assert [one["way"] for one in found] == ["bulk", "direct", "iterator"]
          assert {one["title"] for one in found} == {"It's post 1"}, found
          result = {"counts": [one["n"] for one in found], "inserted": inserted}
    """,
    {"validate_count": {"counts": [100, 100, 100], "inserted": 100}},
    {"workload": {"pg_auth": "pg_local"}},
)

JSONB = Case(
    "SQL that Python wrote, JSON in and out of the database",
    """
    - step: start
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          DROP TABLE IF EXISTS look_json;
          CREATE TABLE look_json (
            id SERIAL PRIMARY KEY, data JSONB NOT NULL, tags TEXT[], at TIMESTAMPTZ, amount NUMERIC);
      next: {arcs: [{step: insert_jsonb_data}]}
    - step: insert_jsonb_data
      tool:
        kind: python
        libs: {js: json}
        code: |
          nested = {"list": [1, 2.5, None, True], "quote": 'say "hi"'}
          people = [{"name": "O'Hara; --", "nested": nested}, {"name": "Ü"}]
          lines = [
              "INSERT INTO look_json (data, tags, at, amount) VALUES ('{}'::jsonb, ARRAY['a','b'], "
              "'2026-01-02T03:04:05Z', 12.50);".format(js.dumps(one).replace("'", "''"))
              for one in people
          ]
          result = {"commands": "\\n".join(lines), "people": people}
      next: {arcs: [{step: run_commands}]}
    - step: run_commands
      tool: {kind: postgres, auth: "{{ pg_auth }}", command: "{{ insert_jsonb_data.commands }}"}
      next: {arcs: [{step: read}]}
    - step: read
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: "SELECT data, data->'nested'->>'quote' AS quote, tags, at, amount FROM look_json ORDER BY id"
      next: {arcs: [{step: update}]}
    - step: update
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          UPDATE look_json SET data = data || '{{ {"seen": true} | tojson }}'::jsonb WHERE data ? 'nested'
          RETURNING data->>'seen' AS seen
      next: {arcs: [{step: validate}]}
    - step: validate
      tool:
        kind: python
        input: {read: "{{ read.rows }}", people: "{{ insert_jsonb_data.people }}", update: "{{ update.rows }}"}
        code: |
          assert [one["data"] for one in read] == people, read
          assert read[0]["quote"] == 'say "hi"' and read[0]["tags"] == ["a", "b"]
          assert read[0]["at"].startswith("2026-01-02T03:04:05")
          result = {"seen": update, "amount": str(read[0]["amount"])}
    """,
    {"validate": {"seen": [{"seen": "true"}], "amount": "12.50"}},
    {"workload": {"pg_auth": "pg_local"}},
)

EDGES = Case(
    "null, quotes and large texts through a pipeline into Postgres and DuckDB",
    """
    - step: start
      tool: {kind: postgres, auth: "{{ pg_auth }}", pool: {name: look_pool, max_size: 4, min_size: 1, timeout: 60},
          command: "CREATE TABLE IF NOT EXISTS look_edges (id TEXT PRIMARY KEY, a TEXT, b TEXT, n INT, big INT)"}
      next: {arcs: [{step: mixed}]}
    - step: mixed
      tool:
        - name: generate_mixed
          kind: python
          libs: [json]
          code: |
            result = {"quote": "it's \\"quoted\\" \\\\ and ünïcode", "null_field": None, "zero": 0, "empty": "",
                      "flag": False, "big": "x" * 200000, "nested": {"deep": [{"a": None}]}}
          set: {made: "{{ output }}"}
        - name: save
          kind: postgres
          auth: "{{ pg_auth }}"
          command: |
            INSERT INTO look_edges VALUES ('{{ execution_id }}', '{{ made.quote | replace("'", "''") }}',
              {% if made.null_field is none %}NULL{% else %}'{{ made.null_field }}'{% endif %},
              {{ made.zero }}, length('{{ made.big }}'))
            ON CONFLICT (id) DO UPDATE SET a = EXCLUDED.a;
            SELECT a, b, n, big FROM look_edges WHERE id = '{{ execution_id }}';
        - name: hand_on
          kind: python
          input: {input_data: {nested: "{{ made.nested }}", flag: "{{ made.flag }}"}, saved: "{{ save.rows[0] }}"}
          code: "result = {'nested': input_data['nested'], 'flag': input_data['flag'], 'saved': saved}"
      next: {arcs: [{step: in_duckdb}]}
    - step: in_duckdb
      tool:
        kind: duckdb
        database: ":memory:"
        commands: |
          CREATE TABLE edges (a TEXT, b TEXT, made TIMESTAMPTZ);
          INSERT INTO edges VALUES ('{{ mixed.saved.a | replace("'", "''") }}', NULL, '{{ stamp }}');
          SELECT a, b, made FROM edges;
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {mixed: "{{ mixed }}", duck: "{{ in_duckdb.rows }}", stamp: "{{ stamp }}"}
        code: |
          wanted = "it's \\"quoted\\" \\\\ and ünïcode"
          assert mixed["saved"] == {"a": wanted, "b": None, "n": 0, "big": 200000}, mixed["saved"]
          assert duck[0]["a"] == wanted and duck[0]["b"] is None and duck[0]["made"], duck
          assert mixed["nested"] == {"deep": [{"a": None}]} and mixed["flag"] is False
          assert context.get("pg_auth") == "pg_local" and context.get("stamp") == stamp
          assert "execution_id" in context.keys()
          result = {"status": "success"}
    """,
    {"end": {"status": "success"}},
    {
        "workload": {"pg_auth": "pg_local", "stamp": "{{ now() }}"},
        "workbook": [{"name": "x", "tool": {"kind": "noop"}}],
    },
)

SERIALIZED = Case(
    "a variable of the first task spliced as JSON by the second",
    """
    - step: start
      tool:
        - name: make
          kind: python
          code: |
            result = {"name": "it's", "list": [1, {"a": None}], "text": "line\\nbreak\\tand 'quotes'", "pct": "100%"}
          spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: fail}},
              {when: true, then: {do: continue, set: {ctx.payload: "{{ output.data }}"}}}]}}
        - name: save
          kind: postgres
          auth: pg_local
          command: |
            CREATE TABLE IF NOT EXISTS look_payloads (id TEXT PRIMARY KEY, payload JSONB);
            INSERT INTO look_payloads VALUES ('{{ execution_id }}',
              '{{ ctx.payload | tojson | replace("'", "''") }}'::jsonb);
      next: {arcs: [{step: read}]}
    - step: read
      tool: {kind: postgres, auth: pg_local,
          command: "SELECT payload FROM look_payloads WHERE id = '{{ execution_id }}'"}
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {input_data: {found: "{{ read.rows[0].payload }}", payload: "{{ ctx.payload }}"}}
        code: |
          assert input_data["found"] == input_data["payload"], input_data
          result = {"status": "same"}
    """,
    {"end": {"status": "same"}},
)

TRANSFERRED = Case(
    "rows transferred with a mapping",
    """
    - step: start
      tool: {kind: postgres, auth: pg_local, command: "DROP TABLE IF EXISTS public.look_transfer;
          CREATE TABLE public.look_transfer (post_id INT, user_id INT, title TEXT)"}
      next: {arcs: [{step: move}]}
    - step: move
      tool:
        kind: transfer
        source: {type: http, url: "{{ api_url }}/posts", method: GET}
        target:
          type: postgres
          auth: "{{ pg_auth }}"
          table: public.look_transfer
          mapping: {post_id: id, user_id: userId, title: title}
        mode: append
        chunk_size: 30
      next: {arcs: [{step: verify}]}
    - step: verify
      tool: {kind: postgres, auth: pg_local,
          command: "SELECT count(*) AS n, count(DISTINCT user_id) AS users FROM public.look_transfer"}
    """,
    {"verify": {"rows": [{"n": 100, "users": 10}]}},
    {"workload": {"pg_auth": "pg_local"}},
)

PAGE_SUMMARY = Case(
    "a page's title through DuckDB into Postgres, the body read under step.data",
    """
    - step: start
      tool: {kind: http, url: "{{ api_url }}/posts/7", retry: {max_attempts: 2, retry_on_status: [500]}}
      next: {arcs: [{step: shape}]}
    - step: shape
      tool:
        kind: duckdb
        query: |
          SELECT '{{ start.data.title | replace("'", "''") }}' AS title, length('{{ start.data.body }}') AS size
      next: {arcs: [{step: save}]}
    - step: save
      tool:
        kind: postgres
        auth: pg_k8s
        command: |
          SELECT $${{ shape.rows[0].title }}$$ AS title, {{ shape.rows[0].size }} AS size
      next: {arcs: [{step: end}]}
    - {step: end, tool: {kind: python, input: {row: "{{ save.rows[0] }}"}, code: "result = row"}}
    """,
    {"end": {"title": "It's post 7", "size": 6}},
)

CASES = (CITIES, FOR_IN_SQL, JSONB, EDGES, SERIALIZED, TRANSFERRED, PAGE_SUMMARY)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_rows_arrive_as_they_were(api: httpx.Client, stub: StubApi, database_url: str, case: Case):
    check(api, case, api_url=stub.url, dsn=database_url)


ALONE = {
    "only comments": ("-- to be written;\n/* it's; later */\n", "COMPLETED", ""),
    "a statement that runs in no transaction": ("VACUUM pg_catalog.pg_class", "COMPLETED", ""),
    "an index built beside the readers": (
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS look_alone_id ON look_alone (id);",
        "COMPLETED",
        "",
    ),
    "no SQL at all": ("", "FAILED", "no SQL"),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_statement_alone_runs_as_the_server_needs_it(api: httpx.Client, name: str):
    sql, status, says = ALONE[name]
    rows(api, "CREATE TABLE IF NOT EXISTS look_alone (id INT); SELECT 1 AS one")
    workflow = """
        - step: start
          tool: {kind: postgres, auth: pg_local, command: "{{ sql }}"}
    """
    check(api, Case(name, workflow, {}, {"workload": {"sql": sql}}, status=status, says=says))

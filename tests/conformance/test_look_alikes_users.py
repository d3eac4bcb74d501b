"""Playbooks like the public ones that log people in: a schema provisioned, ways chosen by an action, empty tokens."""

import httpx
import pytest

from tests.conformance.running import Case, check, document, execute, failed, register
from tests.conformance.stub_api import StubApi

PROVISION = """
    - step: start
      tool: {kind: python, code: "result = {'status': 'starting'}"}
      next: {arcs: [{step: create_schema}]}
    - step: create_schema
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          DROP SCHEMA IF EXISTS look_auth CASCADE;
          CREATE SCHEMA look_auth;
          -- a user's row; its roles stand beside
          CREATE TABLE look_auth.users (id SERIAL PRIMARY KEY, email TEXT UNIQUE NOT NULL, active BOOL DEFAULT true);
          CREATE TABLE look_auth.roles (name TEXT PRIMARY KEY);
          CREATE TABLE look_auth.user_roles (
            email TEXT REFERENCES look_auth.users(email), role TEXT REFERENCES look_auth.roles(name),
            PRIMARY KEY (email, role));
          CREATE OR REPLACE FUNCTION look_auth.touch() RETURNS trigger AS $body$
          BEGIN
            NEW.email := lower(NEW.email); -- it's the key
            RETURN NEW;
          END;
          $body$ LANGUAGE plpgsql;
          CREATE TRIGGER touch BEFORE INSERT ON look_auth.users FOR EACH ROW EXECUTE FUNCTION look_auth.touch();
          INSERT INTO look_auth.roles VALUES ('admin'), ('user') ON CONFLICT DO NOTHING;
      next: {arcs: [{step: verify}]}
    - step: verify
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: SELECT count(*) AS tables FROM information_schema.tables WHERE table_schema = 'look_auth'
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {tables: "{{ verify.command_0.rows[0].tables }}"}
        code: "result = {'tables': tables}"
"""

ADMIN = """
    - step: start
      tool: {kind: python, input: {mail: "{{ user_email }}"}, code: "result = {'email': mail.strip().lower()}"}
      next: {arcs: [{step: grant}]}
    - step: grant
      tool:
        kind: postgres
        auth: "{{ pg_auth }}"
        command: |
          INSERT INTO look_auth.user_roles VALUES ('{{ start.email }}', 'admin') ON CONFLICT DO NOTHING;
          SELECT role FROM look_auth.user_roles WHERE email = '{{ start.email }}';
      next: {arcs: [{step: end}]}
    - {step: end, tool: {kind: python, input: {role: "{{ grant.rows[0].role }}"}, code: "result = {'role': role}"}}
"""

MANAGEMENT = """
    - step: start
      tool:
        kind: python
        input: {action: "{{ action }}", request_id: "{{ request_id }}"}
        code: |
          wanted = context.get("action") or action
          result = {"action": wanted} if wanted in ("list", "create", "update", "delete", "roles") else {
              "error": f"unknown action {wanted}"}
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: refuse, when: "{{ start.error is defined }}"}
          - {step: list_users, when: "{{ start.action == 'list' }}"}
          - {step: create_user, when: "{{ start.action == 'create' }}"}
          - {step: update_user, when: "{{ start.action == 'update' }}"}
          - {step: delete_user, when: "{{ start.action == 'delete' }}"}
          - {step: list_roles, when: "{{ start.action == 'roles' }}"}
    - step: refuse
      tool: {kind: python, input: {error: "{{ start.error }}"}, code: "result = {'rows': [], 'error': error}"}
      next: {arcs: [{step: notify, when: "{{ request_id }}"}, {step: end}]}
    - step: list_users
      tool: {kind: postgres, auth: "{{ pg_auth }}", command: SELECT email FROM look_auth.users ORDER BY email}
      next: {arcs: [{step: notify, when: "{{ request_id }}"}, {step: end}]}
    - step: create_user
      tool: {kind: postgres, auth: "{{ pg_auth }}", command: "INSERT INTO look_auth.users (email)
          VALUES ('{{ email }}') ON CONFLICT (email) DO UPDATE SET active = true RETURNING email, active"}
      next: {arcs: [{step: notify, when: "{{ request_id }}"}, {step: end}]}
    - step: update_user
      tool: {kind: postgres, auth: "{{ pg_auth }}", command: "UPDATE look_auth.users SET active = {{ active }}
          WHERE email = '{{ email }}' RETURNING email, active"}
      next: {arcs: [{step: notify, when: "{{ request_id }}"}, {step: end}]}
    - step: delete_user
      tool: {kind: postgres, auth: "{{ pg_auth }}", command: "DELETE FROM look_auth.users
          WHERE email = '{{ email }}' AND NOT EXISTS (SELECT FROM look_auth.user_roles r WHERE r.email = '{{ email }}')
          RETURNING email"}
      next: {arcs: [{step: notify, when: "{{ request_id }}"}, {step: end}]}
    - step: list_roles
      tool: {kind: postgres, auth: "{{ pg_auth }}", command: SELECT name FROM look_auth.roles ORDER BY name}
      next: {arcs: [{step: notify, when: "{{ request_id }}"}, {step: end}]}
    - step: notify
      tool:
        kind: http
        method: POST
        url: "{{ gateway_url }}/anything/notify"
        json: {request_id: "{{ request_id }}", rows: "{{ result.command_0.rows }}"}
        verify_ssl: false
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input:
          listed: "{{ list_users.command_0.rows if list_users else none }}"
          created: "{{ create_user.rows | default([]) }}"
          updated: "{{ update_user.rows | default([]) }}"
          deleted: "{{ delete_user.row_count | default(0) }}"
          roles: "{{ list_roles.rows | default([]) }}"
          error: "{{ start.error | default('') }}"
          told: "{{ notify.data.json.rows | default([]) }}"
        code: |
          found = (listed or []) + created + updated + roles
          result = {"rows": found, "deleted": deleted, "error": error, "told": told}
"""

ACTIONS = [
    ({"action": "create", "email": "Ann@example.com"}, "create_user", {"rows": [{"email": "ann@example.com"}]}),
    ({"action": "list", "request_id": "r1"}, "list_users", {"told": [{"email": "ann@example.com"}]}),
    ({"action": "update", "email": "ann@example.com", "active": False}, "update_user", {"deleted": 0}),
    ({"action": "roles"}, "list_roles", {"rows": [{"name": "admin"}, {"name": "user"}]}),
    ({"action": "delete", "email": "ann@example.com"}, "delete_user", {"deleted": 1}),
    ({"action": "dance"}, "refuse", {"error": "unknown action dance"}),
]


def test_people_are_kept_in_a_schema_that_a_playbook_provisions(api: httpx.Client, stub: StubApi):
    workload = {"pg_auth": "pg_auth", "user_email": " Root@example.com "}
    check(api, Case("provision", PROVISION, {"end": {"tables": 3}}, {"workload": workload}))
    refused = failed(api, ADMIN, workload=workload)
    assert "23503" in str(refused.status["error"]) and refused.entered() == ["start", "grant"]
    defaults = {**workload, "action": "list", "request_id": "", "email": "", "gateway_url": stub.url}
    path = register(api, document(MANAGEMENT, workload=defaults))
    for payload, step, expected in ACTIONS:
        run = execute(api, path, payload)
        assert run.status["status"] == "COMPLETED", run.status["error"]
        asked = ["notify"] if payload.get("request_id") else []
        assert run.entered() == ["start", step, *asked, "end"]
        found = run.result("end")
        for key, value in expected.items():
            if key == "rows" and step == "create_user":
                assert [one["email"] for one in found["rows"]] == ["ann@example.com"]
            else:
                assert found[key] == value
    execute(api, path, {"action": "create", "email": "root@example.com"})
    check(api, Case("admin", ADMIN, {"end": {"role": "admin"}}, {"workload": workload}))


LOGIN = """
    - step: start
      tool:
        kind: python
        libs: {base64: base64}
        input: {token: "{{ auth0_token }}", domain: "{{ auth0_domain }}"}
        code: |
          if not token:
              result = {"error": "no token was given", "status": "error"}
          else:
              result = {"sub": base64.b64decode(token).decode(), "status": "ready"}
      next:
        spec: {mode: exclusive}
        arcs:
          - {step: send_error, when: "{{ (start.error is defined) and request_id }}"}
          - {step: end, when: "{{ start.error is defined and not request_id }}"}
          - {step: upsert_user, when: "{{ start.status == 'ready' }}"}
    - step: send_error
      tool: {kind: http, method: POST, url: "{{ gateway_url }}/anything/error", data: {error: "{{ start.error }}"},
          headers: {Content-Type: application/json}}
      next: {arcs: [{step: end}]}
    - step: upsert_user
      tool:
        kind: postgres
        auth: pg_auth
        command: SELECT '{{ start.sub }}' AS sub, 1 AS id
        spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, delay: 0.1}},
            {else: {then: {do: continue}}}]}}
      next: {arcs: [{step: create_session}]}
    - step: create_session
      tool:
        kind: python
        input: {user: "{{ result.command_0.rows[0] }}"}
        code: "result = {'session': {'user': user['sub'], 'token': 's-1'}, 'status': 'success'}"
      next: {arcs: [{step: cache_session}]}
    - step: cache_session
      tool:
        kind: nats
        auth: nats_credential
        operation: kv_put
        bucket: look_sessions
        key: "{{ create_session.session.token }}"
        value: {user: "{{ create_session.session.user }}", id: "{{ upsert_user.rows[0].id }}"}
      next: {arcs: [{step: end}]}
    - step: end
      tool:
        kind: python
        input: {session: "{{ create_session.session | default({}) }}", error: "{{ start.error | default('') }}",
            cached: "{{ cache_session.status | default('') }}", told: "{{ send_error.data.json.error | default('') }}"}
        code: "result = {'user': session.get('user'), 'error': error, 'cached': cached, 'told': told}"
"""

LOGINS = [
    Case(
        "an empty token ends the run at once",
        LOGIN,
        {"end": {"user": None, "error": "no token was given", "cached": "", "told": ""}},
        {"workload": {"auth0_token": "", "request_id": "", "auth0_domain": "{{ env.NOWHERE | default('d') }}"}},
    ),
    Case(
        "an empty token of a caller is told to the gateway",
        LOGIN,
        {"end": {"error": "no token was given", "told": "no token was given"}},
        {"workload": {"auth0_token": None, "request_id": "r-1"}},
    ),
    Case(
        "a token opens a session",
        LOGIN,
        {"end": {"user": "ann", "error": "", "cached": "success"}},
        {"workload": {"auth0_token": "YW5u", "request_id": ""}},
    ),
]


@pytest.mark.parametrize("case", LOGINS, ids=[case.name for case in LOGINS])
def test_a_login_takes_the_way_its_token_says(api: httpx.Client, stub: StubApi, case: Case):
    run = check(api, case, gateway_url=stub.url)
    if case is LOGINS[0]:
        assert run.entered() == ["start", "end"]

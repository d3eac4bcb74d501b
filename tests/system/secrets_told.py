"""Playbooks that use secrets and try hard to tell them: every way out of a tool, in every spelling."""

PASSWORD = "canary-Pq7x-password"
TOKEN = 'canary-Zt5w"/+%\\-token'  # looks different in JSON, in Python, in a URL
BASIC = "canary-Vn8c-basic?"
WRONG = "canary-Kb3m-wrong"
PEM = "-----BEGIN KEY-----\ncanary-Hd4r-line-one\ncanary-Hd4r-line-two\n-----END KEY-----\n"
PEM_LINE = "canary-Hd4r-line-two"
CANARIES = (PASSWORD, TOKEN, BASIC, WRONG, PEM_LINE)
CUT_BYTES = 64 * 1024  # where the output of a program is cut
KEYCHAIN = """
keychain:
- {name: robot, kind: credential, credential: canary_http}
- {name: pem, kind: credential, credential: canary_pem}
- {name: header, kind: static, map: {value: 'Bearer {{ keychain.robot.token }}'}}
"""
SEVERAL_WAYS = """
      import base64, json, urllib.parse
      raw = token.encode()
      ways = [token, repr(token), json.dumps(token), urllib.parse.quote(token), urllib.parse.quote_plus(token),
          urllib.parse.quote(token, safe=""), raw.hex(), base64.b64encode(raw).decode(), raw.hex().upper(),
          base64.b64encode(b"u:" + raw).decode(), base64.b64encode(b"me:" + raw + b"!").decode(),
          base64.urlsafe_b64encode(raw).decode(), json.dumps(json.dumps({"t": token}))]"""
WITHOUT_KEYCHAIN = {
    "reads": "- step: start\n  tool: {kind: postgres, auth: canary_pg, command: 'SELECT 1 AS n'}\n",
    "fails": "- step: start\n  tool: {kind: postgres, auth: canary_pg, command: 'SELECT * FROM nowhere'}\n",
    "is_refused": "- step: start\n  tool: {kind: postgres, auth: canary_wrong, command: 'SELECT 1'}\n",
    "calls": "- step: start\n  tool: {kind: http, auth: canary_http, url: 'URL/ok'}\n",
    "is_denied": "- step: start\n  tool: {kind: http, auth: canary_http, url: 'URL/denied'}\n",
    "hears_itself": "- step: start\n  tool: {kind: http, auth: canary_http, url: 'URL/ok/echo'}\n",
    "hears_itself_denied": "- step: start\n  tool: {kind: http, auth: canary_http, url: 'URL/denied/echo'}\n",
    "hears_its_login": "- step: start\n  tool: {kind: http, auth: canary_basic, url: 'URL/ok/echo'}\n",
    "hears_its_login_denied": "- step: start\n  tool: {kind: http, auth: canary_basic, url: 'URL/denied/echo'}\n",
    "finds_nobody": "- step: start\n  tool: {kind: http, auth: canary_http, url: 'http://127.0.0.1:1/'}\n",
    "loops": """
- step: start
  loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
  tool:
  - {name: call, kind: http, auth: canary_http, url: 'URL/ok'}
  - {name: read, kind: postgres, auth: canary_pg, command: 'SELECT {{ n }} AS n'}
""",
    "child": "- step: start\n  tool: {kind: noop, result: ['{{ given }}', '{{ given }}']}\n",
}
WITH_KEYCHAIN = {
    "rings": """
- step: start
  tool:
  - {name: call, kind: http, url: 'URL/ok', headers: {Authorization: '{{ keychain.header.value }}'}}
  - name: tell
    kind: python
    input: {token: '{{ keychain.robot.token }}', pem: '{{ keychain.pem.key }}'}
    set: {ctx.kept: '{{ output }}', iter.mine: '{{ output }}', plain: '{{ output }}'}
    code: |WAYS
      print(ways, pem)
      result = {'token': token, token: [f'it is {token}'], 'ways': ways, 'lines': pem.splitlines(), 'list': [token]}
    spec: {policy: {rules: [{else: {do: continue, set: {ctx.ruled: '{{ output.data.token }}'}}}]}}
  next: {arcs: [{step: after, set: {ctx.arc: '{{ start.tell }}'}}]}
- step: after
  loop: {in: '{{ start.results.tell.ways + start.results.tell.list }}', iterator: way, spec: {mode: parallel}}
  tool:
  - {name: one, kind: noop, result: ['{{ way }}', '{{ kept }}', '{{ ctx.arc }}', '{{ ctx.ruled }}']}
  - {name: sub, kind: playbook, path: secrets/child, input: {given: '{{ one }}'}}
  next: {arcs: [{step: hand}]}
- step: hand
  tool: {kind: playbook, path: secrets/child, input: {given: '{{ start }}'}}
""",
    "rings_in_a_long_output": f"""
- step: start
  tool:
  - name: say
    kind: python
    input: {{token: '{{{{ keychain.robot.token }}}}'}}
    code: print('x' * ({CUT_BYTES} - 18) + token * 9)
  - name: sh
    kind: shell
    env: {{TOKEN: '{{{{ keychain.robot.token }}}}'}}
    command: |
      head -c {CUT_BYTES - 18} /dev/zero | tr '\\0' x; for i in 1 2 3 4 5 6 7 8 9; do printf %s "$TOKEN"; done
""",
    "rings_in_a_shell": """
- step: start
  tool:
    kind: shell
    env: {TOKEN: '{{ keychain.robot.token }}', PEM: '{{ keychain.pem.key }}'}
    command: |
      echo "$TOKEN"; echo "$PEM" | tail -n 2; echo "$PEM" | grep two >&2
      for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do printf %s "$TOKEN" >&2; done; exit 3
""",
    "rings_and_is_denied": """
- step: start
  tool: {kind: http, url: 'URL/denied?token={{ keychain.robot.token }}',
      headers: {Authorization: '{{ keychain.header.value }}'}}
""",
    "rings_and_hears_itself": """
- step: start
  tool: {kind: http, method: POST, url: 'URL/denied/echo?token={{ keychain.robot.token }}',
      headers: {Authorization: '{{ keychain.header.value }}'}, body: {token: '{{ keychain.robot.token }}'}}
  next: {arcs: [{step: kept, when: "{{ event.name == 'call.error' }}",
      set: {ctx.error: '{{ output.error }}', ctx.body: '{{ output.data }}', ctx.said: '{{ output.error.message }}'}}]}
- {step: kept, tool: {kind: noop, result: ['{{ ctx.error }}', '{{ ctx.body }}', '{{ ctx.said }}']}}
""",
    "rings_and_raises": """
- step: start
  tool:
    kind: python
    input: {token: '{{ keychain.robot.token }}'}
    code: |WAYS
      raise ValueError(f'{token!r} is wrong: {ways}')
""",
    "rings_and_raises_a_lot": """
- step: start
  tool:
    kind: python
    input: {token: '{{ keychain.robot.token }}'}
    code: raise ValueError('x' * 1970 + token * 200)
""",
    "rings_and_tries_again": """
- step: start
  tool:
    kind: python
    input: {token: '{{ keychain.robot.token }}'}
    code: raise ValueError(f'{token} is wrong')
    spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, delay: 0.01,
        set: {ctx.said: '{{ output.error.message }}'}}}]}}
""",
    "rings_for_sql": """
- step: start
  tool: {kind: postgres, auth: canary_pg, command: "SELECT '{{ keychain.robot.token }}'::int"}
""",
    "rings_and_reads_it_back": """
- step: start
  tool: {kind: postgres, auth: canary_pg, command: "SELECT %s AS one, encode(%s::bytea, 'base64') AS two",
      params: ['{{ keychain.robot.token }}', '{{ keychain.pem.key }}']}
""",
    "rings_in_a_wrong_template": """
- step: start
  tool: {kind: noop, result: '{{ keychain.robot.token + 1 }}'}
""",
    "rings_in_a_wrong_field": """
- step: start
  tool: {kind: python, code: 'result = 1', timeout: '{{ keychain.robot.token }}'}
""",
    "rings_in_a_wrong_url": """
- step: start
  tool: {kind: http, url: '{{ keychain.robot.token }}'}
""",
    "rings_and_streams": """
- step: start
  tool:
    kind: python
    input: {token: '{{ keychain.robot.token }}', pem: '{{ keychain.pem.key }}'}
    code: |WAYS
      for way in [*ways, pem]:
          emit({'way': way, 'rows': [way] * 400})
      result = 1
  next: {arcs: [{step: taker, "on": call.partial}]}
- {step: taker, tool: {kind: noop, result: '{{ chunk }}'}}
""",
    "rings_in_code": """
- step: start
  tool:
    kind: python
    code: |
      x = '''{{ keychain.robot.token }}'''
      result = x.nothing
""",
}
COMPLETED = {"reads", "calls", "loops", "rings", "hears_itself", "hears_its_login", "child"} | {
    *("rings_in_a_long_output", "rings_and_hears_itself", "rings_and_reads_it_back", "rings_and_streams")
}


def documents(peer_url: str) -> dict[str, str]:
    """Return the playbooks by name; `peer_url` is the service that they call."""
    bodies = {name: f"workflow:\n{steps}" for name, steps in WITHOUT_KEYCHAIN.items()}
    for name, steps in WITH_KEYCHAIN.items():
        bodies[name] = f"{KEYCHAIN}workflow:\n{steps.replace('|WAYS', '|' + SEVERAL_WAYS)}"
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: secrets/{name}}}\n"
    return {name: head.format(name=name) + body.replace("URL", peer_url) for name, body in bodies.items()}

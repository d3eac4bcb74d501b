"""The keychain, stored results and NATS as playbooks use them: one small document a row, run by a whole stack."""

from typing import Any

import httpx
import pytest

from tests.conformance.running import completed, document, failed, register

SECRET = "canary-Jq8d-value"
KEYCHAIN: list[dict[str, Any]] = [
    {"name": "app", "kind": "static", "map": {"key": SECRET, "name": "{{ client }}"}},
    {"name": "token", "kind": "bearer", "token": "{{ keychain.app.key }}"},
]
CHILD = """
- step: start
  tool: {kind: noop, result: "{{ given }}"}
"""


def test_each_item_of_a_loop_reads_the_keychain_and_no_result_shows_it(api: httpx.Client) -> None:
    run = completed(
        api,
        """
        - step: start
          loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
          tool:
          - name: use
            kind: python
            input: {token: "{{ keychain.token }}", name: "{{ keychain.app.name }}", n: "{{ n }}"}
            code: |
              result = {"chars": len(token), "echo": f"{name} {token}", "n": n}
          next: {arcs: [{step: after}]}
        - step: after
          tool: {kind: noop, result: "{{ start.results | map(attribute='echo') | list }}"}
        """,
        keychain=KEYCHAIN,
        workload={"client": "ann"},
    )
    assert [item["use"]["chars"] for item in run.results("start")] == [len(SECRET)] * 3
    # `ann` is too short to be a secret, the token is not.
    assert run.result("after") == ["ann ***"] * 3
    assert SECRET not in str([event for event in run.events() if event["event_type"].startswith("command.")])


@pytest.mark.parametrize(
    ("workflow", "says"),
    [
        ("- step: start\n  tool: {kind: noop, result: 'Bearer {{ keychain.gone.token }}'}\n", "no entry 'gone'"),
        (
            "- step: start\n  tool: {kind: noop, result: '{{ keychain.app.gone }}'}\n",
            "keychain.app: no field 'gone'; it has key, name",
        ),
        (
            "- step: start\n  tool: {kind: noop, result: 1, set: {ctx.kept: '{{ keychain.app.key }}'}}\n",
            "in the fields of a tool only",
        ),
        (
            "- step: start\n  tool:\n    kind: noop\n    spec: {policy: {rules: "
            "[{when: '{{ keychain.app.key }}', then: {do: continue}}]}}\n",
            "in the fields of a tool only",
        ),
        (
            "- step: start\n  tool: {kind: noop}\n  set: {ctx.kept: '{{ keychain.app.key }}'}\n",
            "in the fields of a tool only",
        ),
        (
            "- step: start\n  tool: {kind: noop}\n  next: {arcs: [{step: end, when: '{{ keychain.app.key }}'}]}\n"
            "- step: end\n  tool: {kind: noop}\n",
            "in the fields of a tool only",
        ),
        (
            "- step: start\n  tool: {kind: playbook, path: language/keychain_child, "
            "input: {given: '{{ keychain.app.key }}'}}\n",
            "in the fields of a tool only",
        ),
    ],
)
def test_a_secret_that_cannot_be_had_where_it_stands_fails_the_run(api: httpx.Client, workflow: str, says: str) -> None:
    register(api, document(CHILD, path="language/keychain_child"))
    run = failed(api, workflow, keychain=KEYCHAIN, workload={"client": "ann"})
    assert says in run.message and SECRET not in run.message


def test_a_small_result_comes_back_by_its_step_and_a_large_one_by_its_reference(api: httpx.Client) -> None:
    run = completed(
        api,
        """
        - step: start
          tool: {kind: noop, result: {items: [1, 2, 3], count: 3}}
          next: {arcs: [{step: large}]}
        - step: large
          tool:
          - {name: make, kind: python, code: "result = {'items': ['x' * 100] * 1000}"}
          next: {arcs: [{step: small_again}]}
        - step: small_again
          tool: {kind: artifact, action: get, input: {result_ref: "{{ start._ref | default('start') }}"}}
          next: {arcs: [{step: large_again}]}
        - step: large_again
          tool: {kind: result_fetch, ref: "{{ large._ref }}"}
          next: {arcs: [{step: end}]}
        - step: end
          tool:
            kind: noop
            result: {data: "{{ small_again.data.count }}", many: "{{ large_again.data['items'] | length }}"}
        """,
    )
    assert run.result("end") == {"data": 3, "many": 1000}


def test_a_result_without_a_reference_says_what_to_name_instead(api: httpx.Client) -> None:
    run = failed(
        api,
        """
        - step: start
          tool: {kind: noop, result: 1}
          next: {arcs: [{step: again}]}
        - step: again
          tool: {kind: artifact, action: get, input: {result_ref: "{{ start._ref }}"}}
        """,
    )
    assert "result_ref" in run.message and "name its step instead" in run.message


def test_a_step_without_a_credential_uses_the_server_of_the_worker(api: httpx.Client) -> None:
    run = completed(
        api,
        """
        - step: start
          tool:
          - {name: put, kind: nats, operation: kv_put, bucket: language, key: k, value: {a: [1, 2]}}
          - {name: get, kind: nats, operation: kv_get, bucket: language, key: k}
          next: {arcs: [{step: end}]}
        - step: end
          tool: {kind: noop, result: "{{ start.value.a }}"}
        """,
    )
    assert run.result("end") == [1, 2]

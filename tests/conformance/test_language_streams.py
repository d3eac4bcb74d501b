"""The language, run whole: results that go on chunk by chunk while their step still runs; fan-out with failures."""

import json
import os
import re
from typing import Any

import httpx
import pytest

from tests.conformance.running import completed, play

CONSUMER = """
        - step: each
          tool: {kind: python, code: "%s"}
          next: {arcs: [{step: told, when: "{{ event.name == 'loop.done' }}"}]}
        - step: told
          tool:
            kind: python
            input: {results: "{{ each.results }}", stats: "{{ each.stats }}", fanin: "{{ fanin | default(None) }}"}
            code: result = dict(input_data)
"""


def stream(tool: dict[str, Any], consumer: str, *, arcs: str = "") -> str:
    """Return a workflow whose first step streams to `each`."""
    return f"""
        - step: load
          tool: {json.dumps(tool)}
          next: {{arcs: [{{step: each, "on": call.partial}}{arcs}]}}
        {(CONSUMER % consumer).strip()}
        """


POSTGRES = {
    "kind": "postgres",
    "auth": "pg_local",
    "command": "SELECT n AS id, n * 2 AS twice FROM generate_series(1, 10000) AS t (n)",
    "chunk_size": 1000,
}
DUCKDB = {
    "kind": "duckdb",
    "command": "SELECT n AS id, n * 2 AS twice FROM generate_series(1, 10000) AS t (n)",
    "chunk_size": "1000",
}
SUM = "result = [chunk['chunk_index'], chunk['row_count'], sum(r['twice'] for r in chunk['rows'])]"


@pytest.mark.parametrize("tool", [POSTGRES, DUCKDB], ids=["postgres", "duckdb"])
def test_10_000_rows_go_on_in_10_chunks(api: httpx.Client, tool: dict[str, Any]) -> None:
    run = completed(api, stream(tool, SUM))
    found = run.result("told")["results"]
    assert [index for index, _count, _sum in found] == list(range(10))
    assert [count for _index, count, _sum in found] == [1000] * 10
    assert sum(total for _index, _count, total in found) == 10_000 * 10_001
    assert run.result("told")["stats"] == {"total": 10, "success": 10, "failed": 0}
    events = run.events()
    chunks = [event for event in events if event["event_type"] == "call.partial"]
    assert [event["context"] for event in chunks] == [{"task": "load", "chunk": number} for number in range(10)]
    assert [event["status"] for event in chunks] == ["PARTIAL"] * 10
    assert all(event["result"]["reference"]["kind"] == "result_ref" for event in chunks)
    first_issued = next(e for e in events if e["event_type"] == "command.issued" and e["step"] == "each")
    ended = next(e for e in events if e["event_type"] == "command.completed" and e["step"] == "load")
    assert int(first_issued["event_id"]) < int(ended["event_id"]), "the first chunk waited for the last"


@pytest.mark.parametrize(
    ("code", "chunks", "result"),
    [
        ("for n in range(3): emit({'n': n})\nresult = 'all'", [{"n": 0}, {"n": 1}, {"n": 2}], "all"),
        ("def main():\n  for n in range(4):\n    yield n * n\n", [0, 1, 4, 9], {"chunks": 4}),
        ("result = ([n] * n for n in range(3))", [[], [0 + 1], [2, 2]], {"chunks": 3}),
    ],
    ids=["emit", "main yields", "generator"],
)
def test_python_streams_what_it_emits_or_yields(api: httpx.Client, code: str, chunks: list[Any], result: Any) -> None:
    run = completed(api, stream({"kind": "python", "code": code}, "result = {'got': chunk}"))
    assert [item["got"] for item in run.result("told")["results"]] == chunks
    assert run.result("load") == result


def test_the_producers_own_arcs_fire_once_with_its_result(api: httpx.Client) -> None:
    tool = {"kind": "python", "code": "emit(1)\nemit(2)\nresult = {'sum': 3}"}
    after = """
        - step: after
          tool: {kind: python, input: {sum: "{{ load.sum }}"}, code: "result = {'sum': sum}"}
        """
    arcs = """, {step: after, when: "{{ event.name == 'call.done' }}"}"""
    run = completed(api, stream(tool, "result = chunk", arcs=arcs).rstrip() + after)
    assert run.result("after") == {"sum": 3}
    assert run.result("told")["results"] == [1, 2]
    assert run.entered().count("each") == run.entered().count("after") == 1


def test_a_large_chunk_goes_by_reference(api: httpx.Client) -> None:
    tool = {"kind": "python", "code": "for n in range(3): emit([n] * 10000)"}
    run = completed(api, stream(tool, "result = [len(chunk), chunk[0]]"))
    assert run.result("told")["results"] == [[10_000, 0], [10_000, 1], [10_000, 2]]


def test_a_chunk_holds_no_secret(api: httpx.Client) -> None:
    secret = "Hidden-Stream-Value-42"
    tool = {
        "kind": "python",
        "input": {"token": "{{ keychain.mine.key }}"},
        "code": "emit({'a': token, 'b': 'x ' + token})",
    }
    keychain = [{"name": "mine", "kind": "static", "map": {"key": secret}}]
    run = completed(api, stream(tool, "result = chunk"), keychain=keychain)
    assert run.result("told")["results"] == [{"a": "***", "b": "x ***"}]
    events = [event for event in run.events() if event["event_type"] != "playbook.started"]
    assert secret not in json.dumps(events)


FANOUT = """
        - step: shards
          loop:
            in: "{{ range(COUNT) | list }}"
            iterator: n
            spec: {mode: fanout, max_in_flight: 20, fanout: {max_shard_retries: RETRIES}}
          tool:
            kind: python
            input: {n: "{{ iter.n }}"}
            code: "CODE"
          next:
            arcs:
              - {step: partly, when: "{{ fanin.status == 'partial' }}"}
              - {step: wholly, when: "{{ fanin.status == 'complete' }}"}
        - step: partly
          tool: {kind: python, input: {fanin: "{{ fanin | default(None) }}", stats: "{{ shards.stats }}"}, code: "result = dict(input_data, ok=True)"}
        - step: wholly
          tool: {kind: python, input: {stats: "{{ shards.stats }}"}, code: "result = dict(input_data, ok=True)"}
"""  # noqa: E501


def fanout(*, count: int, retries: int, code: str) -> str:
    given = {"COUNT": str(count), "RETRIES": str(retries), "CODE": code}
    return re.sub("|".join(given), lambda found: given[found.group()], FANOUT)


def test_two_of_50_items_that_fail_leave_the_rest_and_take_the_arc_for_partial(api: httpx.Client) -> None:
    code = "result = 1 // (0 if n in (7, 31) else 1)"
    run = completed(api, fanout(count=50, retries=1, code=code))
    assert run.entered().count("partly") == 1 and "wholly" not in run.entered()
    assert run.result("partly")["stats"] == {"total": 50, "success": 48, "failed": 2}
    failures = [e for e in run.events() if e["event_type"] == "command.failed" and e["step"] == "shards"]
    assert sorted(e["iter_index"] for e in failures) == [7, 7, 31, 31]


def test_items_that_fail_once_are_run_again_and_the_fan_out_is_complete(api: httpx.Client, tmp_path: Any) -> None:
    mark = os.fspath(tmp_path / "seen-")
    code = (
        f"import pathlib; p = pathlib.Path('{mark}' + str(n)); first = n in (2, 5, 8) and not p.exists();"
        " p.touch(); result = 1 // (0 if first else 1)"
    )
    run = completed(api, fanout(count=10, retries=2, code=code))
    assert run.entered().count("wholly") == 1 and "partly" not in run.entered()
    assert run.result("wholly")["stats"] == {"total": 10, "success": 10, "failed": 0}
    failures = [e for e in run.events() if e["event_type"] == "command.failed" and e["step"] == "shards"]
    assert sorted(e["iter_index"] for e in failures) == [2, 5, 8]


def test_a_chunk_whose_consumer_fails_fails_the_run_unless_an_arc_takes_it(api: httpx.Client) -> None:
    tool = {"kind": "python", "code": "for n in range(3): emit(n)"}
    run = play(api, stream(tool, "result = 1 // (chunk - 1)"))
    assert run.status["status"] == "FAILED"
    assert "each" in run.message

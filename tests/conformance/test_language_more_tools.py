"""The language, run whole: tools that reach beyond python, http and postgres, in playbooks."""

from pathlib import Path

import httpx

from tests.conformance.running import completed, failed
from tests.conformance.stub_api import StubApi


def test_a_shell_runs_in_a_pipeline_and_its_code_decides(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            - {name: say, kind: shell, input: {who: "it's me"}, cmds: ["echo hello", "echo $WHO"],
                env: {WHO: "{{ who }}"}}
            - name: grep
              kind: shell
              command: "exit 1"
              spec: {policy: {rules: [{when: "{{ output.error.exit_code == 1 }}", then: {do: continue}}]}}
          next: {arcs: [{step: done}]}
        - step: done
          tool:
            kind: python
            input: {said: "{{ start.say.stdout }}", found: "{{ start.grep.exit_code }}"}
            code: "result = [said, found]"
        """,
    )
    assert run.results("done")[-1] == ["hello\nit's me\n", 1]


def test_a_command_that_fails_fails_its_step(api: httpx.Client):
    run = failed(api, "[{step: start, tool: {kind: shell, command: 'echo no >&2; exit 4'}}]")
    assert "expected exit code 0, found 4: no" in run.message


def test_a_script_runs_here_and_says_so(api: httpx.Client):
    run = completed(
        api,
        """
        - step: start
          tool:
            - name: own
              kind: script
              args: [a]
              script: {source: {type: inline, code: "import sys; result = sys.argv[1]"}}
              spec: {policy: {rules: [{when: "{{ output.meta.runner != 'local python' }}", then: {do: fail}}]}}
        """,
    )
    assert run.results("start")[-1]["own"] == "a"


def test_a_file_of_duckdb_passes_rows_between_steps(api: httpx.Client, tmp_path: Path):
    run = completed(
        api,
        """
        - step: start
          tool:
            kind: duckdb
            database: "{{ file }}"
            commands: ["CREATE TABLE t (a int)", "INSERT INTO t VALUES (?), (?)"]
            params: [1, 2]
          next: {arcs: [{step: read}]}
        - {step: read, tool: {kind: duckdb, database: "{{ file }}", query: "SELECT sum(a)::int AS total FROM t"}}
        """,
        payload={"file": str(tmp_path / "t.duckdb")},
    )
    assert run.result("start")["affected_rows"] == 2 and run.result("read")["rows"] == [{"total": 3}]


def test_posts_of_an_api_go_into_a_table(api: httpx.Client, stub: StubApi):
    run = completed(
        api,
        """
        - step: start
          tool:
            kind: postgres
            auth: pg_local
            query: CREATE TABLE IF NOT EXISTS moved (id int PRIMARY KEY, title text)
          next: {arcs: [{step: move}]}
        - step: move
          tool:
            kind: transfer
            source: {type: http, url: "{{ api_url }}/posts"}
            target: {type: postgres, auth: pg_local, table: moved, mapping: {id: id, title: title}}
            mode: replace
            chunk_size: 40
          next: {arcs: [{step: count}]}
        - {step: count, tool: {kind: postgres, auth: pg_local, query: "SELECT count(*)::int AS n FROM moved"}}
        """,
        payload={"api_url": stub.url},
    )
    assert run.result("move")["rows_transferred"] == 100 and run.result("move")["chunks"] == 3
    assert run.result("count")["rows"] == [{"n": 100}]

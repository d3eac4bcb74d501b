"""The command's own answers: usage, exit codes, options. No server is asked."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noetl_cli import main
from noetl_cli.documents import read_mapping
from noetl_cli.embedded.roles import last_words
from noetl_cli.embedded.stack import Plan, replicas_from, roles_of
from noetl_cli.output import cell, print_pairs, print_table
from noetl_cli.state_dir import Running, StateDir
from noetl_cli.target import connected
from noetl_cli.verbs.up import port_in
from noetl_common.errors import (
    ConfigError,
    Conflict,
    DependencyMissing,
    Invalid,
    NoetlError,
    NotFound,
    PlaybookError,
    Unauthorized,
    Unavailable,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), 1),
        (PlaybookError([{"message": "x"}]), 1),
        (Conflict("x"), 1),
        (Invalid("x"), 2),
        (ConfigError("x"), 3),
        (DependencyMissing("x"), 4),
        (Unavailable("x"), 4),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: NoetlError, code: int) -> None:
    assert main.exit_code_of(error) == code


def test_problems_of_a_document_are_shown_with_place_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    problem = {
        "message": "unknown key 'toool'",
        "line": 3,
        "column": 5,
        "hint": "did you mean tool?",
        "source": "a.yaml",
    }
    main.explain(PlaybookError([problem]))
    assert capsys.readouterr().err == "a.yaml:3:5: error: unknown key 'toool' (did you mean tool?)\n"


def test_a_wrong_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(main.app, ["run"]).exit_code == 2
    assert CliRunner().invoke(main.app, ["list", "--limit", "0"]).exit_code == 2
    assert CliRunner().invoke(main.app, ["nonsense"]).exit_code == 2


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    for verb in ("run", "validate", "register"):
        result = CliRunner().invoke(main.app, [verb, str(tmp_path / "none.yaml")])
        assert isinstance(result.exception, Invalid)


def test_version_is_one_json_document() -> None:
    result = CliRunner().invoke(main.app, ["version", "-o", "json"])
    assert result.exit_code == 0
    assert "noetl" in json.loads(result.stdout)


def test_without_processes_all_roles_are_one() -> None:
    assert replicas_from(processes=False, workers=None, given=[]) is None
    [role] = roles_of(Plan(owner="up"), 8082)
    assert (role.role, role.port, role.command[-1]) == ("all", 8082, "services")


def test_processes_are_one_of_each_and_two_workers() -> None:
    replicas = replicas_from(processes=True, workers=None, given=["ingest=2"])
    assert replicas == {"meta": 1, "ingest": 2, "compute": 1, "worker": 2}
    roles = roles_of(Plan(owner="up", replicas=replicas), 8082)
    assert [role.name for role in roles] == [
        "meta-1",
        "compute-1",
        "ingest-1",
        "ingest-2",
        "worker-1",
        "worker-2",
    ]
    servers = {role.environ["NOETL_SERVER_URL"] for role in roles if role.role == "worker"}
    assert len(servers) == 2
    assert len({role.port for role in roles}) == len(roles)


def test_a_compactor_runs_only_where_it_is_enabled_or_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOETL_COMPACTOR_ENABLED", raising=False)
    plain = replicas_from(processes=True, workers=1, given=[])
    asked = replicas_from(processes=True, workers=1, given=["compactor=1"])
    monkeypatch.setenv("NOETL_COMPACTOR_ENABLED", "true")
    enabled = replicas_from(processes=True, workers=1, given=[])
    found = [[role.role for role in roles_of(Plan(owner="up", replicas=one), 8082)] for one in (plain, asked, enabled)]
    assert found[0] == ["meta", "compute", "ingest", "worker"]
    assert found[1] == found[2] == ["meta", "compute", "compactor", "ingest", "worker"]


@pytest.mark.parametrize("text", ["workers=2", "worker=0", "worker=x", "worker", "worker=65"])
def test_impossible_replicas_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="--replicas: expected role=n"):
        replicas_from(processes=True, workers=None, given=[text])


def test_a_number_of_workers_needs_processes() -> None:
    with pytest.raises(Invalid):
        replicas_from(processes=False, workers=4, given=[])


def test_only_one_holds_a_state_directory(tmp_path: Path) -> None:
    first, second = StateDir(tmp_path / "s"), StateDir(tmp_path / "s")
    assert first.holder_pid() is None
    first.lock()
    with pytest.raises(Conflict, match="in use by process"):
        second.lock()
    assert second.holder_pid() is not None
    first.unlock()
    assert second.holder_pid() is None
    second.lock()
    second.unlock()


def test_what_a_dead_stack_left_behind_does_not_count_as_running(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.lock()
    state.publish(Running(pid=1, owner="up", api_url="http://x", database_url="d", nats_url="n"))
    assert state.running() is not None
    assert (tmp_path / "stack.json").stat().st_mode & 0o777 == 0o600
    state.unlock()
    assert state.running() is None


def test_cells_are_short_and_plain() -> None:
    assert cell(None) == ""
    assert cell(True) == "yes"
    assert cell(1.234) == "1.23"
    assert cell({"a": [1]}) == '{"a":[1]}'
    assert len(cell("x" * 500)) == 120


def test_a_table_in_a_pipe_is_as_wide_as_its_cells_and_ends_no_line_with_spaces(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(
        ("name", "took"), [{"name": "x" * 100, "took": "1.5 s"}, {"name": "y", "took": "9 ms"}], right=("took",)
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{'name':<100}   took", f"{'x' * 100}  1.5 s", f"{'y':<100}   9 ms"]


def test_an_empty_table_says_so_instead(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [], empty="no runs")
    assert capsys.readouterr() == ("", "no runs\n")


def test_pairs_are_aligned_and_say_nothing_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_pairs({"status": "FAILED", "error": "", "execution": "7"})
    assert capsys.readouterr().out == "status     FAILED\nexecution  7\n"


@pytest.mark.parametrize("url", ["localhost:8082", "ftp://x", "http://"])
def test_a_server_that_is_no_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(Invalid, match="--server: expected http://host:port"), connected(url):
        pass


@pytest.mark.parametrize("text", ["abc", "-1", "65536", "80.5"])
def test_a_port_in_the_environment_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="NOETL_PORT: expected a port"):
        port_in(text)


def test_a_role_that_ends_is_quoted_by_its_last_error_and_not_by_its_log_lines(tmp_path: Path) -> None:
    log = tmp_path / "all.log"
    log.write_text('{"level":"info","event":"x"}\n{"level":"error","event":"y","error":"NOETL_X: expected a number"}\n')
    assert last_words(log) == "NOETL_X: expected a number"
    log.write_text("Killed\n")
    assert last_words(log) == "Killed"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("broken.json", '{"a": 1,', "broken.json:1:9: expected YAML or JSON"),
        ("list.json", "[1]", "expected a mapping, found list"),
        ("none.json", None, "none.json: expected a file, found no such file"),
    ],
)
def test_a_payload_that_cannot_be_read_is_a_usage_error(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(Invalid, match=words):
        read_mapping(tmp_path / name)


def test_a_wrong_document_keeps_the_others_from_being_registered(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("workflow: [", encoding="utf-8")
    result = CliRunner().invoke(main.app, ["register", str(tmp_path / "wrong.yaml"), "--server", "http://127.0.0.1:1"])
    assert isinstance(result.exception, PlaybookError)


def test_a_refused_request_says_whether_a_token_was_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NOETL_API_TOKEN", raising=False)
    main.explain(Unauthorized("expected a token"))
    monkeypatch.setenv("NOETL_API_TOKEN", "wrong")
    main.explain(Unauthorized("expected a token"))
    assert capsys.readouterr().err.splitlines() == [
        "error: expected a token; NOETL_API_TOKEN is not set",
        "error: expected a token; NOETL_API_TOKEN was refused",
    ]

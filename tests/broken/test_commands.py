"""The command used wrongly: each use ends with its exit code, and says what was expected and what was found."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from noetl_cli import main
from noetl_common.errors import NoetlError
from tests.broken.cases import GOOD, Case, cases, lacking, name_of

FILES = {
    "good.yaml": GOOD.encode(),
    "empty.yaml": b"",
    "list.yaml": b"[1, 2]\n",
    "wrong.yaml": b"a: [1\nb: 2\n",
    "broken.yaml": GOOD.replace("kind: http", "kind: htpp").encode(),
    "notes.txt": b"Buy milk: and bread: today\n",
    "binary.yaml": b"\xff\xfe\x00\x01kind: Playbook",
    "picture.png": b"\x89PNG\r\n\x1a\n\x00\x00",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with files that commands can be given."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("NOETL_SERVER_URL", raising=False)
    return tmp_path


def told_by(args: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit code and what a use of the command says."""
    ended = CliRunner().invoke(main.app, args)
    if isinstance(ended.exception, NoetlError):
        main.explain(ended.exception)
        return main.exit_code_of(ended.exception), capsys.readouterr().err
    return ended.exit_code, ended.stderr


@pytest.mark.parametrize("case", cases("commands"), ids=name_of)
def test_a_wrong_use_ends_with_its_code_and_says_what_was_expected_and_what_was_found(
    case: Case, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = told_by(case["command"], capsys)
    assert code == case["exit"], told
    assert case["where"] in told and case.get("hint", "") in told
    assert not lacking(case, told), told

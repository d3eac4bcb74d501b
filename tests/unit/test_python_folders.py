"""The folders of python processes go with their worker, at the latest when the next one starts."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from services.worker.tools.processes import sweep


def test_a_starting_worker_removes_what_a_killed_one_left_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left, used, foreign = (
        tmp_path / f"noetl-python-{gone.pid}-a",
        tmp_path / f"noetl-python-{os.getpid()}-b",
        tmp_path / "noetl-python-mine-c",
    )
    for folder in (left, used, foreign):
        folder.mkdir()
        (folder / "file").write_text("x", encoding="utf-8")
    assert sweep() == 1
    assert sorted(tmp_path.iterdir()) == sorted([used, foreign])

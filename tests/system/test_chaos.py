"""A short `noetl chaos`: processes, servers and wires fail while a mixed load runs, and nothing is lost or twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(300)
def test_a_short_chaos_run_loses_nothing_and_does_nothing_twice(tmp_path: Path):
    command = [sys.executable, "-m", "noetl_cli.main", "chaos", "--seconds", "15", "--every", "0.8", "--seed", "7"]
    done = subprocess.run(
        [*command, "--runs", "4", "--keep", str(tmp_path)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["lost"], report["twice"], report["violations"], report["wrong"]) == (0, 0, 0, [])
    assert report["kills"] + report["pauses"] >= 5
    assert report["runs"] >= 2
    assert report["events"] >= report["runs"] * 3

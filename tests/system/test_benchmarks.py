"""Each benchmark runs at its smallest and says what it promises to say. Nothing is asserted about speed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.__main__ import ran

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 170
ONE = ["--workers", "1"]
WATCHED = {"projection_lag_ms_p95", "projection_lag_ms_p99", "cpu_ms_per_item", "others_cpu", "rss_mb"}
LOOP = {"items_per_s", "events_per_s", "step_ms_p50", "step_ms_p99", "status_ms_p99"} | WATCHED
SMALLEST: dict[str, tuple[list[str], set[str]]] = {
    "fanout": (["--items", "60", "--no-counts", "--verify", *ONE], LOOP | {"floor_items_per_s", "verified_events"}),
    "chain": (
        ["--steps", "3", "--sleep-ms", "1", *ONE],
        WATCHED | {"step_ms_p50", "step_ms_p99", "statements_per_item"},
    ),
    "starts": (["--starts", "8", *ONE], WATCHED | {"runs_per_s", "first_claim_ms_p99", "done_ms_p50", "done_ms_p99"}),
    "ingest": (
        ["--seconds", "0.5", "--emitters", "16"],
        WATCHED | {"events_per_s", "half_rate_ack_ms_p99", "crowd_ack_ms_p99", "floor_events_per_s"},
    ),
    "flow": (["--items", "10", *ONE], LOOP | {"floor_items_per_s"}),
    "idle": (["--seconds", "1", "--no-counts", *ONE], {"statements_per_s", "with_transactions_per_s", "cpu_percent"}),
    "fairness": (
        ["--items", "200", "--seconds", "1", "--peak-starts", "32", *ONE],
        {"alone_ms_p99", "beside_ms_p99", "peak_runs_per_s", "goodput_runs_per_s", "refused_429", "refused_503"},
    ),
    "requests": (["--seconds", "0.5"], {"requests_per_s", "cpu_us_per_request", "floor_cpu_us_per_request"}),
    "replicas": (["--items", "50", "--most", "1"], {"items_per_s", "best"}),
}


@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_says_what_it_promises(name: str, tmp_path: Path) -> None:
    arguments, fields = SMALLEST[name]
    told = told_by(name, [*arguments, "--runs", "1"], tmp_path)
    assert told["benchmark"] == name
    assert {"hardware", "settings", "runs"} | fields <= told.keys()
    ratios = {key: value for key, value in told.items() if key.startswith(("ratio_to", "goodput_to"))}
    for value in ratios.values():
        assert all(part > 0 for part in (value.values() if isinstance(value, dict) else [value])), ratios
    if "cpu_ms_per_item" in fields:
        assert {"ingest", "compute", "meta", "worker", "postgres", "all"} <= told["cpu_ms_per_item"].keys()


def test_a_system_that_fails_is_told_with_its_reason() -> None:
    lines, reason = ran([sys.executable, "-c", "print('{\"work\": 1}'); raise SystemExit('no server')"], os.environ)
    assert (lines, reason) == ([{"work": 1}], "no server")


def told_by(name: str, arguments: list[str], folder: Path) -> dict[str, Any]:
    """Return the JSON line that a benchmark ends with, in an environment that names no servers."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("NOETL_", "DATABASE_", "NATS_"))}
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    said = subprocess.run(
        command, cwd=ROOT, env={**environ, "TMPDIR": str(folder)}, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert said.returncode == 0, said.stderr
    return dict(json.loads(said.stdout.splitlines()[-1]))

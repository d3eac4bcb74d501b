"""Run every benchmark and write what they said into a folder: the figures of a release in one go.

python -m benchmarks.every --out FOLDER [--only fanout ...] writes `results.jsonl` (the JSON line of each),
`results.md` (a table to paste into docs/BENCHMARKS.md) and a log of each. Exit code 1 when one failed.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMANDS: dict[str, list[str]] = {
    "fanout-1k": ["fanout", "--items", "1000"],
    "fanout-10k": ["fanout", "--items", "10000", "--verify"],
    "fanout-10k-noop": ["fanout", "--items", "10000", "--tool", "noop"],
    "fanout-10k-nats": ["fanout", "--items", "10000", "--nats-stopped", "--no-counts", "--verify"],
    "fanout-100k": ["fanout", "--items", "100000", "--runs", "1", "--verify"],
    "chain": ["chain"],
    "chain-sleep": ["chain", "--steps", "40", "--sleep-ms", "10"],
    "starts": ["starts"],
    "ingest": ["ingest", "--seconds", "20"],
    "flow": ["flow"],
    "requests": ["requests"],
    "idle": ["idle"],
    "fairness": ["fairness"],
    "replicas": ["replicas"],
    "status": ["status"],
    "compact": ["compact"],
    "verify": ["verify"],
    "takeover": ["takeover", "--repetitions", "10"],
    "peers": ["peers"],
}
LARGEST = {"fanout-1m": ["fanout", "--items", "1000000", "--runs", "1", "--no-counts", "--verify"]}
SHOWN = (
    "items_per_s",
    "runs_per_s",
    "events_per_s",
    "requests_per_s",
    "step_ms_p50",
    "step_ms_p99",
    "done_ms_p99",
    "row_ops_per_item",
    "statements_per_item",
    "ratio_to_floor",
    "others_cpu",
)


def main() -> int:
    """Return the exit code: 0, or 1 when a benchmark failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.every", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    parser.add_argument("--only", nargs="*", choices=[*COMMANDS, *LARGEST], default=list(COMMANDS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results, failed = {}, []
    for name in options.only:
        began_s = time.monotonic()
        found = run(name, options.out)
        print(f"{name}: {'done' if found else 'FAILED'} in {time.monotonic() - began_s:.0f} s", flush=True)
        if found is None:
            failed.append(name)
        else:
            results[name] = found
            write(options.out, results)
    return 1 if failed else 0


def run(name: str, out: Path) -> dict[str, Any] | None:
    """Run one benchmark with its output in a file; return its JSON line, None when it failed."""
    module, *arguments = {**COMMANDS, **LARGEST}[name]
    log_path = out / f"{name}.log"
    with open(log_path, "w", encoding="utf-8") as log:
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    lines = log_path.read_text(encoding="utf-8").splitlines()
    return None if status or not lines else dict(json.loads(lines[-1]))


def write(out: Path, results: dict[str, dict[str, Any]]) -> None:
    """Write the lines and the table of what there is so far."""
    lines = [json.dumps({"name": name, **figures}) for name, figures in results.items()]
    (out / "results.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [["benchmark", *SHOWN, "CPU ms / item"], ["---"] * (len(SHOWN) + 2)]
    rows += [[name, *(cell(figures, shown) for shown in SHOWN), cpu(figures)] for name, figures in results.items()]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    (out / "results.md").write_text(table + "\n", encoding="utf-8")


def cell(figures: dict[str, Any], name: str) -> str:
    """Return a figure with its least and greatest, or nothing."""
    value = figures.get(name)
    if value is None or isinstance(value, dict):
        return ""
    spread = figures.get("spread", {}).get(name)
    return f"{value:,}" + (f" [{spread[0]:,} to {spread[1]:,}]" if spread and spread[0] != spread[1] else "")


def cpu(figures: dict[str, Any]) -> str:
    """Return the processor time of each role, in ms."""
    return ", ".join(f"{role} {ms:.3f}" for role, ms in figures.get("cpu_ms_per_item", {}).items())


if __name__ == "__main__":
    sys.exit(main())

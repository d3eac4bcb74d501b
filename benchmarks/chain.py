"""How long one step after another takes: a chain of steps, and the same commits made by psycopg alone.

python -m benchmarks.chain [--steps 200] [--tool python|noop] [--sleep-ms 0] prints a table and ends with one JSON
line. A step lasts from the end of the step before it to its own, by the log; `step_ms` is without the sleep asked for.
"""

import argparse
import sys
from typing import Any

from benchmarks.floor import Shape, floor_per_s
from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.sampling import percentile
from benchmarks.stack import SQL, Bench, bench, watched
from benchmarks.statements import StatementLog
from noetl_common.core.parse import STEPS_MAX
from noetl_common.errors import Invalid

WARM_UP_RUNS = 1


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("chain", __doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tool", choices=("python", "noop"), default="python")
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="how long each python step sleeps")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    return report("chain", lambda: measured(options), vars(options))


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of some runs on a new stack. Errors: Unavailable when one does not complete."""
    with bench(workers=options.workers) as b:
        where = b.register_text(playbook(options.steps, tool=options.tool, sleep_ms=options.sleep_ms))
        for _ in range(WARM_UP_RUNS):
            b.run(where, {})
        figures = medians([timed(b, where, options) for _ in range(options.runs)])
        with StatementLog(b) as log:
            b.run(where, {})
            b.settle()
        return figures | {"statements_per_item": round(log.counted.all.total() / options.steps, 2)}


def timed(b: Bench, where: dict[str, Any], options: argparse.Namespace) -> Figures:
    """Return the figures of one run, and those of the raw limit right after it."""
    with b.sampler() as sampler:
        execution_id = b.run(where, {})
        b.settle()
    ends = b.conn.execute(SQL["step_ends"], {"execution_id": execution_id}).fetchall()
    gaps_ms = [row["gap_ms"] - options.sleep_ms for row in ends]
    ours_ms = sum(gaps_ms) / len(gaps_ms)
    floor = floor_per_s(b.running.database_url, options.steps, shape_of(options.tool))
    return {
        "chain_ms": round(sum(row["gap_ms"] for row in ends), 1),
        "step_ms_mean": round(ours_ms, 2),
        "step_ms_p50": round(percentile(gaps_ms, 0.5), 2),
        "step_ms_p99": round(percentile(gaps_ms, 0.99), 2),
        **watched(sampler, options.steps),
        "floor_step_ms": round(1000 / floor, 2),
        "ratio_to_floor": round(1000 / floor / ours_ms, 3),
    }


def shape_of(tool: str) -> Shape:
    """Return what a step writes: three commits, none of which can wait for another step's."""
    before = ("step.enter", "command.issued")
    return Shape(
        batch=1, before=before, after=("command.completed", "step.exit"), with_results=tool == "python", commits=3
    )


def playbook(steps: int, *, tool: str, sleep_ms: float) -> str:
    """Return the text of a chain. Errors: Invalid for more steps than a playbook may have."""
    if not 1 <= steps <= STEPS_MAX:
        raise Invalid(f"--steps: expected 1 to {STEPS_MAX}, found {steps}")
    code = f"import time; time.sleep({sleep_ms / 1000}); result = 1" if sleep_ms else "result = 1"
    body = "{kind: noop}" if tool == "noop" else f'{{kind: python, code: "{code}"}}'
    lines = [
        "apiVersion: noetl.io/v2",
        "kind: Playbook",
        "metadata: {name: chain, path: benchmarks/chain}",
        "workflow:",
    ]
    for n in range(steps):
        way = f", next: step_{n + 1}" if n + 1 < steps else ""
        lines.append(f"  - {{step: step_{n}, tool: {body}{way}}}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

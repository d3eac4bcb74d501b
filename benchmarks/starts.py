"""How many one-step runs a second are started and done, and how long each takes.

python -m benchmarks.starts [--starts 1000] [--in-flight 32] prints a table and ends with one JSON line. A client has
so many runs in flight; each begins when one before it has ended.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.floor import Shape, floor_per_s
from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.stack import Bench, bench, watched
from benchmarks.starting import latencies, start_in_flight
from benchmarks.statements import StatementLog

WARM_UP_STARTS = 64
COUNTED_STARTS_MAX = 200


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("starts", __doc__)
    parser.add_argument("--starts", type=int, default=1_000)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    return report("starts", lambda: measured(options), vars(options))


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of some rounds on a new stack. Errors: Unavailable when a run does not complete."""
    with bench(workers=options.workers) as b:
        where = b.register("one_step.yaml")
        asyncio.run(start_in_flight(b, where, WARM_UP_STARTS, options.in_flight))
        figures = medians([timed(b, where, options) for _ in range(options.runs)])
        counted = min(options.starts, COUNTED_STARTS_MAX)
        with StatementLog(b) as log:
            asyncio.run(start_in_flight(b, where, counted, options.in_flight))
            b.settle()
        return figures | {"statements_per_item": round(log.counted.all.total() / counted, 2)}


def timed(b: Bench, where: Mapping[str, Any], options: argparse.Namespace) -> Figures:
    """Return the figures of one round, and those of the raw limit right after it."""
    with b.sampler() as sampler:
        began_s = time.perf_counter()
        execution_ids = asyncio.run(start_in_flight(b, where, options.starts, options.in_flight))
        seconds = time.perf_counter() - began_s
        b.settle()
    floor = floor_per_s(b.running.database_url, options.starts, shape_of(options.in_flight))
    return {
        "runs_per_s": round(options.starts / seconds, 1),
        **latencies(b, execution_ids),
        **watched(sampler, options.starts),
        "floor_runs_per_s": round(floor, 1),
        "ratio_to_floor": round(options.starts / seconds / floor, 3),
    }


def shape_of(in_flight: int) -> Shape:
    """Return what a run writes: three commits, which as many runs share as are in flight."""
    before = ("playbook.started", "step.enter", "command.issued")
    after = ("command.completed", "step.exit", "playbook.completed")
    return Shape(batch=in_flight, before=before, after=after, with_results=True, with_executions=True, commits=3)


if __name__ == "__main__":
    sys.exit(main())

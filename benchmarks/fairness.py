"""How long a lone run takes beside a large loop, and what is left of the speed when twice as much is asked for.

python -m benchmarks.fairness [--items 20000] [--seconds 10] prints a table and ends with one JSON line. A lone run is
one step; the next begins when the last has ended. Overload: first as many runs a second as 32 in flight reach, then
for `--seconds` twice as many are asked for; what ends in that time is the goodput.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.stack import POLL_S, SQL, Bench, bench
from benchmarks.starting import latencies, start_at_rate, start_in_flight
from noetl_common.errors import Unavailable

PROBES_ALONE = 50
PROBES_MAX = 500
PEAK_STARTS = 500
PEAK_IN_FLIGHT = 32
WARM_UP_ITEMS = 500
OVERLOAD = 2.0
DRAIN_TIMEOUT_S = 300.0

Where = Mapping[str, Any]


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("fairness", __doc__)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--max-in-flight", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--peak-starts", type=int, default=PEAK_STARTS)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    return report("fairness", lambda: measured(options), vars(options))


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of some rounds on a new stack. Errors: Unavailable when a run does not complete."""
    with bench(workers=options.workers) as b:
        loop, lone = b.register("fanout_python.yaml"), b.register("one_step.yaml")
        b.run(loop, {"items": WARM_UP_ITEMS, "max_in_flight": options.max_in_flight})
        rounds = [beside_a_loop(b, loop, lone, options) | overload(b, lone, options) for _ in range(options.runs)]
        return medians(rounds)


def beside_a_loop(b: Bench, loop: Where, lone: Where, options: argparse.Namespace) -> Figures:
    """Return how long lone runs take on an idle stack, and while a loop runs."""
    alone = latencies(b, asyncio.run(start_in_flight(b, lone, PROBES_ALONE, 1)))
    with b.sampler() as sampler:
        began_s = time.perf_counter()
        execution_id = b.api.execute(loop, {"items": options.items, "max_in_flight": options.max_in_flight})
        probes: list[int] = []
        while len(probes) < PROBES_MAX and (not probes or not has_ended(b, execution_id)):
            probes += asyncio.run(start_in_flight(b, lone, 1, 1))
        b.finish(execution_id, items=options.items)
        seconds = time.perf_counter() - began_s
    beside = latencies(b, probes)
    return {
        "probes": len(probes),
        "alone_ms_p50": alone["done_ms_p50"],
        "alone_ms_p99": alone["done_ms_p99"],
        "beside_ms_p50": beside["done_ms_p50"],
        "beside_ms_p99": beside["done_ms_p99"],
        "beside_first_claim_ms_p99": beside["first_claim_ms_p99"],
        "ratio_to_alone_p50": round(beside["done_ms_p50"] / alone["done_ms_p50"], 2),
        "ratio_to_alone_p99": round(beside["done_ms_p99"] / alone["done_ms_p99"], 2),
        "loop_items_per_s": round(options.items / seconds, 1),
        "others_cpu": sampler.cpu.others(),
    }


def has_ended(b: Bench, execution_id: str) -> bool:
    """Return whether a run has ended."""
    return b.conn.execute(SQL["terminal_event"], {"execution_id": int(execution_id)}).fetchone() is not None


def overload(b: Bench, lone: Where, options: argparse.Namespace) -> Figures:
    """Return the peak, the goodput at twice its load, what was answered, and how long the rest took to end."""
    began_s = time.perf_counter()
    asyncio.run(start_in_flight(b, lone, options.peak_starts, PEAK_IN_FLIGHT))
    peak = options.peak_starts / (time.perf_counter() - began_s)
    from_ = b.conn.execute(SQL["database_time"]).fetchone()
    assert from_ is not None, "a time is always answered"
    began_s = time.perf_counter()
    answers = asyncio.run(start_at_rate(b, lone, rate=peak * OVERLOAD, seconds=options.seconds))
    asked_s = time.perf_counter() - began_s
    window = {"from": from_["now"], "seconds": asked_s}
    row = b.conn.execute(SQL["ended_between"], window).fetchone()
    assert row is not None, "a count is always answered"
    return {
        "peak_runs_per_s": round(peak, 1),
        "goodput_runs_per_s": round(row["ended"] / asked_s, 1),
        "goodput_to_peak": round(row["ended"] / asked_s / peak, 3),
        "asked_runs_per_s": round(sum(answers.values()) / asked_s, 1),
        "answers": {str(status): count for status, count in sorted(answers.items())},
        "refused_429": answers[429],
        "refused_503": answers[503],
        "drained_after_s": round(drained_after_s(b, window, answers), 1),
    }


def drained_after_s(b: Bench, window: Figures, answers: Counter[int]) -> float:
    """Return how long it takes until all runs that were taken in have ended. Errors: Unavailable when they do not."""
    taken = sum(count for status, count in answers.items() if status < 300)
    began_s = time.monotonic()
    while time.monotonic() < began_s + DRAIN_TIMEOUT_S:
        row = b.conn.execute(SQL["ended_between"], {**window, "seconds": 3600}).fetchone()
        if row is not None and row["ended"] >= taken:
            return time.monotonic() - began_s
        time.sleep(POLL_S)
    raise Unavailable(f"expected {taken} runs to end within {DRAIN_TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    sys.exit(main())

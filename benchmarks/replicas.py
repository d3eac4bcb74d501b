"""How a fan-out's speed changes with the number of processes of each role.

python -m benchmarks.replicas [--items 5000] prints a table and ends with one JSON line. Each combination has a new
stack of its own. More processes than cores share the cores: on a small machine more of them cannot be faster.
"""

import argparse
import sys

from benchmarks.floor import Shape, floor_per_s
from benchmarks.loops import one_run
from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.stack import bench

WARM_UP_ITEMS = 500


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("replicas", __doc__)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--tool", choices=("python", "noop"), default="python")
    parser.add_argument("--most", type=int, default=2, help="processes of each role, at most")
    options = parser.parse_args()
    return report("replicas", lambda: measured(options), vars(options))


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of each combination: one of each role, more of one role, more of all."""
    alone = {"ingest": 1, "compute": 1, "worker": 1}
    tried = [alone]
    for count in range(2, options.most + 1):
        tried += [{**alone, role: count} for role in alone] + [dict.fromkeys(alone, count)]
    rates, cpu, ratios, spread = {}, {}, {}, {}
    for replicas in tried:
        name = " ".join(f"{role}={count}" for role, count in replicas.items())
        figures = of_one(options, replicas)
        rates[name], spread[name] = figures["items_per_s"], figures["spread"]["items_per_s"]
        cpu[name], ratios[name] = figures["cpu_ms_per_item"]["all"], figures["ratio_to_floor"]
    best = max(rates, key=lambda name: rates[name])
    return {
        "runs": options.runs,
        "items_per_s": rates,
        "cpu_ms_per_item": cpu,
        "ratio_to_floor": ratios,
        "best": best,
        "best_to_one_each": round(rates[best] / next(iter(rates.values())), 3),
        "spread": spread,
    }


def of_one(options: argparse.Namespace, replicas: dict[str, int]) -> Figures:
    """Return the figures of one combination, on a new stack."""
    with bench(replicas=replicas) as b:
        where = b.register(f"fanout_{options.tool}.yaml")
        payload = {"items": options.items, "max_in_flight": 1_000}
        b.run(where, {**payload, "items": WARM_UP_ITEMS})
        figures = medians([one_run(b, where, payload) for _ in range(options.runs)])
        floor = floor_per_s(b.running.database_url, options.items, Shape(with_results=options.tool == "python"))
        return {**figures, "ratio_to_floor": round(figures["items_per_s"] / floor, 3)}


if __name__ == "__main__":
    sys.exit(main())

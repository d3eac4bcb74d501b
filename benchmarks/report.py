"""What every benchmark says at its end: a table, and one JSON line."""

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.sampling import hardware
from noetl_common.errors import NoetlError

Figures = dict[str, Any]
RUNS = 3
DIGITS = 4


def parser_of(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with what all benchmarks of the suite take: how many runs."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=doc)
    parser.add_argument("--runs", type=int, default=RUNS, help="the median of this many is told, with min and max")
    return parser


def medians(runs: Sequence[Figures]) -> Figures:
    """Return the figures of several runs as one: medians, and the least and greatest of each number in `spread`.

    Shapes: a figure with parts ({role: number}) becomes the medians of its parts; what is no number is the last run's.
    """
    told: Figures = {"runs": len(runs)}
    spread: dict[str, list[float]] = {}
    for name, last in runs[-1].items():
        values = [run[name] for run in runs if run.get(name) is not None]
        if isinstance(last, dict):
            told[name] = {part: _median([value.get(part, 0.0) for value in values]) for part in last}
        elif isinstance(last, int | float) and not isinstance(last, bool):
            told[name] = _median(values)
            spread[name] = [min(values), max(values)]
        else:
            told[name] = last
    return {**told, "spread": spread}


def report(name: str, measure: Callable[[], Figures], settings: Mapping[str, Any]) -> int:
    """Measure, print the table and the JSON line; return the exit code: 0, or 1 when a run failed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended by another, it leaves nothing behind either
    try:
        figures = measure()
    except NoetlError as exc:
        print(f"benchmark failed: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("benchmark interrupted", file=sys.stderr)
        return 1
    print_table(figures)
    print(json.dumps({"benchmark": name, **figures, "hardware": hardware(), "settings": dict(settings)}))
    return 0


def print_table(figures: Figures) -> None:
    """Print a line a figure, min and max behind it where there are several; those with parts in lines of their own."""
    spread = figures.get("spread", {})
    for name, value in figures.items():
        if name == "spread" or (isinstance(value, dict) and any(isinstance(part, dict) for part in value.values())):
            continue  # told beside the medians, or in a table of the benchmark's own
        if isinstance(value, dict):
            print(name)
            for part, part_value in value.items():
                print(f"  {part:<24} {part_value!s:>12}" if len(part) <= 24 else f"  {part} {part_value}")
        else:
            low, high = spread.get(name, (value, value))
            print(f"{name:<26} {value!s:>12}" + (f"  [{low} to {high}]" if low != high else ""))


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), DIGITS) if values else 0.0

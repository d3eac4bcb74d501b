"""How fast a parallel loop runs on the embedded stack, what it costs, and how far that is from the raw limit.

python -m benchmarks.fanout [--items 10000] [--tool python|noop] prints a table and ends with one JSON line.
`row_ops_per_item` is without what the stack writes anyway (leases, heartbeats, checkpoints), which is measured while
it is idle. Rows and statements are counted apart from the runs that are timed.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.floor import Shape, floor_per_s
from benchmarks.loops import one_run
from benchmarks.outage import without_nats
from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.rows import Rows, row_operations
from benchmarks.stack import Bench, bench
from benchmarks.statements import StatementLog
from benchmarks.verify import verified
from noetl_common.errors import Conflict

WARM_UP_ITEMS = 500
COUNTED_ITEMS_MAX = 5_000
FLOOR_ITEMS_MAX = 20_000


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("fanout", __doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--tool", choices=("python", "noop"), default="python")
    parser.add_argument("--max-in-flight", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--counts", action=argparse.BooleanOptionalAction, default=True, help="rows and statements")
    parser.add_argument("--nats-stopped", action="store_true", help="also lose NATS, go without it, and get it back")
    parser.add_argument("--verify", action="store_true", help="run `noetl verify` at the end")
    options = parser.parse_args()
    settings = {**vars(options), "warm_up_items": WARM_UP_ITEMS}
    return report("fanout", lambda: measured(options), settings)


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of some runs on a new stack. Errors: Unavailable when one does not complete."""
    with bench(workers=options.workers) as b:
        where = b.register(f"fanout_{options.tool}.yaml")
        payload = {"items": options.items, "max_in_flight": options.max_in_flight}
        b.run(where, {**payload, "items": WARM_UP_ITEMS})
        b.settle()
        quiet, before = (row_operations(b.conn), row_operations(b.conn)) if options.counts else (None, None)
        figures = medians([timed(b, where, payload, tool=options.tool) for _ in range(options.runs)])
        if quiet is not None and before is not None:
            written = Rows.between(before, row_operations(b.conn))
            figures |= rows_per_item(Rows.between(quiet, before), written, options.items * options.runs)
            figures |= statements_per_item(b, where, payload)
        if options.nats_stopped:
            figures |= without_nats(b, where, payload)
        if options.verify:
            figures |= check(b)
        return figures


def timed(b: Bench, where: Mapping[str, Any], payload: Mapping[str, Any], *, tool: str) -> Figures:
    """Return the figures of one run, and those of the raw limit right after it."""
    figures = one_run(b, where, payload)
    items = min(payload["items"], FLOOR_ITEMS_MAX)
    floor = floor_per_s(b.running.database_url, items, Shape(with_results=tool == "python"))
    return {
        **figures,
        "floor_items_per_s": round(floor, 1),
        "ratio_to_floor": round(figures["items_per_s"] / floor, 3),
    }


def rows_per_item(idle: Rows, written: Rows, items: int) -> Figures:
    """Return what `items` items wrote, by table, and what an idle stack writes a second."""
    by_table = {name: round(count / items, 3) for name, count in written.by_table.items() if count}
    return {
        "row_ops_per_item": round((written.total - idle.per_s() * written.seconds) / items, 3),
        "row_ops_by_table": by_table,
        "idle_row_ops_per_s": round(idle.per_s(), 1),
    }


def statements_per_item(b: Bench, where: Mapping[str, Any], payload: Mapping[str, Any]) -> Figures:
    """Return statements of a run of its own, by role, beginnings and ends of transactions included."""
    items = min(payload["items"], COUNTED_ITEMS_MAX)
    with StatementLog(b) as log:
        b.run(where, {**payload, "items": items})
        b.settle()
    by_role = {role: round(count / items, 4) for role, count in sorted(log.counted.all.items())}
    return {
        "statements_per_item": round(log.counted.all.total() / items, 4),
        "statements_by_role": by_role,
    }


def check(b: Bench) -> Figures:
    """Return what `noetl verify` says. Errors: Conflict when something does not hold."""
    found, peak_mib = verified(b.running.database_url, b.folder / "results")
    if not found["clean"]:
        raise Conflict(f"expected nothing to be found by noetl verify, found {found['findings'][:3]}")
    looked = found["looked"]
    return {"verified_events": looked["events"], "verify_s": looked["seconds"], "verify_mib": round(peak_mib, 1)}


if __name__ == "__main__":
    sys.exit(main())

"""What a stack that has nothing to do costs: statements a second and processor time of each process.

python -m benchmarks.idle [--seconds 20] prints a table and ends with one JSON line. NATS is up; a run was made before.
Statements are counted apart from the time in which the processor time is taken.
"""

import argparse
import sys
import time
from collections import Counter

from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.rows import Rows, row_operations
from benchmarks.stack import Bench, bench
from benchmarks.statements import StatementLog

CALM_S = 3.0
BUSIEST = 12


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("idle", __doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--counts", action=argparse.BooleanOptionalAction, default=True, help="rows written")
    options = parser.parse_args()
    return report("idle", lambda: measured(options), vars(options))


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of some looks at a new stack."""
    with bench(workers=options.workers) as b:
        b.run(b.register("one_step.yaml"), {})
        time.sleep(CALM_S)
        figures = medians([look(b, options.seconds) for _ in range(options.runs)])
        if options.counts:
            before = row_operations(b.conn)
            written = Rows.between(before, row_operations(b.conn))
            figures["row_ops_per_s"] = round(written.per_s(), 1)
        return figures


def look(b: Bench, seconds: float) -> Figures:
    """Return statements a second of each process, without and with those that begin and end transactions, and CPU."""
    processes = Counter(role.role for role in b.running.roles)
    with b.sampler() as sampler:
        time.sleep(seconds)
    with StatementLog(b) as log:
        time.sleep(seconds)
    every, transaction = log.counted.all, log.counted.transaction
    by_role = {
        role: round((every[role] - transaction[role]) / log.counted.seconds / count, 2)
        for role, count in sorted(processes.items())
    }
    return {
        "statements_per_s_max": max(by_role.values()),
        "statements_per_s": by_role,
        "with_transactions_per_s": {
            role: round(every[role] / log.counted.seconds / count, 2) for role, count in sorted(processes.items())
        },
        "busiest_statements_per_s": {
            text: round(count / log.counted.seconds, 2) for text, count in log.counted.texts.most_common(BUSIEST)
        },
        "cpu_percent": {role: round(ms / seconds / 10, 2) for role, ms in sorted(sampler.cpu.by_role.items())},
        "others_cpu": sampler.cpu.others(),
        "rss_mb": {role: round(peak / 1e6, 1) for role, peak in sorted(sampler.rss_bytes.items())},
    }


if __name__ == "__main__":
    sys.exit(main())

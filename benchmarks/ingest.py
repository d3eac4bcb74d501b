"""How many events a second the batch endpoint takes from clients, and how long it takes to acknowledge them.

python -m benchmarks.ingest [--seconds 60] [--emitters 1000] prints a table and ends with one JSON line. Clients claim
commands of a pool that no worker serves, over HTTP as workers do, and stream chunks of them (`call.partial`), which
is the one event that a command may report any number of. Each is checked against its claim, numbered, deduplicated,
inserted and committed before it is acknowledged, and routed; it names no payload. Three phases, `--seconds` each:

* sustained: 8 connections, batches of 100 (10 chunks each of 10 commands), the next when the last is acknowledged
* half: the same connections and batches at half of that rate
* crowd: `--emitters` connections, one event each every `--every-s` seconds
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from benchmarks.emitting import Emitter, claim_all, end_all, flood, keep, pace
from benchmarks.floor import floor_events_per_s
from benchmarks.report import Figures, medians, parser_of, report
from benchmarks.sampling import Sampler, percentile
from benchmarks.stack import SQL, Bench, bench, watched
from noetl_common.errors import Conflict

RUNS_OF_EMITTERS = 16
FLOOR_EVENTS_MAX = 50_000


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed."""
    parser = parser_of("ingest", "How many events a second the batch endpoint takes from clients.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--emitters", type=int, default=1_000)
    parser.add_argument("--every-s", type=float, default=1.0, help="how often each emitter of the crowd sends an event")
    options = parser.parse_args()
    return report("ingest", lambda: measured(options), vars(options))


def measured(options: argparse.Namespace) -> Figures:
    """Return the figures of some rounds on a new stack. Errors: Unavailable; Conflict when an event was not kept."""
    with bench(workers=1) as b:
        return medians([timed(b, options) for _ in range(options.runs)])


def timed(b: Bench, options: argparse.Namespace) -> Figures:
    """Return the figures of one round of all phases."""
    where = b.register("emitters.yaml")
    runs = min(RUNS_OF_EMITTERS, options.emitters)
    each = -(-options.emitters // runs)
    execution_ids = [b.api.execute(where, {"emitters": each}) for _ in range(runs)]
    sampler = b.sampler()
    figures = asyncio.run(phases(b, each * runs, options, sampler))
    for execution_id in execution_ids:
        b.finish(execution_id)
    named = {"execution_ids": [int(one) for one in execution_ids]}
    row = b.conn.execute(SQL["count_chunks"], named).fetchone()
    if row is None or row["chunks"] != figures["events"]:
        raise Conflict(f"expected {figures['events']} chunks in the log, found {row}")
    floor = floor_events_per_s(
        b.running.database_url, min(FLOOR_EVENTS_MAX, figures["events"]), batch=500, event_type="call.partial"
    )
    return {
        **figures,
        "floor_events_per_s": round(floor, 1),
        "ratio_to_floor": round(figures["events_per_s"] / floor, 3),
    }


async def phases(b: Bench, count: int, options: argparse.Namespace, sampler: Sampler) -> Figures:
    """Return the figures of the three phases; the processes are watched during the first."""
    url = b.running.api_url
    emitters: list[Emitter] = []
    keeping = asyncio.create_task(keep(url, emitters))
    await claim_all(url, emitters, count)
    # Ids of commands are hashes: neighbours in this order belong to different runs, and so to different shards.
    emitters.sort(key=lambda one: (one.command_id, one.execution_id))
    with sampler:
        rate = await flood(url, emitters, batch=options.batch, connections=options.connections, seconds=options.seconds)
        behind_s = await asyncio.to_thread(settled_after_s, b)
    chunks = sum(one.chunk for one in emitters)
    groups: list[Sequence[Emitter]] = [emitters[n :: options.connections] for n in range(options.connections)]
    every_s = options.batch * options.connections / (rate / 2)
    half_ms = await pace(url, groups, batch=options.batch, every_s=every_s, seconds=options.seconds)
    began_s = time.perf_counter()
    crowd_ms = await pace(url, [[one] for one in emitters], batch=1, every_s=options.every_s, seconds=options.seconds)
    crowd_s = time.perf_counter() - began_s
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await end_all(url, emitters)
    return {
        "events_per_s": round(rate, 1),
        "settled_after_s": round(behind_s, 2),
        "half_rate_ack_ms_p50": round(percentile(half_ms, 0.5), 1),
        "half_rate_ack_ms_p99": round(percentile(half_ms, 0.99), 1),
        "crowd_events_per_s": round(len(crowd_ms) / crowd_s, 1),
        "crowd_ack_ms_p50": round(percentile(crowd_ms, 0.5), 1),
        "crowd_ack_ms_p99": round(percentile(crowd_ms, 0.99), 1),
        "events": sum(one.chunk for one in emitters),
        **watched(sampler, chunks),
    }


def settled_after_s(b: Bench) -> float:
    """Return how long routing and projection take to catch up."""
    began_s = time.monotonic()
    b.settle()
    return time.monotonic() - began_s


if __name__ == "__main__":
    sys.exit(main())

"""How long routing pauses when the owner of a shard is killed, frozen or drained in the middle of a run.

python -m benchmarks.takeover [--repetitions 100] [--mode kill|lease|freeze|drain ...] starts a stack of three ingests
for each mode, prints a histogram of the pauses, and ends with one JSON line. `kill` is SIGKILL with the death detector,
`lease` SIGKILL without it, `freeze` SIGSTOP, `drain` a planned hand-over. A pause ends with the first decision that the
new owner commits; of a drain it begins with the last one of the old owner.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from benchmarks.report import Figures, report
from benchmarks.sampling import percentile
from benchmarks.stack import SQL, Bench, bench
from noetl_common.core.liveness import POSTGRES_AGE_MIN_S
from noetl_common.core.shard import shard_of
from noetl_common.errors import Conflict, Unavailable

MODES = ("kill", "lease", "freeze", "drain")
REPLICAS = 3
ITEMS = 1_000
LOOK_S = 0.003
WAIT_S = 60.0
DETECTOR = "NOETL_DEATH_DETECTOR"
OWNED = re.compile(r'^noetl_shard_owner\{[^}]*instance="([^"]+)"[^}]*\} 1', re.MULTILINE)
REPLAYED = re.compile(r'^noetl_replay_window_seconds\{role="ingest",shard="(\d+)"\} (\S+)$', re.MULTILINE)
EVENTS = re.compile(r'^noetl_recovery_replayed_events\{role="ingest",shard="(\d+)"\} (\S+)$', re.MULTILINE)
BOUNDS_S = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 4.5, 5.0, float("inf"))


class Seen(msgspec.Struct, frozen=True):
    """One repetition. Units: seconds; `balanced_s` from the moment the third replica was ready again.

    `taken_s`: until the shard had a new owner. The pause is longer where no report is on its way to anyone else.
    """

    pause_s: float
    taken_s: float
    balanced_s: float
    replay_s: float
    replayed: int
    wrong: int


def main() -> int:
    """Return the exit code: 0, or 1 when a run failed or something was done twice or never."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--mode", choices=MODES, action="append", help="one or several; all when none is given")
    options = parser.parse_args()
    modes = options.mode or list(MODES)
    settings = {"repetitions": options.repetitions, "items": ITEMS, "ingests": REPLICAS}
    return report("takeover", lambda: measured(modes, options.repetitions), settings)


def measured(modes: Sequence[str], repetitions: int) -> Figures:
    """Return the figures of every mode. Errors: Conflict when an item was done twice or never."""
    figures: Figures = {}
    for mode in modes:
        with stack_of(mode) as b:
            where = b.register("takeover.yaml")
            seen = []
            for number in range(repetitions):
                seen.append(one(b, where, mode))
                print(f"{mode} {number + 1}: {seen[-1].pause_s * 1000:.0f} ms", file=sys.stderr, flush=True)
        print(histogram(mode, [each.pause_s for each in seen]))
        figures[mode] = figures_of(seen)
        if wrong := sum(each.wrong for each in seen):
            raise Conflict(f"{mode}: expected each item and each end exactly once, found {wrong} that were not")
    return figures


@contextmanager
def stack_of(mode: str) -> Iterator[Bench]:
    """Lend a stack of three ingests, as a mode wants it, once missing locks mean something."""
    before = os.environ.get(DETECTOR)
    os.environ[DETECTOR] = "false" if mode == "lease" else "true"
    try:
        with bench(workers=REPLICAS, replicas={"ingest": REPLICAS}) as b:
            until(b, lambda: postgres_age_s(b) > POSTGRES_AGE_MIN_S, what="a Postgres that has run for a while")
            yield b
    finally:
        os.environ.pop(DETECTOR)
        if before is not None:
            os.environ[DETECTOR] = before


def one(b: Bench, where: Mapping[str, Any], mode: str) -> Seen:
    """Trouble the owner of a run's shard when half of the run is done; return what came of it."""
    until(b, lambda: is_balanced(b), what="three replicas with their shares")
    execution_id = int(b.api.execute(where, {"items": ITEMS}))
    shard_id = shard_of(execution_id, 16)
    start_seq = cursor(b, shard_id)[1]
    half = start_seq + ITEMS // 2
    until(b, lambda: cursor(b, shard_id)[1] >= half, what="half of the loop", pause_s=LOOK_S)
    row = b.conn.execute(SQL["owner_of"], {"shard_id": shard_id}).fetchone()
    assert row is not None
    pid, port = process_of(b, row["owner"])
    pause_s, taken_s = trouble(b, mode, pid=pid, instance=row["owner"], shard_id=shard_id)
    replay_s, replayed = replay_of(b, shard_id)
    restore(b, mode, pid=pid, instance=row["owner"], port=port)
    ready_s = time.monotonic()
    until(b, lambda: is_balanced(b), what="three replicas with their shares again", pause_s=0.02)
    balanced_s = time.monotonic() - ready_s
    b.finish(str(execution_id), items=ITEMS)
    found = b.conn.execute(SQL["twice_or_never"], {"execution_id": execution_id, "items": ITEMS}).fetchone()
    assert found is not None
    return Seen(
        pause_s=pause_s,
        taken_s=taken_s,
        balanced_s=balanced_s,
        replay_s=replay_s,
        replayed=replayed,
        wrong=found["wrong"],
    )


def trouble(b: Bench, mode: str, *, pid: int, instance: str, shard_id: int) -> tuple[float, float]:
    """Take the shard away from its owner; return for how many seconds nothing was decided, and it had its old owner.

    Errors: Unavailable when nobody decides anything within WAIT_S.
    """
    epoch, seq = cursor(b, shard_id)
    began_s = moved_s = time.monotonic()
    if mode == "drain":
        b.api.ask_replica(instance, "drain")
    else:
        os.kill(pid, signal.SIGSTOP if mode == "freeze" else signal.SIGKILL)
        began_s = time.monotonic()
    taken_at, taken_s = None, 0.0  # where the new owner began; what the old one committed last is not its doing
    while time.monotonic() - began_s < WAIT_S:
        now_epoch, now_seq = cursor(b, shard_id)
        now_s = time.monotonic()
        if now_epoch == epoch:
            if now_seq > seq:
                seq, moved_s = now_seq, now_s
        elif taken_at is None:
            taken_at, taken_s = now_seq, now_s - began_s
        elif now_seq > taken_at:
            return now_s - (moved_s if mode == "drain" else began_s), taken_s
        time.sleep(LOOK_S)
    raise Unavailable(f"expected a decision of a new owner of shard {shard_id} within {WAIT_S:.0f} s")


def restore(b: Bench, mode: str, *, pid: int, instance: str, port: int) -> None:
    """Return once the third replica is back: started again, woken up, or allowed to have shards."""
    if mode == "drain":
        b.api.ask_replica(instance, "uncordon")
        return
    if mode == "freeze":
        os.kill(pid, signal.SIGCONT)
    dead = "" if mode == "freeze" else instance
    until(b, lambda: is_ready(port, but_not=dead), what="the third replica", pause_s=0.02)


def until(b: Bench, condition: Callable[[], bool], *, what: str, pause_s: float = 0.1) -> None:
    """Return once `condition()` holds, starting again what has died meanwhile. Errors: Unavailable after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        b.stack.tend()
        if time.monotonic() > deadline:
            raise Unavailable(f"expected {what} within {WAIT_S:.0f} s")
        time.sleep(pause_s)


def cursor(b: Bench, shard_id: int) -> tuple[int, int]:
    """Return a shard's (epoch, routed seq)."""
    row = b.conn.execute(SQL["cursor_of"], {"shard_id": shard_id}).fetchone()
    assert row is not None
    return row["epoch"], row["seq"]


def postgres_age_s(b: Bench) -> float:
    """Return for how long Postgres has run."""
    row = b.conn.execute(SQL["postgres_age"]).fetchone()
    assert row is not None
    return float(row["age_s"])


def is_balanced(b: Bench) -> bool:
    """Return True when three replicas own 5, 5 and 6 shards."""
    return sorted(row["shards"] for row in b.conn.execute(SQL["shards_of"]).fetchall()) == [5, 5, 6]


def process_of(b: Bench, instance: str) -> tuple[int, int]:
    """Return the pid and the port of the ingest with this name. Errors: Unavailable when there is none."""
    for child in b.stack.children:
        if child.role.role == "ingest" and instance in OWNED.findall(metrics_at(child.role.port)):
            return child.pid, child.role.port
    raise Unavailable(f"expected an ingest that calls itself {instance}")


def is_ready(port: int, *, but_not: str) -> bool:
    """Return True when the process at a port is ready, and another one than before."""
    try:
        is_up = httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=2).status_code == 200
        return is_up and but_not not in OWNED.findall(metrics_at(port))
    except httpx.TransportError:
        return False


def replay_of(b: Bench, shard_id: int) -> tuple[float, int]:
    """Return the longest replay window and the most replayed inputs of a shard's takeovers, by those who live."""
    windows, replayed = [0.0], [0.0]
    for child in b.stack.children:
        if child.role.role != "ingest":
            continue
        try:
            text = metrics_at(child.role.port)
        except httpx.TransportError:
            continue
        windows += [float(value) for shard, value in REPLAYED.findall(text) if int(shard) == shard_id]
        replayed += [float(value) for shard, value in EVENTS.findall(text) if int(shard) == shard_id]
    return max(windows), int(max(replayed))


def metrics_at(port: int) -> str:
    """Return a process's metrics. Errors: httpx.TransportError when it does not answer."""
    return httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=2).text


def figures_of(seen: Sequence[Seen]) -> Figures:
    """Return the figures of one mode."""
    pauses = [each.pause_s for each in seen]
    return {
        "repetitions": len(seen),
        "pause_ms_p50": round(percentile(pauses, 0.5) * 1000),
        "pause_ms_p99": round(percentile(pauses, 0.99) * 1000),
        "pause_ms_max": round(max(pauses) * 1000),
        "taken_ms_max": round(max(each.taken_s for each in seen) * 1000),
        "balanced_s_max": round(max(each.balanced_s for each in seen), 2),
        "replay_window_s_max": round(max(each.replay_s for each in seen), 3),
        "replayed_events_max": max(each.replayed for each in seen),
        "twice_or_never": sum(each.wrong for each in seen),
    }


def histogram(mode: str, pauses_s: Sequence[float]) -> str:
    """Return the pauses as lines of a table: how many up to each bound."""
    lines, low_s = [f"{mode}: pauses of routing"], 0.0
    for high_s in BOUNDS_S:
        count = sum(low_s < pause_s <= high_s for pause_s in pauses_s)
        if count:
            lines.append(f"  {low_s * 1000:>5.0f} to {high_s * 1000:>5.0f} ms {count:>4}  {'#' * count}")
        low_s = high_s
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""The owner of a shard killed, frozen or drained in the middle of a run: how long routing pauses, and nothing twice.

The figures come from `make bench-takeover`, of which this is a small form. Each stack waits until its Postgres is ten
seconds old, because a missing session lock means nothing before.
"""

import os
import signal
import time
from collections.abc import Iterator

import msgspec
import pytest

from benchmarks import takeover
from benchmarks.stack import SQL, Bench
from benchmarks.statements import StatementLog
from benchmarks.takeover import Seen, is_balanced, one, stack_of, until
from noetl_common.core.shard import shard_of
from services.meta.loops.elect_leader import QUIET_PAUSE_S
from tests.servers import SHARD_COUNT

BUSY = 2.0  # on a machine that runs other tests too, times may be this much longer than what is promised


@pytest.fixture(scope="module")
def b() -> Iterator[Bench]:
    """A stack of three ingests with the death detector."""
    with stack_of("kill") as stack:
        yield stack


def check(seen: Seen, *, pause_s: float) -> None:
    assert seen.wrong == 0, "an item or an end was there twice or never"
    assert seen.pause_s < pause_s
    assert seen.balanced_s < 5.0 * BUSY
    assert seen.replay_s < 2.0


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("mode", "pause_s"),
    [("kill", 1.0 * BUSY), ("drain", 0.5 * BUSY), ("freeze", 5.0 + 0.5 * BUSY)],
)
def test_routing_goes_on_at_the_other_replicas(b: Bench, mode: str, pause_s: float) -> None:
    seen = one(b, b.register("takeover.yaml"), mode)
    if (
        mode == "freeze"
    ):  # its workers wait for its answer: where all reports are with them, nobody has anything to decide
        seen = msgspec.structs.replace(seen, pause_s=seen.taken_s)
    check(seen, pause_s=pause_s)


@pytest.mark.timeout(180)
def test_without_the_death_detector_the_lease_is_what_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "POSTGRES_AGE_MIN_S", 0.0)
    with stack_of("lease") as b:
        seen = one(b, b.register("takeover.yaml"), "lease")
    check(seen, pause_s=5.0 + 0.5 * BUSY)
    assert seen.pause_s > 2.0, "a lease of 4 s cannot have run out"


@pytest.mark.timeout(180)
def test_while_nothing_runs_ownership_costs_two_statements_a_second_at_most(b: Bench) -> None:
    until(b, lambda: is_balanced(b), what="three replicas with their shares")
    b.settle()
    time.sleep(2 * QUIET_PAUSE_S)  # until the leader has seen that nothing runs
    with StatementLog(b) as log:
        time.sleep(6.0)
    for role in ("meta", "compute"):
        assert 0.5 < log.counted.all[role] / log.counted.seconds <= 2.0, log.counted


@pytest.mark.timeout(180)
def test_every_open_run_goes_on_by_itself_after_everything_was_killed_at_once(b: Bench) -> None:
    until(b, lambda: is_balanced(b), what="three replicas with their shares")
    where = b.register("takeover.yaml")
    runs = [b.api.execute(where, {"items": 300}) for _ in range(4)]
    shards = {shard_of(int(run), SHARD_COUNT) for run in runs}
    until(
        b,
        lambda: all(takeover.cursor(b, shard_id)[1] > 50 for shard_id in shards),
        what="all runs under way",
        pause_s=0.005,
    )
    for child in b.stack.children:
        os.kill(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(b.conn.execute(SQL["terminal_event"], {"execution_id": int(run)}).fetchone() is None for run in runs):
        b.stack.tend()
        assert time.monotonic() < deadline, "a run did not go on"
        time.sleep(0.05)
    for run in runs:
        row = b.conn.execute(SQL["twice_or_never"], {"execution_id": int(run), "items": 300}).fetchone()
        assert row is not None and row["wrong"] == 0

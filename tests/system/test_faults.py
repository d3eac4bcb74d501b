"""Faults of the servers, of the wires and of the processes, one by one: each invariant is looked at behind each fault.

docs/FAULTS.md names these tests cell by cell. All faults go through one stack, whose leases of commands are short.
"""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import psycopg
import pytest

from noetl_cli.chaos.relay import Mode
from noetl_cli.embedded.stack import is_ready
from tests.acknowledged import PLAYBOOK as BY_HAND
from tests.acknowledged import acknowledged, longest_pause_s
from tests.faulted import COMMAND_LEASE_S, Site, broken, epochs_of, faulted_site, target
from tests.volumes import mounted

ITEMS = 72
HOLDERS = """
SELECT (r.runtime ->> 'pid')::int FROM noetl.command c JOIN noetl.runtime r ON r.name = c.worker_id
WHERE c.status = 'claimed' GROUP BY r.runtime_id ORDER BY count(*) DESC
"""
BEYOND_A_LEASE_S = 5.0  # that of a shard is 4 s
STALL_MAX_S = 10.0
THEIRS = "FROM pg_stat_activity WHERE application_name NOT LIKE 'test%' AND pid <> pg_backend_pid()"
END_SESSIONS = "SELECT count(pg_terminate_backend(pid)) " + THEIRS
CANCEL_STATEMENTS = "SELECT count(pg_cancel_backend(pid)) " + THEIRS + " AND state = 'active'"
IS_COMPLETED = "SELECT count(*) FROM noetl.execution WHERE execution_id = ANY(%(ids)s) AND status = 'COMPLETED'"
ONCE_ITEMS, ONCE_RUNS = 150, int(os.environ.get("NOETL_TEST_ONCE_RUNS", "1"))


class Fault(msgspec.Struct, frozen=True):
    """One fault: what does it (and undoes it), and what a role logs because of it."""

    do: Callable[[Site], None]
    logged: str = ""


def on_links(
    roles: tuple[str, ...], what: str, mode: Mode, *, lasts_s: float, delay_s: float = 0.0
) -> Callable[[Site], None]:
    """Return a fault of every link from some roles ("": all) to a server."""

    def do(site: Site) -> None:
        names = [name for role in roles for name in site.links(role, what)]
        assert names, f"no link from {roles} to {what}"
        try:
            for name in names:
                site.relays.set(name, mode, delay_s)
            time.sleep(lasts_s)
        finally:
            for name in names:
                site.relays.set(name, "open")

    return do


def frozen(*names: str, lasts_s: float) -> Callable[[Site], None]:
    """Return a fault that stops processes for a while."""

    def do(site: Site) -> None:
        pids = [site.pid(name) for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(lasts_s)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    return do


def worker_frozen(site: Site) -> None:
    """Freeze the worker that has most commands in hand, for longer than their lease."""
    site.until(lambda: site.ask(HOLDERS), what="commands in the hands of a worker")
    [(pid,), *_others] = site.ask(HOLDERS)
    name = next(child.role.name for child in site.stack.children if child.pid == pid)
    frozen(name, lasts_s=BEYOND_A_LEASE_S)(site)


def workers_killed(site: Site) -> None:
    for name in [child.role.name for child in site.stack.children if child.role.role == "worker"]:
        with suppress(ProcessLookupError):  # dead of the last time, and not yet started again
            os.kill(site.pid(name), signal.SIGKILL)


def everything_killed(site: Site) -> None:
    for child in site.stack.children:
        os.kill(child.pid, signal.SIGKILL)
    os.kill(site.stack.servers["nats"].pid, signal.SIGKILL)
    os.kill(site.stack.servers["postgres"].pid, signal.SIGQUIT)


def sessions_ended(site: Site) -> None:
    """End every session of the roles, again and again: in appends, decisions, claims, projections."""
    for _ in range(12):
        site.ask(END_SESSIONS)
        time.sleep(0.1)


def statements_cancelled(site: Site) -> None:
    """Cancel whatever runs, as a statement's own timeout does: the same SQLSTATE."""
    ended = time.monotonic() + 1.5
    while time.monotonic() < ended:
        site.ask(CANCEL_STATEMENTS)


def too_many_clients(site: Site) -> None:
    """Take every connection that Postgres has, while the roles lose theirs."""
    taken: list[psycopg.Connection[psycopg.rows.TupleRow]] = []
    try:
        with psycopg.connect(site.database_url, autocommit=True, application_name="test") as chief:
            chief.execute(END_SESSIONS)
            refused = 0
            while refused < 20:  # a connection of a role that ends makes room for one more
                try:
                    taken.append(psycopg.connect(site.database_url, application_name="test"))
                except psycopg.OperationalError as error:
                    assert "too many clients" in str(error)
                    refused += 1
                    chief.execute(END_SESSIONS)
            time.sleep(2.0)
    finally:
        for connection in taken:
            connection.close()


def rows_locked(site: Site) -> None:
    """Hold the rows that every append numbers its inputs with, for longer than a lock is waited for (2 s)."""
    with psycopg.connect(site.database_url, application_name="test") as holder:
        holder.execute("SELECT FROM noetl.shard_head FOR UPDATE")
        time.sleep(3.0)


@contextmanager
def log_on_a_volume(site: Site, folder: Path) -> Iterator[None]:
    """Move the log's present part to a tablespace in this folder."""
    home = "SELECT tableoid::regclass::text FROM noetl.event ORDER BY event_time DESC LIMIT 1"
    with psycopg.connect(site.database_url, autocommit=True, application_name="test") as conn:
        row = conn.execute(home.encode()).fetchone()
        assert row is not None
        conn.execute(f"CREATE TABLESPACE small LOCATION '{folder}'".encode())
        conn.execute(f"ALTER TABLE {row[0]} SET TABLESPACE small".encode())
        try:
            yield
        finally:
            conn.execute(f"ALTER TABLE {row[0]} SET TABLESPACE pg_default".encode())
            conn.execute("DROP TABLESPACE small")


def log_volume_full(site: Site) -> None:
    """Fill the volume that the log stands on for two seconds."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        Path(top).chmod(0o755)
        folder = Path(top) / "volume"
        folder.mkdir()
        with mounted(folder, bytes_max=64 << 20):
            owner = site.stack.servers["postgres"].home.stat()
            os.chown(folder, owner.st_uid, owner.st_gid)
            with log_on_a_volume(site, folder):
                ballast = folder / "ballast"
                with suppress(OSError), ballast.open("wb", buffering=0) as file:
                    while True:
                        file.write(b"\0" * (1 << 12))
                time.sleep(2.0)
                ballast.unlink()


FAULTS: dict[str, Fault] = {
    "nats cut": Fault(on_links(("",), "nats", "cut", lasts_s=1.5), "bus.disconnected"),
    "nats stalled": Fault(on_links(("",), "nats", "stalled", lasts_s=3.0)),
    "nats slow": Fault(on_links(("",), "nats", "slow", lasts_s=3.0, delay_s=0.3)),
    "postgres sessions ended": Fault(sessions_ended, "append.retry"),
    "postgres statements cancelled": Fault(statements_cancelled),
    "postgres too many clients": Fault(too_many_clients, "loop.failed"),
    "postgres rows locked": Fault(rows_locked, "append.retry"),
    "postgres volume full": Fault(log_volume_full, "append.retry"),
    "postgres slow": Fault(on_links(("",), "postgres", "slow", lasts_s=4.0, delay_s=0.02)),
    "postgres cut": Fault(on_links(("",), "postgres", "cut", lasts_s=2.0), "loop.failed"),
    "ingest stalled from postgres": Fault(on_links(("ingest-1",), "postgres", "stalled", lasts_s=BEYOND_A_LEASE_S)),
    "meta and compute stalled from postgres": Fault(
        on_links(("meta", "compute"), "postgres", "stalled", lasts_s=BEYOND_A_LEASE_S)
    ),
    "workers cut from ingest": Fault(on_links(("worker",), "ingest", "cut", lasts_s=2.0), "loop.failed"),
    "workers stalled from ingest": Fault(on_links(("worker",), "ingest", "stalled", lasts_s=COMMAND_LEASE_S + 1.0)),
    "meta and compute frozen": Fault(frozen("meta-1", "compute-1", lasts_s=BEYOND_A_LEASE_S)),
    "worker frozen": Fault(worker_frozen, "commands.reaped"),
    "workers killed": Fault(workers_killed, "commands.reaped"),
    "everything killed": Fault(everything_killed),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with faulted_site(tmp_path_factory.mktemp("site"), NOETL_COMMAND_CRASHES_MAX="9") as site:
        yield site


def rested(site: Site) -> None:
    site.until(lambda: all(is_ready(child.role.port) for child in site.stack.children), what="every role ready")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", FAULTS)
def test_behind_a_fault_every_invariant_holds(site: Site, name: str) -> None:
    fault = FAULTS[name]
    rested(site)
    epochs, said = epochs_of(site), site.said(fault.logged)
    run = site.start(items=ITEMS)
    site.until(lambda: site.done(run) >= ITEMS // 4, what="a quarter of the run")
    fault.do(site)
    site.until(lambda: site.status(run) != "RUNNING", what="the end of the run")
    assert broken(site, run, items=ITEMS, epochs=epochs) == {}
    if fault.logged:
        assert site.said(fault.logged) > said, f"nobody logged {fault.logged}"


@pytest.mark.timeout(180)
def test_postgres_restarted_under_load_loses_nothing_acknowledged_and_stands_still_for_less_than_ten_seconds(
    site: Site,
) -> None:
    rested(site)
    site.api.register(BY_HAND)
    run = int(site.api.execute({"path": "tests/by_hand"}, {"items": 400}))
    with acknowledged(site.api.url) as noted:
        site.until(lambda: len(noted.starts) >= 10 and len(noted.reports) >= 40, what="starts and reports")
        os.kill(site.stack.servers["postgres"].pid, signal.SIGQUIT)
        before = len(noted.starts)
        site.until(lambda: len(noted.starts) >= before + 20, what="starts behind the restart")
        site.until(lambda: site.ask(IS_COMPLETED, ids=[run]) == [(1,)], what="the end of the reported run")
    pauses_s = [longest_pause_s(noted.starts), longest_pause_s(noted.reports)]
    print(f"{len(noted.starts)} starts, {len(noted.reports)} reports; longest pauses {pauses_s} s")
    assert max(pauses_s) < STALL_MAX_S
    started, reported = ({id_ for _moment, id_ in moments} for moments in (noted.starts, noted.reports))
    in_log = "SELECT count(*) FROM noetl.event WHERE event_id = ANY(%(ids)s) AND event_type = 'command.completed'"
    assert site.ask(in_log, ids=list(reported)) == [(len(reported),)]
    assert len(reported) >= 300
    site.until(lambda: site.ask(IS_COMPLETED, ids=list(started)) == [(len(started),)], what="the end of every run")


@pytest.mark.timeout(max(180, 90 * ONCE_RUNS))
def test_what_must_happen_once_happens_once_however_often_a_worker_dies_behind_it(site: Site) -> None:
    """Workers are killed twice in each run, while its items have written their row and not yet reported it."""
    rested(site)
    trials = sum(run_with_workers_killed(site) for _ in range(ONCE_RUNS))
    print(f"{trials} commands lost their worker behind their effect")
    assert trials >= 40 * ONCE_RUNS


def run_with_workers_killed(site: Site) -> int:
    """Return how many commands of a run lost their worker behind their effect."""
    epochs = epochs_of(site)
    run = site.start(items=ONCE_ITEMS, sleep_s=0.1)
    trials = 0
    for done_min in (0, ONCE_ITEMS // 3):
        site.until(partial(has_done, site, run, done_min), what=f"{done_min} items")
        site.until(lambda: written(site, run) - site.done(run) >= 40, what="forty effects not yet reported")
        workers_killed(site)
        trials += written(site, run) - site.done(run)
    site.until(lambda: site.status(run) != "RUNNING", what="the end of the run")
    assert broken(site, run, items=ONCE_ITEMS, epochs=epochs) == {}
    return trials


def has_done(site: Site, run: str, least: int) -> bool:
    return site.done(run) >= least


def written(site: Site, run: str) -> int:
    """Return how many items of a run have had their effect."""
    with target(site.database_url) as conn:
        row = conn.execute("SELECT count(*) FROM fault_effect WHERE run = %s", [run]).fetchone()
    assert row is not None
    return int(row[0])

"""One chaos run from nothing to its report."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg.rows import TupleRow, dict_row

from noetl_cli.api import Api
from noetl_cli.chaos.drive import SQL, Driver
from noetl_cli.chaos.inject import Injector
from noetl_cli.chaos.judge import Effects, Fate, Fault, judge, repeated
from noetl_cli.chaos.ledger import read_ledger
from noetl_cli.chaos.load import documents, runs
from noetl_cli.chaos.relay import Relays
from noetl_cli.chaos.schedule import faults
from noetl_cli.embedded.databases import PLAYBOOK_NAME
from noetl_cli.embedded.stack import Plan, Stack, is_ready, throwaway_stack
from noetl_common.config import load
from noetl_common.errors import NotFound
from noetl_common.store.config import Stores, open_store
from noetl_common.verify.report import Finding
from noetl_common.verify.run import Asked, verify

TICK_S = 0.05
SETTLE_S_MAX = 180.0
REPLICAS = {"meta": 2, "ingest": 3, "compute": 2, "worker": 3}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to do. Units: seconds; `every_s` is the mean time between two faults."""

    seed: int
    seconds: float = 60.0
    every_s: float = 2.0
    open_max: int = 8


class Report(msgspec.Struct, kw_only=True):
    """What happened. `lost`, `twice` and `violations` are 0 where the promises hold.

    Shapes: `faults` {kind: how many were done}; `repeated_effects` tools that ran again before their report, which is
    what at-least-once means; `epochs` changes of owners of shards; `fenced` writes of an owner that was none any more,
    refused; `leases_lost` commands whose worker died or froze; `refusals` requests that were sent again.
    """

    lost: int
    twice: int
    violations: int
    kills: int
    pauses: int
    events: int
    commands: int
    runs: int
    repeated_effects: int
    leases_lost: int
    epochs: int
    fenced: int
    refusals: int
    seed: int
    seconds: float
    settled_s: float
    faults: dict[str, int]
    wrong: list[Fault]
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        """True when nothing was lost, nothing came twice and nothing is wrong."""
        return not (self.lost or self.twice or self.violations or self.wrong)


def chaos(folder: Path, options: Options, *, say: Callable[[str], None]) -> Report:
    """Return what came of `options.seconds` of load and faults on a stack of its own in `folder`.

    Errors: DependencyMissing when the stack does not start; Unavailable when the API does not come back.
    """
    relays = Relays()
    try:
        plan = Plan(owner="chaos", replicas=dict(REPLICAS), link=relays.through)
        with throwaway_stack(folder / "stack", plan) as stack:
            return _on(stack, relays, folder / "ledger", options=options, say=say)
    finally:
        relays.close()


def _on(stack: Stack, relays: Relays, ledger: Path, *, options: Options, say: Callable[[str], None]) -> Report:
    running = stack.running
    assert running is not None, "the stack has started"
    _prepare(stack)
    roles = [child.role.name for child in stack.children]
    schedule = faults(
        options.seed, seconds=options.seconds, every_s=options.every_s, roles=roles, links=sorted(relays.links)
    )
    injector = Injector(stack, relays, schedule)
    urls = [f"http://127.0.0.1:{child.role.port}" for child in stack.children if child.role.role == "ingest"]
    driver = Driver(urls, running.database_url, runs=runs(options.seed), ledger=ledger, open_max=options.open_max)
    driver.start()
    begun_s, told_s = time.monotonic(), 0.0
    while (passed_s := time.monotonic() - begun_s) < options.seconds:
        stack.tend()
        injector.tick()
        if passed_s - told_s >= 30.0:
            told_s = passed_s
            say(f"{passed_s:.0f} s: {len(driver.started)} runs started, {injector.done.total()} faults")
        time.sleep(TICK_S)
    injector.end()
    say(f"{options.seconds:.0f} s are over: {injector.done.total()} faults; waiting for the runs to end")
    settled_s = _settle(stack, driver)
    return _judged(stack, driver, injector, ledger=ledger, options=options, settled_s=settled_s)


def _prepare(stack: Stack) -> None:
    assert stack.running is not None, "the stack has started"
    with _target(stack) as conn:
        conn.execute(SQL["make_effects"])
    with Api(stack.running.api_url) as api:
        for text in documents().values():
            api.register(text)


def _target(stack: Stack) -> psycopg.Connection[TupleRow]:
    """Connect to the playbooks' database, as their login."""
    options = f"-c role={PLAYBOOK_NAME}"
    return psycopg.connect(stack.servers["postgres"].url, dbname=PLAYBOOK_NAME, options=options, autocommit=True)


def _settle(stack: Stack, driver: Driver) -> float:
    """Wait, without faults, until every run has ended and every role is up, at most SETTLE_S_MAX; return how long."""
    begun_s = time.monotonic()
    assert stack.running is not None, "the stack has started"
    driver.ask_to_stop()
    while (passed_s := time.monotonic() - begun_s) < SETTLE_S_MAX:
        stack.tend()
        if not driver.is_alive() and _open_runs(stack.running.database_url) == 0 and _answers(stack):
            break
        time.sleep(TICK_S)
    driver.close()
    return passed_s


def _answers(stack: Stack) -> bool:
    """Return True when every role is up again: those that are asked for the outcome among them."""
    return all(is_ready(child.role.port) for child in stack.children)


def _open_runs(database_url: str) -> int:
    try:
        with psycopg.connect(database_url, connect_timeout=2, autocommit=True) as conn:
            row = conn.execute(SQL["count_open"]).fetchone()
    except psycopg.Error:
        return -1
    return int(row[0]) if row is not None else -1


def _judged(
    stack: Stack, driver: Driver, injector: Injector, *, ledger: Path, options: Options, settled_s: float
) -> Report:
    assert stack.running is not None, "the stack has started"
    notes = read_ledger(ledger)
    wrong = judge(driver.started, _fates(stack, driver), notes, effects=_effects(stack))
    verified = asyncio.run(_verified(stack))
    with psycopg.connect(stack.running.database_url, autocommit=True, row_factory=dict_row) as conn:
        work: dict[str, Any] = conn.execute(SQL["count_work"]).fetchone() or {}
    done = injector.done
    return Report(
        lost=sum(fault.kind == "lost" for fault in wrong),
        twice=sum(fault.kind == "twice" for fault in wrong),
        violations=len(verified),
        kills=sum(done[kind] for kind in ("kill", "stop", "kill_nats", "restart_postgres")),
        pauses=sum(done[kind] for kind in ("pause", "pause_nats")),
        runs=len(driver.started),
        repeated_effects=repeated(notes),
        fenced=_fenced(stack),
        refusals=driver.refusals,
        seed=options.seed,
        seconds=options.seconds,
        settled_s=round(settled_s, 1),
        faults=dict(done),
        wrong=wrong,
        findings=verified,
        **work,
    )


def _fates(stack: Stack, driver: Driver) -> dict[int, Fate]:
    """Return how each run ended, as the API tells it."""
    assert stack.running is not None, "the stack has started"
    fates: dict[int, Fate] = {}
    with Api(stack.running.api_url) as api:
        for each in driver.started:
            try:
                answer = api.execution(str(each.execution_id))
            except NotFound:
                continue
            result = answer.get("result")
            if isinstance(result, dict) and result.get("kind") == "result_ref":
                result = api.resolve(result["ref"])
            fates[each.execution_id] = (str(answer["status"]), result)
    return fates


def _effects(stack: Stack) -> Effects:
    effects: dict[str, dict[int, int]] = defaultdict(dict)
    with _target(stack) as conn:
        for run, n, times in conn.execute(SQL["read_effects"]):
            effects[run][n] = times
    return effects


def _fenced(stack: Stack) -> int:
    logs = stack.state.log_dir.glob("*.log*")
    return sum(log.read_bytes().count(b'"event":"shard.fenced"') for log in logs)


async def _verified(stack: Stack) -> list[Finding]:
    """Return what `noetl verify` finds, with every payload read back."""
    assert stack.running is not None, "the stack has started"
    settings = {
        "NOETL_STORE_DIR": str(stack.state.path / "results"),
        "DATABASE_URL": "-",
        "NOETL_KV_COPIES": "false",
    }
    store = open_store(load(Stores, settings), name="chaos")
    try:
        return (await verify(stack.running.database_url, store, Asked(sample=None))).violations
    finally:
        await store.close()

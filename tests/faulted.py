"""A stack to break on purpose, and what must hold behind every fault: the invariants I1 to I12 of docs/FAULTS.md."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from noetl_cli.api import Api
from noetl_cli.chaos.relay import Relays
from noetl_cli.embedded.databases import PLAYBOOK_NAME
from noetl_cli.embedded.stack import Plan, Stack, throwaway_stack
from noetl_common.verify.run import Asked, verify
from tests.builders import disk_store

# Leases so short that a test can wait for them to run out.
COMMAND_LEASE_S = 3.0
SETTINGS = {"NOETL_COMMAND_LEASE_SEC": str(COMMAND_LEASE_S), "NOETL_HEARTBEAT_SEC": "0.5"}
REPLICAS = {"meta": 1, "ingest": 2, "compute": 1, "worker": 2}
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: faults, path: tests/faults}
workload: {run: "", items: 10, sleep_s: 0.05}
workflow:
- step: start
  loop: {in: "{{ range(items) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 64}}
  tool:
  - book:
      kind: postgres
      auth: local_postgres
      once: true
      command: INSERT INTO fault_effect (run, n) VALUES (%(run)s, %(n)s)
      params: {run: "{{ run }}", n: "{{ n }}"}
      spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 60, delay: 0.2}}]}}
  - tell:
      kind: python
      input: {n: "{{ n }}", sleep_s: "{{ sleep_s }}"}
      code: |
        import time
        time.sleep(sleep_s)
        result = {"n": n, "text": "x" * (10_000 if n % 40 == 0 else 1)}
  next: end
- step: end
  tool: {kind: python, input: {told: "{{ start.results }}"}, code: result = len(told)}
"""

# Which invariant each check of `noetl verify` is about.
BY_CHECK = {
    "log.sequence": "I5",
    "log.consequences": "I5",
    "log.cursors": "I6",
    "log.runs": "I7",
    "log.end": "I10",
    "log.fold": "I7",
    "loops.done": "I4",
    "commands.issued": "I3",
    "commands.ended": "I3",
    "commands.row": "I3",
    "timers.left": "I7",
    "places.held": "I7",
    "state": "I7",
    "projection": "I7",
    "read_model": "I7",
}
REST_S = 20.0
QUERIES = {
    "I1": "SELECT execution_id, status, error FROM noetl.execution"
    " WHERE execution_id = %(run)s AND status <> 'COMPLETED'",
    "I2": "SELECT count(*), count(DISTINCT iter_index) FROM noetl.event WHERE execution_id = %(run)s"
    " AND event_type = 'command.issued' AND step = 'start'"
    " HAVING count(*) <> %(items)s OR count(DISTINCT iter_index) <> %(items)s"
    " OR min(iter_index) <> 0 OR max(iter_index) <> %(items)s - 1",
    "I3": "SELECT c.command_id, count(e.event_id) FROM noetl.command c LEFT JOIN noetl.event e"
    " ON e.execution_id = c.execution_id AND e.command_id = c.command_id"
    " AND e.event_type IN ('command.completed', 'command.failed', 'command.cancelled')"
    " WHERE c.execution_id = %(run)s GROUP BY 1 HAVING count(e.event_id) <> 1",
    "I4": "SELECT count(*) FILTER (WHERE event_type = 'loop.done'),"
    " count(*) FILTER (WHERE event_type ~ '^playbook.(completed|failed|cancelled)$')"
    " FROM noetl.event WHERE execution_id = %(run)s HAVING count(*) FILTER (WHERE event_type = 'loop.done') <> 1"
    " OR count(*) FILTER (WHERE event_type ~ '^playbook.(completed|failed|cancelled)$') <> 1",
    "I5": "SELECT h.shard_id, h.seq, count(e.*), max(e.seq) FROM noetl.shard_head h LEFT JOIN"
    " (SELECT shard_id, (event_id >> 15) & ((1::bigint << 40) - 1) AS seq FROM noetl.event"
    " WHERE event_id & 32767 = 0) e"
    " USING (shard_id) GROUP BY 1, 2 HAVING h.seq <> count(e.*) OR h.seq <> coalesce(max(e.seq), 0)",
    "I8": "SELECT s.role, s.shard_id, s.epoch, c.lease_epoch FROM noetl.execution_shard s"
    " JOIN noetl.shard_cursor c USING (shard_id) WHERE s.role = 'ingest' AND c.lease_epoch > s.epoch",
    "I10": "SELECT execution_id, dedup_key, count(*) FROM noetl.event WHERE dedup_key IS NOT NULL"
    " GROUP BY 1, 2 HAVING count(*) > 1",
}
BEHIND = (
    "SELECT h.shard_id, h.seq, c.seq, p.last_projected_event_id FROM noetl.shard_head h"
    " JOIN noetl.shard_cursor c USING (shard_id) JOIN noetl.projection_checkpoint p USING (shard_id)"
    " WHERE c.seq <> h.seq OR (p.last_projected_event_id >> 15) & ((1::bigint << 40) - 1) < c.seq"
)
TABLES_OF_RUNS = (
    "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
    " WHERE c.relnamespace = 'noetl'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    " AND a.attname = 'execution_id' AND NOT a.attisdropped"
)
Epochs = Mapping[tuple[str, int], int]


class Site(msgspec.Struct):
    """A stack whose every connection goes through a link that can be cut. `runs`: what was started, by its name."""

    stack: Stack
    relays: Relays
    api: Api
    folder: Path
    runs: dict[str, int] = {}

    @property
    def database_url(self) -> str:
        """The way to Postgres that no fault is on."""
        return self.stack.servers["postgres"].url

    def links(self, who: str, what: str) -> list[str]:
        """Return the links from a role to a server: ("", "nats") are those of everyone."""
        ends = {name: name.partition(".")[0].partition(">") for name in self.relays.links}
        return [name for name, (client, _, server) in ends.items() if client.startswith(who) and server == what]

    def start(self, *, items: int, sleep_s: float = 0.05) -> str:
        """Start a run; return its name."""
        name = f"run-{len(self.runs)}"
        payload = {"run": name, "items": items, "sleep_s": sleep_s}
        self.runs[name] = int(self.api.execute({"path": "tests/faults"}, payload))
        return name

    def ask(self, query: str, **given: Any) -> list[TupleRow]:
        """Return rows of a query on the runtime's database."""
        with psycopg.connect(self.database_url, autocommit=True) as conn:
            return conn.execute(query.encode(), given or None).fetchall()

    def done(self, run: str) -> int:
        """Return how many commands of a run have completed; 0 while Postgres is away."""
        query = "SELECT count(*) FROM noetl.event WHERE execution_id = %(run)s AND event_type = 'command.completed'"
        try:
            return int(self.ask(query, run=self.runs[run])[0][0])
        except psycopg.OperationalError:
            return 0

    def status(self, run: str) -> str:
        """Return how a run stands; RUNNING while Postgres is away."""
        try:
            found = self.ask("SELECT status FROM noetl.execution WHERE execution_id = %(run)s", run=self.runs[run])
        except psycopg.OperationalError:
            return "RUNNING"
        return str(found[0][0])

    def until(self, holds: Callable[[], Any], *, what: str, within_s: float = 90.0) -> None:
        """Return once `holds`, starting again what has died. Errors: AssertionError, naming `what`."""
        deadline = time.monotonic() + within_s
        while not holds():
            self.stack.tend()
            assert time.monotonic() < deadline, f"{what} did not happen within {within_s:.0f} s"
            time.sleep(0.1)

    def said(self, event: str) -> int:
        """Return how often the roles have logged an event."""
        mark = f'"event":"{event}"'.encode()
        return sum(path.read_bytes().count(mark) for path in self.stack.state.log_dir.glob("*.log*"))

    def pid(self, name: str) -> int:
        """Return the process of a role, by its name: "ingest-1"."""
        return next(child.pid for child in self.stack.children if child.role.name == name)


@contextmanager
def faulted_site(folder: Path, **settings: str) -> Iterator[Site]:
    """Lend a stack with its links, the playbook registered."""
    relays = Relays()
    try:
        plan = Plan(owner="test", replicas=dict(REPLICAS), link=relays.through, settings={**SETTINGS, **settings})
        with throwaway_stack(folder / "stack", plan) as stack:
            assert stack.running is not None
            with target(stack.servers["postgres"].url) as conn:
                conn.execute("CREATE TABLE fault_effect (run text, n int)")
            with Api(stack.running.api_url) as api:
                api.register(PLAYBOOK)
                yield Site(stack=stack, relays=relays, api=api, folder=folder)
    finally:
        relays.close()


def target(url: str) -> psycopg.Connection[TupleRow]:
    """Connect to the playbooks' database, as their login."""
    return psycopg.connect(url, dbname=PLAYBOOK_NAME, options=f"-c role={PLAYBOOK_NAME}", autocommit=True)


def epochs_of(site: Site) -> Epochs:
    """Return the epoch of every shard, and of the leader."""
    rows = site.ask("SELECT role, shard_id, epoch FROM noetl.execution_shard")
    return {(role, shard): epoch for role, shard, epoch in rows}


def broken(site: Site, run: str, *, items: int, epochs: Epochs) -> dict[str, list[Any]]:
    """Return what does not hold behind a run of `items` items, by invariant. `epochs`: those before the fault."""
    found: dict[str, list[Any]] = {
        name: list(site.ask(query, run=site.runs[run], items=items)) for name, query in QUERIES.items()
    }
    deadline = time.monotonic() + REST_S
    while (behind := site.ask(BEHIND)) and time.monotonic() < deadline:
        site.stack.tend()
        time.sleep(0.05)
    found["I6"] = list(behind)
    now = epochs_of(site)
    found["I8"] += [(place, epoch, now.get(place)) for place, epoch in epochs.items() if now.get(place, -1) < epoch]
    with target(site.database_url) as conn:
        written = conn.execute("SELECT n, count(*) FROM fault_effect WHERE run = %s GROUP BY n", [run]).fetchall()
    found["I9"] = [(n, times) for n, times in written if times != 1]
    found["I9"] += [(n, 0) for n in sorted(set(range(items)) - {n for n, _times in written})]
    store = disk_store(site.stack.state.path / "results")
    asked = Asked(execution_id=site.runs[run], sample=None)
    for finding in asyncio.run(verify(site.database_url, store, asked)).violations:
        found.setdefault(BY_CHECK.get(finding.check, "I11"), []).append(finding)
    found["I12"] = told(site, site.runs[run])
    return {name: wrong for name, wrong in found.items() if wrong}


def told(site: Site, execution_id: int) -> list[str]:
    """Return where the password that every item used can be read: in a run's rows, in a log, in a stored result."""
    password = (site.stack.servers["postgres"].home / "playbook_password").read_bytes()
    found = []
    with psycopg.connect(site.database_url, autocommit=True) as conn:
        for (table,) in conn.execute(TABLES_OF_RUNS.encode()).fetchall():
            query = sql.SQL("SELECT 1 FROM noetl.{} t WHERE execution_id = %s AND t::text LIKE ANY(%s) LIMIT 1")
            spelt = [f"%{password.decode()}%", f"%{password.hex()}%"]  # as text, and as bytes are written
            if conn.execute(query.format(sql.Identifier(table)), [execution_id, spelt]).fetchone():
                found.append(table)
    for top in (site.stack.state.log_dir, site.stack.state.path / "results"):
        found += [str(path) for path in top.rglob("*") if path.is_file() and password in path.read_bytes()]
    return found

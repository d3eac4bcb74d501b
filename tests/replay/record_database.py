"""Record a database in the middle of its work: `python -m tests.replay.record_database NAME`.

Started in a checkout of a release (this file and its playbooks beside it), it has that release begin runs of every
kind, kills all of its processes, and writes what stands in Postgres then as SQL.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psycopg

from noetl_cli.embedded.postgres import find_binaries
from noetl_cli.embedded.stack import Plan, throwaway_stack

DATABASES = Path(__file__).with_name("databases")
PLAYBOOKS = ("loop", "child", "parent", "retry")
STARTED = ("loop", "parent", "retry")  # the other one is called
IN_FLIGHT = """
SELECT (SELECT count(*) FROM noetl.command WHERE status = 'claimed') >= 4
   AND (SELECT count(*) FROM noetl.command WHERE status = 'pending') >= 2
   AND (SELECT count(*) FROM noetl.command WHERE step = 'each' AND status = 'completed') >= 4
   AND (SELECT count(*) FROM noetl.execution WHERE status = 'RUNNING' AND parent_execution_id IS NOT NULL) >= 1
   AND (SELECT count(*) FROM noetl.timer WHERE kind LIKE 'retry:%') >= 1 AS is_so
"""
# What differs from one server to the next, or what only psql knows; a row of credentials is sealed for its own key.
NOISE = re.compile(r"^(?:--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(?:un)?restrict .*|\n)\n?", re.MULTILINE)
OPTIONS = ("--inserts", "--no-owner", "--no-privileges", "--schema=noetl", "--exclude-table-data=noetl.credential")
WAIT_S = 30.0


def read_playbook(name: str) -> str:
    """Return the document of a playbook of the recorded databases."""
    return DATABASES.joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def recorded(folder: Path) -> str:
    """Return a database with runs in flight, as SQL: its processes were killed.

    Errors: AssertionError when the runs do not come to where they should be caught.
    """
    plan = Plan(owner="record", replicas={"meta": 1, "ingest": 1, "compute": 1, "worker": 1}, restart=False)
    plan.settings["NOETL_WORKER_SLOTS"] = "6"
    with throwaway_stack(folder, plan) as stack:
        assert stack.running is not None
        with httpx.Client(base_url=stack.running.api_url, timeout=30) as api:
            for name in PLAYBOOKS:
                api.post("/api/catalog/register", json={"content": read_playbook(name)}).raise_for_status()
            for name in STARTED:
                api.post("/api/execute", json={"path": f"replay/{name}"}).raise_for_status()
        deadline = time.monotonic() + WAIT_S
        with psycopg.connect(stack.running.database_url, autocommit=True) as conn:
            while conn.execute(IN_FLIGHT.encode()).fetchone() != (True,):
                assert time.monotonic() < deadline, "expected commands, a child and a timer in flight"
                time.sleep(0.01)
        for child in stack.children:
            os.kill(child.pid, signal.SIGKILL)
        return dumped(stack.running.database_url)


def dumped(url: str) -> str:
    """Return the schema `noetl` of a database and its rows as statements."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    environ = os.environ | {names[key]: str(value) for key, value in parts.items() if key in names}
    command = [str(find_binaries(None) / "pg_dump"), *OPTIONS]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    return NOISE.sub("", done.stdout)


def main() -> None:
    """Write the database that the command line names."""
    path = DATABASES / f"{sys.argv[1]}.sql"
    with tempfile.TemporaryDirectory(prefix="noetl-record-") as folder:
        path.write_text(recorded(Path(folder)), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()

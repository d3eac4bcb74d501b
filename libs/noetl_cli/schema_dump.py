"""Write docs/schema.sql: what the migrations make of an empty database, as pg_dump sees it (`make schema`)."""

import asyncio
import os
import re
import subprocess
import tempfile
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

from noetl_cli.embedded import discard_postgres, start_postgres
from noetl_cli.embedded.postgres import find_binaries
from noetl_common.db import migrate
from noetl_common.errors import DependencyMissing

PATH = "docs/schema.sql"
DUMP_TIMEOUT_S = 60.0
HEADING = "-- The schema after the last migration. Made by `make schema`; a test compares it with a fresh database.\n"
# What differs from one dump to the next, or says nothing about the schema.
NOISE = re.compile(r"^(?:--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(?:un)?restrict .*)\n", re.MULTILINE)


def schema() -> str:
    """Return the dump of a fresh, migrated database on an embedded server of its own.

    Errors: DependencyMissing when the embedded Postgres is not installed, or its pg_dump fails.
    """
    with tempfile.TemporaryDirectory(prefix="noetl-schema-") as folder:
        server = start_postgres(Path(folder))
        try:
            asyncio.run(_migrate(server.url))
            return normalised(_dump(server.url))
        finally:
            server.stop()
            discard_postgres(Path(folder))


def normalised(dump: str) -> str:
    """Return a dump without its comments, session settings and runs of empty lines."""
    text = re.sub(r"\n{3,}", "\n\n", NOISE.sub("", dump))
    return f"{HEADING}\n{text.strip()}\n"


async def _migrate(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as conn:
        await migrate(conn)


def _dump(url: str) -> str:
    # The environment carries the password, so that no process list shows it.
    command = [str(find_binaries(None) / "pg_dump"), "--schema-only", "--no-owner", "--no-privileges", "--schema=noetl"]
    parts = psycopg.conninfo.conninfo_to_dict(url)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    environ = os.environ | {names[key]: str(value) for key, value in parts.items() if key in names}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DUMP_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise DependencyMissing(f"pg_dump ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def main() -> None:
    """Write the dump below the working directory, which is the repository's root."""
    Path(PATH).write_text(schema(), encoding="utf-8")
    print(f"wrote {PATH}")


if __name__ == "__main__":
    main()

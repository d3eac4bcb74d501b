"""The checks of `noetl doctor`: each looks at one thing and says ok, warning or missing, and why."""

import asyncio
import shutil
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import psycopg
from psycopg.rows import dict_row

from noetl_cli.api import Api
from noetl_common.cluster import OPTIONAL_ROLES
from noetl_common.db import Conn, migration_names
from noetl_common.errors import ConfigError, DependencyMissing, NoetlError
from noetl_common.partitions import count_ahead
from noetl_common.sql import load_queries
from noetl_common.store.config import Stores, open_store

SQL = load_queries("noetl_cli")
POSTGRES_VERSION_MIN = 150000
CLOCK_SKEW_WARN_S = 1.0
FREE_BYTES_MIN = 1024**3
PARTITIONS_AHEAD_MIN = 2
ALIVE_AGE_S = 20.0
TIMEOUT_S = 5.0
NEEDED_ROLES = ("compute", "ingest", "meta", "worker")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look; empty: not known."""

    database_url: str
    nats_url: str
    api_url: str
    stores: Stores


class Check(msgspec.Struct, frozen=True):
    """One finding. `missing` is what keeps runs from working."""

    check: str
    status: Literal["ok", "warning", "missing"]
    detail: str


def examine(place: Place) -> list[Check]:
    """Return every finding, in the order of dependence."""
    return [
        *asyncio.run(check_postgres(place.database_url)),
        check_nats(place.nats_url),
        asyncio.run(check_store(place.stores)),
        check_api(place.api_url),
    ]


async def check_postgres(url: str) -> list[Check]:
    """Look at the server, then at what must stand in it; stop at the first that is missing."""
    if not url:
        return [Check("postgres", "missing", "no DATABASE_URL, and no stack runs here")]
    try:
        conn: Conn = await psycopg.AsyncConnection.connect(
            url, autocommit=True, row_factory=dict_row, connect_timeout=int(TIMEOUT_S)
        )
    except psycopg.Error as exc:
        return [Check("postgres", "missing", f"not reachable: {str(exc).strip()}")]
    steps: list[Callable[[Conn], Awaitable[list[Check]]]] = [
        check_server,
        check_migrations,
        check_partitions,
        check_roles,
    ]
    found: list[Check] = []
    async with conn:
        for step in steps:
            try:
                found += await step(conn)
            except psycopg.Error as exc:
                found.append(Check("postgres", "missing", str(exc).strip()))
            if any(check.status == "missing" for check in found):
                break
    return found


async def check_server(conn: Conn) -> list[Check]:
    """Compare version and clock with what NoETL needs and with this machine."""
    sent_s = time.time()
    [row] = await _rows(conn, "server_facts")
    middle_s = (sent_s + time.time()) / 2
    version = f"{row['version'] // 10000}.{row['version'] % 10000}"
    enough = row["version"] >= POSTGRES_VERSION_MIN
    skew_s = row["now"].timestamp() - middle_s
    return [
        Check("postgres", "ok" if enough else "missing", f"version {version}" + ("" if enough else ", expected 15 up")),
        Check(
            "clock", "ok" if abs(skew_s) <= CLOCK_SKEW_WARN_S else "warning", f"Postgres is {skew_s:+.3f} s from here"
        ),
    ]


async def check_migrations(conn: Conn) -> list[Check]:
    """Compare the applied migrations with those of this release."""
    [row] = await _rows(conn, "has_schema")
    if not row["present"]:
        return [Check("migrations", "missing", "none applied: start meta, or `noetl up`")]
    applied = {row["name"] for row in await _rows(conn, "applied_migrations")}
    known = set(migration_names())
    if known - applied:
        return [Check("migrations", "missing", f"not applied: {', '.join(sorted(known - applied))}")]
    newer = sorted(applied - known)
    if newer:
        return [Check("migrations", "warning", f"from a newer release: {', '.join(newer)}")]
    return [Check("migrations", "ok", f"{len(applied)} applied")]


async def check_partitions(conn: Conn) -> list[Check]:
    """Count the partitions that stand ready for the time to come."""
    rows = await _rows(conn, "read_width")
    if not rows:
        return [Check("partitions", "missing", "the cluster is not initialised: start meta, or `noetl up`")]
    counts = await count_ahead(conn, time.time_ns() // 1_000_000, rows[0]["partition_width_hours"])
    ahead = min(counts.values())
    if ahead < 0:
        gone = ", ".join(sorted(name for name, count in counts.items() if count < 0))
        return [Check("partitions", "missing", f"no partition for now: {gone}")]
    return [Check("partitions", "ok" if ahead >= PARTITIONS_AHEAD_MIN else "warning", f"{ahead} ahead")]


async def check_roles(conn: Conn) -> list[Check]:
    """Look for living processes of each role and for owners of all shards."""
    alive = {row["kind"]: row["processes"] for row in await _rows(conn, "live_roles", age_s=ALIVE_AGE_S)}
    alive["worker"] = alive.pop("worker_pool", 0) + alive.get("worker", 0)
    found = [
        Check(f"role {role}", "ok" if alive.get(role) else "missing", f"{alive.get(role, 0)} alive")
        for role in NEEDED_ROLES
    ]
    for row in await _rows(conn, "shard_ownership"):
        if row["role"] in OPTIONAL_ROLES and not alive.get(row["role"]):
            continue
        complete = row["owned"] == row["shards"]
        detail = f"{row['owned']} of {row['shards']} owned"
        found.append(Check(f"shards {row['role']}", "ok" if complete else "warning", detail))
    return found


def check_nats(url: str) -> Check:
    """Read the greeting of NATS. Runs work without it, later and slower."""
    if not url:
        return Check("nats", "warning", "no NATS_URL: runs work by polling")
    place = urlsplit(url.split(",")[0])
    try:
        with socket.create_connection((place.hostname or "", place.port or 4222), timeout=TIMEOUT_S) as connection:
            greeting = connection.recv(4096)
    except OSError as exc:
        return Check("nats", "warning", f"not reachable, runs work by polling: {exc}")
    if not greeting.startswith(b"INFO "):
        return Check("nats", "warning", f"{place.hostname}:{place.port} is not NATS")
    facts: dict[str, Any] = msgspec.json.decode(greeting.split(b"\r\n")[0][5:])
    jetstream = "with JetStream" if facts.get("jetstream") else "without JetStream"
    return Check("nats", "ok" if facts.get("jetstream") else "warning", f"version {facts.get('version')} {jetstream}")


async def check_store(config: Stores) -> Check:
    """Make ready what results go to: a folder, a volume, or the bucket of an object store."""
    try:
        store = open_store(config, name="doctor")
        try:
            away = await store.start()
        finally:
            await store.close()
    except (ConfigError, DependencyMissing) as exc:
        return Check("store", "missing", str(exc))
    if store.rule.default in away:
        return Check("store", "missing", f"the {store.rule.default} tier does not answer")
    folders = {"disk": config.store_dir, "pvc": config.pvc_mount_path}
    if store.rule.default in folders:
        return check_folder(Path(folders[store.rule.default]))
    return Check("store", "ok", f"the bucket of the {store.rule.default} tier is there")


def check_folder(folder: Path) -> Check:
    """Write a file where results go, and look how much room is left."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"noetl")
        free_bytes = shutil.disk_usage(folder).free
    except OSError as exc:
        return Check("store", "missing", f"{folder}: expected a writable folder, found: {exc}")
    room = f"{folder}: {free_bytes / 1024**3:.1f} GiB free"
    return Check("store", "ok" if free_bytes >= FREE_BYTES_MIN else "warning", room)


def check_api(url: str) -> Check:
    """Ask the API for its health."""
    if not url:
        return Check("api", "missing", "no NOETL_SERVER_URL, and no stack runs here")
    try:
        with Api(url) as api:
            api.health()
    except NoetlError as exc:
        return Check("api", "missing", str(exc))
    return Check("api", "ok", url)


async def _rows(conn: Conn, query: str, **given: Any) -> list[dict[str, Any]]:
    return await (await conn.execute(SQL[query], given)).fetchall()

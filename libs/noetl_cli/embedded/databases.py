"""Databases and logins on the embedded Postgres: NoETL's own, and one for playbooks to work in."""

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from noetl_common.errors import DependencyMissing
from noetl_common.sql import load_queries

PLAYBOOK_NAME = "playbook"
PLAYBOOK_CREDENTIAL = "local_postgres"
CONNECT_TIMEOUT_S = 5
QUERIES = load_queries("noetl_cli")


def check_answers(url: str) -> None:
    """Connect once. Errors: DependencyMissing saying why a Postgres that was named does not let us in."""
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S).close()
    except psycopg.Error as exc:
        raise DependencyMissing(f"DATABASE_URL: {str(exc).strip().splitlines()[0]}") from exc


def ensure_database(url: str, name: str, *, owner: str | None = None) -> None:
    """Create the database `name` on the server of `url` when it is missing."""
    import psycopg  # here, because it is slow to import and most verbs need none
    from psycopg import sql

    with psycopg.connect(url, dbname="postgres", autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as conn:
        if conn.execute(QUERIES["database_exists"], {"name": name}).fetchone() is None:
            owner_clause = sql.SQL(" OWNER {}").format(sql.Identifier(owner)) if owner else sql.SQL("")
            conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)) + owner_clause)


def ensure_playbook_database(url: str, home: Path) -> dict[str, Any]:
    """Make the database `playbook` with a login of its own; return it as the data of a postgres credential.

    The login owns that database and nothing else, so that a playbook's SQL cannot reach the event log. The server's
    log says nothing of statements there: a secret may stand in one.
    """
    password = kept_secret(home / "playbook_password")
    _ensure_login(url, PLAYBOOK_NAME, password=password)
    ensure_database(url, PLAYBOOK_NAME, owner=PLAYBOOK_NAME)
    _keep_out_of_log(url, PLAYBOOK_NAME)
    place = urlsplit(url)
    return {
        "db_host": place.hostname,
        "db_port": place.port,
        "db_user": PLAYBOOK_NAME,
        "db_password": password,
        "db_name": PLAYBOOK_NAME,
    }


def _keep_out_of_log(url: str, name: str) -> None:
    """Keep failed statements in the database `name`, and what they say of values, out of the server's log."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, dbname="postgres", autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as conn:
        for setting in ("log_min_messages", "log_min_error_statement"):
            conn.execute(
                sql.SQL("ALTER DATABASE {} SET {} = fatal").format(sql.Identifier(name), sql.Identifier(setting))
            )


def kept_secret(path: Path) -> str:
    """Return the secret in the file, drawn and written (readable by its owner alone) at the first time."""
    if not path.exists():
        partial = path.with_name(path.name + ".new")
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(16))
        folder = path.parent.stat()
        os.chown(partial, folder.st_uid, folder.st_gid)
        partial.replace(path)
    return path.read_text(encoding="utf-8")


def _ensure_login(url: str, name: str, *, password: str) -> None:
    """Create the login or renew its password, and take from everyone the right to enter NoETL's database."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, dbname="postgres", autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as conn:
        verb = "ALTER" if conn.execute(QUERIES["role_exists"], {"name": name}).fetchone() else "CREATE"
        conn.execute(sql.SQL(verb + " ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(password)))
        ours = sql.Identifier(urlsplit(url).path.lstrip("/"))
        conn.execute(sql.SQL("REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC").format(ours))

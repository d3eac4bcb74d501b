"""How many statements each role sends to Postgres, counted in the server's own log, so that no extension is needed."""

import re
import time
from collections import Counter
from pathlib import Path
from types import TracebackType

import msgspec

from benchmarks.stack import SQL, Bench, Conn

LINE = re.compile(rb"^<<([^>]*)>> LOG:  (?:statement|execute [^:]*): *(.*)$", re.MULTILINE)
ROLES = ("ingest", "compute", "compactor", "meta")
TRANSACTION = {b"BEGIN", b"COMMIT", b"ROLLBACK", b"SAVEPOINT", b"RELEASE"}
TEXT_MAX = 72
RELOAD_S = 0.3  # until every session has read its settings again


class Counted(msgspec.Struct, frozen=True):
    """Statements by role in a span of `seconds`: all, those around a transaction, and the texts of the others.

    Shapes: `texts` counts "role: first line of the statement".
    """

    seconds: float
    all: Counter[str]
    transaction: Counter[str]
    texts: Counter[str]


class StatementLog:
    """Have the embedded Postgres write every statement to its log while the `with` block lasts; then count them.

    The block is slower than it would be: nothing else may be measured in it.
    """

    def __init__(self, bench: Bench) -> None:
        self.counted = Counted(0.0, Counter(), Counter(), Counter())
        self._conn: Conn = bench.conn
        self._path: Path = bench.stack.servers["postgres"].home / "postgres.log"

    def __enter__(self) -> "StatementLog":
        """Begin."""
        for name in ("log_statements", "log_names", "reload"):
            self._conn.execute(SQL[name])
        time.sleep(RELOAD_S)
        self._offset = self._path.stat().st_size
        self._began_s = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Count, and end it."""
        seconds = time.monotonic() - self._began_s
        with open(self._path, "rb") as log:
            log.seek(self._offset)
            self.counted = count(log.read(), seconds)
        for name in ("log_statements_no_more", "log_names_no_more", "reload"):
            self._conn.execute(SQL[name])


def count(log: bytes, seconds: float) -> Counted:
    """Return the statements of a log by role; those of nobody's count for nobody. Playbooks' databases log none."""
    counted = Counted(seconds, Counter(), Counter(), Counter())
    for application, text in LINE.findall(log):
        role = _role_of(application.decode())
        if not role:
            continue
        counted.all[role] += 1
        if text.partition(b" ")[0].upper() in TRANSACTION:
            counted.transaction[role] += 1
        else:
            counted.texts[f"{role}: {text[:TEXT_MAX].decode(errors='replace')}"] += 1
    return counted


def _role_of(application: str) -> str:
    return next((role for role in ROLES if role in application), "")

"""What the compactor would take out of the log now, range by range. Reads Postgres, changes nothing."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from noetl_common.core.shard import EPOCH_MS
from noetl_common.errors import DependencyMissing
from noetl_common.sql import load_queries

SQL = load_queries("noetl_cli")
CONNECT_TIMEOUT_S = 5
CLOSED_AFTER_DAYS = 1 / 24  # a range is closed that much after its time is over, as the compactor has it


def planned(database_url: str, retention_days: float) -> list[dict[str, Any]]:
    """Return a row for each range of the log, oldest first.

    Shapes: runs = folded + ready (to be folded now) + live + recent + kin (a run above or below is one of these); a
    closed range with none of the last three goes. Errors: DependencyMissing when Postgres does not let us in.
    """
    import psycopg  # here, because it is slow to import and most verbs need none
    from psycopg.rows import dict_row

    now_ms = time.time_ns() // 1_000_000
    closed_ms = now_ms - int(min(retention_days, CLOSED_AFTER_DAYS) * 86_400_000)
    args = {
        "cutoff": datetime.now(UTC) - timedelta(days=retention_days),
        "closed_before": max(0, closed_ms - EPOCH_MS) << 22,
    }
    try:
        with psycopg.connect(
            database_url, autocommit=True, row_factory=dict_row, connect_timeout=CONNECT_TIMEOUT_S
        ) as conn:
            return conn.execute(SQL["compactable"], args).fetchall()
    except psycopg.Error as exc:
        raise DependencyMissing(f"postgres: {str(exc).strip().splitlines()[0]}") from exc

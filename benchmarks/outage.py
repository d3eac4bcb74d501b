"""What losing NATS costs a fan-out: in the middle of a run, for the whole of one, and until it is fast again."""

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.loops import figures_of
from benchmarks.report import Figures
from benchmarks.stack import POLL_S, SQL, Bench
from noetl_cli.embedded.nats import start_nats
from noetl_common.errors import Unavailable

LOST_AT = 0.3
BACK_AT = 0.3
NOTICED_S = 2.0  # until every process has seen that NATS is away
FULL_SPEED = 0.9
WINDOW_MS = 250


def without_nats(b: Bench, where: Mapping[str, Any], payload: Mapping[str, Any]) -> Figures:
    """Return the speed of four runs: with NATS, losing it at 30 %, without it, and getting it back at 30 %.

    `nats_back_s`: from its return until a window of 250 ms is at 90 % of the run with NATS; None when none was.
    """
    items = payload["items"]
    with_nats = _rate(b, b.run(where, payload, items=items), items)
    execution_id = b.api.execute(where, payload)
    _wait_for_share(b, execution_id, items, LOST_AT)
    port = int(b.running.nats_url.rpartition(":")[2])
    b.stack.servers["nats"].process.kill()
    b.finish(execution_id, items=items)
    lost = _rate(b, int(execution_id), items)
    time.sleep(NOTICED_S)
    absent = _rate(b, b.run(where, payload, items=items), items)
    execution_id = b.api.execute(where, payload)
    _wait_for_share(b, execution_id, items, BACK_AT)
    b.stack.servers["nats"] = start_nats(b.folder, port=port)
    back = b.conn.execute(SQL["database_time"]).fetchone()
    b.finish(execution_id, items=items)
    assert back is not None, "a time is always answered"
    named = {
        "execution_id": int(execution_id),
        "from": back["now"],
        "window_ms": WINDOW_MS,
        "wanted": with_nats * FULL_SPEED * WINDOW_MS / 1000,
    }
    row = b.conn.execute(SQL["fast_again"], named).fetchone()
    return {
        "nats_items_per_s": {
            "with": with_nats,
            "killed_at_30_percent": lost,
            "without": absent,
            "back_at_30_percent": _rate(b, int(execution_id), items),
        },
        "without_nats_to_with": round(absent / with_nats, 3),
        "nats_back_s": row["after_s"] if row is not None else None,
    }


def _rate(b: Bench, execution_id: int, items: int) -> float:
    return float(figures_of(b.conn, execution_id, items)["items_per_s"])


def _wait_for_share(b: Bench, execution_id: str, items: int, share: float) -> None:
    """Return when so much of a loop's items are done. Errors: Unavailable when the run ends first."""
    named = {"execution_id": int(execution_id)}
    while True:
        row = b.conn.execute(SQL["items_done"], named).fetchone()
        if row is not None and row["done"] >= items * share:
            return
        if b.conn.execute(SQL["terminal_event"], named).fetchone() is not None:
            raise Unavailable(f"execution {execution_id} ended before {share:.0%} of it was seen: give it more items")
        time.sleep(POLL_S)

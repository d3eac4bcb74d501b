"""Record a finished run as a history for the tests: `python -m tests.replay.record NAME EXECUTION_ID`.

The database is DATABASE_URL's, else that of the stack which `noetl up` keeps in the state directory.
"""

import os
import sys
from pathlib import Path

import msgspec
import psycopg
from psycopg.rows import dict_row

from noetl_cli.state_dir import StateDir
from noetl_common.core.events import Event
from noetl_common.core.state import ExecutionState
from noetl_common.event_log import event_of

HISTORIES = Path(__file__).with_name("histories")


class History(msgspec.Struct, frozen=True):
    """A run's log, and the state that the router wrote when it decided the last input."""

    events: list[Event]
    state: ExecutionState


def read(path: Path) -> History:
    """Return a recorded history: an event a line, the state on the last."""
    *events, state = path.read_bytes().splitlines()
    return History(
        [msgspec.json.decode(line, type=Event) for line in events], msgspec.json.decode(state, type=ExecutionState)
    )


def write(path: Path, history: History) -> None:
    """Write a history in the form that `read` reads."""
    lines = [*map(msgspec.json.encode, history.events), msgspec.json.encode(history.state)]
    path.write_bytes(b"\n".join(lines) + b"\n")


def recorded(url: str, execution_id: int) -> History:
    """Return the history of a finished run as its database has it."""
    with psycopg.connect(url, row_factory=dict_row) as conn:
        query = "SELECT * FROM noetl.event WHERE execution_id = %s ORDER BY event_id"
        rows = conn.execute(query, [execution_id]).fetchall()
        kept = conn.execute(
            "SELECT state FROM noetl.execution_state WHERE execution_id = %s", [execution_id]
        ).fetchone()
    assert rows and kept is not None, f"no run {execution_id} in this database"
    history = History([event_of(row) for row in rows], msgspec.convert(kept["state"], ExecutionState, strict=False))
    assert history.state.is_terminal, f"run {execution_id} has not ended"
    return history


def main() -> None:
    """Write the history of the run that the command line names."""
    name, execution_id = sys.argv[1], int(sys.argv[2])
    running = StateDir.chosen().running()
    url = os.environ.get("DATABASE_URL") or (running.database_url if running else "")
    assert url, "expected DATABASE_URL or a stack of `noetl up`, found neither"
    path = HISTORIES / f"{name}.jsonl"
    write(path, recorded(url, execution_id))
    print(f"wrote {path}")


if __name__ == "__main__":
    main()

"""noetl compact --dry-run: what would leave the log now?"""

import os
from typing import Annotated

import typer

from noetl_cli import human
from noetl_cli.options import Output
from noetl_cli.output import Format, print_json, print_table, say
from noetl_cli.state_dir import StateDir
from noetl_common.errors import DependencyMissing, Invalid

COLUMNS = ("partition", "state", "runs", "folded", "ready", "live", "recent", "kin", "size", "goes")
RETENTION_DAYS = 30.0


def compact(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; change nothing.")] = False,
    retention_days: Annotated[
        float | None, typer.Option(min=0, help="How long runs stay; NOETL_RETENTION_DAYS, else 30.")
    ] = None,
    database_url: Annotated[
        str | None, typer.Option(help="Postgres; without it DATABASE_URL, then the local stack's.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show, range by range, which runs the compactor would fold and what keeps a range in the log."""
    if not dry_run:
        raise Invalid("expected --dry-run: the role compactor does the work, where NOETL_COMPACTOR_ENABLED is true")
    from noetl_cli.compaction import planned

    running = StateDir.chosen().running()
    url = database_url or os.environ.get("DATABASE_URL") or (running.database_url if running else "")
    if not url:
        raise DependencyMissing("no DATABASE_URL, and no stack runs here")
    found = planned(url, retention_days if retention_days is not None else _retention_days())
    if output is Format.JSON:
        print_json(found)
        return
    rows = []
    for row in found:
        stays = row["state"] == "in use" or row["live"] + row["recent"] + row["kin"] > 0
        rows.append({**row, "size": human.size(row["bytes"]), "goes": "no" if stays else "yes"})
    print_table(COLUMNS, rows, right=COLUMNS[2:-1], empty="no partitions")
    for row in found:
        if row["stragglers"] and row["state"] != "in use":
            say(f"{row['partition']} stays because of {', '.join(row['stragglers'])}")


def _retention_days() -> float:
    text = os.environ.get("NOETL_RETENTION_DAYS", "")
    try:
        return float(text) if text else RETENTION_DAYS
    except ValueError as exc:
        raise Invalid(f"NOETL_RETENTION_DAYS: expected a number of days, found {text!r}") from exc

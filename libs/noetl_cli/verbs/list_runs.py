"""noetl list: the latest runs."""

from typing import Annotated, Any

import typer

from noetl_cli import human
from noetl_cli.options import Output, Server
from noetl_cli.output import Format, print_json, print_table

COLUMNS = ("execution", "playbook", "version", "status", "started", "duration", "progress")


def list_runs(
    *,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at most.")] = 20,
    status: Annotated[str | None, typer.Option(help="Only runs of this status, as RUNNING.")] = None,
    path: Annotated[str | None, typer.Option(help="Only runs of the playbook at this path.")] = None,
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """List runs, newest first."""
    from noetl_cli.target import connected

    with connected(server) as api:
        runs = api.executions(limit=limit, status=status.upper() if status else None, path=path)
    if output is Format.JSON:
        print_json(runs)
    else:
        rows = [row_of(run) for run in runs]
        print_table(COLUMNS, rows, right=("duration", "progress"), whole=("execution", "status"), empty="no runs")


def row_of(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run as one line of the table."""
    return {
        "execution": run["execution_id"],
        "playbook": run.get("path"),
        "version": run.get("version"),
        "status": run.get("status"),
        "started": human.moment(run.get("start_time")),
        "duration": human.duration(run.get("duration_seconds") or 0.0),
        "progress": f"{run.get('progress') or 0}%",
    }

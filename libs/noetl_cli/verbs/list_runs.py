"""noetl list: the latest runs."""

from typing import Annotated

import typer

from noetl_cli.options import Output, Server
from noetl_cli.output import Format, print_json, print_table

COLUMNS = ("execution_id", "path", "version", "status", "start_time", "duration_human", "progress")


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
        print_table(COLUMNS, runs)

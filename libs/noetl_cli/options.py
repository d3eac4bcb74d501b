"""Options that several verbs share."""

from typing import Annotated

import typer

from noetl_cli.output import Format

Server = Annotated[
    str | None, typer.Option("--server", help="URL of the API; without it NOETL_SERVER_URL, then the local stack.")
]
Output = Annotated[Format, typer.Option("-o", "--output", help="table for people, json for programs.")]
ExecutionId = Annotated[str, typer.Argument(help="The execution's id, as `run` and `list` show it.")]

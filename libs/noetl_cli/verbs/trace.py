"""noetl trace: which results a step's result came from."""

from typing import Annotated

import typer

from noetl_cli.options import ExecutionId, Output, Server
from noetl_cli.output import Format, print_json, print_table

COLUMNS = ("source_step", "name", "ref_id", "parent_ref_id", "store", "bytes", "sha256", "status", "created_at")


def trace(
    execution_id: ExecutionId,
    step: Annotated[str, typer.Argument(help="The step's name.")],
    *,
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the chain of results behind a step."""
    from noetl_cli.target import connected

    with connected(server) as api:
        answer = api.trace(execution_id, step)
    if output is Format.JSON:
        print_json(answer)
    else:
        print_table(COLUMNS, answer["chain"])

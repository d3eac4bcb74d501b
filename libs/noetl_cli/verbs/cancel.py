"""noetl cancel: stop one run and its children."""

from typing import Annotated

import typer

from noetl_cli.options import ExecutionId, Output, Server
from noetl_cli.output import Format, print_json, say


def cancel(
    execution_id: ExecutionId,
    *,
    reason: Annotated[str, typer.Option(help="Kept with the run.")] = "cancelled from the command line",
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """Cancel a run and its children."""
    from noetl_cli.target import connected

    with connected(server) as api:
        answer = api.cancel(execution_id, reason)
    if output is Format.JSON:
        print_json(answer)
    else:
        say(str(answer.get("message") or answer.get("status")))

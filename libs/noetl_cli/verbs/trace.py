"""noetl trace: which results a step's result came from."""

from typing import Annotated, Any

import typer

from noetl_cli import human
from noetl_cli.options import ExecutionId, Output, Server
from noetl_cli.output import Format, print_json, print_table

COLUMNS = ("step", "name", "status", "size", "store", "digest", "result", "made_from", "time")
DIGEST_CHARACTERS = 12


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
        rows = [row_of(result) for result in answer["chain"]]
        print_table(
            COLUMNS, rows, right=("size",), whole=("step", "result"), empty=f"step {step!r} has no result in this run"
        )


def row_of(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result as one line of the table."""
    return {
        "step": result.get("source_step"),
        "name": result.get("name"),
        "status": result.get("status"),
        "size": human.size(int(result.get("bytes") or 0)),
        "store": result.get("store"),
        "digest": str(result.get("sha256") or "")[:DIGEST_CHARACTERS],
        "result": str(result.get("ref_id") or ""),
        "made_from": str(result.get("parent_ref_id") or ""),
        "time": human.moment(result.get("created_at"), date=False),
    }

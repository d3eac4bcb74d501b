"""noetl trace: which results a step's result came from."""

from typing import Annotated, Any

import typer

from noetl_cli import human
from noetl_cli.lineage_view import tree_lines
from noetl_cli.options import ExecutionId, Output, Server
from noetl_cli.output import Format, print_json, print_table

COLUMNS = ("step", "name", "status", "size", "store", "digest", "result", "made_from", "time")
DIGEST_CHARACTERS = 12


def trace(
    execution_id: ExecutionId,
    step: Annotated[str, typer.Argument(help="The step's name.")],
    *,
    depth: Annotated[
        int | None, typer.Option(min=0, help="How many steps back; 0: the step's own results alone.")
    ] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show below each result what it was made from.")] = False,
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the results behind a step: of this run, its children and whatever else it read."""
    from noetl_cli.target import connected

    with connected(server) as api:
        answer = api.trace(execution_id, step, depth=depth)
    if output is Format.JSON:
        print_json(answer)
    elif tree and answer["chain"]:
        for line in tree_lines(answer["chain"]):
            typer.echo(line)
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

"""noetl events: what happened in one run."""

from typing import Annotated, Any

import typer

from noetl_cli import human
from noetl_cli.options import ExecutionId, Output, Server
from noetl_cli.output import Format, print_json, print_table

COLUMNS = ("event_id", "time", "event", "step", "item", "status", "detail")


def events(
    execution_id: ExecutionId,
    *,
    since: Annotated[int, typer.Option(help="Only events after this event id.")] = 0,
    kind: Annotated[str | None, typer.Option("--type", help="Only events of this type, as step.enter.")] = None,
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """List the events of a run, oldest first."""
    from noetl_cli.target import connected

    with connected(server) as api:
        found = list(api.events_after(execution_id, since, pages_max=10_000, kind=kind))
    if output is Format.JSON:
        print_json(found)
    else:
        print_table(COLUMNS, [row_of(event) for event in found], right=("item",), whole=COLUMNS[:-1], empty="no events")


def row_of(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event as one line of the table."""
    result = event.get("result") if isinstance(event.get("result"), dict) else {}
    assert isinstance(result, dict)
    error = result.get("error") or event.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    index = event.get("iter_index")
    return {
        "event_id": str(event["event_id"]),
        "time": human.moment(event.get("event_time") or event.get("created_at"), date=False),
        "event": event["event_type"],
        "step": event.get("step") or event.get("node_name"),
        "item": index if isinstance(index, int) and index >= 0 else None,
        "status": event.get("status"),
        "detail": message or error or result.get("context"),
    }

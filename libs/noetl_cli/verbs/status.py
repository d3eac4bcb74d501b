"""noetl status: where one run stands, or what runs on this machine."""

from typing import Annotated, Any

import typer

from noetl_cli import human
from noetl_cli.options import Output, Server
from noetl_cli.output import Format, print_json, print_pairs, print_table
from noetl_cli.run_view import COLUMNS, NUMBERS, error_text, rows_of, view_of, waiting_text
from noetl_cli.state_dir import Running, StateDir
from noetl_common.errors import DependencyMissing


def status(
    execution_id: Annotated[str | None, typer.Argument(help="A run; without it, the local stack.")] = None,
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """Show where a run stands; without an id, the local stack and its processes."""
    if execution_id is None:
        _show_stack(output)
        return
    from noetl_cli.target import connected

    with connected(server) as api:
        answer = api.status(execution_id)
    if output is Format.JSON:
        print_json(answer)
        return
    view = view_of(answer)
    print_pairs(
        {
            "execution": answer["execution_id"],
            "playbook": f"{answer.get('path')}, version {answer.get('version')}",
            "status": answer.get("status"),
            "started": human.moment(answer.get("start_time")),
            "duration": human.duration(answer.get("duration_seconds") or 0.0),
            "waits": waiting_text(answer.get("waiting")),
            "error": error_text(view.error),
        }
    )
    if view.steps:
        print()
        print_table(COLUMNS, rows_of(view), right=NUMBERS)


def _show_stack(output: Format) -> None:
    state = StateDir.chosen()
    running = state.running()
    if running is None:
        raise DependencyMissing(f"nothing runs in {state.path}: start it with `noetl up`")
    if output is Format.JSON:
        print_json(_public(running))
        return
    rows: list[dict[str, Any]] = [{"role": "api", "pid": running.pid, "address": running.api_url}]
    for role in running.roles:
        rows.append({"role": role.role, "pid": role.pid, "address": f"127.0.0.1:{role.port}"})
    print_table(("role", "pid", "address"), rows)


def _public(running: Running) -> dict[str, Any]:
    """Return what may be shown: the database URL carries a password."""
    roles = [{"role": role.role, "pid": role.pid, "port": role.port} for role in running.roles]
    return {"pid": running.pid, "owner": running.owner, "api_url": running.api_url, "roles": roles}

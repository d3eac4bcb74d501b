"""noetl credential: secrets by alias, sealed on the server."""

from pathlib import Path
from typing import Annotated, Any

import typer

from noetl_cli import human
from noetl_cli.documents import read_mapping
from noetl_cli.options import Output, Server
from noetl_cli.output import Format, print_json, print_table, say
from noetl_cli.payload import pairs

COLUMNS = ("name", "type", "description", "updated")

app = typer.Typer(help="Store, list and remove credentials.", no_args_is_help=True, rich_markup_mode=None)


@app.command("set")
def put(
    name: Annotated[str, typer.Argument(help="The alias that playbooks name.")],
    *,
    kind: Annotated[str, typer.Option("--type", help="postgres, http, bearer, ...")],
    data: Annotated[list[str] | None, typer.Option("--data", help="key=value; repeat it.")] = None,
    data_file: Annotated[
        Path | None, typer.Option(help="A YAML or JSON mapping, to keep secrets off the line.")
    ] = None,
    description: Annotated[str, typer.Option(help="For people.")] = "",
    server: Server = None,
) -> None:
    """Store a credential, replacing the one of the same name."""
    from noetl_cli.target import connected

    secret: dict[str, Any] = {**(read_mapping(data_file) if data_file else {}), **pairs(data or [], option="--data")}
    with connected(server) as api:
        api.put_credential({"name": name, "type": kind, "data": secret, "description": description})
    say(f"credential {name} stored")


@app.command("list")
def list_all(server: Server = None, output: Output = Format.TABLE) -> None:
    """List credentials without their secrets."""
    from noetl_cli.target import connected

    with connected(server) as api:
        found = api.credentials()
    if output is Format.JSON:
        print_json(found)
    else:
        rows = [{**credential, "updated": human.moment(credential.get("updated_at"))} for credential in found]
        print_table(COLUMNS, rows, empty="no credentials")


@app.command("delete")
def delete(name: Annotated[str, typer.Argument(help="The alias.")], server: Server = None) -> None:
    """Remove a credential."""
    from noetl_cli.target import connected

    with connected(server) as api:
        api.delete_credential(name)
    say(f"credential {name} removed")

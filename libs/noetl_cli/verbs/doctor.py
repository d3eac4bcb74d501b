"""noetl doctor: is everything there that a run needs?"""

import os
from typing import Annotated

import msgspec
import typer

from noetl_cli.options import Output
from noetl_cli.output import Format, print_json, print_table
from noetl_cli.state_dir import StateDir

EXIT_DEPENDENCY = 4


def doctor(
    database_url: Annotated[
        str | None, typer.Option(help="Postgres; without it DATABASE_URL, then the local stack's.")
    ] = None,
    nats_url: Annotated[str | None, typer.Option(help="NATS; without it NATS_URL, then the local stack's.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Check Postgres, its schema and partitions, NATS, clocks, the result store, the roles and their shards.

    Exit code 4 when something that is needed is missing.
    """
    # Imported here: the checks bring psycopg along.
    from noetl_cli.checks import Place, examine
    from noetl_common.config import load
    from noetl_common.store.config import Stores

    state = StateDir.chosen()
    running = state.running()
    place = Place(
        database_url=database_url or os.environ.get("DATABASE_URL") or (running.database_url if running else ""),
        nats_url=nats_url or os.environ.get("NATS_URL") or (running.nats_url if running else ""),
        api_url=os.environ.get("NOETL_SERVER_URL") or (running.api_url if running else ""),
        # Of all settings only those of the tiers are looked at.
        stores=load(Stores, {"NOETL_STORE_DIR": str(state.path / "results"), **_given(), "DATABASE_URL": "-"}),
    )
    found = examine(place)
    if output is Format.JSON:
        print_json(found)
    else:
        print_table(("check", "status", "detail"), [msgspec.to_builtins(check) for check in found])
    if any(check.status == "missing" for check in found):
        raise typer.Exit(EXIT_DEPENDENCY)


def _given() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("NOETL_") and value}

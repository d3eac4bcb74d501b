"""noetl shards: who owns which shard; drain, cordon and uncordon a replica."""

import time
from typing import Annotated, Any

import typer

from noetl_cli import human
from noetl_cli.options import Output, Server
from noetl_cli.output import Format, print_json, print_table, say
from noetl_common.errors import Conflict

COLUMNS = ("role", "shard", "owner", "epoch", "lag", "lag_age", "checkpoint", "handovers")
REPLICA_COLUMNS = ("role", "replica", "standing", "shards", "lock")
POLL_S = 0.25

app = typer.Typer(help="Show who owns which shard; take replicas out of service.", no_args_is_help=False)
Instance = Annotated[str, typer.Argument(help="The replica, as `noetl shards` calls it.")]


@app.callback(invoke_without_command=True)
def show(context: typer.Context, server: Server = None, output: Output = Format.TABLE) -> None:
    """Show each shard's owner, epoch, backlog, age of its checkpoint and hand-overs; then the replicas."""
    if context.invoked_subcommand is not None:
        return
    from noetl_cli.target import connected

    with connected(server) as api:
        state = api.shards()
    if output is Format.JSON:
        print_json(state)
        return
    print_table(COLUMNS, [_row(shard) for shard in state["shards"]], right=("lag", "lag_age", "checkpoint"))
    print()
    print_table(REPLICA_COLUMNS, [_replica(replica, state["leader"]) for replica in state["replicas"]])


@app.command("drain")
def drain(
    instance: Instance,
    *,
    timeout: Annotated[float, typer.Option(min=0, help="How many seconds to wait until it is empty; 0: not.")] = 60.0,
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """Move a replica's shards to the others, and wait until it has none."""
    from noetl_cli.target import connected

    with connected(server) as api:
        asked = api.ask_replica(instance, "drain")
        deadline = time.monotonic() + timeout
        while asked["shards"] and timeout:
            if time.monotonic() > deadline:
                raise Conflict(
                    f"{instance} still owns {asked['shards']} shards after {timeout:g} s: is another one ready?"
                )
            time.sleep(POLL_S)
            asked["shards"] = next((r["shards"] for r in api.shards()["replicas"] if r["instance"] == instance), 0)
    _tell(asked, output)


@app.command("cordon")
def cordon(instance: Instance, *, server: Server = None, output: Output = Format.TABLE) -> None:
    """Give a replica no new shards; it keeps those it has."""
    _ask(instance, "cordon", server=server, output=output)


@app.command("uncordon")
def uncordon(instance: Instance, *, server: Server = None, output: Output = Format.TABLE) -> None:
    """Let a replica have its share again, after a drain too."""
    _ask(instance, "uncordon", server=server, output=output)


def _ask(instance: str, verb: str, *, server: str | None, output: Format) -> None:
    from noetl_cli.target import connected

    with connected(server) as api:
        _tell(api.ask_replica(instance, verb), output)


def _tell(asked: dict[str, Any], output: Format) -> None:
    if output is Format.JSON:
        print_json(asked)
    else:
        say(f"{asked['instance']} is {asked['standing']} and owns {asked['shards']} shards")


def _row(shard: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": shard["role"],
        "shard": shard["shard_id"],
        "owner": shard["owner"] or "nobody",
        "epoch": shard["epoch"],
        "lag": shard["lag_inputs"],
        "lag_age": _duration(shard["lag_ms"]),
        "checkpoint": _duration(shard["checkpoint_age_ms"]),
        "handovers": shard["handovers"],
    }


def _replica(replica: dict[str, Any], leader: str | None) -> dict[str, Any]:
    return {
        "role": replica["role"],
        "replica": replica["instance"],
        "standing": "leader" if replica["instance"] == leader else replica["standing"],
        "shards": replica["shards"],
        "lock": "held" if replica["holds_lock"] else "none",
    }


def _duration(ms: int | None) -> str:
    return "" if ms is None else human.duration(ms / 1000)

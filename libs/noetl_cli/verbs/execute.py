"""noetl exec: start runs on a server and do not wait for them; one, or a file of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from noetl_cli.options import Output, Server
from noetl_cli.output import Format, print_json, print_table, say
from noetl_cli.payload import payload_of
from noetl_common.errors import Invalid

BATCH_STARTS_MAX = 1_000
BATCH_BYTES_MAX = 3 * 1024 * 1024
COLUMNS = ("line", "status", "execution_id", "error")


def execute(
    path: Annotated[str | None, typer.Argument(help="A playbook's path in the catalog.")] = None,
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value over the workload; a.b=1 goes deeper. Repeat it.")
    ] = None,
    payload: Annotated[Path | None, typer.Option(help="A YAML or JSON mapping over the workload.")] = None,
    priority: Annotated[
        int | None, typer.Option(help="Of its commands; those of a higher number are claimed first.")
    ] = None,
    batch: Annotated[
        Path | None, typer.Option(help='A file with a start a line: {"path": ..., "payload": {...}}.')
    ] = None,
    key: Annotated[str, typer.Option(help="Idempotency key: under the same one nothing is started twice.")] = "",
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """Start a run, or with --batch those of a file, and print their ids. A server that is overloaded is waited for.

    Exit code 0 when all were started (now, or before under the same key), 1 when one was not.
    """
    from noetl_cli.target import connected

    if batch is not None:
        if path is not None or settings or payload is not None or priority is not None:
            raise Invalid("--batch: expected no path, payload or priority beside it: each line has its own")
        items = items_in(batch, key=key)
        with connected(server) as api:
            results = [result for part in parts_of(items) for result in api.execute_batch(part)]
        _show(results, output)
        if any(result["status"] == "failed" for result in results):
            raise typer.Exit(1)
        return
    if path is None:
        raise Invalid("expected the path of a playbook, or --batch with a file, found neither")
    where = {"path": path} if priority is None else {"path": path, "priority": priority}
    with connected(server) as api:
        execution_id = api.execute(where, payload_of(settings or [], payload), key=key)
    if output is Format.JSON:
        print_json({"execution_id": execution_id})
    else:
        say(f"execution {execution_id}")


def items_in(file: Path, *, key: str) -> list[dict[str, Any]]:
    """Return the starts that a file's lines ask for; with a `key`, each has one of its own. Errors: Invalid."""
    if not file.is_file():
        raise Invalid(f"--batch {file}: expected a file, found none")
    items: list[dict[str, Any]] = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise Invalid(f"{file}, line {number}: expected a JSON object, found another text: {error}") from error
        items.append({"idempotency_key": f"{key}:{number}", **item} if key else item)
    if not items:
        raise Invalid(f"--batch {file}: expected a start a line, found none")
    return items


def parts_of(items: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the items in parts that one request may hold."""
    part: list[dict[str, Any]] = []
    size = 0
    for item in items:
        bytes_ = len(msgspec.json.encode(item))
        if part and (len(part) == BATCH_STARTS_MAX or size + bytes_ > BATCH_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(item)
        size += bytes_
    yield part


def _show(results: Sequence[dict[str, Any]], output: Format) -> None:
    if output is Format.JSON:
        print_json([{**result, "index": number} for number, result in enumerate(results)])
        return
    shown = [{name: result.get(name, "") for name in COLUMNS} | {"line": n} for n, result in enumerate(results, 1)]
    print_table(COLUMNS, shown, right=("line",))
    failed = sum(result["status"] == "failed" for result in results)
    say(f"{len(results) - failed} started, {failed} failed")

"""noetl register: put a playbook into the catalog without running it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from noetl_cli.documents import check_document, read_document, register_document
from noetl_cli.options import Output, Server
from noetl_cli.output import Format, print_json, print_table


def register(
    files: Annotated[list[Path], typer.Argument(help="Playbook files.")],
    server: Server = None,
    output: Output = Format.TABLE,
) -> None:
    """Register playbooks: each becomes the next version at its path."""
    from noetl_cli.target import connected

    texts = [(file, read_document(file)) for file in files]
    for file, text in texts:
        check_document(text, source=file)  # all of them first, so that a wrong one keeps none from being registered
    with connected(server) as api:
        answers: list[dict[str, Any]] = [register_document(api, text, source=file) for file, text in texts]
    if output is Format.JSON:
        print_json(answers)
    else:
        print_table(("path", "version", "catalog_id"), answers)

"""noetl graph: a playbook's steps and arcs, as a drawing or as text for one."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from noetl_cli.documents import checked, read_document


class Picture(StrEnum):
    """What `--format` takes."""

    MERMAID = "mermaid"
    SVG = "svg"
    DOT = "dot"


def graph(
    file: Annotated[Path, typer.Argument(help="A playbook file.")],
    picture: Annotated[
        Picture, typer.Option("--format", help="mermaid and dot are text, svg is a drawing.")
    ] = Picture.MERMAID,
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file instead of standard output.")] = None,
) -> None:
    """Show a playbook as a graph: its steps with their tools and loops, its arcs with their conditions."""
    from noetl_cli.graph import model, svg, text  # here, because the template engine is slow to import

    drawn = model.graph_of(checked(read_document(file), source=file))
    writers = {Picture.MERMAID: text.mermaid_of, Picture.DOT: text.dot_of, Picture.SVG: svg.svg_of}
    written = writers[picture](drawn)
    if to is None:
        sys.stdout.write(written)
    else:
        to.write_text(written, encoding="utf-8")

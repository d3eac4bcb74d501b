"""noetl lint: what a playbook is allowed to say and rarely means."""

from pathlib import Path
from typing import Annotated

import typer

from noetl_cli.documents import read_document
from noetl_cli.options import Output
from noetl_cli.output import Format, print_json, say, say_problem
from noetl_cli.verbs.validate import findings_of


def lint(
    files: Annotated[list[Path], typer.Argument(help="Playbook files.")],
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when there are warnings.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Look for what is rarely meant: names that nothing has, steps never reached, arcs that never fire, odd SQL.

    Exit code 1 for a document that is not valid, with --strict also for one with warnings.
    """
    texts = [(file, read_document(file)) for file in files]
    reports = [{"file": str(file), **findings_of(text)} for file, text in texts]
    if output is Format.JSON:
        print_json(reports)
    else:
        for report in reports:
            for finding in report["findings"]:
                say_problem(finding, source=report["file"])
        count = sum(len(report["findings"]) for report in reports)
        say(f"{count} finding{'' if count == 1 else 's'} in {len(files)} file{'' if len(files) == 1 else 's'}")
    if any(not report["valid"] or (strict and report["findings"]) for report in reports):
        raise typer.Exit(1)

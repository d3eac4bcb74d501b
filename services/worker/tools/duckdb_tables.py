"""Stored results as views of the duckdb tools: `tables: {name: "{{ step }}"}`. Tables are read from their files."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from noetl_common.core.tables import is_table
from noetl_common.core.values import Ref
from noetl_common.errors import Invalid
from noetl_common.store.tables import TableWriter
from services.worker.tools import Call
from services.worker.tools.artifact import REFERENCE, ref_named

TABLES_MAX = 100
NAME_CHARACTERS_MAX = 63
WRITTEN_ROWS = 5_000

Setup = list[tuple[str, str]]


@asynccontextmanager
async def table_views(call: Call) -> AsyncIterator[Setup]:
    """Lend the SQL that makes a view of each of the call's `tables`, with what to say when it fails.

    Errors: Invalid names the table; those of reading its payload, NeedPayload among them.
    """
    tables = call.config.get("tables") or {}
    if not isinstance(tables, Mapping) or len(tables) > TABLES_MAX:
        raise Invalid(f"tables: expected at most {TABLES_MAX} names with a result each, found {str(tables)[:100]!r}")
    if not tables:
        yield []
        return
    # What a table stands for is asked for first, so that a payload that is missing is missed before any work.
    found = {_checked(name): _source(call, name, given) for name, given in tables.items()}
    with tempfile.TemporaryDirectory(prefix="noetl-tables-") as folder:
        setup: Setup = []
        for number, (name, source) in enumerate(found.items()):
            copy = Path(folder) / f"{number}.parquet"
            stored = await call.stored_table(source, copy) if isinstance(source, Ref) else None
            if stored is None:
                rows = _rows(call, name, source)
                stored = copy, await asyncio.to_thread(_write, rows, copy, f"tables.{name}")
            path, kinds = stored
            setup.append((_view(name, path, kinds), f"tables.{name}: its rows cannot be read"))
        yield setup


def _source(call: Call, name: str, given: Any) -> Ref | list[Any]:
    """Return the reference to a table, or rows that are no table."""
    if isinstance(given, str) and (REFERENCE.fullmatch(given) or call.scope.stored(given) is not None):
        given = ref_named(call, given)
    if isinstance(given, Ref) and is_table(given):
        return given
    return _rows(call, name, given)


def _rows(call: Call, name: str, given: Any) -> list[Any]:
    """Return rows, or those of a result that is no table. Errors: Invalid, and those of reading it."""
    if isinstance(given, Ref):
        given = call.scope.result(given)
    if isinstance(given, Mapping) and isinstance(given.get("rows"), list):
        columns = given.get("columns")
        rows = given["rows"]
        if isinstance(columns, list) and rows and all(isinstance(row, list) for row in rows):
            rows = [dict(zip(map(str, columns), row, strict=False)) for row in rows]
        given = rows
    elif isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, list) or not given or not all(isinstance(row, Mapping) for row in given):
        raise Invalid(f"tables.{name}: expected a result with rows, found {_found(given)}")
    return given


def _found(given: Any) -> str:
    if isinstance(given, list):
        return "a list of other things than objects" if given else "no rows"
    return f"{type(given).__name__} {str(given)[:40]!r}"


def _write(rows: Sequence[Mapping[str, Any]], path: Path, where: str) -> dict[str, str]:
    """Write rows to a file; return {column: what it holds}. A name that a row has not is null there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise Invalid(f"{where}: expected rows with columns, found empty ones")
    writer = TableWriter(names)
    try:
        for start in range(0, len(rows), WRITTEN_ROWS):
            writer.add([[row.get(name) for name in names] for row in rows[start : start + WRITTEN_ROWS]])
        sealed = writer.seal()
        sealed.copy_to(path)
    finally:
        writer.close()
    return dict(zip(names, writer.kinds, strict=True))


def _view(name: str, path: Path, kinds: Mapping[str, str]) -> str:
    texts = [_named(column) for column, kind in kinds.items() if kind == "json"]
    casts = ", ".join(f"CAST({column} AS JSON) AS {column}" for column in texts)
    columns = f"* REPLACE ({casts})" if casts else "*"
    quoted = str(path).replace("'", "''")
    return " ".join(
        ("CREATE OR REPLACE TEMP VIEW", _named(name), "AS FROM", f"read_parquet('{quoted}')", "SELECT", columns)
    )


def _named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _checked(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        raise Invalid(f"tables: expected names of 1 to {NAME_CHARACTERS_MAX} characters, found {str(name)[:100]!r}")
    return name

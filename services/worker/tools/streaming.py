"""What the SQL tools share when `chunk_size` has them hand their rows on in chunks instead of as one result."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from noetl_common.errors import Invalid
from services.worker.tools import Partial
from services.worker.tools.sql_statements import Statement

CHUNK_ROWS_MAX = 100_000
QUERIES = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM"})

Row = dict[str, Any]


def chunk_size_of(config: Mapping[str, Any]) -> int:
    """Return how many rows a chunk has, 0 when the result is one whole. Errors: Invalid."""
    given = config.get("chunk_size")
    if given in (None, ""):
        return 0
    number = int(given) if isinstance(given, str) and given.strip().isdecimal() else given
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= CHUNK_ROWS_MAX:
        raise Invalid(f"chunk_size: expected rows from 1 to {CHUNK_ROWS_MAX}, found {given!r}")
    return number


def check_streams(statements: list[Statement]) -> None:
    """Return when the last statement of a script is a query. Errors: Invalid."""
    words = statements[-1].words
    if words and words[0] not in QUERIES:
        raise Invalid(f"chunk_size: expected a query as the last statement, found {words[0]}")


async def send_chunks(fetch: Callable[[], Awaitable[list[Row]]], columns: list[str], partial: Partial) -> Row:
    """Hand on chunk after chunk until `fetch` returns none; return {row_count, chunks, columns}.

    The next chunk is fetched when the one before is recorded: there are never two of them here.
    """
    count = chunks = 0
    while rows := await fetch():
        count += len(rows)
        await partial({"columns": columns, "rows": rows, "row_count": len(rows), "chunk_index": chunks})
        chunks += 1
    return {"row_count": count, "chunks": chunks, "columns": columns}

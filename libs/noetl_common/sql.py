"""Named queries from .sql files, loaded once at import.

Format, one block a query (procrastinate's habit):

    -- name: read_events
    -- What it does, in a sentence.
    SELECT ... WHERE shard_id = %(shard_id)s
"""

import re
from importlib import resources
from typing import LiteralString, cast

NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_queries(package: str) -> dict[str, LiteralString]:
    """Return {query name: SQL text} of every .sql file in `package`/sql.

    Errors: ValueError when two queries of one package share a name.
    """
    queries: dict[str, LiteralString] = {}
    files = (resources.files(package) / "sql").iterdir()
    for file in sorted(files, key=lambda f: f.name):
        if not file.name.endswith(".sql"):
            continue
        _header, *parts = NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in queries:
                raise ValueError(f"{package}: query {name!r} is defined twice")
            # The text is ours, shipped with the code: as safe as a literal in the source.
            queries[name] = cast(LiteralString, text.strip())
    return queries

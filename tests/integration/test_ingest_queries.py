"""Every named query of ingest and of the common package is one that Postgres accepts."""

import re

import pytest

from noetl_common.db import Pool
from noetl_common.sql import load_queries

QUERIES = [(package, name) for package in ("noetl_common", "services.ingest") for name in load_queries(package)]
PARAMETER = re.compile(r"%\((\w+)\)s")


@pytest.mark.parametrize(("package", "name"), QUERIES)
async def test_the_query_can_be_prepared(pool: Pool, package: str, name: str) -> None:
    text = load_queries(package)[name]
    numbers: dict[str, int] = {}
    numbered = PARAMETER.sub(lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", text)
    async with pool.connection() as conn:
        await conn.execute(f"PREPARE checked AS {numbered.replace('%%', '%')}".encode())

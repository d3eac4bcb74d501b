"""A few seconds of the fuzzer, the same each time; `python -m tests.broken.fuzz` goes on for minutes."""

from pathlib import Path

import httpx
import pytest

from noetl_common.db import Pool
from services.ingest.asgi import build_asgi
from tests.broken.fuzz import fuzz, report, seeds_of
from tests.ingesting import api_on


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_is_sent_in_ends_within_its_limits_and_as_it_should(
    pool: Pool, tmp_path: Path, seed: int
) -> None:
    transport = httpx.ASGITransport(build_asgi(api_on(pool, tmp_path)))
    async with httpx.AsyncClient(transport=transport, base_url="http://ingest") as client:
        tally = await fuzz(seeds_of(), seed=seed, seconds=2.5, client=client)
    assert tally.taken["parse"] and tally.taken["render"] and tally.calls["/api/context/render"]
    assert not tally.faults, report(tally)

"""One worker and several ingests: it goes on with another one when the one it talks to is away."""

from pathlib import Path

import pytest

from noetl_cli.embedded.server import free_port
from noetl_common.core.commands import Item
from noetl_common.errors import ConfigError
from services.worker.ingests import Ingests
from tests.ingest_peer import ingest_peer
from tests.integration.test_worker_runs import noop, python, running


async def test_an_ingest_that_does_not_listen_is_passed_over(tmp_path: Path) -> None:
    async with ingest_peer() as peer:
        peer.offer((noop(),), items=[Item(v=index) for index in range(5)], iterator="item")
        peer.url = f"http://127.0.0.1:{free_port()}, {peer.url}/"
        async with running(peer, tmp_path):
            await peer.reported(5)
        assert peer.calls.count("POST /api/worker/pool/register") == 1


async def test_a_worker_reports_to_another_ingest_than_the_one_it_claimed_from(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with ingest_peer() as first, ingest_peer() as second:
        first.offer(
            (python(f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.01)\nresult = 7"),)
        )
        first.url = f"{first.url},{second.url}"
        async with running(first, tmp_path):
            await first.until(lambda: first.beats and first.beats[-1].leases)
            first.is_away = True
            await second.until(lambda: second.beats and second.beats[-1].leases)
            gate.touch()
            await second.reported(1)
            first.is_away = False
            second.offer((noop(),))
            await second.reported(2)
        assert first.reports == [], "who answered last is asked first"


def test_the_preferred_ingest_changes_only_when_it_is_the_one_that_is_away() -> None:
    ingests = Ingests("http://a, http://b/,http://c")
    assert ingests.in_turn() == ["http://a", "http://b", "http://c"]
    ingests.is_away("http://b")
    assert ingests.in_turn()[0] == "http://a"
    ingests.is_away("http://a")
    assert ingests.in_turn() == ["http://b", "http://c", "http://a"]


@pytest.mark.parametrize("urls", ["", "ingest:8082", "http://a,b", "ftp://a"])
def test_an_address_that_is_none_is_named(urls: str) -> None:
    with pytest.raises(ConfigError, match="NOETL_SERVER_URL: expected http://host:port"):
        Ingests(urls)

"""The parts of `noetl chaos` that are pure: the schedule, the load, the judgement; and the wire that it cuts."""

import asyncio
import socket
from collections import Counter
from contextlib import suppress
from itertools import islice, pairwise

import pytest

from noetl_cli.chaos.drive import Started
from noetl_cli.chaos.judge import judge, repeated
from noetl_cli.chaos.load import KINDS, Run, documents, runs
from noetl_cli.chaos.relay import Relays
from noetl_cli.chaos.schedule import faults
from noetl_common.core.parse import parse

ROLES = ["ingest-1", "ingest-2", "meta-1", "worker-1"]
LINKS = ["ingest-1>postgres", "worker-1>ingest"]


def drawn(seed: int, seconds: float = 2000.0):
    return list(faults(seed, seconds=seconds, every_s=1.0, roles=ROLES, links=LINKS))


def test_a_seed_draws_the_same_faults_and_another_seed_others():
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_every_fault_and_every_target_is_drawn_and_postgres_rests_between_restarts():
    schedule = drawn(3)
    assert {fault.kind for fault in schedule} >= {
        "kill",
        "pause",
        "cut",
        "stall",
        "slow",
        "restart_postgres",
        "kill_nats",
    }
    assert {fault.target for fault in schedule} == {*ROLES, *LINKS, ""}
    restarts = [fault.at_s for fault in schedule if fault.kind == "restart_postgres"]
    assert all(later - earlier >= 30 for earlier, later in pairwise(restarts))
    assert any(fault.kind == "pause" and fault.lasts_s > 15 for fault in schedule), "beyond the lease of a command"


def test_the_load_has_every_kind_and_a_document_for_each():
    load = list(islice(runs(1), 300))
    assert {run.kind for run in load} == set(KINDS)
    assert set(documents()) == {*KINDS, "child"}
    for text in documents().values():
        parse(text)


RUN = Run(name="r", kind="once", items=2, result={"count": 2}, notes=frozenset({("start", 0), ("start", 1)}))
NOTES = {"r": Counter({("start", 0): 1, ("start", 1): 3})}
FATES = {7: ("COMPLETED", {"count": 2})}
EFFECTS = {"r": {0: 1, 1: 1}}
STARTED = [Started(run=RUN, execution_id=7)]


def test_a_load_that_came_out_right_is_not_blamed_for_tools_that_ran_again():
    assert judge(STARTED, FATES, NOTES, effects=EFFECTS) == []
    assert repeated(NOTES) == 2


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"fates": {}}, "lost", "once 7: acknowledged, and not there"),
        ({"fates": {7: ("RUNNING", None)}}, "lost", "expected COMPLETED, found RUNNING"),
        ({"fates": {7: ("FAILED", None)}}, "wrong", "expected COMPLETED, found FAILED"),
        ({"fates": {7: ("COMPLETED", {"count": 1})}}, "wrong", "expected {'count': 2}, found {'count': 1}"),
        ({"notes": {"r": Counter({("start", 0): 1})}}, "lost", "the ledger lacks [('start', 1)]"),
        ({"effects": {"r": {0: 2, 1: 1}}}, "twice", "rows written more than once: {0: 2}"),
        ({"effects": {"r": {0: 1}}}, "lost", "rows never written: [1]"),
        ({"started": [*STARTED, *STARTED]}, "wrong", "2 keys were answered with execution 7"),
    ],
)
def test_each_thing_that_goes_wrong_is_found(change, kind, message):
    given = {"started": STARTED, "fates": FATES, "notes": NOTES, "effects": EFFECTS, **change}
    found = judge(given["started"], given["fates"], given["notes"], effects=given["effects"])
    assert (kind, True) in {(fault.kind, message in fault.message) for fault in found}, found


async def test_a_link_passes_bytes_until_it_is_cut_and_holds_them_while_it_stalls():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            while line := await reader.readline():
                writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    relays = Relays()
    try:
        port = server.sockets[0].getsockname()[1]
        url = relays.through("worker-1", "ingest", f"http://user:pass@127.0.0.1:{port}/path?x=1")
        assert url.startswith("http://user:pass@127.0.0.1:") and url.endswith("/path?x=1")
        relays.through("worker-1", "ingest", "http://127.0.0.1:1")
        assert list(relays.links) == ["worker-1>ingest", "worker-1>ingest.2"]
        through = relays.links["worker-1>ingest"].port
        reader, writer = await asyncio.open_connection("127.0.0.1", through)
        writer.write(b"one\n")
        assert await reader.readline() == b"one\n"
        relays.set("worker-1>ingest", "stalled")
        writer.write(b"two\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.1)
        relays.set("worker-1>ingest", "open")
        assert await asyncio.wait_for(reader.readline(), 5) == b"two\n"
        relays.set("worker-1>ingest", "cut")
        with pytest.raises(ConnectionResetError):
            await reader.readline()
        late, late_writer = await asyncio.open_connection("127.0.0.1", through)
        with suppress(ConnectionResetError):
            assert await late.readline() == b""
        for each in (writer, late_writer):
            each.close()
            with suppress(ConnectionResetError):
                await each.wait_closed()
    finally:
        await asyncio.to_thread(relays.close)
        server.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", through)) != 0, "nothing is left listening"

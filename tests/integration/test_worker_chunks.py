"""A worker that streams: chunks before the end, each acknowledged; away, fenced, killed and run again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl_common.core.commands import Item
from noetl_common.core.playbook import Rule, Task
from noetl_common.core.values import Ref
from services.worker import pipeline
from tests.ingest_peer import EXECUTION, Peer, ingest_peer, payload_of
from tests.integration.test_worker_runs import running

THREE = "for n in range(3): emit({'n': n})\nresult = 'end'"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with ingest_peer() as made:
        yield made


def python(code: str, label: str = "work") -> Task:
    return Task(label=label, kind="python", config={"code": code})


async def test_chunks_are_reported_in_order_before_the_end(peer: Peer, tmp_path: Path) -> None:
    [command_id] = peer.offer((python(THREE),))
    async with running(peer, tmp_path):
        reports = await peer.reported(4)
    assert [report.event_type for report in reports] == ["call.partial"] * 3 + ["command.completed"]
    assert [(report.task, report.chunk) for report in reports[:3]] == [("work", 0), ("work", 1), ("work", 2)]
    assert [payload_of(report.results[0]) for report in reports] == [{"n": 0}, {"n": 1}, {"n": 2}, "end"]
    for number, report in enumerate(reports[:3]):
        [row] = report.results
        assert (row.task_label, row.loop_epoch, row.iter_index) == (f"work.chunk.{number}", 0, -1)
        assert (report.command_id, report.claim_token, report.status) == (command_id, 1, "PARTIAL")
        assert report.result.reference is not None and report.result.reference["ref_id"] == row.ref_id
    assert peer.batches == [1, 1, 1, 1]


async def test_each_task_and_each_run_of_a_task_counts_from_0(peer: Peer, tmp_path: Path) -> None:
    again = Task(
        label="twice",
        kind="python",
        config={"code": "emit(n)\nassert n == 2"},
        input={"n": "{{ _attempt }}"},
        rules=(Rule(when="{{ output.status == 'error' }}", do="retry", delay=0.0),),
    )
    peer.offer((again, python("emit('b')", "other")), is_pipeline=True)
    async with running(peer, tmp_path):
        reports = await peer.reported(4)
    chunks = [(r.task, r.chunk, payload_of(r.results[0])) for r in reports if r.event_type == "call.partial"]
    assert chunks == [("twice", 0, 1), ("twice", 0, 2), ("other", 0, "b")]
    first, second = (r.results[0].ref_id for r in reports[:2])
    assert first == second, "a chunk is named by its number"


async def test_a_chunk_waits_until_ingest_is_back(peer: Peer, tmp_path: Path) -> None:
    code = "import time\nfor n in range(2):\n    emit(n)\n    time.sleep(0.3)"
    peer.offer((python(code),))
    async with running(peer, tmp_path):
        await peer.reported(1)
        peer.is_away = True
        calls = len(peer.calls)
        await peer.until(lambda: peer.calls[calls:].count("POST /api/events/batch") >= 3)
        assert len(peer.reports) == 1
        peer.is_away = False
        reports = await peer.reported(3)
    assert [report.chunk for report in reports] == [0, 1, -1]


async def test_a_fenced_chunk_ends_the_command_without_a_report(peer: Peer, tmp_path: Path) -> None:
    peer.outcome = "fenced"
    mark = tmp_path / "went on"
    peer.offer((python(f"emit(1)\nopen({str(mark)!r}, 'w')"),))
    async with running(peer, tmp_path):
        await peer.reported(1)
        await peer.until(lambda: bool(peer.beats) and not peer.beats[-1].leases)
        peer.outcome = "accepted"
        peer.offer((python("result = 2"),))
        reports = await peer.reported(2)
    assert [report.event_type for report in reports] == ["call.partial", "command.completed"]
    assert not mark.exists()


async def test_too_many_chunks_fail_the_task_and_name_the_remedy(
    peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "STREAM_CHUNKS_MAX", 2)
    peer.offer((python(THREE),))
    async with running(peer, tmp_path):
        reports = await peer.reported(3)
    error = reports[-1].result.error or {}
    assert (reports[-1].event_type, error["code"]) == ("command.failed", "TOO_LARGE")
    assert "expected at most 2 chunks" in error["message"] and "chunk_size" in error["message"]


async def test_a_cancelled_command_stops_streaming_and_is_reported_as_cancelled(peer: Peer, tmp_path: Path) -> None:
    peer.cancelled = peer.offer((python("import time\nwhile True:\n    emit(1)\n    time.sleep(0.05)"),))
    async with running(peer, tmp_path):
        await peer.until(lambda: any(r.event_type == "command.cancelled" for r in peer.reports))
        count = len(peer.reports)
        await asyncio.sleep(0.3)
    assert len(peer.reports) == count


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (Item(v="row", index=1, total=3), ["row", 1, 3, False, False, 0]),
        (Item(v="row", index=2, total=3), ["row", 2, 3, False, True, 0]),
    ],
)
async def test_a_row_stands_in_its_frame(peer: Peer, tmp_path: Path, item: Item, expected: list[object]) -> None:
    peer.offer((python("result = [it, _index, _total, _first, _last, loop_index]"),), items=[item], iterator="it")
    async with running(peer, tmp_path):
        [report] = await peer.reported(1)
    assert payload_of(report.results[0]) == expected


async def test_a_chunk_is_given_whole_to_its_consumer(peer: Peer, tmp_path: Path) -> None:
    ref = Ref(execution_id=EXECUTION, ref_id=5, label="load.chunk.0")
    peer.payloads[ref.uri] = b'{"rows":[1,2,3]}'
    peer.offer((python("result = chunk['rows']"),), items=[Item(ref=ref, whole=True)], iterator="chunk")
    async with running(peer, tmp_path):
        [report] = await peer.reported(1)
    assert payload_of(report.results[0]) == [1, 2, 3]

"""One worker against a peer that speaks ingest's side: claims, reports, leases, the stop."""

import asyncio
import gzip
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl_common.core.commands import Item
from noetl_common.core.playbook import Output, Rule, Task
from noetl_common.core.values import Ref, Value, ref_in, reference_of
from noetl_common.process import serve
from services.worker.app import app
from services.worker.config import Config
from tests.builders import disk_store
from tests.ingest_peer import EXECUTION, Peer, ingest_peer, payload_of

Stop = Callable[[], Awaitable[None]]


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with ingest_peer() as made:
        yield made


@asynccontextmanager
async def running(peer: Peer, tmp_path: Path, **settings: Any) -> AsyncIterator[Stop]:
    """Run a worker beside the peer; calling what this yields stops it."""
    given: dict[str, Any] = {"worker_id": "w1", "heartbeat_s": 0.1, "python_processes": 1, "api_token": "secret-token"}
    config = Config(server_url=peer.url, store_dir=str(tmp_path / "store"), **{**given, **settings})
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(app(config))
        serving = asyncio.create_task(serve(service, stop))

        async def end() -> None:
            stop.set()
            await serving

        try:
            yield end
        finally:
            await end()


def noop(**fields: Any) -> Task:
    return Task(label="work", kind="noop", **fields)


def python(code: str, **fields: Any) -> Task:
    return Task(label="work", kind="python", config={"code": code}, **fields)


async def test_a_command_becomes_one_report_with_its_result_beside_it(peer: Peer, tmp_path: Path) -> None:
    (command_id,) = peer.offer(
        (python("result = {'n': n + 1, 'rows': [1, 2]}", input={"n": "{{ workload.n }}"}),), workload=Value({"n": 4})
    )
    async with running(peer, tmp_path):
        (report,) = await peer.reported(1)
    assert (report.event_type, report.status, report.command_id) == ("command.completed", "COMPLETED", command_id)
    (row,) = report.results
    assert payload_of(row) == {"n": 5, "rows": [1, 2]} and row.rows == 2 and row.store_tier == "db"
    assert report.result.reference is not None
    ref = ref_in(report.result.reference)
    assert (ref.ref_id, ref.sha256, ref.shape, ref.label) == (row.ref_id, row.sha256, "plain", "work")
    assert report.result.context is None and report.event_time.endswith("Z")
    assert set(peer.tokens) == {"Bearer secret-token"}


async def test_a_loop_is_reported_in_batches_with_the_index_of_each_item(peer: Peer, tmp_path: Path) -> None:
    items = [Item(v=f"city {index}") for index in range(300)]
    peer.offer(
        (
            noop(
                config={"result": {"city": "{{ iter.city }}", "bare": "{{ city }}", "at": "{{ _index }}/{{ _total }}"}}
            ),
        ),
        items=list(items),
        iterator="city",
    )
    async with running(peer, tmp_path, slots=256):
        reports = await peer.reported(300)
    assert sorted(report.iter_index for report in reports) == list(range(300))
    for report in reports:
        index = report.iter_index
        expected = {"city": f"city {index}", "bare": f"city {index}", "at": f"{index}/300"}
        assert payload_of(report.results[0]) == expected
    assert max(peer.batches) > 20 and max(peer.batches) <= 256


async def test_a_pipeline_is_one_result_by_label_and_says_what_it_set(peer: Peer, tmp_path: Path) -> None:
    tasks = (
        Task(
            label="a",
            kind="noop",
            config={"result": {"n": 1}},
            set={"ctx.small": "{{ output.n }}", "ctx.large": "{{ 'x' * 600 }}"},
        ),
        Task(label="b", kind="noop", config={"result": "{{ a.n + 1 }}"}),
    )
    peer.offer(tasks, is_pipeline=True)
    async with running(peer, tmp_path):
        (report,) = await peer.reported(1)
    rows = {row.task_label: row for row in report.results}
    assert payload_of(rows[""]) == {"a": {"n": 1}, "b": 2} and rows[""].shape == "pipeline"
    context = report.result.context
    assert context is not None and context["ctx"]["small"] == {"v": 1}
    assert context["ctx"]["large"]["ref"]["ref_id"] == rows["ctx.large"].ref_id
    assert payload_of(rows["ctx.large"]) == "x" * 600


async def test_the_next_segment_begins_with_the_results_of_the_one_before(peer: Peer, tmp_path: Path) -> None:
    prior = Ref(execution_id=EXECUTION, ref_id=50, shape="pipeline", label="work")
    peer.payloads[prior.uri] = b'{"before": {"n": 7}}'
    peer.offer(
        (Task(label="after", kind="noop", config={"result": "{{ before.n }}"}),),
        items=[Item(v=0, prior=prior)],
        iterator="item",
    )
    async with running(peer, tmp_path):
        (report,) = await peer.reported(1)
    assert payload_of(report.results[0]) == {"before": {"n": 7}, "after": 7}
    assert report.result.parent_ref == reference_of(prior) and report.results[0].parent_ref_id == 50


async def test_a_result_over_8_kib_is_in_the_store_before_it_is_reported(peer: Peer, tmp_path: Path) -> None:
    peer.offer((python("result = {'text': 'x' * 10_000_000}"),))
    async with running(peer, tmp_path):
        (report,) = await peer.reported(1)
    (row,) = report.results
    assert row.inline is None and row.bytes > 10_000_000 and row.store_tier == "disk"
    body = await disk_store(tmp_path / "store").read(row.physical_uri, row.sha256, row.compression)
    assert msgspec.json.decode(body) == {"text": "x" * 10_000_000}
    assert len(msgspec.json.encode(report)) < 4096


async def test_fields_that_an_author_selects_are_in_the_row(peer: Peer, tmp_path: Path) -> None:
    code = "result = {'meta': {'a': [1]}, 'n': 2, 'text': 'x' * 20_000, 'more': [3]}"
    peer.offer((python(code),), output=Output(select=("meta", "text"), store="disk"))
    async with running(peer, tmp_path):
        (report,) = await peer.reported(1)
    (row,) = report.results
    assert row.extracted == {"meta": {"a": [1]}, "n": 2}, "the text is too large to be at hand"


async def test_a_payload_in_the_shared_folder_is_read_there_and_others_are_asked_for(
    peer: Peer, tmp_path: Path
) -> None:
    body = msgspec.json.encode({"rows": ["y" * 20_000]})
    digest = hashlib.sha256(body).hexdigest()
    stored = await disk_store(tmp_path / "store").put(EXECUTION, "load", body)
    assert (
        stored.compression == "gzip"
        and gzip.decompress(b"".join(p.read_bytes() for p in (tmp_path / "store").rglob("*.gz"))) == body
    )
    near = Ref(execution_id=EXECUTION, ref_id=1, tier="disk", sha256=digest, label="load")
    far = Ref(execution_id=EXECUTION, ref_id=2, label="other")
    peer.payloads[far.uri] = b'{"n": 3}'
    peer.offer(
        (noop(config={"result": "{{ (load.rows[0] | length) + other.n }}"}),), results={"load": near, "other": far}
    )
    async with running(peer, tmp_path):
        (report,) = await peer.reported(1)
    assert payload_of(report.results[0]) == 20_003
    assert peer.calls.count("GET /api/result/resolve") == 1


async def test_a_failure_says_what_failed_where(peer: Peer, tmp_path: Path) -> None:
    peer.offer((python("raise ValueError('bad ' + 'x' * 50_000)"),))
    async with running(peer, tmp_path):
        (report,) = await peer.reported(1)
    error = report.result.error
    assert report.event_type == "command.failed" and report.status == "FAILED" and error is not None
    assert error["kind"] == "exception" and error["step"] == "work" and error["task"] == "work" and error["line"] == 1
    assert error["message"].startswith("ValueError: bad xxx") and len(msgspec.json.encode(report.result)) < 8192
    assert report.result.reference is None and report.results == []


@pytest.mark.parametrize("is_burnt", [False, True])
async def test_a_payload_nobody_has_fails_the_step(peer: Peer, tmp_path: Path, is_burnt: bool) -> None:
    gone = Ref(execution_id=EXECUTION, ref_id=4, label="gone")
    peer.burnt = {gone.uri} if is_burnt else set()
    peer.offer((noop(config={"result": "{{ gone.n }}"}),), results={"gone": gone})
    async with running(peer, tmp_path):
        (report,) = await peer.reported(1)
    assert report.result.error is not None and report.result.error["code"] == "REFERENCE_NOT_AVAILABLE"


async def test_a_finished_result_is_kept_until_ingest_is_back(peer: Peer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    peer.offer(
        (python(f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.01)\nresult = 'kept'"),)
    )
    async with running(peer, tmp_path):
        await peer.until(lambda: any(beat.leases for beat in peer.beats))
        peer.is_away = True
        gate.touch()
        await peer.until(lambda: peer.calls.count("POST /api/events/batch") >= 2)
        assert peer.reports == []
        peer.is_away = False
        (report,) = await peer.reported(1)
    assert payload_of(report.results[0]) == "kept"


async def test_leases_are_renewed_while_a_command_runs_and_let_go_once_reported(peer: Peer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (command_id,) = peer.offer(
        (python(f"import os, time\nwhile not os.path.exists({str(gate)!r}):\n    time.sleep(0.01)"),)
    )
    async with running(peer, tmp_path):
        await peer.until(lambda: sum((EXECUTION, command_id, 1) in beat.leases for beat in peer.beats) >= 3)
        gate.touch()
        await peer.reported(1)
        await peer.until(lambda: peer.beats[-1].leases == [])
    assert peer.beats[0].worker_id == "w1" and peer.beats[0].capacity == 256


async def test_a_busy_event_loop_loses_no_lease(peer: Peer, tmp_path: Path) -> None:
    # The peer lives in this loop too, so the beats of the busy time arrive after it: they must have been sent.
    (command_id,) = peer.offer((python("import time\ntime.sleep(600)"),))
    async with running(peer, tmp_path, stop_grace_s=0.0):
        await peer.until(lambda: any((EXECUTION, command_id, 1) in beat.leases for beat in peer.beats))
        before, held_until = len(peer.beats), time.monotonic() + 1.0
        while time.monotonic() < held_until:
            pass
        await peer.until(lambda: len(peer.beats) > before, within_s=2.0)


async def test_a_cancelled_command_is_killed_and_reported_as_cancelled(peer: Peer, tmp_path: Path) -> None:
    (command_id,) = peer.offer((python("import time\ntime.sleep(600)"),))
    async with running(peer, tmp_path):
        await peer.until(lambda: any(beat.leases for beat in peer.beats))
        peer.cancelled = [command_id]
        (report,) = await peer.reported(1)
    assert (report.event_type, report.status) == ("command.cancelled", "CANCELLED")


async def test_a_lost_command_is_abandoned_without_a_report(peer: Peer, tmp_path: Path) -> None:
    (command_id,) = peer.offer((python("import time\ntime.sleep(600)"),))
    async with running(peer, tmp_path, slots=1):
        await peer.until(lambda: any(beat.leases for beat in peer.beats))
        peer.lost = [command_id]
        await peer.until(lambda: peer.beats[-1].leases == [])
        peer.lost = []
        peer.offer((noop(),))  # its only slot is free again
        (report,) = await peer.reported(1)
    assert report.command_id != command_id


async def test_a_fenced_report_is_dropped(peer: Peer, tmp_path: Path) -> None:
    peer.outcome = "fenced"
    peer.offer((noop(),))
    async with running(peer, tmp_path):
        await peer.reported(1)
        await peer.until(lambda: peer.beats and peer.beats[-1].leases == [])
    assert len(peer.reports) == 1


async def test_a_report_that_is_refused_becomes_a_plain_failure_and_the_others_go_through(
    peer: Peer, tmp_path: Path
) -> None:
    peer.refuse = {"cursed"}
    peer.offer((noop(),), items=[Item(v=index) for index in range(5)], iterator="item")
    peer.offer((noop(),), step="cursed")
    async with running(peer, tmp_path):
        reports = await peer.reported(6)
    cursed = [report for report in reports if report.step == "cursed"]
    assert [report.event_type for report in cursed] == ["command.failed"]
    assert cursed[0].result.error is not None and cursed[0].result.error["code"] == "REPORT_REFUSED"
    assert sum(report.event_type == "command.completed" for report in reports) == 5


async def test_a_stop_lets_running_commands_end_and_reports_them(peer: Peer, tmp_path: Path) -> None:
    started = tmp_path / "started"
    peer.offer((python(f"import time\nopen({str(started)!r}, 'w').close()\ntime.sleep(0.5)\nresult = 'done'"),))
    async with running(peer, tmp_path) as stop:
        await peer.until(started.exists)  # looked at again with each heartbeat
        await stop()
        assert [payload_of(report.results[0]) for report in peer.reports] == ["done"]
        assert peer.calls[-1] == "POST /api/worker/pool/deregister" or "POST /api/worker/pool/deregister" in peer.calls


async def test_a_rule_that_waits_does_not_hold_the_other_slots(peer: Peer, tmp_path: Path) -> None:
    wait = Rule(when="{{ output.status == 'error' }}", do="retry", attempts=2, backoff="fixed", delay=1.0)
    peer.offer((python("raise ValueError('again')", rules=(wait,)),))
    peer.offer((noop(),), step="quick")
    async with running(peer, tmp_path):
        reports = await peer.reported(2)
    assert [report.step for report in reports] == ["quick", "work"]


async def test_a_claim_whose_answer_was_lost_is_found_again_and_run_once(peer: Peer, tmp_path: Path) -> None:
    peer.loses_claims = True
    peer.offer((noop(),), items=[Item(v=index) for index in range(5)])
    async with running(peer, tmp_path):
        await peer.until(lambda: peer.held)
        peer.loses_claims = False
        await peer.reported(5)
        peer.offer((noop(),))
        reports = await peer.reported(6)
    assert len({report.claim_token for report in reports}) == len(reports) == 6

"""What people see of a run follows its events."""

from typing import Any

from noetl_common.core.events import Envelope, Event
from noetl_common.core.fold import fold
from noetl_common.core.progress import Items, Progress, park, project
from noetl_common.core.state import ExecutionState
from noetl_common.core.trace import canonical_trace

ID = 7


class History:
    """Builds a run's events and projects each as it is told."""

    def __init__(self) -> None:
        self.state = ExecutionState(execution_id=ID)
        self.progress = Progress()
        self.next_id = 1
        self.tell("playbook.started", context={"path": "a/b", "version": 1, "workload": {"v": {}}, "depth": 0})

    def tell(
        self,
        event_type: str,
        step: str = "",
        *,
        context: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
        reference: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        status = fields.pop("status", "")
        result = Envelope(status=status or "OK", context=context, error=error, reference=reference)
        moment = f"2026-01-01T00:00:{self.next_id:02d}+00:00"
        event = Event(
            execution_id=ID,
            event_id=self.next_id,
            event_type=event_type,
            step=step,
            status=status,
            result=result,
            event_time=moment,
            **fields,
        )
        self.next_id += 1
        self.state = fold(self.state, event)
        self.progress = project(self.progress, event, self.state)


def test_a_step_goes_from_pending_over_running_to_completed() -> None:
    run = History()
    run.tell("step.enter", "one")
    assert run.progress.steps["one"].status == "running"
    assert run.progress.current_step == "one"
    run.tell("command.issued", "one", command_id=5)
    run.tell("command.completed", "one", command_id=5, attempt=2)
    run.tell("step.exit", "one", status="COMPLETED", context={"arcs": ["two"]})
    one, two = run.progress.steps["one"], run.progress.steps["two"]
    assert (one.status, one.attempts, one.entered) == ("completed", 2, 1)
    assert one.started_at is not None and one.ended_at is not None and one.started_at < one.ended_at
    assert two.status == "pending" and two.started_at is None
    assert run.progress.counts.events == 5
    assert run.progress.counts.commands_issued == run.progress.counts.commands_completed == 1


def test_a_loop_shows_how_many_items_are_done() -> None:
    run = History()
    run.tell("step.enter", "each")
    run.tell("loop.started", "each", loop_epoch=9, context={"size": 3, "mode": "parallel", "max_in_flight": 2})
    for index in range(2):
        run.tell("command.issued", "each", loop_epoch=9, iter_index=index, command_id=10 + index)
    assert run.progress.steps["each"].items == Items(total=3, in_flight=2)
    run.tell("command.completed", "each", loop_epoch=9, iter_index=1, command_id=11, attempt=1)
    run.tell("command.failed", "each", loop_epoch=9, iter_index=0, command_id=10, attempt=3, error={"code": "X"})
    assert run.progress.steps["each"].items == Items(total=3, done=1, failed=1)
    assert run.progress.steps["each"].attempts == 3
    run.tell("command.issued", "each", loop_epoch=9, iter_index=2, command_id=12)
    run.tell("command.completed", "each", loop_epoch=9, iter_index=2, command_id=12, attempt=1)
    run.tell("loop.done", "each", loop_epoch=9, context={"done": 2, "failed": 1, "size": 3})
    run.tell("step.exit", "each", status="COMPLETED", context={"arcs": []})
    assert run.progress.steps["each"].items == Items(total=3, done=2, failed=1)


def test_a_report_twice_does_not_count_an_item_twice() -> None:
    run = History()
    run.tell("step.enter", "each")
    run.tell("loop.started", "each", loop_epoch=9, context={"size": 2, "mode": "parallel", "max_in_flight": 2})
    run.tell("command.issued", "each", loop_epoch=9, iter_index=0, command_id=10)
    for _ in range(2):
        run.tell("command.completed", "each", loop_epoch=9, iter_index=0, command_id=10)
    assert run.progress.steps["each"].items == Items(total=2, done=1, failed=0)


def test_a_step_entered_again_counts_its_entries_and_starts_anew() -> None:
    run = History()
    for _ in range(2):
        run.tell("step.enter", "again")
        run.tell("step.exit", "again", status="COMPLETED", context={"arcs": ["again"]})
    again = run.progress.steps["again"]
    assert again.entered == 2
    assert again.status == "pending"


def test_a_failed_step_and_a_skipped_one_say_so() -> None:
    run = History()
    run.tell("step.enter", "one")
    run.tell("step.exit", "one", status="FAILED", error={"code": "BOOM"}, context={"arcs": [], "handled": False})
    run.tell("step.skipped", "two")
    assert run.progress.steps["one"].status == "failed"
    assert run.progress.steps["two"].status == "skipped"


def test_the_end_carries_result_and_error_and_stays() -> None:
    run = History()
    reference = {"execution_id": ID, "ref_id": 3, "kind": "result_ref"}
    run.tell("playbook.completed", status="COMPLETED", reference=reference)
    run.tell("playbook.failed", status="FAILED", error={"code": "LATE"})
    assert run.progress.status == "COMPLETED"
    assert run.progress.result == reference
    assert run.progress.error is None
    assert run.progress.end_time is not None


def test_what_nobody_finished_is_cancelled_with_the_run() -> None:
    run = History()
    run.tell("step.enter", "one")
    run.tell("playbook.cancelled", status="CANCELLED", error={"code": "CANCELLED", "message": "by request"})
    assert run.progress.status == "CANCELLED"
    assert run.progress.steps["one"].status == "cancelled"
    assert run.progress.error == {"code": "CANCELLED", "message": "by request"}


def test_a_parked_run_still_shows_its_end() -> None:
    progress = park(Progress(), Event(execution_id=ID, event_id=4, event_type="step.enter"), "KeyError: 'x'")
    assert progress.projection_error == {"event_id": 4, "event_type": "step.enter", "message": "KeyError: 'x'"}
    end = Event(
        execution_id=ID,
        event_id=5,
        event_type="playbook.failed",
        event_time="2026-01-01T00:00:00+00:00",
        result=Envelope(status="FAILED", error={"code": "X"}),
    )
    progress = park(progress, end, "")
    assert (progress.status, progress.error) == ("FAILED", {"code": "X"})
    assert progress.projection_error is not None and progress.projection_error["event_id"] == 4


def test_the_total_of_a_cursor_loop_grows_with_what_its_claims_bring() -> None:
    history = History()
    history.tell("step.enter", "rows")
    cursor = {"max_rows": 3, "row_concurrency": 2}
    history.tell("loop.started", "rows", context={"size": 0, "max_in_flight": 2, "cursor": cursor}, loop_epoch=5)
    history.tell("command.issued", "rows", context={"claim": True}, command_id=1, loop_epoch=5)
    reference = {"execution_id": ID, "ref_id": 9}
    history.tell("command.completed", "rows", context={"row_count": 3}, reference=reference, command_id=1, loop_epoch=5)
    assert history.progress.steps["rows"].items == Items(total=3, more=True)
    issued = {"context": {"frame": 1, "row": 0}, "command_id": 2, "loop_epoch": 5, "iter_index": 0}
    history.tell("command.issued", "rows", **issued)
    assert history.progress.steps["rows"].items == Items(total=3, in_flight=1, more=True)
    history.tell("command.completed", "rows", command_id=2, loop_epoch=5, iter_index=0)
    assert history.progress.steps["rows"].items == Items(total=3, done=1, more=True)
    history.tell("loop.done", "rows", context={"size": 1, "done": 1, "failed": 0}, loop_epoch=5)
    assert history.progress.steps["rows"].items == Items(total=1, done=1)


def test_a_consumer_of_chunks_shows_how_many_it_has() -> None:
    history = History()
    history.tell("step.enter", "feeds")
    history.tell("command.issued", "feeds", command_id=1)
    history.tell("call.partial", "feeds", command_id=1, context={"task": "feeds", "chunk": 0})
    history.tell("step.enter", "takes")
    started = {"size": 0, "max_in_flight": 9, "mode": "stream", "producer": "feeds"}
    history.tell("loop.started", "takes", context=started, loop_epoch=5)
    chunk = {"chunk": {"execution_id": ID, "ref_id": 9}}
    history.tell("command.issued", "takes", context=chunk, command_id=2, loop_epoch=5, iter_index=0)
    assert history.progress.steps["takes"].items == Items(total=1, in_flight=1, more=True)
    history.tell("command.completed", "takes", command_id=2, loop_epoch=5, iter_index=0)
    history.tell("step.exit", "feeds", status="COMPLETED", context={"arcs": []})
    history.tell("command.issued", "takes", context=chunk, command_id=3, loop_epoch=5, iter_index=1)
    assert history.progress.steps["takes"].items == Items(total=2, done=1, in_flight=1)
    history.tell("playbook.cancelled", status="CANCELLED")
    assert history.progress.steps["takes"].items == Items(total=2, done=1)


def test_the_trace_of_a_cursor_loop_does_not_tell_how_many_claims_it_took() -> None:
    claim = {"step": "rows", "loop_epoch": 5, "execution_id": ID}
    events = [
        Event(event_type="command.issued", **claim),
        Event(event_type="command.completed", status="COMPLETED", **claim),
        Event(event_type="command.issued", iter_index=0, **claim),
        Event(event_type="command.issued", step="plain", execution_id=ID),
    ]
    assert canonical_trace(events) == [("command.issued", "plain", -1, ""), ("command.issued", "rows", 0, "")]

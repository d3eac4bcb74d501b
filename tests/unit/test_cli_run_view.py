"""What `noetl run` shows, folded from events."""

from typing import Any

from noetl_cli.progress import count_of, rate_of
from noetl_cli.run_view import RunView


class Story:
    """Hands events to a view, a second apart."""

    def __init__(self) -> None:
        self.view = RunView()
        self.number = 0

    def tell(self, event_type: str, step: str = "", **fields: Any) -> None:
        self.number += 1
        time = f"2026-01-01T00:00:{self.number:02d}+00:00"
        event = {"event_id": str(self.number), "event_type": event_type, "node_name": step, "event_time": time}
        self.view.apply({**event, **fields})


def test_a_step_that_was_entered_and_left_has_a_duration_and_a_status() -> None:
    story = Story()
    story.tell("step.enter", "load")
    story.tell("command.issued", "load")
    story.tell("command.completed", "load")
    story.tell("step.exit", "load", status="COMPLETED")
    story.tell("playbook.completed")
    step = story.view.steps["load"]
    assert (step.status, step.attempts, step.duration_s, story.view.status) == ("COMPLETED", 1, 3.0, "COMPLETED")
    assert count_of(step) == ""


def test_a_loop_counts_its_items_and_their_failures() -> None:
    story = Story()
    story.tell("step.enter", "fetch")
    story.tell("loop.started", "fetch", result={"status": "ok", "context": {"size": 3}})
    for index in range(3):
        story.tell("command.issued", "fetch", iter_index=index)
    story.tell("command.completed", "fetch", iter_index=0)
    story.tell("command.failed", "fetch", iter_index=1)
    step = story.view.steps["fetch"]
    assert count_of(step) == "2/3 (1 failed)"
    assert rate_of(step).endswith("/s")
    story.tell("task.ended", "fetch", iter_index=2, status="RETRYING")
    story.tell("task.ended", "fetch", iter_index=2, status="COMPLETED")
    assert (step.done, step.failed) == (2, 1)


def test_an_event_seen_before_changes_nothing() -> None:
    story = Story()
    story.tell("step.enter", "a")
    story.view.apply({"event_id": 1, "event_type": "step.enter", "node_name": "a"})
    assert story.view.steps["a"].visits == 1


def test_a_derived_claim_moves_no_cursor() -> None:
    story = Story()
    story.view.apply({"event_id": 99, "event_type": "command.claimed", "node_name": "a"})
    assert story.view.last_event_id == 0


def test_the_end_of_a_run_ends_the_steps_still_running_and_keeps_its_error() -> None:
    story = Story()
    story.tell("step.enter", "a")
    story.tell("playbook.failed", result={"status": "FAILED", "error": {"message": "no"}})
    assert story.view.status == "FAILED"
    assert story.view.error == {"message": "no"}
    assert story.view.steps["a"].status == "ENDED"


def test_old_spellings_of_event_names_are_understood() -> None:
    story = Story()
    story.tell("step_enter", "a")
    story.tell("execution_cancelled")
    assert story.view.status == "CANCELLED"
    assert story.view.steps["a"].status == "CANCELLED"

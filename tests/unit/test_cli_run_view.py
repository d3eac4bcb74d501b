"""What `noetl run` shows, taken from the status of a run."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from noetl_cli.progress import Bars, Lines, rate_of
from noetl_cli.run_view import error_text, rows_of, view_of
from noetl_cli.verbs.run import result_text


def status_of(**steps: dict[str, Any]) -> dict[str, Any]:
    return {"status": "RUNNING", "progress": {"steps": steps}, "error": None}


FETCH = {
    "status": "running",
    "attempts": 2,
    "started_at": "2026-01-01T00:00:01Z",
    "ended_at": None,
    "items": {"total": 4, "done": 2, "failed": 1},
}
LOAD = {
    "status": "completed",
    "attempts": 1,
    "started_at": "2026-01-01T00:00:00+00:00",
    "ended_at": "2026-01-01T00:00:01.500+00:00",
    "items": None,
}
LATER = {"status": "pending", "attempts": 0, "started_at": None, "ended_at": None, "items": None}


def test_steps_stand_in_the_order_in_which_they_began() -> None:
    view = view_of(status_of(zeta=LATER, fetch=FETCH, load=LOAD))
    assert [step.name for step in view.steps] == ["load", "fetch", "zeta"]
    assert not view.is_over


def test_a_step_that_was_left_has_a_duration_and_one_that_runs_has_none() -> None:
    load, fetch = view_of(status_of(load=LOAD, fetch=FETCH)).steps
    assert (load.duration_s, load.is_over, load.count, rate_of(load)) == (1.5, True, "", "")
    assert (fetch.duration_s, fetch.is_over, fetch.attempts) == (0.0, False, 2)


def test_a_loop_shows_its_items_and_their_failures() -> None:
    [fetch] = view_of(status_of(fetch=FETCH)).steps
    assert fetch.count == "3/4 (1 failed)"
    assert rate_of(fetch).endswith("/s")


def test_the_summary_has_a_row_a_step() -> None:
    rows = rows_of(view_of(status_of(load=LOAD, fetch=FETCH)))
    assert rows[0] == {"step": "load", "attempts": 1, "items": "", "duration": "1.5 s", "status": "COMPLETED"}
    assert rows[1]["items"] == "3/4 (1 failed)"


def test_an_error_says_in_which_step_and_line_unless_its_message_does() -> None:
    assert error_text({"step": "load", "line": 3, "message": "KeyError: 'x'"}) == "step 'load', line 3: KeyError: 'x'"
    assert error_text({"step": "load", "code": "TIMEOUT"}) == "step 'load': TIMEOUT"
    assert error_text({"step": "load", "message": "step 'load': 1 of 2 items failed"}).startswith("step 'load': 1 of")
    assert error_text("as it is") == "as it is"
    assert error_text(None) == ""


def test_a_small_result_is_shown_and_a_large_one_is_named() -> None:
    assert result_text({"total": 61}) == '{"total":61}'
    assert result_text({"kind": "result_ref", "bytes": 20480}) == "20.0 KiB, shown by -o json"


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED"])
def test_a_run_with_a_terminal_status_is_over(status: str) -> None:
    assert view_of({"status": status, "progress": {}, "error": {"message": "x"}}).is_over


def test_plain_lines_say_only_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    with lines:
        lines.show(view_of(status_of(load=LOAD)))
        lines.show(view_of(status_of(load=LOAD)))
        lines.show(view_of(status_of(load=LOAD, fetch=FETCH)))
        lines.show(view_of(status_of(load=LOAD, fetch={**FETCH, "items": {"total": 4, "done": 3, "failed": 1}})))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "load              COMPLETED    1.5 s"
    assert said[1].split()[:2] == ["fetch", "RUNNING"]
    assert said[1].index("RUNNING") == said[0].index("COMPLETED"), "the columns stand below each other"
    assert "3/4 (1 failed)" in said[1]
    assert len(said) == 2, "progress of a loop is said now and then, not each time"


def test_bars_follow_loops_and_empty_ones() -> None:
    empty = {**LOAD, "items": {"total": 0, "done": 0, "failed": 0}}
    drawn = StringIO()
    with Bars(Console(file=drawn, force_terminal=True, width=120)) as bars:
        bars.show(view_of(status_of(load=LOAD, fetch=FETCH, empty=empty, later=LATER)))
    assert "3/4 (1 failed)" in drawn.getvalue()

"""A run that goes round for ever is stopped by a ceiling, with an error that names the step and the limit."""

import pytest

from noetl_common.core.routing import enter
from tests.storms import Storm

CIRCLE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: spin, path: spin}
workflow:
- step: start
  tool: {kind: noop}
  next: start
"""


def test_a_step_that_is_visited_too_often_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enter, "STEP_VISITS_MAX", 5)
    engine = Storm(CIRCLE)
    execution_id = engine.start("spin")
    engine.drive()
    engine.check_end()
    state = engine.states[execution_id]
    assert state.status == "FAILED" and state.visits == {"start": 6}
    last = engine.log[-1]
    assert last.event_type == "playbook.failed" and last.result is not None and last.result.error is not None
    assert last.result.error["code"] == "RUNAWAY"
    assert "'start'" in last.result.error["message"] and "at most 5 visits" in last.result.error["message"]

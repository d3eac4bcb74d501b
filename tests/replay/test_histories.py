"""Histories that releases recorded: today's fold makes of each the state that was written then."""

from pathlib import Path

import msgspec
import pytest

from noetl_common.core.events import PLAYBOOK_TERMINALS
from noetl_common.core.fold import fold
from noetl_common.core.state import ExecutionState
from tests.replay.record import HISTORIES, read

RECORDED = sorted(HISTORIES.glob("*.jsonl"))


def test_there_are_histories_of_a_parent_and_of_its_child() -> None:
    assert {"first_parent", "first_child"} <= {path.stem for path in RECORDED}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_history_folds_to_the_state_that_was_written_then(path: Path) -> None:
    history = read(path)
    assert [event.event_type in PLAYBOOK_TERMINALS for event in history.events].count(True) == 1
    state = ExecutionState(execution_id=history.state.execution_id)
    for event in history.events:
        state = fold(state, event)
    assert msgspec.to_builtins(state) == msgspec.to_builtins(history.state)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_fold_that_stops_anywhere_goes_on_to_the_same_state(path: Path) -> None:
    history = read(path)
    kept = msgspec.json.encode(ExecutionState(execution_id=history.state.execution_id))
    for event in history.events:
        # As after a restart: the state comes from its row, and the last event is read once more.
        state = fold(fold(msgspec.json.decode(kept, type=ExecutionState), event), event)
        kept = msgspec.json.encode(state)
    assert msgspec.json.decode(kept, type=ExecutionState) == history.state

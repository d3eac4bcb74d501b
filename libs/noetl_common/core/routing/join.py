"""Fan-in by tokens: a step is ready when an arc to it fired and no live token can still reach it another way."""

from noetl_common.core.playbook import Playbook
from noetl_common.core.state import ExecutionState


def ready_steps(playbook: Playbook, state: ExecutionState) -> list[str]:
    """Return the pending steps to dispatch now, in the order their arcs fired.

    A token is a step that was entered and has not exited, or another pending step. A step that is itself active
    waits for its own exit. Two pending steps on one cycle do not wait for each other: they would wait for ever.
    """
    ready = []
    for step in sorted(state.pending, key=lambda name: (state.pending[name], name)):
        if step not in state.active and not _can_still_arrive(playbook, state, step):
            ready.append(step)
    return ready


def _can_still_arrive(playbook: Playbook, state: ExecutionState, step: str) -> bool:
    reachable = playbook.reachable
    if any(step in reachable[live] for live in state.active if live in reachable):
        return True
    return any(
        other != step and step in reachable[other] and other not in reachable[step]
        for other in state.pending
        if other in reachable
    )

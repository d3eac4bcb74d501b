"""Fan-in by tokens: a step is ready when an arc to it fired and no live token can still reach it another way."""

from noetl_common.core.playbook import Playbook
from noetl_common.core.state import ExecutionState


def ready_steps(playbook: Playbook, state: ExecutionState) -> list[str]:
    """Return the pending steps to dispatch now, in the order their arcs fired.

    A token is a step that was entered and has not exited, or another pending step. A step that is itself active
    waits for its own exit, one whose chunks of an earlier visit are still worked on for their consumers'. Two pending
    steps on one cycle do not wait for each other: they would wait for ever.
    """
    streaming = {loop.stream.producer for entry in state.active.values() if (loop := entry.loop) and loop.stream}
    # What only waits for consumers is as good as entered: whether it has been must make no difference to others.
    live = state.active.keys() | (streaming & state.pending.keys())
    ready = []
    for step in sorted(state.pending, key=lambda name: (state.pending[name], name)):
        if step not in live and not _can_still_arrive(playbook, state, step, live):
            ready.append(step)
    return ready


def _can_still_arrive(playbook: Playbook, state: ExecutionState, step: str, live: set[str]) -> bool:
    reachable = playbook.reachable
    if any(step in reachable[name] for name in live if name in reachable):
        return True
    return any(
        other != step and step in reachable[other] and other not in reachable[step]
        for other in state.pending
        if other in reachable
    )

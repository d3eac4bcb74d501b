"""Enter a step: see whether it is admitted, and begin its loop or its body."""

from typing import Any

from noetl_common.core import templates
from noetl_common.core.playbook import Step
from noetl_common.core.routing import loops
from noetl_common.core.routing.bodies import Start
from noetl_common.core.routing.draft import Draft, Ended, Passed, template_error
from noetl_common.core.routing.segments import begin_segment
from noetl_common.errors import TemplateFailed

STEP_VISITS_MAX = 100_000


def enter(draft: Draft, name: str) -> None:
    """Dispatch a step whose turn has come. Leaves a note of one that cannot begin: it fails, with the reason."""
    step = draft.step(name)
    if not begin_visit(draft, step):
        return
    try:
        if step.loop is None:
            begin_segment(draft, step, Start())
        else:
            loops.begin_loop(draft, step, step.loop)
    except TemplateFailed as exc:
        draft.notes.append(Ended(step=step.name, ref=None, error=template_error(exc)))


def begin_visit(draft: Draft, step: Step) -> bool:
    """Put the token on a step; return whether its body may begin.

    One that its admission rules deny is skipped: its branch ends here. One whose own `when` does not hold is skipped
    and its arcs followed: a note says so. One that was visited too often fails.
    """
    error: dict[str, Any] | None = None
    if draft.state.visits.get(step.name, 0) >= STEP_VISITS_MAX:
        message = f"step {step.name!r}: expected at most {STEP_VISITS_MAX} visits, found a cycle that goes on"
        error = {"code": "RUNAWAY", "kind": "limit", "message": message, "retryable": False}
    else:
        try:
            if not _admits(draft, step):
                draft.emit("step.skipped", step=step.name, status="SKIPPED", context={"reason": "spec.policy.admit"})
                return False
            if not templates.holds(step.when, draft.scope(), where=f"step {step.name!r}, when"):
                draft.notes.append(Passed(step=step.name))
                return False
        except TemplateFailed as exc:
            error = template_error(exc)
    draft.emit("step.enter", step=step.name, status="STARTED")
    if error is not None:
        draft.notes.append(Ended(step=step.name, ref=None, error=error))
    return error is None


def _admits(draft: Draft, step: Step) -> bool:
    where = f"step {step.name!r}, spec.policy.admit"
    for number, rule in enumerate(step.admit, 1):
        if templates.holds(rule.when, draft.scope(), where=f"{where}, rule {number}.when"):
            if not rule.allow and draft.playbook.no_next_is_error:
                raise TemplateFailed("not admitted, and the playbook says that is an error", where=where)
            return rule.allow
    return True

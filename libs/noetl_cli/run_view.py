"""What a person wants to see of a run, folded from its events: steps, loops, durations. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from noetl_common.core.events import canonical

ENDINGS = {"playbook.completed": "COMPLETED", "playbook.failed": "FAILED", "playbook.cancelled": "CANCELLED"}


class StepView(msgspec.Struct, kw_only=True):
    """One step. Units: `began_s` and `ended_s` are Unix time. `items` 0 with `is_loop`: an empty collection."""

    name: str
    status: str = "RUNNING"
    visits: int = 0
    attempts: int = 0
    is_loop: bool = False
    items: int = 0
    done: int = 0
    failed: int = 0
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """Return how long it took, 0 while it runs."""
        return max(0.0, self.ended_s - self.began_s) if self.ended_s else 0.0


class RunView(msgspec.Struct, kw_only=True):
    """One run up to `last_event_id`. `status` is RUNNING until its terminal event."""

    status: str = "RUNNING"
    last_event_id: int = 0
    steps: dict[str, StepView] = {}
    error: dict[str, Any] | None = None

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event as the API shows it; one seen before changes nothing."""
        event_id = int(event["event_id"])
        if event_id <= self.last_event_id:
            return
        kind = canonical(str(event["event_type"]))
        if kind == "command.claimed":
            return  # derived by the API from the lease, not an event of the log: it may come under any number
        self.last_event_id = event_id
        if kind in ENDINGS:
            self._end(ENDINGS[kind], event)
            return
        name = event.get("step") or event.get("node_name")
        if name:
            self._apply_to_step(self._step(str(name)), kind, event)

    def _step(self, name: str) -> StepView:
        if name not in self.steps:
            self.steps[name] = StepView(name=name)
        return self.steps[name]

    def _end(self, status: str, event: Mapping[str, Any]) -> None:
        self.status = status
        self.error = _result_of(event).get("error") or event.get("error")
        for step in self.steps.values():
            if step.status == "RUNNING":
                step.status = "CANCELLED" if status == "CANCELLED" else "ENDED"
                step.ended_s = _time_of(event)

    def _apply_to_step(self, step: StepView, kind: str, event: Mapping[str, Any]) -> None:
        match kind:
            case "step.enter":
                step.visits += 1
                step.status = "RUNNING"
                step.began_s = step.began_s or _time_of(event)
            case "loop.started":
                step.is_loop = True
                step.items += int((_result_of(event).get("context") or {}).get("size", 0))
            case "command.issued" | "child.started":
                step.attempts += 1
            case "command.completed" | "command.failed" | "task.ended":
                self._count_item(step, kind, event)
            case "step.exit":
                step.status = str(event.get("status") or "COMPLETED")
                step.ended_s = _time_of(event)
            case "step.skipped":
                step.status = "SKIPPED"

    def _count_item(self, step: StepView, kind: str, event: Mapping[str, Any]) -> None:
        if not step.is_loop:
            return
        failed = kind == "command.failed" or (kind == "task.ended" and event.get("status") == "FAILED")
        if kind == "task.ended" and event.get("status") in ("RETRYING", "CONTINUED"):
            return
        step.failed += failed
        step.done += not failed


def _result_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    result = event.get("result")
    return result if isinstance(result, dict) else {}


def _time_of(event: Mapping[str, Any]) -> float:
    text = event.get("event_time") or event.get("created_at") or event.get("timestamp")
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() if text else 0.0

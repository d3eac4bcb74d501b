"""Lint of the ways through a playbook: steps never reached, arcs that never fire, circles without a way out."""

from collections.abc import Mapping, Sequence
from typing import Any

from noetl_common.core.checks import Report
from noetl_common.core.playbook import Arc, Playbook, Rule, Step, Task
from noetl_common.core.yaml_source import Path

_TRUE_TEXTS = frozenset(("true", "{{ true }}", "{{true}}"))
_FALSE_TEXTS = frozenset(("false", "{{ false }}", "{{false}}"))


def check_flow(document: dict[str, Any], playbook: Playbook, report: Report) -> None:
    """Warn of what the arcs and jumps of a playbook make impossible or endless."""
    places: dict[str, Path] = {
        fields.get("step", fields.get("name")): ("workflow", index) for index, fields in enumerate(document["workflow"])
    }
    for step in playbook.steps.values():
        _check_arcs(step, places[step.name], report)
        _check_jumps(step, places[step.name], report)
        _check_producer(step, places[step.name], report)
    _check_reach(playbook, places, report)
    _check_circles(playbook, places, report)


def live_arcs(step: Step) -> tuple[Arc, ...]:
    """Return the arcs of a step that can fire: none that is false, none behind an exclusive one that always does."""
    found: list[Arc] = []
    is_decided = False
    for arc in step.arcs:
        # When the body fails only arcs that test the event are asked, so those are live behind any other; the arcs
        # for chunks are asked while it runs.
        if not is_never(arc.when) and (not is_decided or arc.tests_event or arc.on_partial):
            found.append(arc)
        is_decided = is_decided or (step.mode == "exclusive" and is_always(arc.when) and not arc.on_partial)
    return tuple(found)


def is_always(when: str | bool | None) -> bool:
    """Return whether a condition holds whatever is."""
    return when is None or when is True or (isinstance(when, str) and when.strip().lower() in _TRUE_TEXTS)


def is_never(when: str | bool | None) -> bool:
    """Return whether a condition never holds."""
    return when is False or (isinstance(when, str) and when.strip().lower() in _FALSE_TEXTS)


def reached(start: str, ways: Mapping[str, Sequence[str]]) -> set[str]:
    """Return where one can get from `start`, itself included."""
    seen, todo = {start}, [start]
    while todo:
        for target in ways.get(todo.pop(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def _check_arcs(step: Step, place: Path, report: Report) -> None:
    live = live_arcs(step)
    first = next((arc for arc in step.arcs if is_always(arc.when) and not arc.on_partial), None)
    for index, arc in enumerate(step.arcs):
        if any(arc is other for other in live):
            continue
        path = (*place, "next", "arcs", index)
        if is_never(arc.when):
            report.warn(path, f"the arc to {arc.step!r} can never fire: its condition is false")
        else:
            reason = f"the arc to {first.step!r} before it always does, and the mode is exclusive" if first else ""
            report.warn(path, f"the arc to {arc.step!r} can never fire: {reason}", hint="put the one without when last")
    if step.arcs and not live:
        report.warn((*place, "next"), f"step {step.name!r} is never left: none of its arcs can fire")


def _check_producer(step: Step, place: Path, report: Report) -> None:
    """Warn of arcs that wait for chunks of a step none of whose tools streams."""
    kinds = [task.kind for task in step.tasks]
    streams = any(task.kind == "python" or "chunk_size" in task.config for task in step.tasks)
    if streams or not any(arc.on_partial for arc in step.arcs):
        return
    message = f"step {step.name!r} streams no chunks: it runs {', '.join(kinds)} without chunk_size"
    report.warn((*place, "next"), message, hint="give a postgres or duckdb tool a chunk_size, or emit from python")


def _check_reach(playbook: Playbook, places: dict[str, Path], report: Report) -> None:
    ways = _ways(playbook)
    seen = reached(playbook.entry_step, ways)
    if playbook.final_step:
        seen |= reached(playbook.final_step, ways)
    order = list(playbook.steps)
    for index, name in enumerate(order):
        if name in seen:
            continue
        before = order[index - 1] if index else ""
        leaf = before in seen and not playbook.steps[before].arcs
        hint = f"step {before!r} above it has no next; steps do not follow each other by themselves" if leaf else ""
        message = f"step {name!r} is never reached: no way leads to it from {playbook.entry_step!r}"
        report.warn((*places[name], "step"), message, hint=hint)


def _check_circles(playbook: Playbook, places: dict[str, Path], report: Report) -> None:
    """Warn once of each circle that a run, once in it, leaves only by a failure."""
    ways = _ways(playbook)
    backwards: dict[str, list[str]] = {"": []}
    for name, step in playbook.steps.items():
        if not any(is_always(arc.when) and not arc.on_partial for arc in live_arcs(step)) or not ways[name]:
            backwards[""].append(name)  # a run may end here
        for target in ways[name]:
            backwards.setdefault(target, []).append(name)
    may_end = reached("", backwards)
    told: set[str] = set()
    for name in playbook.steps:
        if name not in may_end and name not in told:
            told |= reached(name, ways)
            circle = " -> ".join(_circle(name, ways))
            report.warn((*places[name], "next"), f"the circle {circle} has no exit", hint="give an arc a `when`")


def _circle(start: str, ways: Mapping[str, Sequence[str]]) -> list[str]:
    walked = [start]
    while ways[walked[-1]][0] not in walked:
        walked.append(ways[walked[-1]][0])
    again = ways[walked[-1]][0]
    return [*walked[walked.index(again) :], again]


def _ways(playbook: Playbook) -> dict[str, list[str]]:
    return {
        name: [arc.step for arc in live_arcs(step) if arc.step in playbook.steps]
        for name, step in playbook.steps.items()
    }


def _check_jumps(step: Step, place: Path, report: Report) -> None:
    """Warn of a pipeline from one of whose tasks neither the end nor a break or fail can be reached."""
    end = ""
    ways = {task.label: _goes_to(task, index, step.tasks) for index, task in enumerate(step.tasks)}
    for task in step.tasks:
        if any(rule.do == "jump" for rule in task.rules) and end not in reached(task.label, ways):
            jump = next(rule for rule in task.rules if rule.do == "jump")
            message = f"task {task.label!r} jumps to {jump.to!r} and nothing ends that: no way leads out of the circle"
            report.warn((*place, "tool"), message, hint="give the rule a `when`, or add a rule that breaks")
            return


def _goes_to(task: Task, index: int, tasks: tuple[Task, ...]) -> list[str]:
    after = tasks[index + 1].label if index + 1 < len(tasks) else ""
    targets: list[str] = []
    for rule in task.rules:
        targets.append(_target(rule, task, after))
        if is_always(rule.when):
            return targets
    return [*targets, after]


def _target(rule: Rule, task: Task, after: str) -> str:
    if rule.do == "jump":
        return rule.to
    if rule.do == "continue":
        return after
    return task.label if rule.do == "retry" and not is_always(rule.when) else ""

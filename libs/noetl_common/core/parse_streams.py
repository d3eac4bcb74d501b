"""Streams of a document: the arcs that carry the chunks of a step that runs, and the consumers they lead to."""

from typing import Any, Literal

import jinja2
from jinja2 import nodes

from noetl_common.core.checks import Report, shown
from noetl_common.core.playbook import Playbook, Step
from noetl_common.core.templates import SANDBOX, condition_source, mask_comments
from noetl_common.core.yaml_source import Path

PARTIAL = "call.partial"


def carries_chunks(fields: dict[str, Any], when: str | bool | None, path: Path, *, report: Report) -> bool:
    """Return whether an arc carries chunks: by `on: call.partial`, or because its `when` holds for nothing else.

    Reports an `on` of another event, and a `when` that may hold for chunks and for the end alike.
    """
    if "on" in fields:
        on = fields["on"]
        if on != PARTIAL:
            hint = f"write when: \"{{{{ event.name == '{on}' }}}}\"" if isinstance(on, str) else ""
            report.error((*path, "on"), f"expected {PARTIAL!r} for `on` of an arc, found {shown(on)}", hint=hint)
        return bool(on == PARTIAL)
    test = _partial_test(when)
    if test == "maybe":
        message = f"expected a condition that holds for {PARTIAL!r} alone or not at all, found {shown(when)}"
        report.error((*path, "when"), message, hint="write two arcs, one of them with on: call.partial")
    return test == "always"


def check_streams(playbook: Playbook, places: dict[str, Path], report: Report) -> None:
    """Report what a consumer may not be: a loop, an entry, or a step that others lead to as well."""
    for step in playbook.steps.values():
        for number, arc in enumerate(step.arcs):
            if not arc.on_partial:
                continue
            path = (*places[step.name], "next", "arcs", number)
            if arc.set:
                message = "expected no `set` on an arc that carries chunks, found one: they are worked on side by side"
                report.error((*path, "set"), message, hint="write it at the arcs for the step's end")
            consumer = playbook.steps.get(arc.step)
            if consumer is None:
                report.error((*path, "step"), f"expected a step that takes the chunks, found no step {arc.step!r}")
            else:
                _check_consumer(playbook, step, consumer, path=(*path, "step"), report=report)


def _check_consumer(playbook: Playbook, producer: Step, consumer: Step, *, path: Path, report: Report) -> None:
    name = consumer.name
    if consumer.loop is not None:
        message = (
            f"expected no loop of step {name!r}, which takes chunks of step {producer.name!r} one by one; found one"
        )
        report.error(path, message, hint="let it call a playbook that loops over the chunk")
    if consumer.when is not None:
        message = f"expected no `when` of step {name!r}, which takes chunks of step {producer.name!r}; found one"
        report.error(path, message, hint="write it at the arc that carries the chunks")
    if name in (playbook.entry_step, playbook.final_step):
        report.error(path, f"expected another entry or final step, found {name!r}, which takes chunks")
    for other in playbook.steps.values():
        for arc in other.arcs:
            if arc.step == name and (other.name != producer.name or not arc.on_partial):
                kind = "with its chunks" if arc.on_partial else "when it ends"
                message = f"expected no other way to step {name!r}, which takes chunks of step {producer.name!r}"
                found = f"found one from step {other.name!r} {kind}"
                report.error(path, f"{message}; {found}", hint="give each way a step of its own")
                return
    if name == producer.name:
        report.error(path, f"expected another step to take the chunks of step {name!r}, found itself")


def _partial_test(when: str | bool | None) -> Literal["always", "never", "maybe"]:
    """Return whether a condition asks for chunks: in one of the parts that must hold, nowhere, or somewhere else."""
    if not isinstance(when, str) or PARTIAL not in when:
        return "never"
    try:
        tree = SANDBOX.parse(mask_comments(condition_source(when))[0])
    except (jinja2.TemplateError, RecursionError):
        return "never"  # reported where its syntax is checked
    outputs = [part for output in tree.find_all(nodes.Output) for part in output.nodes]
    is_plain = len(outputs) == 1 and not isinstance(outputs[0], nodes.TemplateData) and len(tree.body) == 1
    if is_plain and any(_asks(part, "eq") for part in _conjuncts(outputs[0])):
        return "always"
    asked = sum(1 for compare in tree.find_all(nodes.Compare) if _asks(compare, "ne"))
    mentioned = sum(1 for constant in tree.find_all(nodes.Const) if constant.value == PARTIAL)
    return "never" if asked == mentioned else "maybe"


def _conjuncts(node: nodes.Node) -> list[nodes.Node]:
    if isinstance(node, nodes.And):
        return [*_conjuncts(node.left), *_conjuncts(node.right)]
    return [node]


def _asks(node: nodes.Node, operator: str) -> bool:
    """Return whether a node compares event.name with the name of chunks, by that operator."""
    if not isinstance(node, nodes.Compare) or len(node.ops) != 1 or node.ops[0].op != operator:
        return False
    sides = (node.expr, node.ops[0].expr)
    is_named = any(isinstance(side, nodes.Const) and side.value == PARTIAL for side in sides)
    return is_named and any(_is_event_name(side) for side in sides)


def _is_event_name(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getattr):
        key: Any = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        key = node.arg.value
    else:
        return False
    return key == "name" and isinstance(node.node, nodes.Name) and node.node.name == "event"

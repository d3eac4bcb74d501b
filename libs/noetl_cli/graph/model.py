"""The graph of a playbook as drawings show it: texts already shortened, arcs that lead nowhere given an end."""

import msgspec

from noetl_common.core.lint_flow import is_always
from noetl_common.core.parse_streams import PARTIAL
from noetl_common.core.playbook import Arc, Loop, Playbook, Step

CONDITION_CHARACTERS = 36
TOOLS_SHOWN = 4


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One step. Shapes: `lines` stand below the name: its tools, its loop."""

    name: str
    lines: tuple[str, ...] = ()
    is_entry: bool = False
    is_loop: bool = False
    is_last: bool = False
    is_missing: bool = False  # an arc names it and no step has the name: the branch ends


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One arc; `label` is its condition, empty when it always fires."""

    source: str
    target: str
    label: str = ""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in the order they are written, and their arcs."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph_of(playbook: Playbook) -> Graph:
    """Return the graph of a playbook."""
    nodes = [_node(step, playbook) for step in playbook.steps.values()]
    edges = [
        Edge(source=step.name, target=arc.step, label=label_of(arc))
        for step in playbook.steps.values()
        for arc in step.arcs
    ]
    missing = dict.fromkeys(edge.target for edge in edges if edge.target not in playbook.steps)
    nodes += [Node(name=name, is_last=True, is_missing=True) for name in missing]
    return Graph(title=playbook.path, nodes=tuple(nodes), edges=tuple(edges))


def label_of(arc: Arc) -> str:
    """Return when an arc is taken, empty for always; one that carries chunks says so."""
    label = "" if is_always(arc.when) else condition(arc.when)
    if arc.on_partial and PARTIAL not in label:
        return f"each chunk, {label}" if label else "each chunk"
    return label


def tools_of(step: Step) -> str:
    """Return the kinds of a step's tools in their order, a long row shortened."""
    kinds = [task.kind for task in step.tasks]
    shown = kinds if len(kinds) <= TOOLS_SHOWN else [*kinds[: TOOLS_SHOWN - 1], "…", kinds[-1]]
    return " → ".join(shown)


def loop_of(loop: Loop) -> str:
    """Return a loop in a few words: "each item, parallel 4"."""
    limit = ""
    if loop.mode != "sequential" and loop.max_in_flight is not None:
        limit = f" {condition(str(loop.max_in_flight))}"
    return f"each {loop.iterator}, {loop.mode}{limit}"


def condition(when: str | bool | None) -> str:
    """Return a condition without its braces, in one line, shortened."""
    text = " ".join(str(when).split()) if when is not None else ""
    if text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1:
        text = text[2:-2].strip()
    return text if len(text) <= CONDITION_CHARACTERS else text[: CONDITION_CHARACTERS - 1] + "…"


def _node(step: Step, playbook: Playbook) -> Node:
    lines = [tools_of(step)]
    if step.loop is not None:
        lines.append(loop_of(step.loop))
    return Node(
        name=step.name,
        lines=tuple(lines),
        is_entry=step.name == playbook.entry_step,
        is_loop=step.loop is not None,
        is_last=not step.arcs,
    )

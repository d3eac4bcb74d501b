"""A graph as text for other programs: Mermaid, which most places that show Markdown draw, and Graphviz."""

from noetl_cli.graph.model import Graph, Node


def mermaid_of(graph: Graph) -> str:
    """Return a Mermaid flowchart. Ids are numbers, since a step may have a name that Mermaid keeps for itself."""
    ids = {node.name: f"s{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for node in graph.nodes:
        words = "<br/>".join(_html(line) for line in _lines(node))
        opening, closing = ('[["', '"]]') if node.is_loop else ('(["', '"])') if node.is_missing else ('("', '")')
        lines.append(f"    {ids[node.name]}{opening}{words}{closing}")
    for edge in graph.edges:
        label = f'|"{_html(edge.label)}"|' if edge.label else ""
        lines.append(f"    {ids[edge.source]} -->{label} {ids[edge.target]}")
    lines += [f"    style {ids[node.name]} stroke-width:3px" for node in graph.nodes if node.is_entry]
    return "\n".join(lines) + "\n"


def dot_of(graph: Graph) -> str:
    """Return a Graphviz digraph."""
    lines = [
        f"digraph {_quoted(graph.title)} {{",
        '    node [shape=box, style=rounded, fontname="sans-serif"];',
        '    edge [fontname="sans-serif", fontsize=10];',
    ]
    for node in graph.nodes:
        more = ", peripheries=2" if node.is_loop else ", penwidth=2.5" if node.is_entry else ""
        more += ", style=dashed" if node.is_missing else ""
        lines.append(f"    {_quoted(node.name)} [label={_quoted(*_lines(node))}{more}];")
    for edge in graph.edges:
        label = f" [label={_quoted(edge.label)}]" if edge.label else ""
        lines.append(f"    {_quoted(edge.source)} -> {_quoted(edge.target)}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def _lines(node: Node) -> tuple[str, ...]:
    return (node.name, *node.lines)


def _html(text: str) -> str:
    for mark, entity in (("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("|", "#124;")):
        text = text.replace(mark, entity)
    return text


def _quoted(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines)
    return '"' + "\\n".join(escaped) + '"'

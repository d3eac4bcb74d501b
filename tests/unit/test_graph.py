"""Graphs of playbooks: boxes, labels and arcs keep apart, and the texts are what other programs can read."""

import re
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from noetl_cli import main
from noetl_cli.graph.layout import Drawing, Place, lay_out
from noetl_cli.graph.model import Edge, Graph, Node, condition, graph_of
from noetl_cli.graph.svg import svg_of
from noetl_cli.graph.text import dot_of, mermaid_of
from noetl_common.core.parse import parse

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


def of_file(file: Path) -> Graph:
    return graph_of(parse(file.read_text(encoding="utf-8"))[0])


def a_graph(seed: int) -> Graph:
    """Return any graph: branches, joins, arcs back, arcs to the step itself, steps that nothing leads to."""
    chance = Random(seed)
    names = [f"step_{number}" * chance.randint(1, 3) for number in range(chance.randint(1, 14))]
    lines = ("python", "each item, parallel 4")
    nodes = [
        Node(name=name, lines=lines[: chance.randint(1, 2)], is_entry=not index) for index, name in enumerate(names)
    ]
    edges = [
        Edge(source=chance.choice(names), target=chance.choice(names), label="x" * chance.choice((0, 0, 5, 30)))
        for _ in range(chance.randint(0, 2 * len(names)))
    ]
    return Graph(title="any", nodes=tuple(nodes), edges=tuple(edges))


def overlap(one: Place, other: Place) -> bool:
    return (
        abs(one.x - other.x) < (one.width + other.width) / 2 - 0.01
        and abs(one.y - other.y) < (one.height + other.height) / 2 - 0.01
    )


def check(drawing: Drawing) -> None:
    for one, other in combinations([*drawing.boxes.values(), *drawing.labels], 2):
        assert not overlap(one, other), (one, other)
    for curve in drawing.curves:
        for (x, y), (next_x, next_y) in pairwise(curve.points):
            for box in drawing.boxes.values():
                low, high = sorted((y, next_y))
                is_beside = high <= box.y - box.height / 2 + 0.01 or low >= box.y + box.height / 2 - 0.01
                is_apart = x == next_x and abs(x - box.x) >= box.width / 2
                assert is_beside or is_apart, (curve.edge, box)
    for place in [*drawing.boxes.values(), *drawing.labels]:
        assert place.width / 2 <= place.x <= drawing.width - place.width / 2
        assert place.height / 2 <= place.y <= drawing.height - place.height / 2


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_in_the_drawings_of_the_examples_nothing_is_on_top_of_anything(file: Path) -> None:
    check(lay_out(of_file(file)))


def test_in_any_drawing_nothing_is_on_top_of_anything() -> None:
    for seed in range(150):
        graph = a_graph(seed)
        drawing = lay_out(graph)
        check(drawing)
        assert len(drawing.curves) == sum(edge.source != edge.target for edge in graph.edges)
        for curve in drawing.curves:
            source, target = drawing.boxes[curve.edge.source], drawing.boxes[curve.edge.target]
            assert abs(curve.points[0][0] - source.x) <= source.inner / 2
            assert abs(curve.points[-1][0] - target.x) <= target.inner / 2
            assert curve.is_back == (curve.points[-1][1] < curve.points[0][1])


def test_an_svg_is_one_file_with_every_step_and_condition() -> None:
    nodes = (Node(name="a<b", lines=("python",), is_entry=True, is_loop=True), Node(name="end", is_missing=True))
    graph = Graph(title='"x" & y', nodes=nodes, edges=(Edge(source="a<b", target="end", label="n > 3 & m"),))
    drawn = ElementTree.fromstring(svg_of(graph))
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a<b", "↻ python", "end", "n > 3 & m", '"x" & y'} <= set(texts)
    assert "href" not in svg_of(graph) and "<script" not in svg_of(graph)


def test_mermaid_and_dot_name_every_step_and_arc() -> None:
    graph = of_file(ROOT / "examples/loop/loop.yaml")
    assert mermaid_of(graph).splitlines()[:2] == [
        "flowchart TD",
        '    s0[["start<br/>python<br/>each number, parallel 4"]]',
    ]
    assert '    s1 -->|"add_up.total #gt; limit"| s2' in mermaid_of(graph)
    assert '"add_up" -> "large" [label="add_up.total > limit"];' in dot_of(graph)
    assert len(re.findall(r" -> ", dot_of(graph))) == len(graph.edges) == 3


def test_a_condition_is_shown_without_braces_in_one_short_line() -> None:
    assert condition("{{ a\n  and b }}") == "a and b"
    assert condition("{{ a }} {{ b }}") == "{{ a }} {{ b }}"
    assert len(condition("x" * 500)) == 36
    assert condition(False) == "False"


def test_an_arc_to_no_step_ends_in_a_dashed_box() -> None:
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: a}\n"
    graph = graph_of(parse(text + "workflow: [{step: start, tool: {kind: noop}, next: end}]")[0])
    assert [(node.name, node.is_missing) for node in graph.nodes] == [("start", False), ("end", True)]


def test_the_command_writes_each_format(tmp_path: Path) -> None:
    file, to = str(ROOT / "examples/hello/hello.yaml"), tmp_path / "hello.svg"
    assert CliRunner().invoke(main.app, ["graph", file]).stdout.startswith("flowchart TD")
    assert CliRunner().invoke(main.app, ["graph", file, "--format", "dot"]).stdout.startswith("digraph")
    assert CliRunner().invoke(main.app, ["graph", file, "--format", "svg", "--to", str(to)]).exit_code == 0
    assert ElementTree.parse(to).getroot().tag.endswith("svg")
    assert CliRunner().invoke(main.app, ["graph", str(tmp_path / "none.yaml")]).exit_code != 0

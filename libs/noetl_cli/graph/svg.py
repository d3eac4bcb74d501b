"""A drawing as one SVG file that needs nothing else: no script, no font, no style sheet."""

from xml.sax.saxutils import escape

from noetl_cli.graph.layout import (
    BOX_PADDING_PX,
    LINE_CHARACTER_PX,
    LINE_PX,
    MARGIN_PX,
    NAME_PX,
    SELF_LOOP_PX,
    Curve,
    Place,
    lay_out,
)
from noetl_cli.graph.model import Graph

_FILLS = {
    "python": "#e8f0fe",
    "http": "#fef3e2",
    "postgres": "#e6f4ea",
    "duckdb": "#e6f4ea",
    "playbook": "#f3e8fd",
    "noop": "#f1f3f4",
}
_INK, _ARC, _BACK = "#202124", "#5f6368", "#b06000"
_FONT = "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\""


def svg_of(graph: Graph) -> str:
    """Return the SVG text of a graph."""
    drawing = lay_out(graph)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
        f' viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" role="img" {_FONT}>',
        f"<title>{escape(graph.title)}</title>",
        "<defs>",
        _marker("arrow", _ARC),
        _marker("back", _BACK),
        "</defs>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _text(graph.title, MARGIN_PX, MARGIN_PX + 6, size=13, anchor="start", colour=_ARC),
        *(_curve(curve) for curve in drawing.curves),
        *(part for box in drawing.boxes.values() for part in _self_loop(box)),
        *(part for box in drawing.boxes.values() for part in _box(box)),
        *(part for label in drawing.labels for part in _label(label)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def path_of(points: list[tuple[float, float]]) -> str:
    """Return the path through points: each piece leaves and arrives upright, so it stays between its rows."""
    (x, y), *rest = points
    path = f"M{x:.1f},{y:.1f}"
    for next_x, next_y in rest:
        if (next_x, next_y) == (x, y):
            continue  # a piece without length would turn the arrow to nowhere
        if abs(next_x - x) < 0.05:
            path += f" L{next_x:.1f},{next_y:.1f}"
        else:
            middle = (y + next_y) / 2
            path += f" C{x:.1f},{middle:.1f} {next_x:.1f},{middle:.1f} {next_x:.1f},{next_y:.1f}"
        x, y = next_x, next_y
    return path


def _curve(curve: Curve) -> str:
    colour, mark = (_BACK, "back") if curve.is_back else (_ARC, "arrow")
    dashes = ' stroke-dasharray="5 3"' if curve.is_back else ""
    return (
        f'<path d="{path_of(curve.points)}" fill="none" stroke="{colour}" stroke-width="1.4"{dashes}'
        f' marker-end="url(#{mark})"/>'
    )


def _self_loop(box: Place) -> list[str]:
    if box.loop_label is None:
        return []
    x, far = box.x + box.inner / 2, box.x + box.inner / 2 + SELF_LOOP_PX * 0.7
    path = f"M{x:.1f},{box.y + 9:.1f} C{far:.1f},{box.y + 16:.1f} {far:.1f},{box.y - 16:.1f} {x:.1f},{box.y - 9:.1f}"
    return [
        f'<path d="{path}" fill="none" stroke="{_BACK}" stroke-width="1.4" stroke-dasharray="5 3"'
        ' marker-end="url(#back)"/>',
        _text(box.loop_label, far, box.y + 4, size=11, anchor="start", colour=_BACK),
    ]


def _box(box: Place) -> list[str]:
    node = box.node
    assert node is not None
    left, top = box.x - box.inner / 2, box.y - box.height / 2
    fill = _FILLS.get(node.lines[0].split(" ")[0] if node.lines else "", "#f8f9fa")
    stroke = "#137333" if node.is_entry else _INK
    style = f'rx="9" stroke="{stroke}" stroke-width="{2.4 if node.is_entry else 1.2}"'
    if node.is_missing:
        style += ' stroke-dasharray="3 3"'
    size = f'width="{box.inner:.1f}" height="{box.height:.1f}"'
    parts: list[str] = []
    if node.is_loop:  # a second sheet behind says that the step runs more than once
        parts.append(f'<rect x="{left + 5:.1f}" y="{top + 5:.1f}" {size} fill="{fill}" {style}/>')
    parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" {size} fill="{fill}" {style}/>')
    y = top + BOX_PADDING_PX / 2 + NAME_PX * 0.7
    parts.append(_text(node.name, box.x, y, size=14, colour=_INK, weight="600"))
    for number, line in enumerate(node.lines, 1):
        marked = f"↻ {line}" if node.is_loop and number == len(node.lines) else line
        parts.append(_text(marked, box.x, y + 1 + LINE_PX * number, size=11.5, colour=_ARC))
    return parts


def _label(place: Place) -> list[str]:
    width = LINE_CHARACTER_PX * len(place.label) + 8
    return [
        f'<rect x="{place.x - width / 2:.1f}" y="{place.y - LINE_PX / 2:.1f}" width="{width:.1f}"'
        f' height="{LINE_PX:.1f}" rx="4" fill="#ffffff"/>',
        _text(place.label, place.x, place.y + 4, size=11.5, colour=_ARC),
    ]


def _text(  # one call a line of text reads better than a record for it
    text: str, x: float, y: float, *, size: float, colour: str, anchor: str = "middle", weight: str = "400"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
        f' fill="{colour}">{escape(text)}</text>'
    )


def _marker(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L10,5 L0,10 z" fill="{colour}"/></marker>'
    )

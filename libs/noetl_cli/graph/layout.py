"""Layout: a place for every box and every arc, in layers from the entry down, with nothing on top of anything.

Between two rows of boxes lies a row for the labels of arcs. An arc that passes a row has a place of its own in it, so
that curves run only between rows and never through a box.
"""

from collections import defaultdict
from itertools import pairwise

import msgspec

from noetl_cli.graph.model import Edge, Graph, Node

NAME_CHARACTER_PX, LINE_CHARACTER_PX = 8.4, 7.0
BOX_PADDING_PX, BOX_WIDTH_PX_MIN = 16.0, 90.0
NAME_PX, LINE_PX = 22.0, 16.0
GAP_PX, LANE_PX = 28.0, 14.0
ROW_GAP_PX = 30.0
MARGIN_PX = 24.0
SELF_LOOP_PX = 34.0
SWEEPS = 12


class Place(msgspec.Struct, kw_only=True):
    """One thing in a row: a box, or where an arc passes. Units: pixels; `x`, `y` are its middle."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    node: Node | None = None
    row_height: float = 0.0
    label: str = ""
    order: float = 0.0
    is_passed: bool = False  # in a row with neither boxes nor labels: arcs need no place there
    loop_label: str | None = None  # of an arc from the step to itself
    inner: float = 0.0  # width of the box alone, without the room for such an arc


class Curve(msgspec.Struct, kw_only=True):
    """One arc from where it starts to where its arrow ends. `is_back`: it leads to a step before."""

    edge: Edge
    points: list[tuple[float, float]]
    is_back: bool = False


class Drawing(msgspec.Struct, kw_only=True):
    """A layout that is done: boxes by step, labels of arcs, curves, and the size of it all."""

    boxes: dict[str, Place]
    labels: list[Place]
    curves: list[Curve]
    width: float
    height: float


def lay_out(graph: Graph) -> Drawing:
    """Return the drawing of a graph."""
    return _Layout(graph).drawing()


class _Layout:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._boxes = {node.name: _box(node) for node in graph.nodes}
        self._edges = [edge for edge in graph.edges if edge.source != edge.target]
        for edge in graph.edges:
            if edge.source == edge.target:
                _make_room_for_loop(self._boxes[edge.source], edge.label)
        self._turned = self._back_edges()
        self._layer = self._layers()
        self._rows: list[list[Place]] = [[] for _ in range(2 * (max(self._layer.values(), default=0)) + 1)]
        self._chains: list[list[Place]] = []  # of each edge, from the upper box to the lower
        self._fill_rows()
        self._above: dict[int, list[Place]] = defaultdict(list)
        self._below: dict[int, list[Place]] = defaultdict(list)
        for chain in self._chains:
            for upper, lower in pairwise(chain):
                self._below[id(upper)].append(lower)
                self._above[id(lower)].append(upper)

    def drawing(self) -> Drawing:
        """Return every place, once rows are ordered and spread."""
        self._order_rows()
        self._spread_rows()
        height = self._stack_rows()
        places = [place for row in self._rows for place in row]
        left = min((place.x - place.width / 2 for place in places), default=0.0) - MARGIN_PX
        for place in places:
            place.x -= left
        width = max((place.x + place.width / 2 for place in places), default=0.0) + MARGIN_PX
        return Drawing(
            boxes=self._boxes,
            labels=[place for place in places if place.node is None and place.label],
            curves=self._curves(),
            width=max(width, NAME_CHARACTER_PX * len(self._graph.title) + 2 * MARGIN_PX),
            height=height,
        )

    def _back_edges(self) -> set[int]:
        """Return the positions of the edges that lead back to a step one came through, found from the entry."""
        ways: dict[str, list[tuple[int, str]]] = {name: [] for name in self._boxes}
        for number, edge in enumerate(self._edges):
            ways[edge.source].append((number, edge.target))
        starts = sorted(self._graph.nodes, key=lambda node: not node.is_entry)
        state: dict[str, int] = {}  # 1: on the way, 2: left
        found: set[int] = set()
        for start in starts:
            stack = [(start.name, iter(ways[start.name]))] if start.name not in state else []
            state.setdefault(start.name, 1)
            while stack:
                name, rest = stack[-1]
                number, target = next(rest, (-1, ""))
                if number < 0:
                    state[name] = 2
                    stack.pop()
                elif target not in state:
                    state[target] = 1
                    stack.append((target, iter(ways[target])))
                elif state[target] == 1:
                    found.add(number)
        return found

    def _downward(self) -> list[tuple[str, str]]:
        return [
            (edge.target, edge.source) if number in self._turned else (edge.source, edge.target)
            for number, edge in enumerate(self._edges)
        ]

    def _layers(self) -> dict[str, int]:
        """Return each step's layer: one below the lowest of those that lead to it."""
        downward = self._downward()
        waiting = dict.fromkeys(self._boxes, 0)
        below: dict[str, list[str]] = defaultdict(list)
        for upper, lower in downward:
            waiting[lower] += 1
            below[upper].append(lower)
        layer = dict.fromkeys(self._boxes, 0)
        ready = [name for name, count in waiting.items() if not count]
        while ready:
            name = ready.pop()
            for lower in below[name]:
                layer[lower] = max(layer[lower], layer[name] + 1)
                waiting[lower] -= 1
                if not waiting[lower]:
                    ready.append(lower)
        return layer

    def _fill_rows(self) -> None:
        for name, box in self._boxes.items():
            self._rows[2 * self._layer[name]].append(box)
        for edge, (upper, lower) in zip(self._edges, self._downward(), strict=True):
            first, last = 2 * self._layer[upper], 2 * self._layer[lower]
            chain = [self._boxes[upper]]
            for row in range(first + 1, last):
                label = edge.label if row == first + 1 else ""
                width = LINE_CHARACTER_PX * len(label) + 12 if label else LANE_PX
                place = Place(width=width, height=LINE_PX if row % 2 else 0.0, label=label)
                self._rows[row].append(place)
                chain.append(place)
            self._chains.append([*chain, self._boxes[lower]])

    def _order_rows(self) -> None:
        """Order each row so that few arcs cross: by the mean place of what stands above, then below, in turns."""
        for row in self._rows:
            _number(row)
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            near = self._above if down else self._below
            for row in self._rows if down else reversed(self._rows):
                for place in row:
                    others = near[id(place)]
                    place.x = sum(other.order for other in others) / len(others) if others else place.order
                row.sort(key=lambda place: place.x)
                _number(row)

    def _spread_rows(self) -> None:
        """Give each place an x near the mean of its neighbours', without overlap in its row."""
        for row in self._rows:
            _pack(row, [0.0] * len(row))
        for sweep in range(2 * SWEEPS):
            down = sweep % 2 == 0
            for row in self._rows if down else reversed(self._rows):
                wishes = []
                for place in row:
                    others = self._above[id(place)] + self._below[id(place)] if sweep > SWEEPS else []
                    others = others or (self._above if down else self._below)[id(place)]
                    wishes.append(sum(other.x for other in others) / len(others) if others else place.x)
                _pack(row, wishes)

    def _stack_rows(self) -> float:
        y = MARGIN_PX + NAME_PX + ROW_GAP_PX / 2
        for row in self._rows:
            height = max((place.height for place in row), default=0.0)
            if not any(place.node is not None or place.label for place in row):
                for place in row:
                    place.is_passed = True
                y += height
                continue
            for place in row:
                place.y = y + height / 2
                place.row_height = height
                if place.node is None:
                    place.height = height  # a lane goes straight through the whole row
            y += height + ROW_GAP_PX
        return y - ROW_GAP_PX + MARGIN_PX

    def _curves(self) -> list[Curve]:
        leaving: dict[str, list[tuple[float, int]]] = defaultdict(list)
        coming: dict[str, list[tuple[float, int]]] = defaultdict(list)
        downward = self._downward()
        for number, (upper, lower) in enumerate(downward):
            leaving[upper].append((self._chains[number][1].x, number))
            coming[lower].append((self._chains[number][-2].x, number))
        curves: list[Curve] = []
        for number, edge in enumerate(self._edges):
            upper, lower = downward[number]
            chain = self._chains[number]
            # Straight out of the row first: a box beside may be taller.
            start, end = _port(chain[0], leaving[upper], number), _port(chain[-1], coming[lower], number)
            points = [(start, chain[0].y + half) for half in (chain[0].height / 2, chain[0].row_height / 2)]
            for place in (place for place in chain[1:-1] if not place.is_passed):
                points += [(place.x, place.y - place.height / 2), (place.x, place.y + place.height / 2)]
            points += [(end, chain[-1].y - half) for half in (chain[-1].row_height / 2, chain[-1].height / 2)]
            is_back = number in self._turned
            curves.append(Curve(edge=edge, points=points[::-1] if is_back else points, is_back=is_back))
        return curves


def _box(node: Node) -> Place:
    wide = max([NAME_CHARACTER_PX * len(node.name), *(LINE_CHARACTER_PX * len(line) for line in node.lines)])
    width = max(wide + 2 * BOX_PADDING_PX, BOX_WIDTH_PX_MIN)
    height = NAME_PX + LINE_PX * len(node.lines) + BOX_PADDING_PX
    return Place(width=width, height=height, node=node, inner=width)


def _make_room_for_loop(box: Place, label: str) -> None:
    box.loop_label = label if box.loop_label is None else f"{box.loop_label} | {label}"
    # On both sides, so that the box stays in the middle of its place.
    box.width = box.inner + 2 * (SELF_LOOP_PX + LINE_CHARACTER_PX * len(box.loop_label))


def _number(row: list[Place]) -> None:
    for index, place in enumerate(row):
        place.order = (index + 0.5) / len(row)


def _pack(row: list[Place], wishes: list[float]) -> None:
    """Place a row as near to its wishes as order and widths allow: the mean of packing from the left and the right."""
    from_left: list[float] = []
    for index, place in enumerate(row):
        low = from_left[-1] + _apart(row[index - 1], place) if index else wishes[index]
        from_left.append(max(wishes[index], low))
    from_right: list[float] = []
    for index in range(len(row) - 1, -1, -1):
        high = from_right[-1] - _apart(row[index], row[index + 1]) if from_right else wishes[index]
        from_right.append(min(wishes[index], high))
    for place, left, right in zip(row, from_left, reversed(from_right), strict=True):
        place.x = (left + right) / 2


def _apart(left: Place, right: Place) -> float:
    gap = GAP_PX if left.node is not None or right.node is not None else LANE_PX
    return (left.width + right.width) / 2 + gap


def _port(box: Place, ends: list[tuple[float, int]], number: int) -> float:
    """Return where on a box's edge an arc ends: side by side, in the order of where they come from."""
    order = [each for _x, each in sorted(ends)]
    step = min(28.0, box.inner * 0.8 / max(len(order), 1))
    return box.x + (order.index(number) - (len(order) - 1) / 2) * step

# SPDX-License-Identifier: Apache-2.0
"""The drawing of a topology: objects in columns, edges as curves from left to right."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.api.exchanges import DEFAULT
from headrace.console.pages.drawings.grid import HEIGHT, WIDTH, Box, GridLayout, shorten
from headrace.console.pages.links import path_to
from headrace.console.pages.texts import escape_hidden, exchange_title, number

if TYPE_CHECKING:
    from headrace.management_rows import GraphEdge, GraphNode

COLUMN_GAP = 132  # Pixels between columns.
LAYOUT = GridLayout(COLUMN_GAP, margin=24)
ARROW = 4  # Pixels of the tip beyond the end of a curve.
BACKWARD_DEPTH = 34  # Pixels below the boxes of a curve that leads back to the left.
NAME_CHARACTERS = 21  # Characters that fit into a box.
LABEL_CHARACTERS = 15  # Characters that fit between columns.
LABEL_RISE, LABEL_INDENT = 5, 10  # Pixels of a label above a curve, and from its end.
EXCHANGE = "exchange"
#: The neighbours of each object by its number, each with the step of the level to it: 1 or -1.
Neighbours = Mapping[int, Sequence[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class ObjectBox(Box):
    """The box of an exchange or queue."""

    address: str
    is_reached: bool  # The message of the page reaches the queue.
    is_first: bool  # The object of the page.


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of an edge; all bindings between two objects are one curve."""

    kind: str  # binding, alternate or dead-letter.
    path: str  # The attribute ``d`` of an SVG path.
    short_label: str  # Cut to the gap between columns.
    label: str
    x: int  # The position of the label, in pixels.
    y: int
    anchor: str  # The label's ``text-anchor``.


@dataclass(frozen=True, slots=True)
class TopologyDrawing:
    """The drawing of a topology, with its size in pixels."""

    boxes: list[ObjectBox]
    curves: list[Curve]
    width: int
    height: int


def draw_topology(
    vhost: str, nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], reached: frozenset[str]
) -> TopologyDrawing:
    """Return the drawing of a topology, with marks at the queues that a message would reach."""
    columns = arrange_columns(len(nodes), edges)
    corners = LAYOUT.corners(columns)
    boxes = [
        draw_box(vhost, node, corners[index], is_first=index == 0, reached=reached)
        for index, node in enumerate(nodes)
    ]
    width, height = LAYOUT.size(columns)
    return TopologyDrawing(boxes, draw_curves(edges, corners), width, height + BACKWARD_DEPTH)


def arrange_columns(count: int, edges: Sequence[GraphEdge]) -> list[list[int]]:
    """Return the numbers of the objects by columns.

    The source of an edge is left of its target where possible. The objects of a column are in the
    order of the mean rows of their neighbours to the left.
    """
    neighbours: dict[int, list[tuple[int, int]]] = {node: [] for node in range(count)}
    dead_letters: list[tuple[int, int]] = []  # They place only objects without another edge.
    for edge in edges:
        if edge["what"] == "dead-letter":
            dead_letters.append((edge["from"], edge["to"]))
            continue
        neighbours[edge["from"]].append((edge["to"], 1))
        neighbours[edge["to"]].append((edge["from"], -1))
    levels = compute_levels(neighbours, dead_letters)
    columns: list[list[int]] = []
    rows: dict[int, float] = {}

    def mean_row(node: int) -> float:
        """Return the mean row of the neighbours in columns to the left; without any, the number."""
        nearby = [rows[neighbour] for neighbour, _ in neighbours[node] if neighbour in rows]
        return sum(nearby) / len(nearby) if nearby else float(node)

    for level in sorted(set(levels.values())):
        column = [node for node in range(count) if levels.get(node) == level]
        column.sort(key=mean_row)
        rows.update((node, float(row)) for row, node in enumerate(column))
        columns.append(column)
    return columns


def compute_levels(
    neighbours: Neighbours, dead_letters: Sequence[tuple[int, int]]
) -> dict[int, int]:
    """Return the level of each object, which increases to the right; the first object is at 0."""
    levels = {0: 0}
    assign_levels(0, levels, neighbours)
    while edge := next(
        (
            (source, target)
            for source, target in dead_letters
            if (source in levels) != (target in levels)
        ),
        None,
    ):
        source, target = edge
        if source in levels:
            levels[target] = levels[source] + 1
            assign_levels(target, levels, neighbours)
        else:
            levels[source] = levels[target] - 1
            assign_levels(source, levels, neighbours)
    return levels


def assign_levels(start: int, levels: dict[int, int], neighbours: Neighbours) -> None:
    """Add the levels of all objects that are connected with an object, the nearest first."""
    pending = deque([start])
    while pending:
        node = pending.popleft()
        for neighbour, step in neighbours[node]:
            if neighbour not in levels:
                levels[neighbour] = levels[node] + step
                pending.append(neighbour)


def draw_box(
    vhost: str,
    node: GraphNode,
    corner: tuple[int, int],
    *,
    is_first: bool,
    reached: frozenset[str],
) -> ObjectBox:
    """Return the box of an object, which leads to the object's own topology."""
    is_exchange = node["kind"] == EXCHANGE
    name = exchange_title(escape_hidden(node["name"]))
    note = node["type"] if is_exchange else f"{number(node['ready'])} ready"
    collection = "exchanges" if is_exchange else "queues"
    return ObjectBox(
        node["kind"],
        shorten(name, NAME_CHARACTERS),
        f"{node['kind']} {name}, {note}",
        note,
        *corner,
        address=f"{path_to(collection, vhost, node['name'] or DEFAULT)}/topology",
        is_reached=not is_exchange and node["name"] in reached,
        is_first=is_first,
    )


def draw_curves(edges: Sequence[GraphEdge], corners: dict[int, tuple[int, int]]) -> list[Curve]:
    """Return the curves of the edges; ``corners`` are the upper left corners of the objects."""
    bundles: dict[tuple[int, int, str], list[str]] = {}
    for edge in edges:
        ends_and_kind = (edge["from"], edge["to"], edge["what"])
        bundles.setdefault(ends_and_kind, []).append(escape_hidden(edge["routing_key"]))
    out_degrees = Counter(source for source, _, _ in bundles)
    in_degrees = Counter(target for _, target, _ in bundles)
    curves = []
    for (source, target, kind), keys in bundles.items():
        label = format_label(kind, keys)
        if corners[target][0] > corners[source][0]:
            at_end = out_degrees[source] >= in_degrees[target]
            curve = draw_forward(kind, label, corners[source], corners[target], at_end=at_end)
        else:
            curve = draw_backward(kind, label, corners[source], corners[target])
        curves.append(curve)
    return curves


def draw_forward(
    kind: str, label: str, source: tuple[int, int], target: tuple[int, int], *, at_end: bool
) -> Curve:
    """Return a curve to the right, with its label at its end or at its start."""
    (x1, y1), (x2, y2) = source, target
    start, end, bend = x1 + WIDTH, x2 - ARROW, COLUMN_GAP // 2
    y1, y2 = y1 + HEIGHT // 2, y2 + HEIGHT // 2
    path = f"M{start} {y1} C{start + bend} {y1} {end - bend} {y2} {end} {y2}"
    x, y = (end - LABEL_INDENT, y2) if at_end else (start + LABEL_INDENT, y1)
    anchor = "end" if at_end else "start"
    return Curve(kind, path, shorten(label, LABEL_CHARACTERS), label, x, y - LABEL_RISE, anchor)


def draw_backward(kind: str, label: str, source: tuple[int, int], target: tuple[int, int]) -> Curve:
    """Return a curve below the boxes to the left, or to its own column."""
    (x1, y1), (x2, y2) = source, target
    start, end = x1 + WIDTH // 2, x2 + WIDTH // 2 + (WIDTH // 4 if x1 == x2 else 0)
    bottom, top = max(y1, y2) + HEIGHT + BACKWARD_DEPTH, y2 + HEIGHT + ARROW
    path = f"M{start} {y1 + HEIGHT} C{start} {bottom} {end} {bottom} {end} {top}"
    x, y = (start + end) // 2, bottom - BACKWARD_DEPTH // 4
    return Curve(kind, path, shorten(label, LABEL_CHARACTERS), label, x, y - LABEL_RISE, "middle")


def format_label(kind: str, keys: list[str]) -> str:
    """Return the label of a curve: the routing key of a single binding, or the kind of the edge."""
    if kind != "binding":
        return kind
    return keys[0] if len(keys) == 1 else f"{len(keys)} bindings"

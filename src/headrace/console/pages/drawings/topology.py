# SPDX-License-Identifier: Apache-2.0
"""The drawing of a topology: objects in columns, edges as curves from left to right."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.api.exchanges import DEFAULT
from headrace.console.pages.drawings.grid import HEIGHT, WIDTH, GridLayout, shorten
from headrace.console.pages.texts import number, plain, segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.management_rows import GraphEdge, GraphNode

COLUMN_GAP = 132  # Between columns, in pixels.
LAYOUT = GridLayout(COLUMN_GAP, margin=24)
DEPTH = 34  # Depth of an edge that leads back to the left, in pixels.
NAME_CHARACTERS, KEY_CHARACTERS = 21, 15  # Characters that fit.
LABEL_RISE, LABEL_INDENT = 5, 10
EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True)
class ObjectBox:
    """An object of a drawing."""

    kind: str
    name: str  # Cut to the width of the box.
    full: str  # Kind, whole name and note.
    note: str
    address: str
    x: int
    y: int
    is_reached: bool
    is_first: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """An edge of a drawing; several bindings between two objects are one curve."""

    kind: str  # binding, alternate or dead-letter.
    path: str
    label: str
    full: str
    x: int
    y: int
    anchor: str


@dataclass(frozen=True, slots=True)
class TopologyDrawing:
    """A drawing with its size."""

    boxes: list[ObjectBox]
    curves: list[Curve]
    width: int
    height: int


def draw(
    vhost: str, nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], reached: frozenset[str]
) -> TopologyDrawing:
    """Return the drawing of a topology; it marks the queues that a message would reach."""
    columns = columns_of(len(nodes), edges)
    corners = LAYOUT.corners(columns)
    boxes = [
        box_of(vhost, node, corners[index], is_first=index == 0, reached=reached)
        for index, node in enumerate(nodes)
    ]
    width, height = LAYOUT.size(columns)
    return TopologyDrawing(boxes, curves_of(edges, corners), width, height + DEPTH)


def columns_of(count: int, edges: Sequence[GraphEdge]) -> list[list[int]]:
    """Return the objects by columns: the source of an edge is left of its target where possible."""
    neighbours: dict[int, list[tuple[int, int]]] = {node: [] for node in range(count)}
    dead_letters: list[tuple[int, int]] = []  # They place only objects without another edge.
    for edge in edges:
        if edge["what"] == "dead-letter":
            dead_letters.append((edge["from"], edge["to"]))
            continue
        neighbours[edge["from"]].append((edge["to"], 1))
        neighbours[edge["to"]].append((edge["from"], -1))
    levels = levels_of(neighbours, dead_letters)
    columns: list[list[int]] = []
    rows: dict[int, float] = {}
    for level in sorted(set(levels.values())):
        column = [node for node in range(count) if levels.get(node) == level]

        def middle(node: int) -> float:
            """Return the mean row of the neighbours that have one."""
            placed = [rows[neighbour] for neighbour, _ in neighbours[node] if neighbour in rows]
            return sum(placed) / len(placed) if placed else float(node)

        column.sort(key=middle)
        rows.update((node, float(row)) for row, node in enumerate(column))
        columns.append(column)
    return columns


def levels_of(
    neighbours: Mapping[int, Sequence[tuple[int, int]]], dead_letters: Sequence[tuple[int, int]]
) -> dict[int, int]:
    """Return the level of each object, from left to right; that of the first object is 0."""
    levels = {0: 0}
    assign_levels(0, levels, neighbours)
    while edge_to_place := next(
        (
            (source, target)
            for source, target in dead_letters
            if (source in levels) != (target in levels)
        ),
        None,
    ):
        source, target = edge_to_place
        if source in levels:
            levels[target] = levels[source] + 1
            assign_levels(target, levels, neighbours)
        else:
            levels[source] = levels[target] - 1
            assign_levels(source, levels, neighbours)
    return levels


def assign_levels(
    start: int, levels: dict[int, int], neighbours: Mapping[int, Sequence[tuple[int, int]]]
) -> None:
    """Give levels to the objects that are connected with one, the nearest first."""
    pending = deque([start])
    while pending:
        node = pending.popleft()
        for neighbour, step in neighbours[node]:
            if neighbour not in levels:
                levels[neighbour] = levels[node] + step
                pending.append(neighbour)


def box_of(
    vhost: str,
    node: GraphNode,
    corner: tuple[int, int],
    *,
    is_first: bool,
    reached: frozenset[str],
) -> ObjectBox:
    """Return an object as it is drawn."""
    is_exchange = node["kind"] == EXCHANGE
    name = plain(node["name"]) or "(default)"
    note = node["type"] if is_exchange else f"{number(node['ready'])} ready"
    kind = "exchanges" if is_exchange else "queues"
    return ObjectBox(
        node["kind"],
        shorten(name, NAME_CHARACTERS),
        f"{node['kind']} {name}, {note}",
        note,
        f"/{kind}/{segment(vhost)}/{segment(node['name'] or DEFAULT)}/topology",
        *corner,
        is_reached=not is_exchange and node["name"] in reached,
        is_first=is_first,
    )


def curves_of(edges: Sequence[GraphEdge], corners: dict[int, tuple[int, int]]) -> list[Curve]:
    """Return the edges as they are drawn."""
    bundles: dict[tuple[int, int, str], list[str]] = {}
    for edge in edges:
        key = (edge["from"], edge["to"], edge["what"])
        bundles.setdefault(key, []).append(plain(edge["routing_key"]))
    out_degrees = degrees([source for source, _, _ in bundles])
    in_degrees = degrees([target for _, target, _ in bundles])
    curves = []
    for (source, target, kind), keys in bundles.items():
        (x1, y1), (x2, y2) = corners[source], corners[target]
        label = label_of(kind, keys)
        if x2 > x1:
            start, end, bend = x1 + WIDTH, x2 - 4, COLUMN_GAP // 2
            y1, y2 = y1 + HEIGHT // 2, y2 + HEIGHT // 2
            path = f"M{start} {y1} C{start + bend} {y1} {end - bend} {y2} {end} {y2}"
            at_end = out_degrees[source] >= in_degrees[target]
            x, y = (end - LABEL_INDENT, y2) if at_end else (start + LABEL_INDENT, y1)
            anchor = "end" if at_end else "start"
        else:
            start, end = x1 + WIDTH // 2, x2 + WIDTH // 2 + (WIDTH // 4 if x1 == x2 else 0)
            bottom = max(y1, y2) + HEIGHT + DEPTH
            top = y2 + HEIGHT + 4
            path = f"M{start} {y1 + HEIGHT} C{start} {bottom} {end} {bottom} {end} {top}"
            x, y, anchor = (start + end) // 2, bottom - DEPTH // 4, "middle"
        curves.append(
            Curve(kind, path, shorten(label, KEY_CHARACTERS), label, x, y - LABEL_RISE, anchor)
        )
    return curves


def degrees(ends: list[int]) -> dict[int, int]:
    """Return the number of edges that each object ends."""
    return {node: ends.count(node) for node in set(ends)}


def label_of(kind: str, keys: list[str]) -> str:
    """Return the label of an edge."""
    if kind != "binding":
        return kind
    return keys[0] if len(keys) == 1 else f"{len(keys)} bindings"

# SPDX-License-Identifier: Apache-2.0
"""The drawing of a topology: objects in columns, edges as curves from left to right."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.pages.drawing import HEIGHT, WIDTH, Grid, short
from headrace.console.pages.texts import number, plain, segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.untyped import JsonObject

ACROSS = 132  # Between columns, in pixels.
GRID = Grid(ACROSS, margin=24)
BELOW = 34  # How far an edge that leads back hangs down.
NAME_CHARACTERS, KEY_CHARACTERS = 21, 15  # That have room.
LABEL_UP, LABEL_OFF = 5, 10
EXCHANGE = "exchange"
DEFAULT = "amq.default"


@dataclass(frozen=True, slots=True)
class Box:
    """An object of a drawing."""

    kind: str
    name: str  # As it is shown,
    full: str  # and whole.
    note: str
    address: str
    x: int
    y: int
    is_reached: bool
    is_first: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """An edge of a drawing; several bindings between two objects are one."""

    what: str
    path: str
    label: str
    full: str
    x: int
    y: int
    anchor: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing with its size."""

    boxes: list[Box]
    curves: list[Curve]
    width: int
    height: int


def draw(vhost: str, found: JsonObject, reached: frozenset[str]) -> Drawing:
    """Return the drawing of a topology; queues that a message would reach are marked."""
    nodes, edges = found["nodes"], found["edges"]
    columns = columns_of(len(nodes), edges)
    corners = GRID.corners(columns)
    boxes = [
        box_of(vhost, node, corners[place], is_first=place == 0, reached=reached)
        for place, node in enumerate(nodes)
    ]
    width, height = GRID.size(columns)
    return Drawing(boxes, curves_of(edges, corners), width, height + BELOW)


def columns_of(count: int, edges: Sequence[JsonObject]) -> list[list[int]]:
    """Return the objects by columns: what leads to another is left of it, as far as that goes."""
    around: dict[int, list[tuple[int, int]]] = {node: [] for node in range(count)}
    later: list[tuple[int, int]] = []  # Dead letters place only what nothing else does.
    for edge in edges:
        if edge["what"] == "dead-letter":
            later.append((edge["from"], edge["to"]))
            continue
        around[edge["from"]].append((edge["to"], 1))
        around[edge["to"]].append((edge["from"], -1))
    levels = {0: 0}
    spread(0, levels, around)
    while step := next((one for one in later if (one[0] in levels) != (one[1] in levels)), None):
        source, target = step
        if source in levels:
            levels[target] = levels[source] + 1
            spread(target, levels, around)
        else:
            levels[source] = levels[target] - 1
            spread(source, levels, around)
    columns: list[list[int]] = []
    rows: dict[int, float] = {}
    for level in sorted(set(levels.values())):
        some = [node for node in range(count) if levels.get(node) == level]

        def middle(node: int) -> float:
            """Return the mean row of what is drawn already around an object."""
            known = [rows[other] for other, _ in around[node] if other in rows]
            return sum(known) / len(known) if known else float(node)

        some.sort(key=middle)
        rows.update((node, float(row)) for row, node in enumerate(some))
        columns.append(some)
    return columns


def spread(
    start: int, levels: dict[int, int], around: Mapping[int, Sequence[tuple[int, int]]]
) -> None:
    """Give levels to what an object leads to, and what leads to it, the nearest first."""
    pending = deque([start])
    while pending:
        node = pending.popleft()
        for other, step in around[node]:
            if other not in levels:
                levels[other] = levels[node] + step
                pending.append(other)


def box_of(
    vhost: str,
    node: JsonObject,
    corner: tuple[int, int],
    *,
    is_first: bool,
    reached: frozenset[str],
) -> Box:
    """Return an object as it is drawn."""
    is_exchange = node["kind"] == EXCHANGE
    name = plain(node["name"]) or "(default)"
    note = node["type"] if is_exchange else f"{number(node['ready'])} ready"
    kind = "exchanges" if is_exchange else "queues"
    return Box(
        node["kind"],
        short(name, NAME_CHARACTERS),
        f"{node['kind']} {name}, {note}",
        note,
        f"/{kind}/{segment(vhost)}/{segment(node['name'] or DEFAULT)}/topology",
        *corner,
        is_reached=not is_exchange and node["name"] in reached,
        is_first=is_first,
    )


def curves_of(edges: Sequence[JsonObject], corners: dict[int, tuple[int, int]]) -> list[Curve]:
    """Return the edges as they are drawn."""
    bundles: dict[tuple[int, int, str], list[str]] = {}
    for edge in edges:
        mark = (edge["from"], edge["to"], edge["what"])
        bundles.setdefault(mark, []).append(plain(edge["routing_key"]))
    leaving = degrees([mark[0] for mark in bundles])
    coming = degrees([mark[1] for mark in bundles])
    found = []
    for (source, target, what), keys in bundles.items():
        (x1, y1), (x2, y2) = corners[source], corners[target]
        words = words_of(what, keys)
        if x2 > x1:
            start, end, bend = x1 + WIDTH, x2 - 4, ACROSS // 2
            y1, y2 = y1 + HEIGHT // 2, y2 + HEIGHT // 2
            path = f"M{start} {y1} C{start + bend} {y1} {end - bend} {y2} {end} {y2}"
            at_end = leaving[source] >= coming[target]
            x, y = (end - LABEL_OFF, y2) if at_end else (start + LABEL_OFF, y1)
            anchor = "end" if at_end else "start"
        else:
            start, end = x1 + WIDTH // 2, x2 + WIDTH // 2 + (WIDTH // 4 if x1 == x2 else 0)
            low = max(y1, y2) + HEIGHT + BELOW
            top = y2 + HEIGHT + 4
            path = f"M{start} {y1 + HEIGHT} C{start} {low} {end} {low} {end} {top}"
            x, y, anchor = (start + end) // 2, low - BELOW // 4, "middle"
        found.append(
            Curve(what, path, short(words, KEY_CHARACTERS), words, x, y - LABEL_UP, anchor)
        )
    return found


def degrees(ends: list[int]) -> dict[int, int]:
    """Return how often each object is an end."""
    return {node: ends.count(node) for node in set(ends)}


def words_of(what: str, keys: list[str]) -> str:
    """Return what is written at an edge."""
    if what != "binding":
        return what
    return keys[0] if len(keys) == 1 else f"{len(keys)} bindings"

# SPDX-License-Identifier: Apache-2.0
"""The drawing of a pipeline: sources at the left, sinks at the right, each edge a curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.pages.drawing import HEIGHT, WIDTH, Grid, short
from headrace.console.pages.texts import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.untyped import JsonObject

ACROSS = 104  # Between columns, in pixels.
GRID = Grid(ACROSS, margin=12)
ARROW = 4  # Of its tip that is beyond the end of a line.
NAME_CHARACTERS, RULE_CHARACTERS = 21, 13  # That have room.
PARTS_MAX = 200


@dataclass(frozen=True, slots=True)
class PartBox:
    """A part of a pipeline as it is drawn."""

    kind: str
    name: str  # As it is shown,
    full: str  # and whole.
    note: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Flow:
    """What leads from a part to another."""

    path: str
    rule: str
    full: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class PipelineDrawing:
    """A drawing with its size."""

    boxes: list[PartBox]
    flows: list[Flow]
    width: int
    height: int


def draw(pipeline: JsonObject) -> PipelineDrawing:
    """Return the drawing of a pipeline."""
    parts = {str(one.get("id")): one for one in pipeline["nodes"][:PARTS_MAX]}
    edges = [
        (str(one.get("from")), str(one.get("to")), str(one.get("rule") or ""))
        for one in pipeline["edges"]
    ]
    edges = [one for one in edges if one[0] in parts and one[1] in parts]
    levels = levels_of(parts, edges)
    columns: list[list[str]] = [[] for _ in range(max(levels.values(), default=-1) + 1)]
    for one, level in levels.items():
        columns[level].append(one)
    ways = [way_of(start, end, levels, columns) for start, end, _ in edges]
    corners = GRID.corners(columns)
    boxes = [box_of(part, corners[one]) for one, part in parts.items()]
    flows = [
        flow_of([corners[one] for one in way], rule)
        for way, (_, _, rule) in zip(ways, edges, strict=True)
    ]
    return PipelineDrawing(boxes, flows, *GRID.size(columns))


def way_of(start: str, end: str, levels: dict[str, int], columns: list[list[str]]) -> list[str]:
    """Return the places that a flow passes; it gets one of its own in each column between."""
    between = range(levels[start] + 1, levels[end])
    places = [f"{start} to {end} at {level}" for level in between]
    for level, place in zip(between, places, strict=True):
        if place not in columns[level]:
            columns[level].append(place)
    return [start, *places, end]


def levels_of(
    parts: dict[str, JsonObject], edges: Sequence[tuple[str, str, str]]
) -> dict[str, int]:
    """Return the column of each part: right of all that leads to it, and sinks rightmost."""
    levels = dict.fromkeys(parts, 0)
    for _ in parts:  # As often as the longest way may be; a circle ends as well.
        moved = False
        for start, end, _ in edges:
            if levels[end] <= levels[start] < len(parts):
                levels[end] = levels[start] + 1
                moved = True
        if not moved:
            break
    last = max(levels.values(), default=0)
    return {one: last if parts[one].get("kind") == "sink" else at for one, at in levels.items()}


def box_of(part: JsonObject, corner: tuple[int, int]) -> PartBox:
    """Return a part as it is drawn."""
    name, kind = plain(str(part.get("name"))), str(part.get("kind"))
    note = plain(" ".join(str(part.get(key) or "") for key in ("type", "where")).strip()) or kind
    shown = short(name, NAME_CHARACTERS), short(note, NAME_CHARACTERS + 4)
    return PartBox(kind, shown[0], f"{kind} {name}, {note}", shown[1], *corner)


def flow_of(way: Sequence[tuple[int, int]], rule: str) -> Flow:
    """Return a curve along a way, with the name of a rule before its end."""
    middle, bend = HEIGHT // 2, ACROSS // 2
    x, y = way[0][0] + WIDTH, way[0][1] + middle
    path = f"M{x} {y}"
    for at, (left, top) in enumerate(way[1:], 2):
        last = at == len(way)
        x2, y2 = left - (ARROW if last else 0), top + middle
        path += f" C{x + bend} {y} {x2 - bend} {y2} {x2} {y2}"
        if not last:
            path += f" h{WIDTH}"
        x, y = x2 + WIDTH, y2
    full = plain(rule)
    return Flow(path, short(full, RULE_CHARACTERS), full, x2 - 2 * ARROW, y2 - ARROW)

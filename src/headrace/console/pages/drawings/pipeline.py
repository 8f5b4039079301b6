# SPDX-License-Identifier: Apache-2.0
"""The drawing of a pipeline: sources at the left, sinks at the right, each edge a curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.pages.drawings.grid import HEIGHT, WIDTH, GridLayout, shorten
from headrace.console.pages.texts import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.untyped import JsonObject

COLUMN_GAP = 104  # Between columns, in pixels.
LAYOUT = GridLayout(COLUMN_GAP, margin=12)
ARROW = 4  # Pixels of the tip beyond the end of a line.
NAME_CHARACTERS, RULE_CHARACTERS = 21, 13  # Characters that fit.
PARTS_MAX = 200


@dataclass(frozen=True, slots=True)
class PartBox:
    """A part of a pipeline as it is drawn."""

    kind: str
    name: str  # Cut to the width of the box.
    full: str  # Kind, whole name and note.
    note: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Flow:
    """An edge from a part to another; ``rule`` is empty for rows that no rule rejects."""

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
    parts = {str(part.get("id")): part for part in pipeline["nodes"][:PARTS_MAX]}
    edges = [
        (str(edge.get("from")), str(edge.get("to")), str(edge.get("rule") or ""))
        for edge in pipeline["edges"]
    ]
    edges = [edge for edge in edges if edge[0] in parts and edge[1] in parts]
    levels = levels_of(parts, edges)
    columns: list[list[str]] = [[] for _ in range(max(levels.values(), default=-1) + 1)]
    for part_id, level in levels.items():
        columns[level].append(part_id)
    paths = [path_of(start, end, levels, columns) for start, end, _ in edges]
    corners = LAYOUT.corners(columns)
    boxes = [box_of(part, corners[part_id]) for part_id, part in parts.items()]
    flows = [
        flow_of([corners[waypoint] for waypoint in path], rule)
        for path, (_, _, rule) in zip(paths, edges, strict=True)
    ]
    return PipelineDrawing(boxes, flows, *LAYOUT.size(columns))


def path_of(start: str, end: str, levels: dict[str, int], columns: list[list[str]]) -> list[str]:
    """Return the waypoints of a flow: its ends, and one of its own in each column between."""
    between = range(levels[start] + 1, levels[end])
    waypoints = [f"{start} to {end} at {level}" for level in between]
    for level, waypoint in zip(between, waypoints, strict=True):
        if waypoint not in columns[level]:
            columns[level].append(waypoint)
    return [start, *waypoints, end]


def levels_of(
    parts: dict[str, JsonObject], edges: Sequence[tuple[str, str, str]]
) -> dict[str, int]:
    """Return the column of each part: right of its sources; sinks are in the last column."""
    levels = dict.fromkeys(parts, 0)
    for _ in parts:  # The length of the longest path; a circle ends, too.
        moved = False
        for start, end, _ in edges:
            if levels[end] <= levels[start] < len(parts):
                levels[end] = levels[start] + 1
                moved = True
        if not moved:
            break
    last = max(levels.values(), default=0)
    return {
        part_id: last if parts[part_id].get("kind") == "sink" else level
        for part_id, level in levels.items()
    }


def box_of(part: JsonObject, corner: tuple[int, int]) -> PartBox:
    """Return a part as it is drawn."""
    name, kind = plain(str(part.get("name"))), str(part.get("kind"))
    note = plain(" ".join(str(part.get(key) or "") for key in ("type", "where")).strip()) or kind
    short_name, short_note = shorten(name, NAME_CHARACTERS), shorten(note, NAME_CHARACTERS + 4)
    return PartBox(kind, short_name, f"{kind} {name}, {note}", short_note, *corner)


def flow_of(waypoints: Sequence[tuple[int, int]], rule: str) -> Flow:
    """Return a curve along its waypoints, with the name of a rule before its end."""
    middle, bend = HEIGHT // 2, COLUMN_GAP // 2
    x, y = waypoints[0][0] + WIDTH, waypoints[0][1] + middle
    path = f"M{x} {y}"
    for index, (left, top) in enumerate(waypoints[1:], 2):
        is_last = index == len(waypoints)
        x2, y2 = left - (ARROW if is_last else 0), top + middle
        path += f" C{x + bend} {y} {x2 - bend} {y2} {x2} {y2}"
        if not is_last:
            path += f" h{WIDTH}"
        x, y = x2 + WIDTH, y2
    full = plain(rule)
    return Flow(path, shorten(full, RULE_CHARACTERS), full, x2 - 2 * ARROW, y2 - ARROW)

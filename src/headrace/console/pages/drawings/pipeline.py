# SPDX-License-Identifier: Apache-2.0
"""The drawing of a pipeline: sources at the left, sinks at the right, each edge a curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.pages.drawings.grid import HEIGHT, WIDTH, Box, GridLayout, shorten
from headrace.console.pages.texts import escape_hidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.untyped import JsonObject

COLUMN_GAP = 104  # Pixels between columns.
LAYOUT = GridLayout(COLUMN_GAP, margin=12)
ARROW = 4  # Pixels of the tip beyond the end of a line.
NAME_CHARACTERS, NOTE_CHARACTERS = 21, 25  # Characters that fit into a box.
RULE_CHARACTERS = 13  # Characters that fit between columns.
PARTS_MAX = 200


@dataclass(frozen=True, slots=True)
class Flow:
    """The curve of an edge between two parts, with the rule that rejects its rows, if any."""

    path: str  # The attribute ``d`` of an SVG path.
    short_rule: str  # Cut to the gap between columns.
    rule: str
    x: int  # The right end of the rule's text, in pixels.
    y: int


@dataclass(frozen=True, slots=True)
class PipelineDrawing:
    """The drawing of a pipeline, with its size in pixels."""

    boxes: list[Box]
    flows: list[Flow]
    width: int
    height: int


def draw_pipeline(pipeline: JsonObject) -> PipelineDrawing:
    """Return the drawing of a pipeline; parts after the first :data:`PARTS_MAX` are left out."""
    parts = {str(part.get("id")): part for part in pipeline["nodes"][:PARTS_MAX]}
    edges = [
        (str(edge.get("from")), str(edge.get("to")), str(edge.get("rule") or ""))
        for edge in pipeline["edges"]
    ]
    edges = [edge for edge in edges if edge[0] in parts and edge[1] in parts]
    levels = compute_levels(parts, edges)
    columns: list[list[str]] = [[] for _ in range(max(levels.values(), default=-1) + 1)]
    for part_id, level in levels.items():
        columns[level].append(part_id)
    paths = [add_waypoints(start, end, levels, columns) for start, end, _ in edges]
    corners = LAYOUT.corners(columns)
    boxes = [draw_box(part, corners[part_id]) for part_id, part in parts.items()]
    flows = [
        draw_flow([corners[waypoint] for waypoint in path], rule)
        for path, (_, _, rule) in zip(paths, edges, strict=True)
    ]
    return PipelineDrawing(boxes, flows, *LAYOUT.size(columns))


def add_waypoints(
    start: str, end: str, levels: dict[str, int], columns: list[list[str]]
) -> list[str]:
    """Add a waypoint of an edge to each column between its ends; return ends and waypoints.

    A waypoint takes the place of a box, so that the edge passes beside the parts.
    """
    between = range(levels[start] + 1, levels[end])
    waypoints = [f"{start} to {end} at {level}" for level in between]
    for level, waypoint in zip(between, waypoints, strict=True):
        if waypoint not in columns[level]:
            columns[level].append(waypoint)
    return [start, *waypoints, end]


def compute_levels(
    parts: dict[str, JsonObject], edges: Sequence[tuple[str, str, str]]
) -> dict[str, int]:
    """Return the column of each part: right of its sources; sinks are in the last column."""
    levels = dict.fromkeys(parts, 0)
    for _ in parts:  # No path is longer than the number of parts. This also ends in a circle.
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


def draw_box(part: JsonObject, corner: tuple[int, int]) -> Box:
    """Return the box of a part; its note is type and target, or the kind without these."""
    name, kind = escape_hidden(str(part.get("name"))), str(part.get("kind"))
    target = " ".join(str(part.get(key) or "") for key in ("type", "where"))
    note = escape_hidden(target.strip()) or kind
    short_name, short_note = shorten(name, NAME_CHARACTERS), shorten(note, NOTE_CHARACTERS)
    return Box(kind, short_name, f"{kind} {name}, {note}", short_note, *corner)


def draw_flow(corners: Sequence[tuple[int, int]], rule: str) -> Flow:
    """Return the curve of an edge, with the name of its rule before its end.

    ``corners`` are the upper left corners of its ends and waypoints.
    """
    middle, bend = HEIGHT // 2, COLUMN_GAP // 2
    x, y = corners[0][0] + WIDTH, corners[0][1] + middle
    path = f"M{x} {y}"
    for index, (left, top) in enumerate(corners[1:], 2):
        is_last = index == len(corners)
        x2, y2 = left - (ARROW if is_last else 0), top + middle
        path += f" C{x + bend} {y} {x2 - bend} {y2} {x2} {y2}"
        if not is_last:
            path += f" h{WIDTH}"
        x, y = x2 + WIDTH, y2
    rule = escape_hidden(rule)
    return Flow(path, shorten(rule, RULE_CHARACTERS), rule, x2 - 2 * ARROW, y2 - ARROW)

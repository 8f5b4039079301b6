# SPDX-License-Identifier: Apache-2.0
"""A grid of boxes: columns from left to right, each centred vertically."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 176, 44  # The size of a box in pixels; macros.html draws boxes of this size.
ROW_GAP = 16  # Pixels between the boxes of a column.

Node = TypeVar("Node")


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a drawing."""

    kind: str
    name: str  # Cut to the width of the box.
    title: str  # Kind, whole name and note.
    note: str
    x: int  # The upper left corner, in pixels.
    y: int


class GridLayout(NamedTuple):
    """The gaps between the boxes of a drawing, and the positions that follow from them."""

    column_gap: int  # Pixels between columns.
    margin: int  # Pixels around the drawing.

    def corners(self, columns: Sequence[Sequence[Node]]) -> dict[Node, tuple[int, int]]:
        """Return the upper left corner of each box."""
        tallest = max(map(len, columns), default=0)
        corners: dict[Node, tuple[int, int]] = {}
        for index, column in enumerate(columns):
            x = self.margin + index * (WIDTH + self.column_gap)
            top = self.margin + (tallest - len(column)) * (HEIGHT + ROW_GAP) // 2
            corners.update(
                (node, (x, top + row * (HEIGHT + ROW_GAP))) for row, node in enumerate(column)
            )
        return corners

    def size(self, columns: Sequence[Sequence[object]]) -> tuple[int, int]:
        """Return the width and height of the drawing in pixels."""
        tallest = max(map(len, columns), default=0)
        width = 2 * self.margin + len(columns) * (WIDTH + self.column_gap) - self.column_gap
        return width, 2 * self.margin + tallest * (HEIGHT + ROW_GAP) - ROW_GAP


def shorten(text: str, characters: int) -> str:
    """Return a text of at most ``characters`` characters; a cut text ends with an ellipsis."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"

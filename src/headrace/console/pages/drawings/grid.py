# SPDX-License-Identifier: Apache-2.0
"""A grid of boxes: columns from left to right, each centred, and names cut to the boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 176, 44  # The size of a box, in pixels.
ROW_GAP = 16  # Between the boxes of a column.

Node = TypeVar("Node")


class GridLayout(NamedTuple):
    """The positions of the boxes of a drawing."""

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
        """Return the width and height of the drawing."""
        tallest = max(map(len, columns), default=0)
        width = 2 * self.margin + len(columns) * (WIDTH + self.column_gap) - self.column_gap
        return width, 2 * self.margin + tallest * (HEIGHT + ROW_GAP) - ROW_GAP


def shorten(text: str, characters: int) -> str:
    """Return a text, cut to a number of characters with an ellipsis."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"

# SPDX-License-Identifier: Apache-2.0
"""What drawings share: boxes in columns, each column in the middle, and names that have room."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 176, 44  # Of a box, in pixels.
DOWN = 16  # Between the boxes of a column.

Node = TypeVar("Node")


class Grid(NamedTuple):
    """Where the boxes of a drawing are."""

    across: int  # Between columns, in pixels,
    margin: int  # and around the drawing.

    def corners(self, columns: Sequence[Sequence[Node]]) -> dict[Node, tuple[int, int]]:
        """Return the upper left corner of each box."""
        tallest = max(map(len, columns), default=0)
        found: dict[Node, tuple[int, int]] = {}
        for column, some in enumerate(columns):
            x = self.margin + column * (WIDTH + self.across)
            top = self.margin + (tallest - len(some)) * (HEIGHT + DOWN) // 2
            found.update((node, (x, top + row * (HEIGHT + DOWN))) for row, node in enumerate(some))
        return found

    def size(self, columns: Sequence[Sequence[object]]) -> tuple[int, int]:
        """Return the width and height of the drawing."""
        tallest = max(map(len, columns), default=0)
        width = 2 * self.margin + len(columns) * (WIDTH + self.across) - self.across
        return width, 2 * self.margin + tallest * (HEIGHT + DOWN) - DOWN


def short(text: str, characters: int) -> str:
    """Return the beginning of a text that has room."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"

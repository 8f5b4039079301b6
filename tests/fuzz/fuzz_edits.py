# SPDX-License-Identifier: Apache-2.0
"""Edits of frames that need no knowledge of their content."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


class Edits:
    """Edits of a list of frames in place, at random; the base of mutators."""

    def __init__(self, random: random.Random, frames: list[bytes]) -> None:
        """``frames`` are those of the corpus, from which others are grafted."""
        self._random = random
        self._frames = frames

    def _place(self, frames: list[bytes]) -> int:
        return self._random.randrange(len(frames))

    def _drop(self, frames: list[bytes]) -> None:
        del frames[self._place(frames)]

    def _repeat(self, frames: list[bytes]) -> None:
        place = self._place(frames)
        frames[place:place] = [frames[place]] * self._random.choice((1, 1, 2, 20))

    def _swap(self, frames: list[bytes]) -> None:
        one, other = self._place(frames), self._place(frames)
        frames[one], frames[other] = frames[other], frames[one]

    def _graft(self, frames: list[bytes]) -> None:
        frames.insert(self._place(frames) + 1, self._random.choice(self._frames))

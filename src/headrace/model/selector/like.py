# SPDX-License-Identifier: Apache-2.0
"""LIKE patterns: ``_`` matches one character, ``%`` any number, others themselves.

Between two ``%`` a pattern has a segment of fixed length. The first segment is matched at the start
of a text, the last at its end, and every other at the first possible position after its
predecessor. So no position is tried twice, and no pattern takes exponential time. A segment of one
literal is found by string search. A segment with ``_`` inside is tried position by position and,
after ``TRIES_MAX`` failures, at all positions at once with a bit mask.
"""

from __future__ import annotations

from typing import NamedTuple

TEXT_MAX = 65536  # Characters; a longer text is not compared.
TRIES_MAX = 64  # Positions tried one by one.


class PatternSegment(NamedTuple):
    """The part between two ``%``."""

    size: int
    literals: tuple[tuple[int, str], ...]  # Texts, each with its position in the segment.

    def matches_at(self, text: str, position: int) -> bool:
        """Return True if it matches at a position of a text that is long enough."""
        return all(text.startswith(literal, position + offset) for offset, literal in self.literals)

    def find(self, text: SearchedText, start: int, end: int) -> int:
        """Return the first position from ``start`` where it matches before ``end``; -1 if none."""
        if end - start < self.size:
            return -1
        if not self.literals:
            return start
        value, position = text.value, start
        last = end - self.size  # The last possible position.
        for _ in range(TRIES_MAX if len(self.literals) > 1 else 1):
            before = position
            for offset, literal in self.literals:
                index = value.find(literal, position + offset, last + offset + len(literal))
                if index < 0:
                    return -1
                position = index - offset
            if position == before or len(self.literals) == 1:
                return position
        return self._find_at_once(text, position, last)

    def _find_at_once(self, text: SearchedText, start: int, last: int) -> int:
        positions = ((1 << (last + 1 - start)) - 1) << start
        for offset, literal in self.literals:
            for index, character in enumerate(literal, offset):
                positions &= text.positions(character) >> index
                if not positions:
                    return -1
        return (positions & -positions).bit_length() - 1


class SearchedText:
    """A text that is searched for segments."""

    __slots__ = ("_planes", "_positions", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        self._planes: tuple[bytes, ...] = ()
        self._positions: dict[str, int] = {}

    def positions(self, character: str) -> int:
        """Return an integer with a bit for each position of a character."""
        positions = self._positions.get(character)
        if positions is None:
            positions = self._positions[character] = self._find(character)
        return positions

    def _find(self, character: str) -> int:
        if not self._planes:  # The reversed text, as three rows of bytes.
            code_points = self.value[::-1].encode("utf-32-le", "surrogatepass")
            self._planes = tuple(code_points[plane::4] for plane in range(3))
        positions = -1
        encoded = character.encode("utf-32-le", "surrogatepass")
        for byte, plane in zip(encoded, self._planes, strict=False):
            positions &= int(plane.translate(b"0" * byte + b"1" + b"0" * (255 - byte)), 2)
        return positions


class LikePattern:
    """A compiled pattern."""

    __slots__ = ("_first", "_last", "_middle", "_size")

    def __init__(self, text: str, escape: str | None) -> None:
        """``escape`` makes the next character stand for itself.

        Raises:
            ValueError: the pattern ends with the escape character.
        """
        first, *others = segments(text, escape)
        self._first = first
        self._last = others.pop() if others else None  # None without ``%``.
        self._middle = tuple(segment for segment in others if segment.size)
        ends = first.size + (0 if self._last is None else self._last.size)
        self._size = ends + sum([segment.size for segment in self._middle])

    def matches(self, value: str) -> bool | None:
        """Return True if a text matches; None, unknown, if it is too long."""
        first, last = self._first, self._last
        if last is None:
            return len(value) == first.size and first.matches_at(value, 0)
        if len(value) < self._size:
            return False
        end = len(value) - last.size
        if not (first.matches_at(value, 0) and last.matches_at(value, end)):
            return False
        if not self._middle:
            return True
        if len(value) > TEXT_MAX:
            return None
        text, position = SearchedText(value), first.size
        for segment in self._middle:
            position = segment.find(text, position, end)
            if position < 0:
                return False
            position += segment.size
        return True


def segments(text: str, escape: str | None) -> list[PatternSegment]:
    """Return the segments before, between and after the ``%`` of a pattern.

    Raises:
        ValueError: the pattern ends with the escape character.
    """
    parsed: list[PatternSegment] = []
    literals: list[tuple[int, str]] = []
    literal: list[str] = []
    size = 0
    escaped = False

    def end_literal() -> None:
        if literal:
            literals.append((size - len(literal), "".join(literal)))
            literal.clear()

    for character in text:
        if not escaped and character == escape:
            escaped = True
            continue
        if escaped or character not in "_%":
            literal.append(character)
            size += 1
            escaped = False
            continue
        end_literal()
        if character == "_":
            size += 1
        else:
            parsed.append(PatternSegment(size, tuple(literals)))
            literals.clear()
            size = 0
    if escaped:
        raise ValueError("a pattern that ends with its ESCAPE")
    end_literal()
    parsed.append(PatternSegment(size, tuple(literals)))
    return parsed

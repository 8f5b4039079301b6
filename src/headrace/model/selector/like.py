# SPDX-License-Identifier: Apache-2.0
"""LIKE patterns: ``_`` matches one character, ``%`` any number, others themselves.

Between two ``%`` a pattern has a segment of fixed length: the first is matched at the start of a
text, the last at its end, and each other one at the first place after its predecessor. So no
place is tried twice, and no client can multiply the states of an automaton. A segment of one
piece is found by string search. One with ``_`` inside is tried place by place and, after some
failures, at all places at once with a bit mask.
"""

from __future__ import annotations

from typing import NamedTuple

TEXT_MAX = 65536  # Characters; a longer text is not compared.
TRIES_MAX = 64  # Places tried one by one.


class Segment(NamedTuple):
    """The part between two ``%``."""

    size: int
    pieces: tuple[tuple[int, str], ...]  # Texts and their places in the segment.

    def matches_at(self, text: str, place: int) -> bool:
        """Return True if it matches at a place of a text that is long enough."""
        return all(text.startswith(piece, place + offset) for offset, piece in self.pieces)

    def find(self, text: Text, start: int, end: int) -> int:
        """Return the first place from ``start`` where it matches before ``end``; -1 if none."""
        if end - start < self.size:
            return -1
        if not self.pieces:
            return start
        value, place = text.value, start
        last = end - self.size  # The last possible place.
        for _ in range(TRIES_MAX if len(self.pieces) > 1 else 1):
            before = place
            for offset, piece in self.pieces:
                index = value.find(piece, place + offset, last + offset + len(piece))
                if index < 0:
                    return -1
                place = index - offset
            if place == before or len(self.pieces) == 1:
                return place
        return self._find_at_once(text, place, last)

    def _find_at_once(self, text: Text, start: int, last: int) -> int:
        places = ((1 << (last + 1 - start)) - 1) << start
        for offset, piece in self.pieces:
            for index, character in enumerate(piece, offset):
                places &= text.places(character) >> index
                if not places:
                    return -1
        return (places & -places).bit_length() - 1


class Text:
    """A text that is searched for segments."""

    __slots__ = ("_places", "_planes", "value")

    def __init__(self, value: str) -> None:
        self.value = value
        self._planes: tuple[bytes, ...] = ()
        self._places: dict[str, int] = {}

    def places(self, character: str) -> int:
        """Return an integer with a bit for each place of a character."""
        places = self._places.get(character)
        if places is None:
            places = self._places[character] = self._find(character)
        return places

    def _find(self, character: str) -> int:
        if not self._planes:  # The reversed text, as three rows of bytes.
            octets = self.value[::-1].encode("utf-32-le", "surrogatepass")
            self._planes = tuple(octets[plane::4] for plane in range(3))
        places = -1
        wanted = character.encode("utf-32-le", "surrogatepass")
        for octet, plane in zip(wanted, self._planes, strict=False):
            places &= int(plane.translate(b"0" * octet + b"1" + b"0" * (255 - octet)), 2)
        return places


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
        self._last = others.pop() if others else None  # None: there is no ``%``.
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
        text, place = Text(value), first.size
        for segment in self._middle:
            place = segment.find(text, place, end)
            if place < 0:
                return False
            place += segment.size
        return True


def segments(text: str, escape: str | None) -> list[Segment]:
    """Return the segments before, between and after the ``%`` of a pattern.

    Raises:
        ValueError: the pattern ends with the escape character.
    """
    parsed: list[Segment] = []
    pieces: list[tuple[int, str]] = []
    literal: list[str] = []
    size = 0
    escaped = False

    def end_piece() -> None:
        if literal:
            pieces.append((size - len(literal), "".join(literal)))
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
        end_piece()
        if character == "_":
            size += 1
        else:
            parsed.append(Segment(size, tuple(pieces)))
            pieces.clear()
            size = 0
    if escaped:
        raise ValueError("a pattern that ends with its ESCAPE")
    end_piece()
    parsed.append(Segment(size, tuple(pieces)))
    return parsed

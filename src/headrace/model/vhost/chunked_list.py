# SPDX-License-Identifier: Apache-2.0
"""A list of any length that may change while it is iterated.

A virtual host may have hundreds of thousands of queues. To copy a dictionary of 100,000 takes
3 milliseconds, in which the event loop serves nobody; an iterator over the dictionary itself is not
safe while others declare and delete. This list is kept in chunks: an iteration copies the list of
chunks, and each chunk when it comes to it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 64  # Items of a chunk: what a removal compares, and an iteration copies at once.

Item = TypeVar("Item")


class ChunkedList(Generic[Item]):
    """Items in the order in which they were added.

    An item keeps the chunk that it is in, and names it when it is removed.
    """

    def __init__(self) -> None:
        self._chunks: list[list[Item]] = []

    def append(self, item: Item) -> list[Item]:
        """Add an item; return its chunk."""
        if not self._chunks or len(self._chunks[-1]) >= CHUNK:
            self._chunks.append([])
        chunk = self._chunks[-1]
        chunk.append(item)
        return chunk

    def remove(self, item: Item, chunk: list[Item]) -> None:
        """Remove an item from its chunk.

        Raises:
            ValueError: the item is not in the chunk.
        """
        chunk.remove(item)
        if not chunk and chunk is not self._chunks[-1]:
            self._chunks.remove(chunk)

    def chunks(self) -> Iterator[list[Item]]:
        """Return copies of the chunks, each made when it is asked for.

        They have the items that are in the list now and are still there when their chunk is copied.
        Items that are added meanwhile are not among them; one that is removed meanwhile may be.
        """
        chunks = list(self._chunks)
        if chunks:
            chunks[-1] = chunks[-1].copy()  # The only one to which items are added.
        return map(list.copy, chunks)

    def __iter__(self) -> Iterator[Item]:
        """Return the items of :meth:`chunks`."""
        return chain.from_iterable(self.chunks())

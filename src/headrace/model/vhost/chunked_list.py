# SPDX-License-Identifier: Apache-2.0
"""A list of any length that may change while it is iterated.

A virtual host may have hundreds of thousands of queues. Copying a dictionary of 100,000 queues
blocks the event loop for 3 milliseconds, and an iteration over the dictionary itself fails when
queues are declared or deleted during it. This list consists of chunks: an iteration copies the list
of chunks first, and each chunk when it reaches it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 64  # Items of a chunk, which a removal searches and an iteration copies at once.

Item = TypeVar("Item")


class ChunkedList(Generic[Item]):
    """Items in the order in which they were added.

    Callers store the chunk of an item, and pass it to :meth:`remove`.
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
        """Return an iterator of copies of the chunks, each copied when the iterator reaches it.

        The copies have the items that are in the list now, except those that are removed before
        their chunk is copied. They have no items that are added later.
        """
        chunks = list(self._chunks)
        if chunks:
            chunks[-1] = chunks[-1].copy()  # Items are added to the last chunk only.
        return map(list.copy, chunks)

    def __iter__(self) -> Iterator[Item]:
        """Return the items of :meth:`chunks`."""
        return chain.from_iterable(self.chunks())

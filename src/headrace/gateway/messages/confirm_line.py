# SPDX-License-Identifier: Apache-2.0
"""Answers that wait until what they promise is on disk.

One line per store: a channel that must wait joins with the log position that has to be durable
first. Positions only grow, so the line is first-in first-out, and its head shows whether any answer
can be sent. A batch of publishes of one read is one place in the line.

Publishes need not wait once consumers have settled all messages of their batch. Such a batch leaves
the line from the middle, but never before an earlier one of the same channel.
"""

from collections import deque
from typing import Protocol

import cython

if not cython.compiled:
    from headrace.model.ports import Span, Store


#: The error for a change that was not answered before the disk failed.
NOT_KEPT = "definitions cannot be written to disk: the latest changes may be lost by a restart"
ANSWER_NACK = 1 << 62  # Added to a publish's number, a token of the line, for a basic.nack.
LOOKS_MAX = 16  # Places that are looked at in one turn.


class Waiter(Protocol):
    """A member of the line; ``token`` is what it joined with."""

    def released(self, token: int) -> None:
        """The log is durable up to the position of ``token``, or need not be."""


class Place:
    """A place in the line."""

    def __init__(self, position: int, waiter: Waiter, token: int, span: Span | None) -> None:
        self.position = position  # In the log.
        self.waiter = waiter
        self.token = token
        self.span = span  # Its publishes; None if it waits for the disk.
        self.is_free = False  # It was released.


class ConfirmLine:
    """Those who wait for one store's watermark."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.line: deque[Place] = deque()
        self.waiting = False  # The line is not empty.

    def join(self, waiter: Waiter, token: int) -> None:
        """Wait for all that was appended so far; at once when nothing is owed."""
        if not self.line and self.store.synced >= self.store.appended:
            waiter.released(token)
            return
        self.add(waiter, token, None)

    def join_publishes(self, waiter: Waiter, token: int, turn: int, is_first: bool) -> None:
        """Wait until what was appended is durable, or consumers have settled all of it.

        ``turn`` is the store's when the first message was appended. With ``is_first`` nothing of
        the waiter is in the line.
        """
        store = self.store
        span: Span | None = None
        if self.line or store.synced < store.appended:
            if turn == store.turn:
                span = store.span()
            if span is None or not is_first or not span.is_consumed():
                self.add(waiter, token, span)
                return
        waiter.released(token)

    def add(self, waiter: Waiter, token: int, span: Span | None) -> None:
        """Add a place at the end of the line."""
        self.line.append(Place(self.store.appended, waiter, token, span))
        self.waiting = True

    def advance(self) -> None:
        """The watermark moved: release whom it passed."""
        synced = self.store.synced
        line = self.line
        while line:
            place: Place = line[0]
            if not place.is_free:
                if place.position > synced:
                    return
                place.waiter.released(place.token)
            line.popleft()
        self.waiting = False

    def release_consumed(self) -> None:
        """Release publishes that consumers have settled, before they are durable."""
        looks = LOOKS_MAX
        kept: list[Waiter] = []
        free: list[Place] = []
        place: Place
        for place in self.line:
            if not place.is_free:
                span = place.span
                if span is not None and place.waiter not in kept and span.is_consumed():
                    place.is_free = True
                    free.append(place)
                else:
                    kept.append(place.waiter)
            looks -= 1
            if not looks:
                break
        for place in free:
            place.waiter.released(place.token)

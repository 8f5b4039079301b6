# SPDX-License-Identifier: Apache-2.0
"""Answers that wait until the effects that they confirm are on disk.

Each store has one queue of such answers. A channel that must wait joins the queue with the log
position that must be durable first. Positions only grow, so the queue is first-in first-out, and
its head shows whether an answer can be sent. The publishes of one read are one entry, a batch.

A batch is confirmed early once consumers have settled all of its messages. It then leaves the queue
from the middle, but after all earlier batches of its channel.
"""

from collections import deque
from typing import Protocol

import cython

if not cython.compiled:
    from headrace.model.ports import Span, Store


#: The error for a change that was not answered before the disk failed.
NOT_DURABLE = "definitions cannot be written to disk: the latest changes may be lost by a restart"
ANSWER_NACK = 1 << 62  # Added to a publish's number, a token of the queue, for a basic.nack.
CHECKS_MAX = 16  # Entries that are checked for consumed publishes in one turn.


class Waiter(Protocol):
    """A channel or session that waits until it may send an answer."""

    def on_released(self, token: int) -> None:
        """Send the answer that joined with ``token``: its effects are durable or consumed."""


class PendingConfirm:
    """An entry of the queue: an answer that waits."""

    def __init__(self, position: int, waiter: Waiter, token: int, span: Span | None) -> None:
        self.position = position  # The log position that must be durable.
        self.waiter = waiter
        self.token = token
        self.span = span  # The batch's publishes; None if only the disk can release the entry.
        self.is_released = False


class PendingConfirms:
    """The queue of the answers that wait for one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.entries: deque[PendingConfirm] = deque()
        self.waiting = False  # True while the queue has entries.

    def join(self, waiter: Waiter, token: int) -> None:
        """Wait for all records appended so far; release at once if they are durable already."""
        if not self.entries and self.store.synced >= self.store.appended:
            waiter.on_released(token)
            return
        self.add(waiter, token, None)

    def join_publishes(self, waiter: Waiter, token: int, turn: int, is_first: bool) -> None:
        """Wait until the publishes are durable, or consumers have settled all of them.

        ``turn`` is the store's turn in which the first message was appended. With ``is_first``, the
        waiter has no other entry in the queue.
        """
        store = self.store
        span: Span | None = None
        if self.entries or store.synced < store.appended:
            if turn == store.turn:
                span = store.span()
            if span is None or not is_first or not span.is_consumed():
                self.add(waiter, token, span)
                return
        waiter.on_released(token)

    def add(self, waiter: Waiter, token: int, span: Span | None) -> None:
        """Add an entry at the end of the queue."""
        self.entries.append(PendingConfirm(self.store.appended, waiter, token, span))
        self.waiting = True

    def advance(self) -> None:
        """Release the answers whose positions are durable."""
        synced = self.store.synced
        entries = self.entries
        while entries:
            entry: PendingConfirm = entries[0]
            if not entry.is_released:
                if entry.position > synced:
                    return
                entry.waiter.on_released(entry.token)
            entries.popleft()
        self.waiting = False

    def release_consumed(self) -> None:
        """Release publishes that consumers have settled, before they are durable."""
        checks = CHECKS_MAX
        waiting: list[Waiter] = []
        consumed: list[PendingConfirm] = []
        entry: PendingConfirm
        for entry in self.entries:
            if not entry.is_released:
                span = entry.span
                if span is not None and entry.waiter not in waiting and span.is_consumed():
                    entry.is_released = True
                    consumed.append(entry)
                else:
                    waiting.append(entry.waiter)
            checks -= 1
            if not checks:
                break
        for entry in consumed:
            entry.waiter.on_released(entry.token)

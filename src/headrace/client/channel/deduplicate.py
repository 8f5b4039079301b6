# SPDX-License-Identifier: Apache-2.0
"""Deduplication in a consumer: message ids that were processed before.

A broker that loses a connection, or stops during a commit, delivers again messages that may have
been processed. `redelivered` is only a hint; the message's own id decides.
"""

from __future__ import annotations


# Keeps 0-9/tx#01, 0-10/s101, 0-10/s102.
class Deduplicator:
    """The ids of the last acked messages, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._acked: dict[str, None] = {}
        self._handed: dict[int, str] = {}  # Ids of unsettled messages, by delivery tag.
        self._undecided: list[str] = []  # Acked in a transaction that has not ended.

    def hand_out(self, tag: int, message_id: str | None, *, settled: bool) -> bool:
        """Record a message that is handed out; return False when it is a duplicate."""
        if not message_id:
            return True  # Without an id, duplicates cannot be found.
        if message_id in self._acked or message_id in self._undecided:
            return False
        if settled:
            self._add(message_id)
        else:
            self._handed[tag] = message_id
        return True

    def settle(self, tag: int, *, multiple: bool, ack: bool, decided: bool) -> None:
        """Record the settlement of a delivery tag, with `multiple` of all up to it."""
        tags = [each for each in self._handed if each <= tag] if multiple else [tag]
        for each in tags:
            message_id = self._handed.pop(each, None)
            if message_id is None or not ack:
                continue
            if decided:
                self._add(message_id)
            else:
                self._undecided.append(message_id)

    def decide(self, *, commit: bool) -> None:
        """The transaction was committed or rolled back."""
        undecided, self._undecided = self._undecided, []
        if commit:
            for message_id in undecided:
                self._add(message_id)

    def lose(self) -> None:
        """The connection was lost: forget the delivery tags."""
        self._handed.clear()

    def _add(self, message_id: str) -> None:
        self._acked[message_id] = None
        if len(self._acked) > self._size:
            del self._acked[next(iter(self._acked))]

# SPDX-License-Identifier: Apache-2.0
"""Deduplication in a consumer by message id.

After a lost connection or an interrupted commit the broker redelivers messages that the program may
have processed. `redelivered` is only a hint, so the message id decides.
"""

from __future__ import annotations


# Keeps 0-9-1/s005, 0-9/tx#01, 0-9/redelivered#hinting, 0-10/s101, 0-10/s102.
class Deduplicator:
    """The ids of the last acked messages, at most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._acked_ids: dict[str, None] = {}
        self._unsettled_ids: dict[int, str] = {}  # Ids of unsettled messages, by delivery tag.
        self._undecided_ids: list[str] = []  # Ids acked in a transaction that has not ended.

    def hand_out(self, tag: int, message_id: str | None, *, settled: bool) -> bool:
        """Record a message that is handed out; return False when it is a duplicate."""
        if not message_id:
            return True  # A message without an id cannot be recognized.
        if message_id in self._acked_ids or message_id in self._undecided_ids:
            return False
        if settled:
            self._add(message_id)
        else:
            self._unsettled_ids[tag] = message_id
        return True

    def settle(self, tag: int, *, multiple: bool, ack: bool, is_final: bool) -> None:
        """Record the settlement of a delivery tag, with `multiple` of all up to it.

        `is_final` is False in a transaction: `decide` makes the acks final or drops them.
        """
        tags = (
            [settled_tag for settled_tag in self._unsettled_ids if settled_tag <= tag]
            if multiple
            else [tag]
        )
        for settled_tag in tags:
            message_id = self._unsettled_ids.pop(settled_tag, None)
            if message_id is None or not ack:
                continue
            if is_final:
                self._add(message_id)
            else:
                self._undecided_ids.append(message_id)

    def decide(self, *, commit: bool) -> None:
        """Make the acks of the ended transaction final, or without `commit` drop them."""
        undecided_ids, self._undecided_ids = self._undecided_ids, []
        if commit:
            for message_id in undecided_ids:
                self._add(message_id)

    def lose(self) -> None:
        """Forget the delivery tags, which end with the connection."""
        self._unsettled_ids.clear()

    def _add(self, message_id: str) -> None:
        self._acked_ids[message_id] = None
        if len(self._acked_ids) > self._size:
            del self._acked_ids[next(iter(self._acked_ids))]

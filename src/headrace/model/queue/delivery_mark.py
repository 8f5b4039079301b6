# SPDX-License-Identifier: Apache-2.0
"""The mark in the journal up to which a queue may have delivered messages.

After a crash, messages up to the mark are recovered as redelivered. The mark is written ahead of
the deliveries, for many messages at once.
"""

import cython

if not cython.compiled:
    from headrace.model.ports import Store

RESERVATION = 65536  # Positions by which the mark is ahead of the deliveries.


class DeliveryMark:
    """The mark of one durable queue, in positions of messages."""

    def __init__(self, store: Store, queue_id: int) -> None:
        self.store = store
        self.queue_id = queue_id
        self.notes_each = False  # True with a delivery limit; then nothing is reserved.
        self.reserved = 0  # Position up to which the mark is durable.
        self.reserving = 0  # Position of the mark that is being written.
        self.reserving_at = 0  # Log position at which that mark is durable.

    def note_each(self, notes_each: bool) -> None:
        """Set whether the queue notes each delivery."""
        self.notes_each = notes_each
        if notes_each:
            self.reserved = 0

    def reserve(self, seq: int) -> None:
        """Write a mark that is ``RESERVATION`` positions ahead of ``seq``."""
        self.reserving = seq + RESERVATION
        self.store.note_delivered(self.queue_id, self.reserving)
        self.reserving_at = self.store.appended

    def reserve_for(self, seq: int) -> int:
        """Mark a delivery; return the log position that it waits for, 0 for none.

        A delivery rarely waits: the mark is usually durable before.
        """
        reserved = self.reserved
        if self.reserving > reserved and self.store.synced >= self.reserving_at:
            reserved = self.reserving
            if not self.notes_each:
                self.reserved = reserved
        if seq + (RESERVATION >> 1) > self.reserving:
            self.reserve(seq)
        return self.reserving_at if seq > reserved else 0

# SPDX-License-Identifier: Apache-2.0
"""Up to which message the journal notes that a queue may have delivered.

After a crash, messages up to there are recovered as redelivered. The journal is told ahead of time,
for many messages at once.
"""

import cython

if not cython.compiled:
    from headrace.model.ports import Store

RESERVATION = 65536  # How many positions ahead of the deliveries the journal is told.


class DeliveryMark:
    """The mark of one durable queue, in positions of messages."""

    def __init__(self, store: Store, queue_id: int) -> None:
        self.store = store
        self.queue_id = queue_id
        self.each = False  # With a delivery limit each delivery is noted, and nothing is reserved.
        self.reserved = 0  # Durably noted up to here.
        self.reserving = 0  # Noted up to here,
        self.reserving_at = 0  # which is durable at this position of the log.

    def note_each(self, each: bool) -> None:
        """Have the queue ask before each delivery, or no longer."""
        self.each = each
        if each:
            self.reserved = 0

    def reserve(self, seq: int) -> None:
        """Have the journal note, ahead of time, deliveries up to beyond ``seq``."""
        self.reserving = seq + RESERVATION
        self.store.delivered(self.queue_id, self.reserving)
        self.reserving_at = self.store.appended

    def reserve_for(self, seq: int) -> int:
        """Note a delivery; return the log position that it has to wait for, 0 for none.

        Mostly the deliveries that follow are covered durably already.
        """
        reserved = self.reserved
        if self.reserving > reserved and self.store.synced >= self.reserving_at:
            reserved = self.reserving
            if not self.each:
                self.reserved = reserved
        if seq + (RESERVATION >> 1) > self.reserving:
            self.reserve(seq)
        return self.reserving_at if seq > reserved else 0

# SPDX-License-Identifier: Apache-2.0
"""The delivery mark of a queue: the position up to which it may have delivered messages.

After a crash, messages up to the mark are recovered as redelivered. The mark is in the journal,
written ahead of the deliveries for many messages at once.
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
        self.records_each = False  # True with a delivery limit: each delivery has a count record.
        self.durable_seq = 0  # Position up to which the mark is durable.
        self.pending_seq = 0  # Position of the mark that is being written.
        self.pending_log_position = 0  # Log position at which ``pending_seq`` is durable.

    def set_records_each(self, records_each: bool) -> None:
        """Set whether the journal records each delivery of the queue."""
        self.records_each = records_each
        if records_each:
            self.durable_seq = 0

    def reserve(self, seq: int) -> None:
        """Write a mark that is ``RESERVATION`` positions ahead of ``seq``."""
        self.pending_seq = seq + RESERVATION
        self.store.record_delivered(self.queue_id, self.pending_seq)
        self.pending_log_position = self.store.appended

    def reserve_for(self, seq: int) -> int:
        """Mark a delivery; return the log position that it waits for, 0 if it need not wait.

        A delivery rarely waits, because the mark is usually durable beforehand.
        """
        durable_seq = self.durable_seq
        if self.pending_seq > durable_seq and self.store.synced >= self.pending_log_position:
            durable_seq = self.pending_seq
            if not self.records_each:
                self.durable_seq = durable_seq
        if seq + (RESERVATION >> 1) > self.pending_seq:
            self.reserve(seq)
        return self.pending_log_position if seq > durable_seq else 0

# SPDX-License-Identifier: Apache-2.0
"""The messages read by a recovery, as rows of 56 bytes instead of objects.

Settlements are subtracted from the rows. Unsettled rows become messages, whose data stay on disk.
Most messages are in the log in order of seq: a binary search in a list of seqs finds their rows.
Dicts have the rows of the other messages.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.segment.record import RETURNED as C_RETURNED
    from headrace.wire.memory import copy, get16, get32, get64, put32, put64

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment

ROW = 56  # Bytes: 40 as in the record from seq on, position, first queue id, number of queues.
AT_POSITION = 40
AT_QUEUE = 48
AT_UNSETTLED = 52

if not cython.compiled:
    C_ROW = ROW
    C_AT_POSITION = AT_POSITION
    C_AT_QUEUE = AT_QUEUE
    C_AT_UNSETTLED = AT_UNSETTLED


class Rows:
    """All messages of one log until they are recovered."""

    def __init__(self) -> None:
        self.last_seq = 0  # The highest seq in the log.
        self.rows = bytearray()
        self.count = 0
        self.capacity = 0
        self.seq_index = bytearray()  # seq (8), row (8), ascending, of messages in order.
        self.seq_index_count = 0
        self.seq_index_capacity = 0
        self.seq_index_last = 0  # The last seq in it.
        self.last_hit = 0  # The index in ``seq_index`` of the last lookup.
        self.unordered: dict[int, int] = {}  # Rows of messages out of order, by seq.
        # Rows of RETURNED records by queue id and seq.
        self.returned_rows: dict[tuple[int, int], int] = {}
        self.queues: dict[int, bytes] = {}  # Queue ids by row, for messages in several queues.
        # Queues that settled a message, by row, for messages in several queues.
        self.settled: dict[int, set[int]] = {}
        # The number of rows before a queue's drop, and the last dropped seq, by queue id.
        self.drops: dict[int, tuple[int, int]] = {}

    # --- Reading ----------------------------------------------------------------------------

    def add(
        self, segment: "Segment", buffer: bytearray, start: int, type: int, offset: int
    ) -> None:
        """Add a message, which is at ``start`` in ``buffer`` and at ``offset`` in its segment."""
        seq = get64(buffer, start + 16)
        count = get32(buffer, start + 44)
        i = segment.add_message(offset, 0, b"")
        row = self.count
        if row == self.capacity:
            self.capacity = 4096 if row == 0 else row * 2
            self.rows.extend(bytes(C_ROW * (self.capacity - row)))
        self.count = row + 1
        base = row * C_ROW
        copy(self.rows, base, buffer, start + 16, start + C_MESSAGE_HEAD)
        position = segment.number
        put64(self.rows, base + C_AT_POSITION, (position << 32) | i)
        put32(self.rows, base + C_AT_QUEUE, get32(buffer, start + C_MESSAGE_HEAD) if count else 0)
        put32(self.rows, base + C_AT_UNSETTLED, count)
        if count > 1:
            self.queues[row] = bytes(
                buffer[start + C_MESSAGE_HEAD : start + C_MESSAGE_HEAD + 4 * count]
            )
        if type == C_RETURNED:
            self.add_returned(get32(buffer, start + C_MESSAGE_HEAD), seq, row)
            return
        if type == C_MESSAGE and seq > self.seq_index_last:
            if self.seq_index_count == self.seq_index_capacity:
                self.seq_index_capacity = (
                    4096 if self.seq_index_capacity == 0 else self.seq_index_capacity * 2
                )
                self.seq_index.extend(bytes(16 * (self.seq_index_capacity - self.seq_index_count)))
            put64(self.seq_index, 16 * self.seq_index_count, seq)
            put64(self.seq_index, 16 * self.seq_index_count + 8, row)
            self.seq_index_count += 1
            self.seq_index_last = seq
            if seq > self.last_seq:
                self.last_seq = seq
            return
        earlier = self.find(seq)
        if earlier >= 0:
            self.settle_all(earlier)
        self.unordered[seq] = row

    def add_returned(self, queue_id: int, seq: int, row: int) -> None:
        """Add a RETURNED record of a queue; rows of the same seq in other queues stay."""
        self.settle(queue_id, seq, 1)  # Its SETTLED record may have been damaged.
        self.returned_rows[queue_id, seq] = row

    def settle(self, queue_id: int, seq: int, count: int) -> None:
        """Settle a run of messages."""
        if seq + count - 1 > self.last_seq:
            self.last_seq = seq + count - 1
        while count:
            row = self.find_in_queue(queue_id, seq)
            if row >= 0:
                base = row * C_ROW
                unsettled = get32(self.rows, base + C_AT_UNSETTLED)
                if get32(self.rows, base + 28) > 1:
                    if unsettled:
                        self.settle_one_of_several(row, unsettled, queue_id)
                elif unsettled and get32(self.rows, base + C_AT_QUEUE) == queue_id:
                    put32(self.rows, base + C_AT_UNSETTLED, 0)
            seq += 1
            count -= 1

    def settle_one_of_several(self, row: int, unsettled: int, queue_id: int) -> None:
        """Settle a message for one of its queues."""
        settled = self.settled.get(row)
        if settled is None:
            settled = self.settled[row] = set()
        if queue_id in settled or queue_id not in self.queue_ids(row):
            return
        settled.add(queue_id)
        put32(self.rows, row * C_ROW + C_AT_UNSETTLED, unsettled - 1)

    def drop(self, queue_id: int, seq: int) -> None:
        """Drop all messages of a queue read so far, up to ``seq``."""
        self.drops[queue_id] = (self.count, seq)

    def settle_all(self, row: int) -> None:
        """Settle a message for all its queues."""
        put32(self.rows, row * C_ROW + C_AT_UNSETTLED, 0)

    def set_arrival(self, row: int, when_ms: int) -> None:
        """Set the arrival time of a message."""
        put64(self.rows, row * C_ROW + 8, when_ms)

    def cut_back(self, count: int) -> None:
        """Drop the rows after the first ``count``, whose records were cut off."""
        for row in range(count, self.count):
            self.settle_all(row)
            put64(self.rows, row * C_ROW + C_AT_POSITION, 0)

    # --- Looking up -------------------------------------------------------------------------

    def find(self, seq: int) -> int:
        """Return the row of a message; -1 if the log does not have it."""
        if self.unordered:
            row = self.unordered.get(seq)
            if row is not None:
                return row
        low = self.last_hit + 1
        if low < self.seq_index_count and get64(self.seq_index, 16 * low) == seq:
            self.last_hit = low
            return get64(self.seq_index, 16 * low + 8)
        low = 0
        high = self.seq_index_count
        while low < high:
            middle = (low + high) >> 1
            if get64(self.seq_index, 16 * middle) < seq:
                low = middle + 1
            else:
                high = middle
        if low < self.seq_index_count and get64(self.seq_index, 16 * low) == seq:
            self.last_hit = low
            return get64(self.seq_index, 16 * low + 8)
        return -1

    def find_in_queue(self, queue_id: int, seq: int) -> int:
        """Return the row of a message in one queue; -1 if the log does not have it."""
        if self.returned_rows:
            row = self.returned_rows.get((queue_id, seq), -1)
            if row >= 0:
                return row
        return self.find(seq)

    def position(self, row: int) -> int:
        """Return the log position of the message in a row."""
        return get64(self.rows, row * C_ROW + C_AT_POSITION)

    def queue_ids(self, row: int) -> list[int]:
        """Return the queue ids in a message's record."""
        ids = self.queues.get(row)
        if ids is None:
            return [get32(self.rows, row * C_ROW + C_AT_QUEUE)]
        return [get32(ids, start) for start in range(0, len(ids), 4)]

    def unsettled_ids(self, row: int) -> list[int]:
        """Return the queues that have not settled a message."""
        if get32(self.rows, row * C_ROW + C_AT_UNSETTLED) == 0:
            return []
        settled = self.settled.get(row, ())
        return [queue_id for queue_id in self.queue_ids(row) if queue_id not in settled]

    def only_queue(self, row: int) -> int:
        """Return the queue of a message; 0 if it is settled, -1 if it was for several queues."""
        if get32(self.rows, row * C_ROW + C_AT_UNSETTLED) == 0:
            return 0
        if get32(self.rows, row * C_ROW + 28) > 1:
            return -1
        return get32(self.rows, row * C_ROW + C_AT_QUEUE)

    # --- Results ----------------------------------------------------------------------------

    def count_unsettled(self, segments: dict[int, "Segment"]) -> None:
        """Set in the segments the number of queues that have not settled each message."""
        number = 0
        segment = None
        for row in range(self.count):
            base = row * C_ROW
            unsettled = get32(self.rows, base + C_AT_UNSETTLED)
            if unsettled and self.drops:
                unsettled = self.apply_drops(row, unsettled)
            if unsettled == 0:
                continue
            position = get64(self.rows, base + C_AT_POSITION)
            if segment is None or number != position >> 32:
                number = position >> 32
                segment = segments[number]
            i = position & 0xFFFFFFFF
            if get32(self.rows, base + 28) > 1:
                count = get32(self.rows, base + 28)
                segment.set_queues(i, count, self.queues[row])
                for queue_id in self.settled.get(row, ()):
                    segment.settle(i, queue_id)
            else:
                put32(segment.heads, 8 * i + 4, unsettled)
            segment.live += 1

    def apply_drops(self, row: int, unsettled: int) -> int:
        """Apply dropped queues to a row; return how many queues are left."""
        seq = self.seq(row)
        for queue_id in self.queue_ids(row):
            drop = self.drops.get(queue_id)
            if drop is None or row >= drop[0] or seq > drop[1]:
                continue
            settled = self.settled.setdefault(row, set())
            if queue_id not in settled:
                settled.add(queue_id)
                unsettled -= 1
        put32(self.rows, row * C_ROW + C_AT_UNSETTLED, unsettled)
        return unsettled

    def sorted_rows(self) -> Iterable[int]:
        """Return all rows in order of seq."""
        order: Iterable[int] = range(self.count)
        if self.unordered or self.returned_rows:
            order = sorted(order, key=self.seq)
        return order

    def seq(self, row: int) -> int:
        """Return the seq of the message in a row."""
        return get64(self.rows, row * C_ROW)

    def arrived_ms(self, row: int) -> int:
        """Return the arrival time of a row's message."""
        return get64(self.rows, row * C_ROW + 8)

    def make_message(self, row: int) -> Message:
        """Return the message of a row, paged out."""
        rows = self.rows
        base = row * C_ROW
        message = new_message(None, get16(rows, base + 36), get32(rows, base + 24))
        message.seq = get64(rows, base)
        message.deadline_ms = get64(rows, base + 16)
        message.position = get64(rows, base + C_AT_POSITION)
        message.priority = rows[base + 39]
        flags = C_PERSISTENT | C_PAGED | (rows[base + 38] & (C_LARGE | C_KIND_MASK))
        message.flags = flags | (rows[base + 38] & C_REDELIVERED)
        return message

# SPDX-License-Identifier: Apache-2.0
"""The per-message work of the load generator for AMQP 0-10; see ``meter`` for that of 0-x.

A publish is confirmed by the completion of its command. The ids of a publisher's transfers are
consecutive from ``first_id``. An ack of deliveries is a message.accept with a session.completed,
which returns the credit.
"""

from array import array

import cython

if not cython.compiled:
    from headrace.bench.load.meter import Histogram, Receiver, Sender
    from headrace.wire.memory import cut, get16, get32, get64, put16, put32

from headrace.bench.load.meter import BrokenFrames

ACKS_SIZE = 54  # Bytes of message.accept and session.completed with a range each.
ACCEPT_START = 0x0F01001C  # The flags, segment type and size of the frame of message.accept.
ACCEPT_HEAD = 0x04020100  # The code of message.accept, and its header without options.
ACCEPT_FIELDS = 0x01000008  # The packing flags of ``transfers``, and the bytes of one range.
COMPLETED_START = 0x0F00001A  # The flags, segment type and size of the frame of completed.
COMPLETED_HEAD = 0x020A0100  # The code of session.completed, and the packing flags of its ids.
COMPLETED = 0x020A
TRANSFER = 0x0401
STAMP_SIZE = 16


class Sender010(Sender):
    """A publishing connection of 0-10."""

    def __init__(
        self,
        number: int,
        buffer: bytearray,
        ends: "array[int]",
        bodies: "array[int]",
        targets: "array[int]",
        fans: "array[int]",
        targets_count: int,
        window: int,
        frame_max: int,
    ) -> None:
        Sender.__init__(
            self, number, buffer, ends, bodies, targets, fans, targets_count, window, frame_max
        )
        self.first_id = 0  # The command id of the first transfer.

    def feed(self, data: bytearray, data_size: int, now: int) -> int:
        return self.walk_0_10(data, self.ring, data_size, now)

    def walk_0_10(self, data: bytearray, ring: bytearray, data_size: int, now: int) -> int:
        """Do the work of `feed`; `ring` has the bytes of the ring."""
        offset = 0
        while data_size - offset >= 12:
            size = get16(data, offset + 2)
            if size < 12:
                raise BrokenFrames(f"a frame of {size} bytes")
            end = offset + size
            if end > data_size:
                break
            if size >= 26 and data[offset + 1] == 0 and get16(data, offset + 12) == COMPLETED:
                ranges_end = offset + 18 + get16(data, offset + 16)
                range_offset = offset + 18
                while (
                    range_offset + 8 <= end
                    and range_offset + 8 <= ranges_end
                    and data[offset + 14] & 1
                ):
                    last = get32(data, range_offset + 4)
                    count = last - self.first_id + 1
                    if count > 0 and self.window != 0:
                        if count > self.sent:
                            raise BrokenFrames(f"completion of {count}, which was not sent")
                        self.confirm(ring, count, 1, False, now)
                    range_offset += 8
            elif data[offset + 1] < 2:
                self.methods.append(cut(data, offset + 12, end))
            offset = end
        return offset


class Receiver010(Receiver):
    """A consuming connection of 0-10."""

    def __init__(
        self,
        next_seqs: "array[int]",
        publishers: int,
        latency: Histogram,
        ack_every: int,
        reports_gaps: bool,
        frame_max: int,
    ) -> None:
        Receiver.__init__(self, next_seqs, publishers, latency, ack_every, reports_gaps, frame_max)
        self.next_id = 0  # The id of the broker's next command.
        self.first_unacked = 0
        self.channel = 0

    def feed(self, data: bytearray, data_size: int, now: int) -> int:
        if len(self.acks) < 2 * data_size + ACKS_SIZE:
            self.acks = bytearray(2 * data_size + ACKS_SIZE)
        self.acks_len = 0
        return self.walk_0_10(data, self.acks, data_size, now)

    def walk_0_10(self, data: bytearray, acks: bytearray, data_size: int, now: int) -> int:
        """Do the work of `feed`; `acks` has space for an ack per frame."""
        offset = 0
        while data_size - offset >= 12:
            size = get16(data, offset + 2)
            if size < 12:
                raise BrokenFrames(f"a frame of {size} bytes")
            end = offset + size
            if end > data_size:
                break
            kind = data[offset + 1]
            if kind == 3:
                if self.at_body_start:
                    self.at_body_start = False
                    if size >= 12 + STAMP_SIZE:
                        self.check(get64(data, offset + 12), get64(data, offset + 20), now)
                    else:
                        self.unstamped += 1
                if data[offset] & 5 == 5:
                    self.received += 1
                    if self.ack_every > 0:
                        self.unacked += 1
                        if self.unacked >= self.ack_every:
                            self.ack_0_10(acks)
            elif kind == 2:
                if size >= 20 and get16(data, offset + 16) == TRANSFER and data[offset + 18] & 4:
                    self.redelivered += 1
                self.at_body_start = True
            elif kind == 1:
                if data[offset] & 10 == 10:
                    self.read_command(data, offset, end)
            elif get16(data, offset + 12) != COMPLETED:
                self.methods.append(cut(data, offset + 12, end))
            offset = end
        self.count_group(now)
        return offset

    def read_command(self, data: bytearray, offset: int, end: int) -> int:
        """Read a message.transfer; append any other command to `methods`."""
        number = self.next_id
        self.next_id = number + 1
        if end - offset < 20 or get16(data, offset + 12) != TRANSFER:
            self.methods.append(cut(data, offset + 12, end))
            return 0
        length = data[offset + 18]
        if length < 2 or offset + 19 + length > end or not data[offset + 16] & 1:
            raise BrokenFrames("a message.transfer without a valid destination")
        queue = 0
        for i in range(1, length):  # The destination is "c" and the number of its queue.
            queue = (queue * 10 + data[offset + 19 + i] - 48) & 0xFFFFFF
        if queue * self.publishers >= self.next_seqs_len:
            raise BrokenFrames("a message.transfer for an unknown destination")
        self.queue = queue
        self.tag = number
        if self.unacked == 0:
            self.first_unacked = number
        return 0

    def flush(self) -> None:
        self.acks_len = 0
        if self.unacked > 0:
            self.ack_0_10(self.acks)

    def ack_0_10(self, acks: bytearray) -> int:
        """Write the accept and the completion of all unacked deliveries."""
        offset = self.acks_len
        put32(acks, offset, ACCEPT_START)
        put32(acks, offset + 4, 0x00010000 | self.channel)
        put32(acks, offset + 8, 0)
        put32(acks, offset + 12, ACCEPT_HEAD)
        put32(acks, offset + 16, ACCEPT_FIELDS)
        put32(acks, offset + 20, self.first_unacked)
        put32(acks, offset + 24, self.tag)
        offset += 28
        put32(acks, offset, COMPLETED_START)
        put32(acks, offset + 4, self.channel)
        put32(acks, offset + 8, 0)
        put32(acks, offset + 12, COMPLETED_HEAD)
        put16(acks, offset + 16, 8)
        put32(acks, offset + 18, self.first_unacked)
        put32(acks, offset + 22, self.tag)
        self.acks_len = offset + 26
        self.unacked = 0
        return 0

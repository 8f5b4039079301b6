# SPDX-License-Identifier: Apache-2.0
"""The generator's counting for AMQP 0-10: the same as for 0-x, by other frames.

A publish is confirmed when its command is complete; the ids of a publisher's transfers are in a row
from ``first`` on. A delivery's id is counted, and an acknowledgement is a message.accept together
with the session.completed that brings the credit back.
"""

from array import array

import cython

if not cython.compiled:
    from headrace.bench.load.meter import Histogram, Receiver, Sender
    from headrace.wire.memory import cut, get16, get32, get64, put16, put32

from headrace.bench.load.meter import BrokenFrames

ACKS_LEN = 54  # message.accept and session.completed of one range each.
COMPLETED = 0x020A
TRANSFER = 0x0401
STAMP_OCTETS = 16


class Sender010(Sender):
    """One publishing connection."""

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
        self.first = 0  # The command id of the first transfer.

    def feed(self, d: bytearray, n: int, now: int) -> int:
        return self.walk_0_10(d, self.ring, n, now)

    def walk_0_10(self, d: bytearray, ring: bytearray, n: int, now: int) -> int:
        """Do the work of `feed` on the ring's bytes."""
        at = 0
        while n - at >= 12:
            size = get16(d, at + 2)
            if size < 12:
                raise BrokenFrames(f"a frame of {size} bytes")
            end = at + size
            if end > n:
                break
            if size >= 26 and d[at + 1] == 0 and get16(d, at + 12) == COMPLETED:
                stop = at + 18 + get16(d, at + 16)
                lo = at + 18
                while lo + 8 <= end and lo + 8 <= stop and d[at + 14] & 1:
                    last = get32(d, lo + 4)
                    count = last - self.first + 1
                    if count > 0 and self.window != 0:
                        if count > self.sent:
                            raise BrokenFrames(f"completion of {count}, which was not sent")
                        self.confirm(ring, count, 1, False, now)
                    lo += 8
            elif d[at + 1] < 2:
                self.methods.append(cut(d, at + 12, end))
            at = end
        return at


class Receiver010(Receiver):
    """One consuming connection."""

    def __init__(
        self,
        waited: "array[int]",
        publishers: int,
        latency: Histogram,
        ack_every: int,
        gaps_matter: bool,
        frame_max: int,
    ) -> None:
        Receiver.__init__(self, waited, publishers, latency, ack_every, gaps_matter, frame_max)
        self.next_id = 0  # Of the broker's next command.
        self.first_unacked = 0
        self.channel = 0

    def feed(self, d: bytearray, n: int, now: int) -> int:
        if len(self.acks) < 2 * n + ACKS_LEN:
            self.acks = bytearray(2 * n + ACKS_LEN)
        self.acks_len = 0
        return self.walk_0_10(d, self.acks, n, now)

    def walk_0_10(self, d: bytearray, acks: bytearray, n: int, now: int) -> int:
        """Do the work of `feed`; ``acks`` has room for one per frame."""
        at = 0
        while n - at >= 12:
            size = get16(d, at + 2)
            if size < 12:
                raise BrokenFrames(f"a frame of {size} bytes")
            end = at + size
            if end > n:
                break
            kind = d[at + 1]
            if kind == 3:
                if self.in_front:
                    self.in_front = False
                    if size >= 12 + STAMP_OCTETS:
                        self.check(get64(d, at + 12), get64(d, at + 20), now)
                    else:
                        self.unstamped += 1
                if d[at] & 5 == 5:
                    self.received += 1
                    if self.ack_every > 0:
                        self.unacked += 1
                        if self.unacked >= self.ack_every:
                            self.ack_0_10(acks)
            elif kind == 2:
                if size >= 20 and get16(d, at + 16) == TRANSFER and d[at + 18] & 4:
                    self.redelivered += 1
                self.in_front = True
            elif kind == 1:
                if d[at] & 10 == 10:
                    self.command(d, at, end)
            elif get16(d, at + 12) != COMPLETED:
                self.methods.append(cut(d, at + 12, end))
            at = end
        self.count_run(now)
        return at

    def command(self, d: bytearray, at: int, end: int) -> int:
        """Note what the coming delivery is; keep any other command for the owner."""
        number = self.next_id
        self.next_id = number + 1
        if end - at < 20 or get16(d, at + 12) != TRANSFER:
            self.methods.append(cut(d, at + 12, end))
            return 0
        length = d[at + 18]
        if length < 2 or at + 19 + length > end or not d[at + 16] & 1:
            raise BrokenFrames("a message.transfer without a destination of ours")
        queue = 0
        for i in range(1, length):  # The destination is "c" and the number of its queue.
            queue = (queue * 10 + d[at + 19 + i] - 48) & 0xFFFFFF
        if queue * self.publishers >= self.waited_len:
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
        """Write an accept and the completion of all deliveries since the last."""
        at = self.acks_len
        put32(acks, at, 0x0F01001C)
        put32(acks, at + 4, 0x00010000 | self.channel)
        put32(acks, at + 8, 0)
        put32(acks, at + 12, 0x04020100)
        put32(acks, at + 16, 0x01000008)
        put32(acks, at + 20, self.first_unacked)
        put32(acks, at + 24, self.tag)
        at += 28
        put32(acks, at, 0x0F00001A)
        put32(acks, at + 4, self.channel)
        put32(acks, at + 8, 0)
        put32(acks, at + 12, 0x020A0100)
        put16(acks, at + 16, 8)
        put32(acks, at + 18, self.first_unacked)
        put32(acks, at + 22, self.tag)
        self.acks_len = at + 26
        self.unacked = 0
        return 0

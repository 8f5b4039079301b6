# SPDX-License-Identifier: Apache-2.0
"""The per-message work of the load generator: stamp publishes, count confirms, check deliveries.

A body starts with 16 bytes in network order::

    | publisher (16 bits) and sequence number (48 bits) | monotonic time of sending, ns |

A `Sender` has a buffer of encoded publishes, of which it overwrites only these bytes. A `Receiver`
reads the frames of deliveries and compares each sequence number with the expected one. Neither
creates an object per message.
"""

from array import array

import cython

if not cython.compiled:
    from headrace.wire.memory import cut, get32, get64, put16, put32, put64

STAMP_SIZE = 16  # Bytes at the start of each body.
SEQUENCE_MASK = (1 << 48) - 1
BUCKETS = 64 * 64  # 64 for each power of two, so that the error is at most 1.6 %.
ACK_SIZE = 21  # Bytes of a basic.ack with its frame.
MISSING_MAX = 10_000  # Ranges of missing sequence numbers that are recorded one by one.

DELIVER = 60 << 16 | 60
ACK = 60 << 16 | 80
NACK = 60 << 16 | 120


class BrokenFrames(Exception):
    """The broker sent bytes that are not valid frames of the negotiated size."""


class Histogram:
    """A histogram of durations in nanoseconds, with log-linear buckets."""

    def __init__(self) -> None:
        self.counts = array("Q", bytes(8 * BUCKETS))
        self.total = 0
        self.largest = 0

    def add(self, value: int, times: int) -> None:
        """Count a duration a number of times."""
        self.counts[find_bucket(value)] += times
        self.total += times
        if value > self.largest:
            self.largest = value

    def merge(self, counts: list[int], largest: int) -> None:
        """Add the counts of another histogram, which `as_list` returned, and its largest value."""
        for i in range(BUCKETS):
            self.counts[i] += counts[i]
            self.total += counts[i]
        self.largest = max(self.largest, largest)

    def as_list(self) -> list[int]:
        """Return the counts of all buckets, to be sent to another process."""
        return [self.counts[i] for i in range(BUCKETS)]

    def percentile(self, share: float) -> float:
        """Return the value that ``share`` (0 to 1) of the counts do not exceed; 0 when empty."""
        rank = int(share * self.total)
        if rank >= self.total:
            rank = self.total - 1
        cumulative = 0
        for i in range(BUCKETS):
            cumulative += self.counts[i]
            if cumulative > rank >= 0:
                return float(min(bucket_middle(i), self.largest))
        return 0.0


def find_bucket(value: int) -> int:
    """Return the number of the bucket that counts a duration in nanoseconds."""
    if value < 0:
        return 0
    if value < 64:
        return value
    exponent = 6
    remainder = value >> 7
    while remainder != 0:
        exponent += 1
        remainder >>= 1
    return (exponent - 5) * 64 + ((value >> (exponent - 6)) & 63)


def bucket_middle(bucket: int) -> int:
    """Return the duration in the middle of a bucket, in nanoseconds."""
    if bucket < 64:
        return bucket
    exponent = bucket // 64 + 5
    return (1 << exponent) + ((bucket % 64) << (exponent - 6)) + (1 << (exponent - 6)) // 2


class Sender:
    """A publishing connection: stamps publishes in its buffer and counts their confirms."""

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
        self.number = number
        self.buffer = buffer
        self.ends = ends  # The end offset of each publish in the buffer.
        self.bodies = bodies  # The offset of its body, which begins with the stamp.
        self.targets = targets  # The index of its sequence of numbers in `seqs`.
        self.fans = fans  # The number of its deliveries.
        self.size = len(ends)
        self.seqs = array("Q", bytes(8 * targets_count))
        self.window = window
        self.ring = bytearray(16 * window)  # Send times by tag modulo 2 windows; 0: confirmed.
        self.frame_max = frame_max
        self.cursor = 0
        self.sent = 0
        self.expected = 0
        self.confirmed = 0
        self.nacked = 0
        self.settled_tag = 0  # This delivery tag and all before it are confirmed.
        self.send_start = 0  # The bytes to send are buffer[send_start:send_end].
        self.send_end = 0
        self.measuring = False
        self.latency = Histogram()
        self.methods: list[bytes] = []  # Payloads of other methods than confirms, oldest first.

    def free_window(self) -> int:
        """Return the number of publishes that fit into the confirm window."""
        if self.window == 0:
            return SEQUENCE_MASK
        outstanding = self.sent - self.confirmed
        window_free = self.window - outstanding
        ring_free = 2 * self.window - 1 - (self.sent - self.settled_tag)
        return min(window_free, ring_free)

    def fill(self, now: int, count_max: int, size_max: int) -> int:
        """Stamp the next publishes and set the range to send; return their number."""
        return self.stamp(self.buffer, self.ring, now, count_max, size_max)

    def stamp(
        self, data: bytearray, ring: bytearray, now: int, count_max: int, size_max: int
    ) -> int:
        """Do the work of `fill`; `data` and `ring` are the bytes of buffer and ring."""
        first = self.cursor
        start = self.ends[first - 1] if first > 0 else 0
        i = first
        publisher = self.number << 48
        ring_slots = 2 * self.window
        while i < self.size and i - first < count_max:
            target = self.targets[i]
            seq = self.seqs[target]
            self.seqs[target] = seq + 1
            offset = self.bodies[i]
            put64(data, offset, publisher | seq)
            put64(data, offset + 8, now)
            self.expected += self.fans[i]
            i += 1
            if ring_slots != 0:
                put64(ring, ((self.sent + i - first) % ring_slots) * 8, now)
            if self.ends[i - 1] - start >= size_max:
                break
        self.send_start = start
        self.send_end = self.ends[i - 1] if i > first else start
        self.cursor = 0 if i == self.size else i
        self.sent += i - first
        return i - first

    def feed(self, data: bytearray, data_size: int, now: int) -> int:
        """Process the complete frames in ``data[:data_size]``; return their size in bytes."""
        return self.walk_frames(data, self.ring, data_size, now)

    def walk_frames(self, data: bytearray, ring: bytearray, data_size: int, now: int) -> int:
        """Do the work of `feed`; `ring` has the bytes of the ring."""
        offset = 0
        while data_size - offset >= 8:
            length = get32(data, offset + 3)
            if length > self.frame_max:
                raise BrokenFrames(f"a frame of {length} bytes")
            end = offset + 8 + length
            if end > data_size:
                break
            if data[end - 1] != 0xCE:
                raise BrokenFrames("no end octet where the frame ends")
            if data[offset] == 1:
                method = get32(data, offset + 7) if length >= 4 else 0
                if length >= 13 and method in (ACK, NACK):
                    tag = get64(data, offset + 11)
                    if tag > self.sent:
                        raise BrokenFrames(f"confirm of {tag}, which was not sent")
                    if self.window != 0:
                        self.confirm(ring, tag, data[offset + 19] & 1, method == NACK, now)
                else:
                    self.methods.append(cut(data, offset + 7, end - 1))
            offset = end
        return offset

    def confirm(self, ring: bytearray, tag: int, multiple: int, refused: bool, now: int) -> int:
        """Count the confirm of a delivery tag, or of all tags up to it."""
        ring_slots = 2 * self.window
        i = self.settled_tag + 1 if multiple != 0 else tag
        if tag == 0:
            tag = self.sent
        while i <= tag:
            offset = (i % ring_slots) * 8
            sent_at = get64(ring, offset)
            if sent_at != 0 and i > self.settled_tag:
                if self.measuring:
                    self.latency.add(now - sent_at, 1)
                put64(ring, offset, 0)
                self.confirmed += 1
                if refused:
                    self.nacked += 1
            i += 1
        if multiple != 0 and tag > self.settled_tag:
            self.settled_tag = tag
        while (
            self.settled_tag < self.sent
            and get64(ring, ((self.settled_tag + 1) % ring_slots) * 8) == 0
        ):
            self.settled_tag += 1
        return 0


class Receiver:
    """A consuming connection: counts deliveries, checks sequence numbers, writes acks."""

    def __init__(
        self,
        next_seqs: "array[int]",
        publishers: int,
        latency: Histogram,
        ack_every: int,
        reports_gaps: bool,
        frame_max: int,
    ) -> None:
        self.next_seqs = next_seqs  # The next number, by queue * publishers + publisher.
        self.next_seqs_len = len(next_seqs)
        self.publishers = publishers
        self.latency = latency
        self.ack_every = ack_every
        self.reports_gaps = reports_gaps
        self.frame_max = frame_max
        self.queue = 0
        self.tag = 0
        self.body_left = 0
        self.received = 0
        self.unacked = 0
        self.measuring = False
        # Deliveries with the same send time are a group, which is counted at once.
        self.group_time = 0
        self.group_count = 0
        self.redelivered = 0
        self.repeated = 0
        self.out_of_order = 0
        self.unstamped = 0
        self.at_body_start = False  # True if the next body frame is the first of its body.
        # Ranges of missing numbers, by index in `next_seqs`.
        self.missing: dict[int, list[list[int]]] = {}
        self.missing_ranges = 0
        self.acks = bytearray(64)
        self.acks_len = 0
        self.methods: list[bytes] = []  # Payloads of other methods than deliveries, oldest first.

    def feed(self, data: bytearray, data_size: int, now: int) -> int:
        """Process the complete frames in ``data[:data_size]``; return their size in bytes.

        ``acks[:acks_len]`` then contains the acks to send.
        """
        if len(self.acks) < data_size + ACK_SIZE:
            self.acks = bytearray(data_size + ACK_SIZE)
        self.acks_len = 0
        return self.walk_frames(data, self.acks, data_size, now)

    def walk_frames(self, data: bytearray, acks: bytearray, data_size: int, now: int) -> int:
        """Do the work of `feed`; `acks` has space for an ack per frame."""
        offset = 0
        while data_size - offset >= 8:
            length = get32(data, offset + 3)
            if length > self.frame_max:
                raise BrokenFrames(f"a frame of {length} bytes")
            end = offset + 8 + length
            if end > data_size:
                break
            if data[end - 1] != 0xCE:
                raise BrokenFrames("no end octet where the frame ends")
            kind = data[offset]
            if kind == 1:
                self.read_method(data, offset + 7, length)
            elif kind == 2:
                if length < 14:
                    raise BrokenFrames("a content header of less than 14 bytes")
                self.body_left = get64(data, offset + 11)
                self.at_body_start = True
                if self.body_left == 0:
                    self.unstamped += 1
                    self.finish(acks)
            elif kind == 3:
                if length > self.body_left:
                    raise BrokenFrames("a body longer than the size in its header")
                if self.at_body_start:
                    self.at_body_start = False
                    if length >= STAMP_SIZE:
                        self.check(get64(data, offset + 7), get64(data, offset + 15), now)
                    else:
                        self.unstamped += 1
                self.body_left -= length
                if self.body_left == 0:
                    self.finish(acks)
            offset = end
        self.count_group(now)
        return offset

    def read_method(self, data: bytearray, offset: int, length: int) -> int:
        """Read a basic.deliver; append any other method to `methods`."""
        if length < 4 or get32(data, offset) != DELIVER:
            self.methods.append(cut(data, offset, offset + length))
            return 0
        tag_len = data[offset + 4] if length > 4 else 0
        if length < tag_len + 16 or tag_len == 0:
            raise BrokenFrames("a basic.deliver that is too short")
        queue = 0
        for i in range(1, tag_len):  # The consumer tag is "c" and the number of its queue.
            queue = (queue * 10 + data[offset + 5 + i] - 48) & 0xFFFFFF
        if queue * self.publishers >= self.next_seqs_len:
            raise BrokenFrames("a basic.deliver for an unknown consumer tag")
        self.queue = queue
        self.tag = get64(data, offset + 5 + tag_len)
        if data[offset + 13 + tag_len] & 1:
            self.redelivered += 1
        return 0

    def check(self, stamp: int, sent_at: int, now: int) -> int:
        """Compare a sequence number with the next one; count the delivery's duration."""
        if sent_at != self.group_time:
            self.count_group(now)
            self.group_time = sent_at
        self.group_count += 1
        publisher = stamp >> 48
        seq = stamp & SEQUENCE_MASK
        if publisher >= self.publishers:
            self.unstamped += 1
            return 0
        index = self.queue * self.publishers + publisher
        next_seq = self.next_seqs[index]
        if seq == next_seq:
            self.next_seqs[index] = seq + 1
        elif seq > next_seq:
            if self.reports_gaps:
                self.record_missing(index, next_seq, seq)
            self.next_seqs[index] = seq + 1
        else:
            self.classify_old(index, seq)
        return 0

    def count_group(self, now: int) -> int:
        """Count the durations of the deliveries with the same send time."""
        if self.group_count > 0 and self.measuring and now >= self.group_time:
            self.latency.add(now - self.group_time, self.group_count)
        self.group_count = 0
        return 0

    def finish(self, acks: bytearray) -> int:
        """Count a complete delivery; write an ack for every `ack_every` deliveries."""
        self.received += 1
        if self.ack_every > 0:
            self.unacked += 1
            if self.unacked >= self.ack_every:
                self.ack(acks)
        return 0

    def flush(self) -> None:
        """Write an ack of the unacked deliveries, if any."""
        self.acks_len = 0
        if self.unacked > 0:
            self.ack(self.acks)

    def ack(self, acks: bytearray) -> int:
        """Write a basic.ack of all unacked deliveries."""
        offset = self.acks_len
        acks[offset] = 1
        put16(acks, offset + 1, 1)
        put32(acks, offset + 3, 13)
        put32(acks, offset + 7, ACK)
        put64(acks, offset + 11, self.tag)
        acks[offset + 19] = 1 if self.ack_every > 1 else 0
        acks[offset + 20] = 0xCE
        self.acks_len = offset + ACK_SIZE
        self.unacked = 0
        return 0

    def record_missing(self, index: int, next_seq: int, seq: int) -> None:
        """Record that the numbers from `next_seq` to `seq` - 1 are missing."""
        self.missing_ranges += 1
        ranges = self.missing.setdefault(index, [])
        if self.missing_ranges <= MISSING_MAX or not ranges:
            ranges.append([next_seq, seq])
        else:
            ranges[len(ranges) - 1][1] = seq

    def classify_old(self, index: int, seq: int) -> None:
        """Classify an old sequence number: late for the first time, or a duplicate."""
        ranges = self.missing.get(index, [])
        for i, (low, high) in enumerate(ranges):
            if low <= seq < high:
                ranges[i : i + 1] = [
                    run for run in ([low, seq], [seq + 1, high]) if run[0] < run[1]
                ]
                self.out_of_order += 1
                return
        if not self.reports_gaps and seq + 1 < self.next_seqs[index]:
            self.out_of_order += 1  # The queue gets only some numbers: late is more likely.
        else:
            self.repeated += 1

    def count_missing(self) -> int:
        """Return the number of missing sequence numbers."""
        return sum(high - low for ranges in self.missing.values() for low, high in ranges)


def is_compiled() -> bool:
    """Return True if the module is compiled."""
    return bool(cython.compiled)

# SPDX-License-Identifier: Apache-2.0
"""The work of the load generator for each message: stamp, confirm, receive, check, count.

A body starts with 16 bytes in network order::

    | publisher (16 bits) and sequence number (48 bits) | monotonic time of sending, ns |

A `Sender` owns a buffer of ready-made publishes and only overwrites these bytes before each
sending; a `Receiver` walks the frames of deliveries and compares the numbers with those it waits
for. Neither makes an object per message.
"""

from array import array

import cython

if not cython.compiled:
    from headrace.wire.memory import cut, get32, get64, put16, put32, put64

STAMP_LEN = 16  # Octets at the start of each body.
SEQUENCE_MASK = (1 << 48) - 1
BUCKETS = 64 * 64  # 64 per power of two: values are kept to within 1.6 %.
ACK_LEN = 21  # Octets of a basic.ack with its frame.
MISSING_MAX = 10_000  # Runs of missing numbers that are remembered.

DELIVER = 60 << 16 | 60
ACK = 60 << 16 | 80
NACK = 60 << 16 | 120


class BrokenFrames(Exception):
    """The peer's bytes are not the frames that were negotiated."""


class Histogram:
    """Counts of durations in nanoseconds; log-linear buckets."""

    def __init__(self) -> None:
        self.counts = array("Q", bytes(8 * BUCKETS))
        self.total = 0
        self.largest = 0

    def add(self, value: int, times: int) -> None:
        """Count ``value`` ``times`` times."""
        self.counts[bucket_of(value)] += times
        self.total += times
        if value > self.largest:
            self.largest = value

    def merge(self, counts: list[int], largest: int) -> None:
        """Add what another histogram, given by its figures, has counted."""
        for i in range(BUCKETS):
            self.counts[i] += counts[i]
            self.total += counts[i]
        self.largest = max(self.largest, largest)

    def as_list(self) -> list[int]:
        """Return the counts of all buckets, for another process."""
        return [self.counts[i] for i in range(BUCKETS)]

    def percentile(self, share: float) -> float:
        """Return the value that ``share`` (0 to 1) of the counts do not exceed; 0 when empty."""
        wanted = int(share * self.total)
        if wanted >= self.total:
            wanted = self.total - 1
        seen = 0
        for i in range(BUCKETS):
            seen += self.counts[i]
            if seen > wanted >= 0:
                return float(min(value_of(i), self.largest))
        return 0.0


def bucket_of(value: int) -> int:
    """Return the bucket of a duration."""
    if value < 0:
        return 0
    if value < 64:
        return value
    exponent = 6
    rest = value >> 7
    while rest != 0:
        exponent += 1
        rest >>= 1
    return (exponent - 5) * 64 + ((value >> (exponent - 6)) & 63)


def value_of(bucket: int) -> int:
    """Return the middle of a bucket."""
    if bucket < 64:
        return bucket
    exponent = bucket // 64 + 5
    return (1 << exponent) + ((bucket % 64) << (exponent - 6)) + (1 << (exponent - 6)) // 2


class Sender:
    """One publishing connection: stamps publishes from its buffer and counts their confirms."""

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
        self.ends = ends  # Where each publish of the buffer ends.
        self.bodies = bodies  # Where its stamp is.
        self.targets = targets  # Which sequence of numbers it continues.
        self.fans = fans  # How many deliveries it must cause.
        self.size = len(ends)
        self.seqs = array("Q", bytes(8 * targets_count))
        self.window = window
        self.ring = bytearray(16 * window)  # Time of sending by tag modulo 2 windows; 0 confirmed.
        self.frame_max = frame_max
        self.cursor = 0
        self.sent = 0
        self.expected = 0
        self.confirmed = 0
        self.nacked = 0
        self.low = 0  # All tags up to here are confirmed.
        self.lo = 0  # The bytes to send are buffer[lo:hi].
        self.hi = 0
        self.measuring = False
        self.latency = Histogram()
        self.methods: list[bytes] = []  # Payloads of all other methods, in order.

    def room(self) -> int:
        """Return how many more publishes fit into the confirm window."""
        if self.window == 0:
            return SEQUENCE_MASK
        outstanding = self.sent - self.confirmed
        free = self.window - outstanding
        span = 2 * self.window - 1 - (self.sent - self.low)
        return min(free, span)

    def fill(self, now: int, count_max: int, size_max: int) -> int:
        """Stamp the next publishes and set the range to send; return their number."""
        return self.stamp(self.buffer, self.ring, now, count_max, size_max)

    def stamp(self, d: bytearray, ring: bytearray, now: int, count_max: int, size_max: int) -> int:
        """Do the work of `fill` on the buffer's and the ring's bytes."""
        first = self.cursor
        start = self.ends[first - 1] if first > 0 else 0
        i = first
        publisher = self.number << 48
        double = 2 * self.window
        while i < self.size and i - first < count_max:
            target = self.targets[i]
            seq = self.seqs[target]
            self.seqs[target] = seq + 1
            at = self.bodies[i]
            put64(d, at, publisher | seq)
            put64(d, at + 8, now)
            self.expected += self.fans[i]
            i += 1
            if double != 0:
                put64(ring, ((self.sent + i - first) % double) * 8, now)
            if self.ends[i - 1] - start >= size_max:
                break
        self.lo = start
        self.hi = self.ends[i - 1] if i > first else start
        self.cursor = 0 if i == self.size else i
        self.sent += i - first
        return i - first

    def feed(self, d: bytearray, n: int, now: int) -> int:
        """Take in ``d[:n]``; return the size of its complete frames."""
        return self.walk(d, self.ring, n, now)

    def walk(self, d: bytearray, ring: bytearray, n: int, now: int) -> int:
        """Do the work of `feed` on the ring's bytes."""
        at = 0
        while n - at >= 8:
            length = get32(d, at + 3)
            if length > self.frame_max:
                raise BrokenFrames(f"a frame of {length} bytes")
            end = at + 8 + length
            if end > n:
                break
            if d[end - 1] != 0xCE:
                raise BrokenFrames("no end octet where the frame ends")
            if d[at] == 1:
                method = get32(d, at + 7) if length >= 4 else 0
                if length >= 13 and method in (ACK, NACK):
                    tag = get64(d, at + 11)
                    if tag > self.sent:
                        raise BrokenFrames(f"confirm of {tag}, which was not sent")
                    if self.window != 0:
                        self.confirm(ring, tag, d[at + 19] & 1, method == NACK, now)
                else:
                    self.methods.append(cut(d, at + 7, end - 1))
            at = end
        return at

    def confirm(self, ring: bytearray, tag: int, multiple: int, refused: bool, now: int) -> int:
        """Strike out one tag, or all up to it."""
        double = 2 * self.window
        i = self.low + 1 if multiple != 0 else tag
        if tag == 0:
            tag = self.sent
        while i <= tag:
            at = (i % double) * 8
            sent_at = get64(ring, at)
            if sent_at != 0 and i > self.low:
                if self.measuring:
                    self.latency.add(now - sent_at, 1)
                put64(ring, at, 0)
                self.confirmed += 1
                if refused:
                    self.nacked += 1
            i += 1
        if multiple != 0 and tag > self.low:
            self.low = tag
        while self.low < self.sent and get64(ring, ((self.low + 1) % double) * 8) == 0:
            self.low += 1
        return 0


class Receiver:
    """One consuming connection: counts its deliveries, checks their numbers, writes acks."""

    def __init__(
        self,
        waited: "array[int]",
        publishers: int,
        latency: Histogram,
        ack_every: int,
        gaps_matter: bool,
        frame_max: int,
    ) -> None:
        self.waited = waited  # By queue * publishers + publisher: the number that comes next.
        self.waited_len = len(waited)
        self.publishers = publishers
        self.latency = latency
        self.ack_every = ack_every
        self.gaps_matter = gaps_matter
        self.frame_max = frame_max
        self.queue = 0
        self.tag = 0
        self.body_left = 0
        self.received = 0
        self.unacked = 0
        self.measuring = False
        self.run_time = 0  # Deliveries that were stamped at the same time are counted together.
        self.run_count = 0
        self.redelivered = 0
        self.repeated = 0
        self.out_of_order = 0
        self.unstamped = 0
        self.in_front = False  # The next body frame is a body's first.
        self.missing: dict[int, list[list[int]]] = {}  # By place in `waited`: runs of numbers.
        self.missing_runs = 0
        self.acks = bytearray(64)
        self.acks_len = 0
        self.methods: list[bytes] = []  # Payloads of all methods but deliveries, in order.

    def feed(self, d: bytearray, n: int, now: int) -> int:
        """Take in ``d[:n]``; return the size of its complete frames. Acks are then in `acks`."""
        if len(self.acks) < n + ACK_LEN:
            self.acks = bytearray(n + ACK_LEN)
        self.acks_len = 0
        return self.walk(d, self.acks, n, now)

    def walk(self, d: bytearray, acks: bytearray, n: int, now: int) -> int:
        """Do the work of `feed`; ``acks`` has room for one per frame."""
        at = 0
        while n - at >= 8:
            length = get32(d, at + 3)
            if length > self.frame_max:
                raise BrokenFrames(f"a frame of {length} bytes")
            end = at + 8 + length
            if end > n:
                break
            if d[end - 1] != 0xCE:
                raise BrokenFrames("no end octet where the frame ends")
            kind = d[at]
            if kind == 1:
                self.method(d, at + 7, length)
            elif kind == 2:
                if length < 14:
                    raise BrokenFrames("a content header of less than 14 bytes")
                self.body_left = get64(d, at + 11)
                self.in_front = True
                if self.body_left == 0:
                    self.unstamped += 1
                    self.finish(acks)
            elif kind == 3:
                if length > self.body_left:
                    raise BrokenFrames("a body longer than its header says")
                if self.in_front:
                    self.in_front = False
                    if length >= STAMP_LEN:
                        self.check(get64(d, at + 7), get64(d, at + 15), now)
                    else:
                        self.unstamped += 1
                self.body_left -= length
                if self.body_left == 0:
                    self.finish(acks)
            at = end
        self.count_run(now)
        return at

    def method(self, d: bytearray, at: int, length: int) -> int:
        """Note what the coming delivery is; keep any other method for the owner."""
        if length < 4 or get32(d, at) != DELIVER:
            self.methods.append(cut(d, at, at + length))
            return 0
        tag_len = d[at + 4] if length > 4 else 0
        if length < tag_len + 16 or tag_len == 0:
            raise BrokenFrames("a basic.deliver that is too short")
        queue = 0
        for i in range(1, tag_len):  # The consumer tag is "c" and the number of its queue.
            queue = (queue * 10 + d[at + 5 + i] - 48) & 0xFFFFFF
        if queue * self.publishers >= self.waited_len:
            raise BrokenFrames("a basic.deliver for an unknown consumer tag")
        self.queue = queue
        self.tag = get64(d, at + 5 + tag_len)
        if d[at + 13 + tag_len] & 1:
            self.redelivered += 1
        return 0

    def check(self, stamp: int, sent_at: int, now: int) -> int:
        """Compare one number with the one waited for; count the way's duration."""
        if sent_at != self.run_time:
            self.count_run(now)
            self.run_time = sent_at
        self.run_count += 1
        publisher = stamp >> 48
        seq = stamp & SEQUENCE_MASK
        if publisher >= self.publishers:
            self.unstamped += 1
            return 0
        place = self.queue * self.publishers + publisher
        waited = self.waited[place]
        if seq == waited:
            self.waited[place] = seq + 1
        elif seq > waited:
            if self.gaps_matter:
                self.skip(place, waited, seq)
            self.waited[place] = seq + 1
        else:
            self.come_back(place, seq)
        return 0

    def count_run(self, now: int) -> int:
        """Count the deliveries that were stamped together."""
        if self.run_count > 0 and self.measuring and now >= self.run_time:
            self.latency.add(now - self.run_time, self.run_count)
        self.run_count = 0
        return 0

    def finish(self, acks: bytearray) -> int:
        """Count a whole delivery and acknowledge when it is time."""
        self.received += 1
        if self.ack_every > 0:
            self.unacked += 1
            if self.unacked >= self.ack_every:
                self.ack(acks)
        return 0

    def flush(self) -> None:
        """Acknowledge the remaining deliveries, when no more arrive."""
        self.acks_len = 0
        if self.unacked > 0:
            self.ack(self.acks)

    def ack(self, acks: bytearray) -> int:
        """Write a basic.ack of the last delivery, and of those before it."""
        at = self.acks_len
        acks[at] = 1
        put16(acks, at + 1, 1)
        put32(acks, at + 3, 13)
        put32(acks, at + 7, ACK)
        put64(acks, at + 11, self.tag)
        acks[at + 19] = 1 if self.ack_every > 1 else 0
        acks[at + 20] = 0xCE
        self.acks_len = at + ACK_LEN
        self.unacked = 0
        return 0

    def skip(self, place: int, waited: int, seq: int) -> None:
        """Remember that the numbers from ``waited`` up to ``seq`` have not come."""
        self.missing_runs += 1
        runs = self.missing.setdefault(place, [])
        if self.missing_runs <= MISSING_MAX or not runs:
            runs.append([waited, seq])
        else:
            runs[len(runs) - 1][1] = seq

    def come_back(self, place: int, seq: int) -> None:
        """Classify an old sequence number: late for the first time, or a duplicate."""
        runs = self.missing.get(place, [])
        for i, (low, high) in enumerate(runs):
            if low <= seq < high:
                runs[i : i + 1] = [run for run in ([low, seq], [seq + 1, high]) if run[0] < run[1]]
                self.out_of_order += 1
                return
        if not self.gaps_matter and seq + 1 < self.waited[place]:
            self.out_of_order += 1  # Which numbers come here is unknown: late is likelier.
        else:
            self.repeated += 1

    def skipped(self) -> int:
        """Return the number of sequence numbers that never arrived."""
        return sum(high - low for runs in self.missing.values() for low, high in runs)


def is_compiled() -> bool:
    """True when this runs as C."""
    return bool(cython.compiled)

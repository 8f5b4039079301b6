# SPDX-License-Identifier: Apache-2.0
"""Ready messages at their places in a queue: coming in, coming back, going, and being looked at.

Order. A message's place is its ``seq``. Arrivals are pushed on a ring, so the ring is sorted by
itself; a message that comes back waits in the heap ``returned``, and the next to go is the smaller
of both heads. So a message returns to its place whatever came in meanwhile, at a cost that depends
on how many messages are out of place, never on the depth of the queue. Higher priorities have rings
of their own, made when the first such message comes.

Shells. A message that expires or is dropped from the middle is flagged GONE and stays in its ring
as an empty shell until it is met there, or until shells outnumber the living. One that is acquired
from the middle has a ``consumer`` and stays listed as well; when it comes back it is listed twice,
which does no harm: whichever entry is met first counts, the other is met as a shell.

Cost. Nothing that happens for each message looks at more than one of them.
"""

from heapq import heapify, heappop, heappush
from typing import Any

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.counters import Counters
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.queue.ring import Ring

STALE_MIN = 1024  # Below this many shells a ring is not swept.
SAMPLES = 64  # Looks at each ring, for each part that a queue is to be cut into.
DEFAULT_HIGH_PRIORITY = 5  # Without x-max-priority: 0..4 are one level, 5..9 another (0-9-1/basic).


class Places:
    """Ready messages in order; the first of the four classes that make up a queue."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.max_priority = 0
        self.priority_base = 0  # Priorities up to this one share the lowest level.
        self.ready_count = 0
        self.ready_bytes = 0
        self.stale_count = 0
        self.ring: Any = None  # The lowest priority, which is all that most queues have.
        self.rings: Any = None  # The higher ones by level; [0] is unused.
        self.returned: Any = None  # (-level, seq, message)
        # Who looks at messages where they stand; see Queue.
        self.browsers: Any = None  # Cursors.
        self.seekers: Any = None  # Those of consumers.
        self.waking = False  # Served at the end of this turn.

    # --- Coming in --------------------------------------------------------------------------------

    # Keeps 0-9-1/basic#06, 0-9-1/basic#07, 0-9/basic#06, 0-9/basic#07, 0-9/message#06,
    # 0-9/message#07, 0-10/s062, 0-10/s063.
    def level(self, priority: int) -> int:
        """Map a priority to the queue's levels."""
        if self.max_priority:
            if priority <= self.priority_base:
                return 0
            return min(self.max_priority, priority - self.priority_base)
        return 1 if priority >= DEFAULT_HIGH_PRIORITY else 0

    # Keeps 0-9-1/basic#08, 0-9/basic#08, 0-9/message#08, 0-10/s064.
    def push(self, message: Message) -> None:
        """Append to the ring of the message's level; page it out when memory is short."""
        level = self.level(message.priority)
        if level == 0:
            ring = self.ring
            if ring is None:
                ring = self.ring = Ring()
        else:
            if self.rings is None:
                self.rings = [None] * (self.max_priority + 1 if self.max_priority else 2)
            ring = self.rings[level]
            if ring is None:
                ring = Ring()
                self.rings[level] = ring
        ring.push(message)
        self.ready_count += 1
        self.ready_bytes += message.body_size
        if self.browsers is not None:
            self.wake()
        if self.counters.memory_used > self.counters.memory_max:
            self.relieve(message)

    def relieve(self, message: Message) -> None:
        """Memory is short, and a message was pushed."""

    def wake(self) -> None:
        """Have the queue drained at the end of this turn."""
        if not self.waking:
            self.waking = True
            self.counters.waking.append(self)  # type: ignore[arg-type] # Queue has drain.

    def is_newest(self, message: Message) -> bool:
        """Tell whether a message's place is behind all that wait in the lowest level's ring."""
        if self.level(message.priority) != 0:
            return False
        ring = self.ring
        if ring is None or ring.count == 0:
            return True
        last = ring.at(ring.count - 1)
        return last is not None and last.seq < message.seq

    def reinsert(self, message: Message) -> None:
        """Return a message to its place among the ready ones."""
        if self.returned is None:
            self.returned = []
        entry = (-self.level(message.priority), message.seq, message)
        heappush(self.returned, entry)
        self.ready_count += 1
        self.ready_bytes += message.body_size
        if self.browsers is not None or self.seekers is not None:
            self.notify_cursors(entry)

    def notify_cursors(self, entry: tuple[int, int, Message]) -> None:
        """A message returned to its place, and somebody looks."""

    # --- Going ------------------------------------------------------------------------------------

    def next_ready(self) -> Message | None:
        """Remove and return the first ready message; its data may be paged out."""
        message: Message | None
        while True:
            if self.returned is None and self.rings is None:
                ring = self.ring
                if ring is None or ring.count == 0:
                    return None
                message = ring.pop()
            else:
                message = self.next_by_rank()
                if message is None:
                    return None
            if message.flags & C_GONE or message.consumer is not None:
                self.stale_count -= 1
                continue
            self.ready_count -= 1
            self.ready_bytes -= message.body_size
            return message

    def next_by_rank(self) -> Message | None:
        """Remove and return the first of all rings and the heap, shells included."""
        message: Message | None
        ring = None
        level = 0
        if self.rings is not None:
            level = len(self.rings) - 1
            while level > 0:
                ring = self.rings[level]
                if ring is not None and ring.count:
                    break
                level -= 1
        if level == 0:
            ring = self.ring
            if ring is not None and ring.count == 0:
                ring = None
        if self.returned is not None:
            back, seq, message = self.returned[0]
            first = None if ring is None else ring.at(0)
            if first is None or -back > level or (-back == level and seq < first.seq):
                heappop(self.returned)
                if not self.returned:
                    self.returned = None
                return message
        if ring is None:
            return None
        message = ring.pop()
        return message

    def sweep(self) -> None:
        """Rebuild the rings without shells."""
        self.ring = self.swept(self.ring)
        if self.rings is not None:
            self.rings = [self.swept(ring) for ring in self.rings]
        if self.returned is not None:
            kept = {e[1]: e for e in self.returned if not self.is_stale(e[2])}
            self.returned = list(kept.values()) or None
            if self.returned is not None:
                heapify(self.returned)
        self.stale_count = 0

    def is_stale(self, message: Message) -> bool:
        """Tell whether an entry of ``returned`` stands for nothing."""
        if message.flags & C_GONE or message.consumer is not None:
            return True
        return self.is_listed(message)

    def is_listed(self, message: Message) -> bool:
        """Tell whether a message stands in its ring, if only as a shell."""
        level = self.level(message.priority)
        ring = self.ring if level == 0 else None
        if level and self.rings is not None:
            ring = self.rings[level]
        if ring is None or not ring.count:
            return False
        at = ring.after(message.seq - 1)
        return at < ring.count and ring.at(at) is message

    def swept(self, ring: Any) -> Any:
        """Return a ring with the living messages of another."""
        if ring is None:
            return None
        fresh = Ring()
        while ring.count:
            message = ring.pop()
            if not message.flags & C_GONE and message.consumer is None:
                fresh.push(message)
        return fresh

    # --- Looking ----------------------------------------------------------------------------------

    def peek(
        self, first: int, last: int, octets_max: int, returned: list[Message]
    ) -> list[Message]:
        """Return ready messages at the positions ``[first, last)``, in order of these.

        At least one, if there is one, and about ``octets_max`` octets at most. ``returned`` are
        those of the messages that came back, in order, which are looked at as well.
        """
        found: list[Message] = []
        limit = last
        level = 0
        while (self.rings is not None and level < len(self.rings)) or level == 0:
            ring = self.ring if level == 0 else self.rings[level]
            level += 1
            if ring is None or not ring.count:
                continue
            octets = 0
            at = ring.after(first - 1) if first else 0
            while at < ring.count:
                message = ring.at(at)
                at += 1
                if message.seq >= limit:
                    break
                if message.flags & C_GONE or message.consumer is not None:
                    continue
                if octets >= octets_max:
                    limit = message.seq
                    break
                octets += message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD
                found.append(message)
        for message in returned:
            if message.seq >= limit:
                break
            if message.seq >= first and not message.flags & C_GONE and message.consumer is None:
                found.append(message)
        if level == 1 and not returned:
            return found
        by_seq = {message.seq: message for message in found if message.seq < limit}
        return [by_seq[seq] for seq in sorted(by_seq)]

    def returned_within(self, first: int, last: int) -> list[Message]:
        """Return the messages that came back and wait at ``[first, last)``, in order."""
        returned = [entry for entry in self.returned or () if first <= entry[1] < last]
        by_seq = {entry[1]: entry[2] for entry in returned}  # Some are listed twice.
        return [by_seq[seq] for seq in sorted(by_seq)]

    def position_of_first(self) -> int:
        """Return the lowest position at which a message may be ready; the next one of all when
        there is none.
        """
        first = self.counters.next_seq
        for ring in [self.ring, *(self.rings or ())]:
            if ring is not None and ring.count and ring.at(0).seq < first:
                first = ring.at(0).seq
        for _, seq, _ in self.returned or ():
            if seq < first:
                first = seq
        return first

    def positions(self, parts: int) -> list[int]:
        """Return positions that cut what is ready into about equal parts: the inner bounds."""
        samples: list[tuple[int, int]] = []
        for ring in [self.ring, *(self.rings or ())]:
            if ring is None or not ring.count:
                continue
            step = max(1, ring.count // (parts * SAMPLES))
            samples += [(ring.at(at).seq, step) for at in range(0, ring.count, step)]
        samples += [(entry[1], 1) for entry in self.returned or ()]
        samples.sort()
        total = sum([weight for _, weight in samples])
        bounds: list[int] = []
        passed = 0
        for seq, weight in samples:
            if passed * parts >= total * (len(bounds) + 1):
                bounds.append(seq)
                if len(bounds) == parts - 1:
                    break
            passed += weight
        return bounds

    def redelivered(self) -> list[int]:
        """Return the seqs of the ready messages that were handed out before."""
        found = []
        message: Message | None
        for ring in [self.ring, *(self.rings or ())]:
            for i in range(0 if ring is None else ring.count):
                message = ring.at(i)
                if message.flags & C_REDELIVERED and not message.flags & C_GONE:
                    found.append(message.seq)
        for _, _, message in self.returned or ():
            if not message.flags & C_GONE:
                found.append(message.seq)
        return found

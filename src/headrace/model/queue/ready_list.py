# SPDX-License-Identifier: Apache-2.0
"""The ready messages of a queue, in the order of their delivery.

Order. A message's position is its ``seq``. Arrivals are pushed on a ring, so the ring is sorted.
A requeued message is in the heap ``requeued``. The next message is the lower of the first messages
of ring and heap. So a requeued message returns to its position, at a cost that depends on the
number of requeued messages, not on the depth of the queue. Each higher priority has a ring, made
when its first message arrives.

Stale entries. A message that expires or is dropped from the middle gets the flag GONE, and its
entry stays in the ring until it is popped, or until stale entries outnumber ready messages. A
message that is acquired from the middle has a ``consumer``, and its entry stays, too. After a
requeue it has two entries: the one that is popped first counts, and the other is stale.

Cursors. A browser, or a consumer with a selector, reads the list without popping. Its cursor has
the last seq that it has seen on each level; bisection finds the next message.

Cost. The cost of an operation on one message does not depend on the depth of the queue.
"""

from heapq import heapify, heappop, heappush

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.queue.ring import Ring

STALE_MIN = 1024  # Stale entries up to which the list is not swept.
SAMPLES = 64  # Messages of a ring to sample for each range into which a queue is split.
DEFAULT_HIGH_PRIORITY = 5  # Without x-max-priority: 0..4 are one level, 5..9 another (0-9-1/basic).
NO_SEQ = (1 << 63) - 1  # The highest position; no message has it.


class Cursor:
    """The position in a queue of a browser, or of a consumer with a selector."""

    def __init__(self, is_browser: bool, levels: int) -> None:
        # A message requeued behind a browser's cursor is not shown again.
        self.is_browser = is_browser
        self.seen = [0] * levels  # The last seq that the cursor has passed, by level.
        # Entries of ``requeued`` that the cursor has not seen.
        self.ahead: list[tuple[int, int, Message]] | None = None
        self.looks = 0  # The cost of the messages passed over in a row; see `browsing`.

    def skip_to(self, position: int) -> None:
        """Start at a position, if the cursor has not moved yet."""
        if position > 0:
            self.seen = [position - 1] * len(self.seen)


class ReadyList:
    """Ready messages: first in, first out, with a ring for each priority."""

    def __init__(self) -> None:
        self.max_priority = 0
        self.priority_base = 0  # Priorities up to this one share the lowest level.
        self.count = 0
        self.bytes = 0  # The bytes of the bodies of ready messages.
        self.stale_count = 0  # Entries of messages that are not ready, and second entries.
        self.ring: Ring | None = None  # The lowest level, the only level of most queues.
        self.rings: list[Ring | None] | None = None  # The higher levels; [0] is unused.
        self.requeued: list[tuple[int, int, Message]] | None = None  # (-level, seq, message)
        self.cursors: list[Cursor] | None = None

    # --- Insertion --------------------------------------------------------------------------------

    # Keeps 0-9-1/basic#06, 0-9-1/basic#07, 0-9/basic#06, 0-9/basic#07, 0-9/message#06,
    # 0-9/message#07, 0-9/file#03, 0-9/stream#02, 0-10/s062, 0-10/s063, 0-10/s205.
    def level(self, priority: int) -> int:
        """Return the level of a priority.

        Packets have a level for each priority (`headrace.model.queue_kinds.content_lanes`).
        """
        if self.max_priority:
            if priority <= self.priority_base:
                return 0
            return min(self.max_priority, priority - self.priority_base)
        return 1 if priority >= DEFAULT_HIGH_PRIORITY else 0

    # Keeps 0-9-1/basic#08, 0-9/basic#08, 0-9/message#08, 0-10/s064.
    def push(self, message: Message) -> None:
        """Append an arrival to the ring of its level."""
        level = self.level(message.priority)
        if level == 0:
            ring = self.ring
            if ring is None:
                ring = self.ring = Ring()
        else:
            if self.rings is None:
                self.rings = [None] * (self.max_priority + 1 if self.max_priority else 2)
            level_ring = self.rings[level]
            if level_ring is None:
                level_ring = Ring()
                self.rings[level] = level_ring
            ring = level_ring
        ring.push(message)
        self.count += 1
        self.bytes += message.body_size

    def is_newest(self, message: Message) -> bool:
        """Return True if a message belongs behind all others of the lowest level."""
        if self.level(message.priority) != 0:
            return False
        ring = self.ring
        if ring is None or ring.count == 0:
            return True
        newest = ring.get(ring.count - 1)
        return newest is not None and newest.seq < message.seq

    def reinsert(self, message: Message) -> None:
        """Add a message at its position, in the heap ``requeued``."""
        if self.requeued is None:
            self.requeued = []
        entry = (-self.level(message.priority), message.seq, message)
        heappush(self.requeued, entry)
        self.count += 1
        self.bytes += message.body_size
        if self.cursors is not None:
            self.notify_cursors(entry)

    # --- Removal ----------------------------------------------------------------------------------

    def pop(self) -> Message | None:
        """Remove and return the first ready message, which may be paged out."""
        while True:
            if self.requeued is None and self.rings is None:
                ring = self.ring
                if ring is None or ring.count == 0:
                    return None
                message = ring.pop()
            else:
                message = self.pop_by_priority()
            if message is None:
                return None
            if message.flags & C_GONE or message.consumer is not None:
                self.stale_count -= 1
                continue
            self.count -= 1
            self.bytes -= message.body_size
            return message

    def pop_oldest(self) -> Message | None:
        """Remove and return the message with the lowest position of the highest level.

        Unlike :meth:`pop`, no kind of list changes this order.
        """
        return ReadyList.pop(self)

    def withdraw(self, message: Message) -> None:
        """Count a message that is removed from the middle; its entry becomes stale."""
        self.count -= 1
        self.bytes -= message.body_size
        self.stale_count += 1

    def pop_by_priority(self) -> Message | None:
        """Remove and return the first message of all rings and the heap; it may be stale."""
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
        if self.requeued is not None:
            negative_level, seq, message = self.requeued[0]
            head = None if ring is None else ring.get(0)
            if (
                head is None
                or -negative_level > level
                or (-negative_level == level and seq < head.seq)
            ):
                heappop(self.requeued)
                if not self.requeued:
                    self.requeued = None
                return message
        if ring is None:
            return None
        message = ring.pop()
        return message

    def pop_lowest(self) -> Message | None:
        """Remove and return the oldest ready message of the lowest priority."""
        level = 0
        while level == 0 or (self.rings is not None and level < len(self.rings)):
            ring = self.ring
            if level and self.rings is not None:
                ring = self.rings[level]
            while ring is not None and ring.count:
                message = ring.pop()
                if message is None:
                    continue
                if message.flags & C_GONE:
                    self.stale_count -= 1
                    continue
                self.count -= 1
                self.bytes -= message.body_size
                return message
            level += 1
        return self.pop()

    def sweep(self) -> None:
        """Rebuild the rings without stale entries."""
        self.ring = self.copy_without_stale(self.ring)
        if self.rings is not None:
            self.rings = [self.copy_without_stale(ring) for ring in self.rings]
        if self.requeued is not None:
            by_seq = {entry[1]: entry for entry in self.requeued if not self.is_stale(entry[2])}
            self.requeued = list(by_seq.values()) or None
            if self.requeued is not None:
                heapify(self.requeued)
        self.stale_count = 0

    def is_gone(self, message: Message) -> bool:
        """Return True if a message is removed or unacked, so that it is not ready."""
        return bool(message.flags & C_GONE) or message.consumer is not None

    def is_stale(self, message: Message) -> bool:
        """Return True if an entry of ``requeued`` is stale, or its message is also in a ring."""
        if message.flags & C_GONE or message.consumer is not None:
            return True
        return self.is_listed(message)

    def is_listed(self, message: Message) -> bool:
        """Return True if a message has an entry in its ring, stale or not."""
        level = self.level(message.priority)
        ring = self.ring if level == 0 else None
        if level and self.rings is not None:
            ring = self.rings[level]
        if ring is None or not ring.count:
            return False
        index = ring.index_after(message.seq - 1)
        return index < ring.count and ring.get(index) is message

    def copy_without_stale(self, ring: Ring | None) -> Ring | None:
        """Return a new ring with the ready messages of ``ring``, which is emptied."""
        if ring is None:
            return None
        fresh = Ring()
        while ring.count:
            message = ring.pop()
            if message is not None and not self.is_gone(message):
                fresh.push(message)
        return fresh

    def sweep_if_stale(self) -> None:
        """Rebuild the rings when stale entries outnumber ready messages."""
        if self.stale_count > STALE_MIN and self.stale_count > self.count:
            self.sweep()

    def on_removal(self, message: Message) -> None:
        """Called when a message is removed from the queue; lists with more state override it."""

    def clear(self) -> None:
        """Remove all entries; the queue has popped every message."""
        self.ring = None
        self.rings = None
        self.requeued = None
        self.stale_count = 0

    # --- Reading ----------------------------------------------------------------------------------

    def peek(self, first: int, last: int, bytes_max: int, requeued: list[Message]) -> list[Message]:
        """Return ready messages at the positions ``[first, last)``, in order of position.

        The result has about ``bytes_max`` bytes at most, but at least one message if one is ready.
        It includes ``requeued``, a result of :meth:`requeued_between`.
        """
        messages: list[Message] = []
        limit = last
        level = 0
        while level == 0 or (self.rings is not None and level < len(self.rings)):
            ring = self.ring
            if level and self.rings is not None:
                ring = self.rings[level]
            level += 1
            if ring is None or not ring.count:
                continue
            size = 0
            index = ring.index_after(first - 1) if first else 0
            while index < ring.count:
                message = ring.get(index)
                index += 1
                if message is None or message.seq >= limit:
                    break
                if message.flags & C_GONE or message.consumer is not None:
                    continue
                if size >= bytes_max:
                    limit = message.seq
                    break
                size += message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD
                messages.append(message)
        for message in requeued:
            if message.seq >= limit:
                break
            if message.seq >= first and not message.flags & C_GONE and message.consumer is None:
                messages.append(message)
        if level == 1 and not requeued:
            return messages
        by_seq = {message.seq: message for message in messages if message.seq < limit}
        return [by_seq[seq] for seq in sorted(by_seq)]

    def requeued_between(self, first: int, last: int) -> list[Message]:
        """Return the requeued messages at ``[first, last)``, in order of position."""
        entries = [entry for entry in self.requeued or () if first <= entry[1] < last]
        by_seq = {entry[1]: entry[2] for entry in entries}  # A message may be listed twice.
        return [by_seq[seq] for seq in sorted(by_seq)]

    def first_position(self, first: int) -> int:
        """Return the lowest position at which a message may be ready, at most ``first``.

        Callers pass the next free seq as ``first``, which an empty list returns.
        """
        for ring in [self.ring, *(self.rings or ())]:
            if ring is not None and ring.count and ring.get(0).seq < first:
                first = ring.get(0).seq
        for _, seq, _ in self.requeued or ():
            if seq < first:
                first = seq
        return first

    def split_positions(self, parts: int) -> list[int]:
        """Return the positions that split the ready messages into ``parts`` ranges of equal size.

        The sizes are estimated from samples.
        """
        samples: list[tuple[int, int]] = []
        for ring in [self.ring, *(self.rings or ())]:
            if ring is None or not ring.count:
                continue
            step = max(1, ring.count // (parts * SAMPLES))
            samples += [(ring.get(index).seq, step) for index in range(0, ring.count, step)]
        samples += [(entry[1], 1) for entry in self.requeued or ()]
        samples.sort()
        total = sum([weight for _, weight in samples])
        bounds: list[int] = []
        weight_before = 0
        for seq, weight in samples:
            if weight_before * parts >= total * (len(bounds) + 1):
                bounds.append(seq)
                if len(bounds) == parts - 1:
                    break
            weight_before += weight
        return bounds

    def redelivered_seqs(self) -> list[int]:
        """Return the seqs of the ready messages that were delivered before."""
        seqs = []
        message: Message | None
        for ring in [self.ring, *(self.rings or ())]:
            for i in range(0 if ring is None else ring.count):
                message = ring.get(i)
                if message.flags & C_REDELIVERED and not message.flags & C_GONE:
                    seqs.append(message.seq)
        for _, _, message in self.requeued or ():
            if not message.flags & C_GONE:
                seqs.append(message.seq)
        return seqs

    # --- Cursors ----------------------------------------------------------------------------------

    def new_cursor(self, is_browser: bool) -> Cursor:
        """Return a cursor before the first ready message."""
        cursor = Cursor(is_browser, self.max_priority + 1 if self.max_priority else 2)
        if self.requeued is not None:
            cursor.ahead = list(self.requeued)
        return cursor

    def watch(self, cursor: Cursor) -> None:
        """Notify a cursor of requeued messages from now on."""
        if self.cursors is None:
            self.cursors = []
        self.cursors.append(cursor)

    def unwatch(self, cursor: Cursor) -> None:
        """Stop notifying a cursor."""
        if self.cursors is not None and cursor in self.cursors:
            self.cursors.remove(cursor)
            self.cursors = self.cursors or None

    def peek_unseen(self, cursor: Cursor) -> Message | None:
        """Return the next ready message that a cursor has not seen."""
        ahead = cursor.ahead
        level = len(cursor.seen)
        while level:
            level -= 1
            seen = cursor.seen[level]
            candidate: Message | None = None
            ring = self.ring if level == 0 else None
            if level and self.rings is not None:
                ring = self.rings[level]
            if ring is not None and ring.count:
                index = ring.index_after(seen)
                while index < ring.count:
                    message = ring.get(index)
                    if message is None or not self.is_gone(message):
                        candidate = message
                        break
                    seen = message.seq  # The next search starts behind the stale entry.
                    index += 1
            while ahead:
                negative_level, seq, message = ahead[0]
                if -negative_level < level:
                    break
                ready = not message.flags & C_GONE and message.consumer is None
                unseen = not cursor.is_browser or seq > cursor.seen[level]
                if -negative_level == level and unseen and ready:
                    if candidate is None or seq < candidate.seq:
                        candidate = message
                    break
                heappop(ahead)
            if candidate is not None:
                return candidate
            cursor.seen[level] = seen
        return None

    def pass_over(self, cursor: Cursor, message: Message) -> None:
        """Move a cursor behind the message that :meth:`peek_unseen` returned."""
        level = self.level(message.priority)
        if message.seq > cursor.seen[level]:
            cursor.seen[level] = message.seq
        if cursor.ahead and cursor.ahead[0][2] is message:
            heappop(cursor.ahead)

    def read_unseen(self, cursor: Cursor, end: int, bytes_max: int) -> list[Message]:
        """Return the next messages that a cursor has not seen, in order of delivery.

        The messages are before the position ``end``. They have about ``bytes_max`` bytes at most,
        but are at least one if one is ready. The cursor moves behind them. A cursor that the list
        does not :meth:`watch` may miss messages that are requeued between two calls.
        """
        messages: list[Message] = []
        size = 0
        while size < bytes_max:
            message = self.peek_unseen(cursor)
            if message is None:
                break
            if message.seq >= end:  # All further messages of its level are behind it.
                cursor.seen[self.level(message.priority)] = NO_SEQ
                continue
            self.pass_over(cursor, message)
            size += message.body_size + C_MESSAGE_OVERHEAD
            messages.append(message)
        return messages

    def notify_cursors(self, entry: tuple[int, int, Message]) -> None:
        """Add a requeued message to the cursors that have not passed it."""
        cursor: Cursor
        for cursor in self.cursors or ():
            if not cursor.is_browser or entry[1] > cursor.seen[-entry[0]]:
                self.add_ahead(cursor, entry)

    def add_ahead(self, cursor: Cursor, entry: tuple[int, int, Message]) -> None:
        """Add an entry of ``requeued`` to those that a cursor has not seen."""
        if cursor.ahead is None:
            cursor.ahead = []
        elif len(cursor.ahead) > 2 * self.count + STALE_MIN:
            by_seq = {ahead[1]: ahead for ahead in cursor.ahead if not self.is_gone(ahead[2])}
            cursor.ahead = list(by_seq.values())
            heapify(cursor.ahead)
        heappush(cursor.ahead, entry)

# SPDX-License-Identifier: Apache-2.0
"""The unsettled deliveries of one channel or session, by delivery tag or command id.

The numbers of deliveries count up, so the deliveries are a ring: the index of a number is its
distance from ``base``. Settling out of order leaves an empty slot, over which the head of the ring
moves on. A delivery that stays unsettled while many later ones are settled is moved out of the ring
into a dict, ``spilled``, so that it does not cost a slot for each number after it.

Numbers wrap around at ``mask``: delivery ids of 0-10 have 32 bits. Of two numbers the earlier is
the one from which the other is less than half the way around.
"""

import cython

if not cython.compiled:
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.ring import Ring

from headrace.model.transaction.transaction import ACCEPT, DISCARD, REQUEUE

# The outcomes of a delivery; a transaction has the same numbers. The hot paths of both protocol
# families have them as C numbers.
SETTLE_ACCEPT = ACCEPT
SETTLE_REQUEUE = REQUEUE
SETTLE_DISCARD = DISCARD
SETTLE_RELEASE = 3  # Like SETTLE_REQUEUE, but the message does not count as redelivered.

RING_SLACK = 65536  # Empty slots that a ring keeps in addition to four per unsettled delivery.


class Unsettled:
    """Unsettled deliveries in the order of their numbers."""

    def __init__(self, bits: int) -> None:
        """``bits`` is the width of a number: 64 for a delivery tag, 32 for a command id."""
        self.mask = (1 << bits) - 1
        self.half = 1 << (bits - 1)
        self.ring: Ring | None = None  # Made for the first delivery.
        self.base = 0  # The number of the ring's first slot.
        self.spilled: dict[int, Message] | None = None  # Deliveries outside of the ring, by number.
        self.count = 0

    def add(self, number: int, message: Message) -> None:
        """Add a delivery; its number comes after all others."""
        if self.ring is None:
            self.ring = Ring()
        slot_count = self.ring.count
        if slot_count == 0:
            self.base = number
        elif (number - self.base - slot_count) & self.mask:
            self.add_gap(number)
        self.ring.push(message)
        self.count += 1
        if slot_count > RING_SLACK and slot_count > RING_SLACK + 4 * self.count:
            self.spill(slot_count - RING_SLACK - 4 * self.count)

    def add_gap(self, number: int) -> None:
        """Add empty slots for the deliveries before ``number`` that need no settlement."""
        ring = self.ring
        assert ring is not None
        gap = (number - self.base - ring.count) & self.mask
        if gap > RING_SLACK:
            self.spill(ring.count)
            self.base = number
            gap = 0
        while gap:
            ring.push(None)
            gap -= 1

    def add_spilled(self, number: int, message: Message) -> None:
        """Add a delivery with an earlier number, such as one that was acquired later."""
        if self.spilled is None:
            self.spilled = {}
        self.spilled[number] = message
        self.count += 1

    def spill(self, slot_count: int) -> None:
        """Move the deliveries in the first ``slot_count`` slots of the ring into the dict."""
        ring = self.ring
        assert ring is not None
        while slot_count and ring.count:
            message = ring.pop()
            if message is not None:
                if self.spilled is None:
                    self.spilled = {}
                self.spilled[self.base] = message
            self.base = (self.base + 1) & self.mask
            slot_count -= 1
        self.trim()

    def trim(self) -> None:
        """Move the head of the ring over empty slots."""
        ring = self.ring
        assert ring is not None
        while ring.count and ring.get(0) is None:
            ring.pop()
            self.base = (self.base + 1) & self.mask

    def find(self, number: int) -> Message | None:
        """Return the delivery of this number, or None if it is settled or never was."""
        ring = self.ring
        if ring is not None:
            index = (number - self.base) & self.mask
            if index < ring.count:
                return ring.get(index)
        if self.spilled:
            return self.spilled.get(number)
        return None

    def pop(self, number: int) -> Message | None:
        """Remove and return the delivery of this number, or None as :meth:`find`."""
        ring = self.ring
        if ring is not None:
            index = (number - self.base) & self.mask
            if index < ring.count:
                message = ring.get(index)
                if message is not None:
                    self.count -= 1
                    if index:
                        ring.clear_at(index)
                    else:
                        ring.pop()
                        self.base = (self.base + 1) & self.mask
                        self.trim()
                return message
        if self.spilled and number in self.spilled:
            self.count -= 1
            return self.spilled.pop(number)
        return None

    def spilled_numbers(self, first: int, last: int) -> list[int]:
        """Return the numbers from ``first`` to ``last`` that are not in the ring, in order."""
        spilled = self.spilled
        if not spilled:
            return []
        size = (last - first) & self.mask
        if size < len(spilled):  # Most settlements name few numbers.
            numbers = [(first + index) & self.mask for index in range(size + 1)]
            return [number for number in numbers if number in spilled]
        distances = [(number - first) & self.mask for number in spilled]
        within = sorted([distance for distance in distances if distance <= size])
        return [(first + distance) & self.mask for distance in within]

    def pop_first(self, last: int) -> Message | None:
        """Remove and return the earliest delivery in the ring up to ``last``, or None.

        For deliveries outside of the ring see :meth:`spilled_numbers`.
        """
        if self.ring is None:
            return None
        while self.ring.count:
            number = self.base
            if (last - number) & self.mask >= self.half:
                return None  # It is later.
            self.base = (number + 1) & self.mask
            message = self.ring.pop()
            if message is not None:
                self.count -= 1
                return message
        return None

    def delivery_numbers(self, consumer: Consumer, last: int) -> list[int]:
        """Return the numbers up to ``last`` of a consumer's deliveries, in order."""
        return [number for number, message in self.entries(last) if message.consumer is consumer]

    def entries(self, last: int) -> list[tuple[int, Message]]:
        """Return the numbers up to ``last`` with their deliveries, in order."""
        deliveries: list[tuple[int, Message]] = []
        spilled = self.spilled
        if spilled:
            first = (last - self.half + 1) & self.mask
            deliveries = [(number, spilled[number]) for number in self.spilled_numbers(first, last)]
        ring = self.ring
        index = 0
        while ring is not None and index < ring.count:
            if (last - self.base - index) & self.mask >= self.half:
                break
            message = ring.get(index)
            if message is not None:
                deliveries.append(((self.base + index) & self.mask, message))
            index += 1
        return deliveries

    def slot_count(self) -> int:
        """Return the number of slots that :meth:`messages` reads, empty ones included."""
        return len(self.spilled or ()) + (0 if self.ring is None else self.ring.count)

    def messages(self) -> list[Message]:
        """Return all deliveries: the spilled ones, then the ring's in order."""
        deliveries = list((self.spilled or {}).values())
        ring = self.ring
        if ring is not None:
            for index in range(ring.count):
                message = ring.get(index)
                if message is not None:
                    deliveries.append(message)
        return deliveries

    def clear(self) -> None:
        """Remove all deliveries."""
        self.spilled = None
        self.count = 0
        if self.ring is not None:
            self.ring.clear()

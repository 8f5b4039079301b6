# SPDX-License-Identifier: Apache-2.0
"""A first-in first-out list that grows, shrinks and can be read at any index.

An unused ring needs no memory for slots, whereas a ``collections.deque`` needs 600 bytes: a broker
may have tens of thousands of empty queues and channels.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.model.message import Message

FIRST_CAPACITY = 16
SHRINK_ABOVE = 1024


class Ring:
    """Messages in order; ``None`` is a slot whose message was removed from the middle."""

    __slots__ = ("count", "head", "mask", "slots")

    def __init__(self) -> None:
        self.slots: Any = None  # A list[Message | None] from the first message on.
        self.head = 0
        self.count = 0
        self.mask = -1

    def push(self, message: Message | None) -> None:
        """Append a message, or None for an empty slot."""
        if self.count > self.mask:
            self.resize(FIRST_CAPACITY if self.slots is None else 2 * (self.mask + 1))
        self.slots[(self.head + self.count) & self.mask] = message
        self.count += 1

    def pop(self) -> Message | None:
        """Remove and return the first message; ``count`` must be above zero."""
        head = self.head
        message: Message | None = cython.cast(Message, self.slots[head])  # Or None.
        self.slots[head] = None
        self.head = (head + 1) & self.mask
        self.count -= 1
        if self.mask >= SHRINK_ABOVE and self.count < (self.mask >> 3):
            self.resize((self.mask + 1) >> 1)
        return message

    def get(self, index: int) -> Message | None:
        """Return the message ``index`` slots behind the first, ``0 <= index < count``."""
        message: Message | None = self.slots[(self.head + index) & self.mask]
        return message

    def index_after(self, seq: int) -> int:
        """Return the index of the first message behind ``seq``, in a ring without empty slots."""
        low = 0
        high = self.count
        while low < high:
            middle = (low + high) >> 1
            message = self.slots[(self.head + middle) & self.mask]
            if message.seq <= seq:
                low = middle + 1
            else:
                high = middle
        return low

    def clear_at(self, index: int) -> None:
        """Empty the slot ``index`` behind the first, without moving other messages."""
        self.slots[(self.head + index) & self.mask] = None

    def clear(self) -> None:
        """Remove all messages and free the slots."""
        self.slots = None
        self.head = 0
        self.count = 0
        self.mask = -1

    def resize(self, capacity: int) -> None:
        """Change to ``capacity`` slots: a power of two, and enough for all messages."""
        old_slots = self.slots
        slots: list[Message | None] = [None] * capacity
        if old_slots is not None:
            for i in range(self.count):
                slots[i] = old_slots[(self.head + i) & self.mask]
        self.slots = slots
        self.head = 0
        self.mask = capacity - 1

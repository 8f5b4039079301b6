# SPDX-License-Identifier: Apache-2.0
"""What all queues of one broker share on the hot path: the time, the order, the memory in use."""

from typing import Protocol

import cython

if not cython.compiled:
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message

from headrace.model.arrival_times import Arrivals

MESSAGE_OVERHEAD = 200  # Octets that a ready message costs beside body and headers; rounded up.
PAGED_WEIGHT = 100  # What is left of it while its data is on disk only.
LETTERS_MAX = 64  # Dead letters of all queues that one millisecond has, so that others are served.
if not cython.compiled:
    C_MESSAGE_OVERHEAD = MESSAGE_OVERHEAD
    C_PAGED_WEIGHT = PAGED_WEIGHT


class Waking(Protocol):
    """A queue or stream that serves consumers at the end of a turn of the event loop."""

    def drain(self) -> None:
        """Deliver what consumers have room for."""


class Counters:
    """Counters that every queue reads and writes, one object for a broker."""

    def __init__(self, memory_max: int = 1 << 30, now_ms: int = 0) -> None:
        self.now_ms = now_ms  # Wall clock in milliseconds, read once a turn of the event loop.
        self.next_seq = 1  # The place of the next message in every queue; never reused.
        self.memory_used = 0  # Octets that queued messages hold, estimated.
        self.memory_max = (
            memory_max  # Octets; above it queues page out, at 1.25 times publishers block.
        )
        self.generation = 1  # Bumped by every change of bindings or permissions: routes are void.
        self.waking: list[Waking] = []  # Streams whose readers are served at the end of the turn.
        self.published = 0
        self.delivered = 0  # By queues that are gone; each counts its own,
        self.acknowledged = 0  # and both are counted so.
        self.letters_ms = 0  # In this millisecond
        self.letters_left = 0  # so many more messages may become dead letters unasked.
        self.arrivals = Arrivals()  # When which places were taken.

    def begin_letters(self, now_ms: int) -> int:
        """Let ``letters_left`` be ``LETTERS_MAX`` again, in another millisecond."""
        if self.letters_ms != now_ms:
            self.letters_ms = now_ms
            self.letters_left = LETTERS_MAX
        return 0

    def crowded(self) -> bool:
        """Tell whether paging did not keep up, so that publishers must wait."""
        return self.memory_used > self.memory_max + (self.memory_max >> 2)


def weight_of(message: Message) -> int:
    """Return the octets of memory that a message is counted with, wherever it waits."""
    if message.flags & C_PAGED:
        return C_PAGED_WEIGHT
    return message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD

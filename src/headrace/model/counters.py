# SPDX-License-Identifier: Apache-2.0
"""Counters shared by all queues of a broker: time, seq, memory."""

from typing import Protocol

import cython

if not cython.compiled:
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message

from headrace.model.arrival_times import Arrivals

MESSAGE_OVERHEAD = 200  # Bytes of a ready message besides body and headers, rounded up.
PAGED_WEIGHT = 100  # Bytes of a paged message.
LETTERS_MAX = 64  # Dead letters published in one millisecond, so that other work goes on.
if not cython.compiled:
    C_MESSAGE_OVERHEAD = MESSAGE_OVERHEAD
    C_PAGED_WEIGHT = PAGED_WEIGHT


class Waking(Protocol):
    """A queue or stream that serves its consumers at the end of a turn of the event loop."""

    def drain(self) -> None:
        """Deliver to consumers with room."""


class Counters:
    """Counters that every queue reads and writes; one object for a broker."""

    def __init__(self, memory_max: int = 1 << 30, now_ms: int = 0) -> None:
        self.now_ms = now_ms  # Wall clock in milliseconds, read once a turn of the event loop.
        self.next_seq = 1  # The seq of the next message; never reused.
        self.memory_used = 0  # Estimated bytes of queued messages.
        # Bytes; above it queues page out, at 1.25 times publishers are blocked.
        self.memory_max = memory_max
        self.generation = 1  # Changes with bindings and permissions: cached routes are void.
        self.waking: list[Waking] = []  # Queues to drain at the end of the turn.
        self.published = 0
        self.delivered = 0  # By deleted queues; the others count their own,
        self.acknowledged = 0  # and likewise.
        self.letters_ms = 0  # In this millisecond,
        self.letters_left = 0  # dead letters still allowed before they are postponed.
        self.arrivals = Arrivals()  # Approximate arrival times by seq.

    def begin_letters(self, now_ms: int) -> int:
        """Reset ``letters_left`` in a new millisecond."""
        if self.letters_ms != now_ms:
            self.letters_ms = now_ms
            self.letters_left = LETTERS_MAX
        return 0

    def crowded(self) -> bool:
        """Return True if memory is so short that publishers must wait."""
        return self.memory_used > self.memory_max + (self.memory_max >> 2)


def weight_of(message: Message) -> int:
    """Return the bytes of memory counted for a queued message."""
    if message.flags & C_PAGED:
        return C_PAGED_WEIGHT
    return message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD

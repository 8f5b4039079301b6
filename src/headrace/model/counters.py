# SPDX-License-Identifier: Apache-2.0
"""Counters shared by all queues of a broker: time, seq, memory."""

from typing import TYPE_CHECKING, Protocol

import cython

if not cython.compiled:
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.tallies import QueueTally, SizeHistogram

from headrace.measures import DEATHS, columns
from headrace.model.arrival_times import ArrivalTimes

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model.tallies import ChannelTally

MESSAGE_OVERHEAD = 200  # Bytes of a ready message besides body and headers, rounded up.
PAGED_WEIGHT = 100  # Bytes of a paged message.
SMALLEST_MAX = 100  # Bytes of a body in the first bucket of model.tallies.SizeHistogram.
LETTERS_MAX = 64  # Dead letters published in one millisecond, so that they do not delay other work.
if not cython.compiled:
    C_MESSAGE_OVERHEAD = MESSAGE_OVERHEAD
    C_PAGED_WEIGHT = PAGED_WEIGHT
    C_SMALLEST_MAX = SMALLEST_MAX


class Drainable(Protocol):
    """A queue or stream that serves its consumers at the end of a turn of the event loop."""

    def drain(self) -> None:
        """Deliver to consumers with room."""


def no_time() -> float:
    """Return 0, as the clock of hosts without one, such as in tests."""
    return 0.0


class Counters:
    """Counters that every queue reads and writes; one object for a broker."""

    def __init__(self, memory_max: int = 1 << 30, now_ms: int = 0) -> None:
        self.now_ms = now_ms  # Wall clock in milliseconds, read once a turn of the event loop.
        # A monotonic clock in seconds, set by the server, which ends the steps of long work.
        # Without a clock only the number of items ends a step.
        self.clock: Callable[[], float] = no_time
        self.next_seq = 1  # The seq of the next message; never reused.
        self.memory_used = 0  # Estimated bytes of queued messages.
        # The bytes above which queues page out; publishers are blocked at 1.25 times this.
        self.memory_max = memory_max
        self.generation = (
            1  # Changes with bindings and permissions, which invalidates cached routes.
        )
        self.to_drain: list[Drainable] = []  # Queues to drain at the end of the turn.
        self.published = 0
        self.routed = 0  # Routed messages, counted once for each queue.
        self.published_bytes = 0  # Bytes of the bodies of published messages.
        self.sizes = SizeHistogram()  # The body sizes of published messages.
        self.queues_ended = QueueTally()  # The queues of deleted virtual hosts.
        self.channels_ended: dict[str, ChannelTally] = {}  # Sums by version, such as "0-9-1".
        self.deaths = dict.fromkeys(columns(DEATHS), 0)  # Deaths by reason and strategy.
        # States of samplers for deleted queues.
        self.deleted_sampler_states: list[object] | None = None
        self.letters_ms = 0  # The millisecond of ``letters_left``.
        self.letters_left = 0  # Dead letters that are allowed before they are postponed.
        self.arrivals = ArrivalTimes()  # Approximate arrival times by seq.

    def count_publish(self, size: int) -> int:
        """Count a message that a client published; ``size`` is the size of its body in bytes."""
        self.published += 1
        self.published_bytes += size
        if size > C_SMALLEST_MAX:
            self.sizes.count(size)
        return 0

    def begin_letters(self, now_ms: int) -> int:
        """Reset ``letters_left`` in a new millisecond."""
        if self.letters_ms != now_ms:
            self.letters_ms = now_ms
            self.letters_left = LETTERS_MAX
        return 0

    def is_memory_short(self) -> bool:
        """Return True if memory is so short that publishers must wait."""
        return self.memory_used > self.memory_max + (self.memory_max >> 2)


def memory_weight(message: Message) -> int:
    """Return the bytes of memory counted for a queued message."""
    if message.flags & C_PAGED:
        return C_PAGED_WEIGHT
    return message.body_size + (message.header_units << 8) + C_MESSAGE_OVERHEAD

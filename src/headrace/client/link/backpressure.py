# SPDX-License-Identifier: Apache-2.0
"""The buffered messages of a connection, and when it stops reading.

The broker bounds a consumer with a prefetch. A consumer without one (`no_ack`), or one at a broker
that ignores it, is bounded here: above the high-water mark the connection stops reading from its
socket. It reads on while a call waits for an answer, because the answer follows the
messages. Then a hard limit ends the connection with a clear error, before memory runs out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.errors import BufferOverflow

if TYPE_CHECKING:
    from headrace.client.link.link_0_x import Link

HIGH_WATER = 16 << 20  # Octets held before reading pauses.
HELD_MAX = 256 << 20  # Octets held before the connection is given up.
PER_MESSAGE = 512  # Octets that a message costs besides its body, roughly.


class Backpressure:
    """The byte count of one connection's buffered messages."""

    def __init__(self, high_water: int = HIGH_WATER, held_max: int = HELD_MAX) -> None:
        self.held = 0
        self.waiting = 0  # Calls and publishes that wait for an answer of the broker.
        self.link: Link | None = None
        self._high_water = high_water
        self._held_max = held_max
        self._paused = False

    def hold(self, size: int, count: int = 1) -> None:
        """Count buffered messages, with bodies of `size` bytes in all."""
        self.held += size + count * PER_MESSAGE
        if self.held > self._high_water:
            self._judge()
            if self.held > self._held_max:
                raise BufferOverflow(
                    f"more than {self._held_max >> 20} MiB of messages were received and not "
                    "taken: use a smaller prefetch, or take them faster"
                )

    def release(self, size: int) -> None:
        """Count off a message that left its buffer."""
        self.held -= size + PER_MESSAGE
        if self._paused:
            self._judge()

    def wait_begins(self) -> None:
        """Count a call that waits for an answer."""
        self.waiting += 1
        if self._paused:
            self._judge()

    def wait_ends(self) -> None:
        """Count off a call that has its answer, or was cancelled."""
        self.waiting -= 1
        if self.held > self._high_water:
            self._judge()

    def attach(self, link: Link | None) -> None:
        """Use another link for the connection."""
        self.link = link
        self._paused = False
        self._judge()

    def _judge(self) -> None:
        paused = self.held > self._high_water and not self.waiting
        if paused != self._paused and self.link is not None:
            self._paused = paused
            if paused:
                self.link.pause_reading()
            else:
                self.link.resume_reading()

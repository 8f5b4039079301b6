# SPDX-License-Identifier: Apache-2.0
"""How much a connection has received and not handed on, and when it stops reading.

A consumer with a prefetch is bounded by the broker. One without (`no_ack`), or a broker that does
not keep its word, is bounded here: above the high-water mark the connection stops reading from its
socket. It reads on while a call waits for an answer, because the answer comes behind the
messages, and then the hard limit ends the connection with a clear error instead of the memory.
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
    """The account of one connection."""

    def __init__(self, high_water: int = HIGH_WATER, held_max: int = HELD_MAX) -> None:
        self.held = 0
        self.waiting = 0  # Calls and publishes that wait for an answer of the broker.
        self.link: Link | None = None
        self._high_water = high_water
        self._held_max = held_max
        self._paused = False

    def hold(self, size: int, count: int = 1) -> None:
        """Messages, with bodies of `size` octets in all, were put into a buffer."""
        self.held += size + count * PER_MESSAGE
        if self.held > self._high_water:
            self._judge()
            if self.held > self._held_max:
                raise BufferOverflow(
                    f"more than {self._held_max >> 20} MiB of messages were received and not "
                    "taken: use a smaller prefetch, or take them faster"
                )

    def release(self, size: int) -> None:
        """A message left its buffer."""
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
        """Another link carries the connection now."""
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

# SPDX-License-Identifier: Apache-2.0
"""Backpressure: the limits of one connection's buffered messages.

The prefetch bounds the messages of a consumer at the broker. A consumer without a prefetch
(`no_ack`), or at a broker that ignores it, is bounded here: above the high-water mark the
connection stops reading from its socket. While a call waits for an answer the connection must read,
because the answer follows the messages; then a second limit ends the connection with an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.errors import BufferOverflow

if TYPE_CHECKING:
    from headrace.client.link.link_0_x import Link

HIGH_WATER = 16 << 20  # Buffered bytes above which reading pauses.
HELD_MAX = 256 << 20  # Buffered bytes above which the connection is closed.
MESSAGE_OVERHEAD_BYTES = 512  # The approximate memory of a message without its body.


class Backpressure:
    """The byte count of one connection's buffered messages."""

    def __init__(self, high_water: int = HIGH_WATER, held_max: int = HELD_MAX) -> None:
        self.held = 0  # Bytes of the buffered messages, with their overhead.
        self.waiting_calls = 0  # The number of calls and publishes without an answer.
        self.link: Link | None = None
        self._high_water = high_water
        self._held_max = held_max
        self._is_paused = False

    def hold(self, size: int, count: int = 1) -> None:
        """Add `count` buffered messages with bodies of `size` bytes in all; may pause reading.

        Raises BufferOverflow above the second limit.
        """
        self.held += size + count * MESSAGE_OVERHEAD_BYTES
        if self.held > self._high_water:
            self._update()
            if self.held > self._held_max:
                raise BufferOverflow(
                    f"more than {self._held_max >> 20} MiB of messages were received and not "
                    "taken: use a smaller prefetch, or take them faster"
                )

    def release(self, size: int) -> None:
        """Subtract a message that left its buffer; may resume reading."""
        self.held -= size + MESSAGE_OVERHEAD_BYTES
        if self._is_paused:
            self._update()

    def wait_begins(self) -> None:
        """Count a call that waits for an answer."""
        self.waiting_calls += 1
        if self._is_paused:
            self._update()

    def wait_ends(self) -> None:
        """Subtract a call that has its answer, or was cancelled."""
        self.waiting_calls -= 1
        if self.held > self._high_water:
            self._update()

    def attach(self, link: Link | None) -> None:
        """Use another link for the connection."""
        self.link = link
        self._is_paused = False
        self._update()

    def _update(self) -> None:
        is_paused = self.held > self._high_water and not self.waiting_calls
        if is_paused != self._is_paused and self.link is not None:
            self._is_paused = is_paused
            if is_paused:
                self.link.pause_reading()
            else:
                self.link.resume_reading()

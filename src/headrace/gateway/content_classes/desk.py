# SPDX-License-Identifier: Apache-2.0
"""What contents that are no messages (files, stream packets) need of a channel or session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue


class Desk:
    """Content of one class for one channel or session; its version fills this in."""

    codec: Any  # The module with the methods of the version, which differ in their octets only.

    def ready(self, lane: Queue) -> bool:
        """Tell whether the client takes deliveries now; if not, ``lane`` is drained later."""
        raise NotImplementedError

    def find_queues(self, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
        """Return where content goes; refuse what the user may not do."""
        raise NotImplementedError

    def priority_of(self, header: bytes) -> int:
        """Return the priority in a content header; refuse one that is malformed."""
        raise NotImplementedError

    def consumers(self) -> Iterable[Consumer]:
        """The consumers of this channel or session."""
        raise NotImplementedError

    def consumer_gone(self, consumer: Consumer) -> None:
        """A queue was deleted."""
        raise NotImplementedError

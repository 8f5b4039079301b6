# SPDX-License-Identifier: Apache-2.0
"""The port of a channel or session that the file and stream classes use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.protocol import codec_0_10, codec_0_x

    ConsumeMethod = (
        codec_0_x.FileConsume
        | codec_0_x.StreamConsume
        | codec_0_10.FileConsume
        | codec_0_10.StreamConsume
    )
    CancelMethod = (
        codec_0_x.FileCancel
        | codec_0_x.StreamCancel
        | codec_0_10.FileCancel
        | codec_0_10.StreamCancel
    )


class Publishing(Protocol):
    """The connection, which ``publishes`` marks as a publisher."""

    publishes: bool


class ContentClassPort:
    """One content class on one channel or session; each protocol family implements it."""

    codec: ModuleType  # The family's classes of methods, with the same names in each.
    ended = False

    def link(self) -> Publishing:
        """Return the connection of the channel or session."""
        raise NotImplementedError

    def reply(self, method: object) -> None:
        """Send a method without content."""
        raise NotImplementedError

    def ready(self, lane: Queue) -> bool:
        """Return True if the client takes deliveries now; if not, ``lane`` is drained later."""
        raise NotImplementedError

    def find_queues(self, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
        """Return the queues of a publish; check the user's permissions."""
        raise NotImplementedError

    def read_priority(self, header: bytes) -> int:
        """Return the priority in a content header; refuse one that is malformed."""
        raise NotImplementedError

    def consumers(self) -> Iterable[Consumer]:
        """Return the consumers of this channel or session."""
        raise NotImplementedError

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer whose queue was deleted."""
        raise NotImplementedError

    def check_consumer(self, method: ConsumeMethod, content_class: int) -> tuple[Queue, str]:
        """Return the lane of a new consumer for one content class, and the consumer's tag."""
        raise NotImplementedError

    def add_consumer(self, consumer: Consumer, method: ConsumeMethod, confirm: object) -> None:
        """Start a consumer, after the answer if there is one."""
        raise NotImplementedError

    def cancel_consumer(self, tag: str | None, consumer_class: type[Consumer]) -> None:
        """End a consumer of one class; an unknown tag is not an error."""
        raise NotImplementedError

    def send_cancel_ok(self, method: CancelMethod, name: str) -> None:
        """Answer a cancel with the method ``name``; 0-10 has no such answer."""

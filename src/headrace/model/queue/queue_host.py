# SPDX-License-Identifier: Apache-2.0
"""The port of queues to their virtual host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.model.contents import Contents
    from headrace.model.keyvalue import Facts
    from headrace.model.message import Message
    from headrace.model.ports import Files
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler


class DeadLetterPort(Protocol):
    """Dead-lettering and delayed retries, as queues use them."""

    def begin(self) -> bool:
        """Open a store transaction; return True if the caller has to call :meth:`end`."""

    def join_transaction(self) -> bool:
        """Join the dead letters up to :meth:`end` into one store transaction.

        Return True if the caller has to call :meth:`end`.
        """

    def end(self) -> None:
        """Commit the transaction of :meth:`join_transaction` or :meth:`begin`."""

    def has_target(self, queue: Queue, reason: str) -> bool:
        """Return True if messages that die for this reason go to an existing exchange."""

    def dead_letter(self, message: Message, queue: Queue, reason: str, detail: str = "") -> bool:
        """Publish a dead letter; return False if it has not arrived yet."""

    def postpone(self, queue: Queue, message: Message, reason: str) -> bool:
        """Postpone a death if too many occurred in this millisecond; return True if postponed."""

    def keep_undelivered(self, queue: Queue, message: Message, reason: str) -> Consumer:
        """Keep an undelivered dead letter for retries; return the consumer that owns it."""

    def restore_undelivered(self, queue: Queue, message: Message, reason: str) -> None:
        """Restore a dead letter that was undelivered when the broker stopped."""

    def delay_retry(self, queue: Queue, message: Message) -> None:
        """Delay the next delivery of a message by its queue's retry backoff."""

    def restore_retry(self, queue: Queue, message: Message, due_ms: int) -> None:
        """Restore a delayed retry after a restart."""


class EventPort(Protocol):
    """The listeners to the events of a virtual host."""

    @property
    def has_listeners(self) -> bool:
        """True if there are listeners."""

    def emit(self, kind: str, /, **facts: object) -> None:
        """Call the listeners with an event."""


class QueueHost(Protocol):
    """The virtual host of a queue."""

    name: str
    scheduler: Scheduler
    facts: Facts
    contents: Contents | None  # Reads and rewrites messages; None without a gateway, in tests.
    files: Files
    reports_deliveries: bool  # True while every delivery is passed to :meth:`before_delivery`.

    @property
    def dead_letters(self) -> DeadLetterPort:
        """Dead-lettering of the virtual host."""

    @property
    def events(self) -> EventPort:
        """The port to which alerts are reported."""

    def effective_arguments(self, queue: Queue) -> dict[str, object]:
        """Return the effective arguments of a queue: its own, with policies and limits applied."""

    def before_delivery(self, queue: Queue, consumer: Consumer, message: Message) -> None:
        """Called before a delivery, to stamp or trace the message."""

    def destruct(self, queue: Queue) -> None:
        """Delete a queue because its own lifetime policy requires it."""

    def on_consumer_added(self, consumer: Consumer) -> None:
        """Called when a queue has a new consumer."""

    def on_consumer_removed(self, consumer: Consumer) -> None:
        """Called when a queue has lost a consumer."""

    def count_consumer(self, consumer: Consumer) -> None:
        """Add a consumer to the memory of definitions, until it is removed."""

    def encode_for_stream(self, message: Message, stream: Queue) -> bool:
        """Convert a message to the form that streams keep; return False if it cannot be."""

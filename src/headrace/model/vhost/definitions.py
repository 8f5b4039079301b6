# SPDX-License-Identifier: Apache-2.0
"""The port to the stored definitions of exchanges, queues and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class ExchangeRecord(NamedTuple):
    """A durable exchange, as definitions are stored."""

    name: str
    type: str
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, object]


class QueueRecord(NamedTuple):
    """A durable queue; ``id`` is its name in the journal and never reused."""

    id: int
    name: str
    auto_delete: bool
    arguments: Mapping[str, object]
    user: str = ""  # The user who declared it.


class BindingRecord(NamedTuple):
    """A durable binding; ``kind`` is QUEUE or EXCHANGE, the type of its destination."""

    source: str
    kind: str
    destination: str
    routing_key: str
    arguments: Mapping[str, object]


class SavedDefinitions(NamedTuple):
    """The durable definitions of one virtual host."""

    exchanges: list[ExchangeRecord]
    queues: list[QueueRecord]
    bindings: list[BindingRecord]


class Definitions(Protocol):
    """The stored definitions of one virtual host.

    A change is durable once the store's ``synced`` has reached its ``defined_position``.
    """

    def check_writable(self) -> None:
        """Refuse a change of durable definitions that cannot be stored now.

        Raises:
            ResourceError: the disk fails.
        """

    def load(self) -> SavedDefinitions:
        """Return all definitions."""

    def save_exchange(self, record: ExchangeRecord) -> None:
        """Store a durable exchange; an earlier record of the name is replaced."""

    def delete_exchange(self, name: str) -> None:
        """Delete the record of an exchange."""

    def save_queue(self, record: QueueRecord) -> int:
        """Store a queue under a new id, and return the id; the id of the record is ignored."""

    def keep_queue(self, record: QueueRecord) -> None:
        """Store a queue under the id of its record."""

    def delete_queue(self, queue_id: int) -> None:
        """Delete the record of a queue."""

    def save_binding(self, record: BindingRecord) -> None:
        """Store a durable binding."""

    def delete_binding(self, record: BindingRecord) -> None:
        """Delete the record of a binding."""


class NoDefinitions:
    """The definitions of a host without a store: it numbers queues, and stores nothing."""

    def __init__(self) -> None:
        self._next_id = 1

    def check_writable(self) -> None:
        """Accept every change."""

    def load(self) -> SavedDefinitions:
        """Return empty lists."""
        return SavedDefinitions([], [], [])

    def save_exchange(self, record: ExchangeRecord) -> None:
        """Do nothing."""

    def delete_exchange(self, name: str) -> None:
        """Do nothing."""

    def save_queue(self, record: QueueRecord) -> int:
        """Return a new id."""
        self._next_id += 1
        return self._next_id - 1

    def keep_queue(self, record: QueueRecord) -> None:
        """Do nothing."""

    def delete_queue(self, queue_id: int) -> None:
        """Do nothing."""

    def save_binding(self, record: BindingRecord) -> None:
        """Do nothing."""

    def delete_binding(self, record: BindingRecord) -> None:
        """Do nothing."""

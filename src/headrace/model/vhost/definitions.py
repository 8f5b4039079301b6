# SPDX-License-Identifier: Apache-2.0
"""What the model asks of whoever keeps exchanges, queues and bindings across restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class ExchangeRecord(NamedTuple):
    """A durable exchange."""

    name: str
    type: str
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, object]


class QueueRecord(NamedTuple):
    """A durable queue; ``id`` is its name in the journal, never used again for another."""

    id: int
    name: str
    auto_delete: bool
    arguments: Mapping[str, object]
    user: str = ""  # Who declared it.


class BindingRecord(NamedTuple):
    """A binding between durable things; ``kind`` says what the destination is."""

    source: str
    kind: str
    destination: str
    routing_key: str
    arguments: Mapping[str, object]


class Saved(NamedTuple):
    """All that was kept of one virtual host."""

    exchanges: list[ExchangeRecord]
    queues: list[QueueRecord]
    bindings: list[BindingRecord]


class Definitions(Protocol):
    """Keeps the definitions of one virtual host.

    What it did is durable once the store's ``synced`` has reached its ``defined``.
    """

    def require(self) -> None:
        """Refuse a change of durable definitions that cannot be kept now.

        Raises:
            ResourceError: the disk fails.
        """

    def load(self) -> Saved:
        """Return what was kept."""

    def save_exchange(self, record: ExchangeRecord) -> None:
        """Keep an exchange."""

    def delete_exchange(self, name: str) -> None:
        """Forget an exchange."""

    def save_queue(self, record: QueueRecord) -> int:
        """Keep a queue under a fresh id, and return that; the record's own id is not looked at."""

    def keep_queue(self, record: QueueRecord) -> None:
        """Keep a queue under the id that it has."""

    def delete_queue(self, queue_id: int) -> None:
        """Forget a queue."""

    def save_binding(self, record: BindingRecord) -> None:
        """Keep a binding."""

    def delete_binding(self, record: BindingRecord) -> None:
        """Forget a binding."""


class NoDefinitions:
    """Keeps nothing, and numbers queues."""

    def __init__(self) -> None:
        self._next_id = 1

    def require(self) -> None:
        """Nothing need be kept."""

    def load(self) -> Saved:
        """Return nothing."""
        return Saved([], [], [])

    def save_exchange(self, record: ExchangeRecord) -> None:
        """Keep nothing."""

    def delete_exchange(self, name: str) -> None:
        """Nothing was kept."""

    def save_queue(self, record: QueueRecord) -> int:
        """Return a fresh id."""
        self._next_id += 1
        return self._next_id - 1

    def keep_queue(self, record: QueueRecord) -> None:
        """Keep nothing."""

    def delete_queue(self, queue_id: int) -> None:
        """Nothing was kept."""

    def save_binding(self, record: BindingRecord) -> None:
        """Keep nothing."""

    def delete_binding(self, record: BindingRecord) -> None:
        """Nothing was kept."""

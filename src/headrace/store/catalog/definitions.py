# SPDX-License-Identifier: Apache-2.0
"""The durable exchanges, queues and bindings of one virtual host, in its journal.

A change is a record like a message, so it is in order with messages that depend on it and shares
their group and sync. Answers wait until the store's ``synced`` has reached its
``defined_position``. While the disk fails, changes are refused. Queue ids are never reused, because
the journal refers to queues only by their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import ResourceError
from headrace.model.vhost.definitions import (
    BindingRecord,
    ExchangeRecord,
    QueueRecord,
    SavedDefinitions,
)
from headrace.store.errors import StoreError
from headrace.store.journal.definition_records import (
    BINDING,
    EXCHANGE,
    QUEUE,
    QUEUE_IDS,
    binding_key,
    exchange_key,
    exchange_value,
    queue_key,
    queue_value,
    read_binding,
    read_exchange,
    read_queue,
)
from headrace.wire.errors import MalformedError

if TYPE_CHECKING:
    from headrace.store.journal.journal import Journal

QUEUE_ID_MAX = 0xFFFFFFFF
IDS_AT_ONCE = 64  # Queue ids reserved by one record.


class JournalDefinitions:
    """Implements :class:`headrace.model.vhost.definitions.Definitions`; used by one thread."""

    def __init__(
        self, journal: Journal, earlier: SavedDefinitions | None = None, ids_used: int = 0
    ) -> None:
        """Set the journal, which must have been read.

        ``earlier`` are the definitions of an earlier version, with queue ids up to ``ids_used``,
        for :meth:`take_over`.
        """
        self._journal = journal
        self._earlier = earlier
        ids = journal.definitions.get(QUEUE_IDS)
        self._ids_set_aside = int.from_bytes(ids or b"", "big")
        self._next_id = 1 + max(self._ids_set_aside, ids_used)

    # Keeps 0-9-1/s055, 0-9-1/queue.bind#04, 0-9/queue.declare.durable#persistence,
    # 0-9/queue.bind#durable-exchange, 0-10/s164, 0-10/s183.
    def load(self) -> SavedDefinitions:
        """Return all definitions.

        Raises:
            StoreError: a definition is malformed.
        """
        if self._earlier is not None:
            return self._earlier
        saved = SavedDefinitions([], [], [])
        try:
            for key, value in self._journal.definitions.items():
                kind = key[:1]
                if kind == QUEUE:
                    saved.queues.append(read_queue(key, value))
                elif kind == EXCHANGE:
                    saved.exchanges.append(read_exchange(key, value))
                elif kind == BINDING:
                    saved.bindings.append(read_binding(key))
        except (MalformedError, UnicodeDecodeError) as error:
            raise StoreError(
                f"journal {self._journal.name}: a definition is not understood: {error}"
            ) from error
        saved.queues.sort(key=lambda record: record.id)
        return saved

    def take_over(self) -> bool:
        """Append the definitions of an earlier version, once the journal is recovered.

        Return False if there are none.
        """
        earlier, self._earlier = self._earlier, None
        if earlier is None:
            return False
        for exchange in earlier.exchanges:
            self.save_exchange(exchange)
        for queue in earlier.queues:
            self.keep_queue(queue)
        for binding in earlier.bindings:
            self.save_binding(binding)
        return True

    def check_writable(self) -> None:
        """Check that the disk accepts changes.

        Raises:
            ResourceError: the disk fails.
        """
        if self._journal.is_failing():
            raise ResourceError("definitions cannot be written to disk")

    def save_exchange(self, record: ExchangeRecord) -> None:
        """Store the definition of an exchange."""
        self._journal.define(exchange_key(record.name), exchange_value(record))

    def delete_exchange(self, name: str) -> None:
        """Delete the definition of an exchange."""
        self._journal.define(exchange_key(name), None)

    def save_queue(self, record: QueueRecord) -> int:
        """Store the definition of a queue under a new id; return the id."""
        number = self._next_id
        if number > QUEUE_ID_MAX:
            raise ResourceError(f"all {QUEUE_ID_MAX} queue ids are used up")
        self.keep_queue(record._replace(id=number))
        return number

    def keep_queue(self, record: QueueRecord) -> None:
        """Store the definition of a queue under its id."""
        self._next_id = max(self._next_id, record.id + 1)
        if record.id > self._ids_set_aside:
            self._ids_set_aside = min(record.id + IDS_AT_ONCE - 1, QUEUE_ID_MAX)
            self._journal.define(QUEUE_IDS, self._ids_set_aside.to_bytes(4, "big"))
        self._journal.define(queue_key(record.id), queue_value(record))

    def delete_queue(self, queue_id: int) -> None:
        """Delete the definition of a queue; its id is never reused."""
        self._journal.define(queue_key(queue_id), None)

    def save_binding(self, record: BindingRecord) -> None:
        """Store a binding."""
        self._journal.define(binding_key(record), b"")

    def delete_binding(self, record: BindingRecord) -> None:
        """Delete a binding."""
        self._journal.define(binding_key(record), None)

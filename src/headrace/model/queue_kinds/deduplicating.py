# SPDX-License-Identifier: Apache-2.0
"""A queue that drops duplicate messages (``x-message-deduplication``).

By default an id is known while a message with this id is in the queue, ready or unacked. With
``x-cache-size`` or ``x-cache-ttl`` the queue also has a cache of earlier ids, as exchanges do
(:mod:`headrace.model.exchange.deduplication`).

After a restart the ids of messages in the queue are read from the messages. Cached ids are facts.
The journal has a message, then its id, then the settlement of the message. So after a crash the
cache has no id of a lost message, and a message whose id is lost is still in the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.contents import UnreadableError
from headrace.model.exchange.deduplication import (
    CACHE_SIZE,
    CACHE_TTL,
    IdCache,
    digest,
    fact_prefix,
)
from headrace.model.exchange.deduplication import HEADER as HEADER_ARGUMENT
from headrace.model.message import PAGED, Message
from headrace.model.queue_kinds.inspecting import InspectingQueue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from headrace.model.contents import Contents
    from headrace.model.queue.destination import Options


class DeduplicatingQueue(InspectingQueue):
    """A queue that drops messages with an id that it has accepted before."""

    def __init__(self, name: str, **options: Unpack[Options]) -> None:
        super().__init__(name, **options)
        self.duplicates = 0  # Messages that were dropped.
        self._present: dict[bytes, int] = {}  # The number of messages in the queue with each id.
        self._ids: dict[int, bytes] = {}  # The id of each message in the queue, by seq.
        self._has_cache = CACHE_SIZE in self.arguments or CACHE_TTL in self.arguments
        self._cache: IdCache | None = None  # Made on first use: facts are loaded after queues.
        self._header = str(self.arguments.get(HEADER_ARGUMENT, HEADER_ARGUMENT))

    @property
    def id_count(self) -> int:
        """The number of different ids of messages in the queue."""
        return len(self._present)

    def ready_consumer(self) -> None:
        """Return None: each message must be inspected."""
        return

    def enqueue(self, message: Message) -> int:
        """Enqueue a message, unless its id is known."""
        if not self._register(message):
            return 0
        seq = message.seq
        refused: int = InspectingQueue.enqueue(self, message)
        if refused:
            self._remove_id(seq)
        return refused

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        """Enqueue a message of a transaction branch, unless its id is known."""
        if self._register(message):
            InspectingQueue.enqueue_in_place(self, message, promised)

    def _register(self, message: Message) -> bool:
        """Add the id of a new message and return True; settle a duplicate and return False."""
        headers = self._read_headers(message)
        value = headers.get(self._header)
        if value is None:
            return True
        message_id = digest(value)
        cache = self.cache()
        if message_id in self._present or (cache is not None and cache.contains(message_id)):
            self.duplicates += 1
            if message.position:
                self.store.bind()
                self.store.settle(self.id, message.seq, message.position)
            return False
        self._add_id(message.seq, message_id)
        if cache is not None and not self.is_full_for(message.body_size):
            cache.add_id(message_id, headers, self.durable and message.position > 0)
        return True

    def restore(self, message: Message, arrived_ms: int) -> None:
        """Restore a message that the store recovered."""
        self._restore_id(message)
        InspectingQueue.restore(self, message, arrived_ms)

    def restore_unacked(self, message: Message) -> bool:
        """Restore a recovered message that is unacked."""
        self._restore_id(message)
        return bool(InspectingQueue.restore_unacked(self, message))

    def remove(self, message: Message) -> None:
        """Remove a message; another message may then have its id."""
        self._remove_id(message.seq)
        InspectingQueue.remove(self, message)

    def destroy(self) -> int:
        """Delete the queue and its cached ids."""
        cache = self.cache()
        if cache is not None:
            cache.clear()
        count: int = InspectingQueue.destroy(self)
        return count

    def cache(self) -> IdCache | None:
        """Return the cache of earlier ids; None if the queue has none."""
        if self._cache is None and self._has_cache and self.vhost is not None:
            self._cache = IdCache(
                self.arguments,
                counters=self.counters,
                facts=self.vhost.facts if self.durable else None,
                prefix=fact_prefix(b"q", f"{self.id}/{self.name}"),
            )
        return self._cache

    def _read_headers(self, message: Message) -> Mapping[str, object]:
        contents: Contents | None = None
        if self.vhost is not None:
            contents = self.vhost.contents
        if contents is None:
            return {}
        headers: Mapping[str, object] = {}
        paged = message.flags & PAGED
        try:
            if paged:
                self.store.load(message)
            headers = contents.read(message).headers
        except (OSError, UnreadableError):
            pass  # The message has no readable id.
        if paged and not message.flags & PAGED:
            self.store.page_out(message)
        return headers

    def _restore_id(self, message: Message) -> None:
        value = self._read_headers(message).get(self._header)
        if value is not None:
            self._add_id(message.seq, digest(value))

    def _add_id(self, seq: int, message_id: bytes) -> None:
        self._ids[seq] = message_id
        self._present[message_id] = self._present.get(message_id, 0) + 1

    def _remove_id(self, seq: int) -> None:
        message_id = self._ids.pop(seq, None)
        if message_id is not None:
            count = self._present[message_id] - 1
            if count:
                self._present[message_id] = count
            else:
                del self._present[message_id]

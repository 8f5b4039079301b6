# SPDX-License-Identifier: Apache-2.0
"""Last-value queues: a message replaces the ready message with the same key.

The key is the value of a header, which ``qpid.last_value_queue_key`` names (with
``qpid.last_value_queue`` alone it is ``qpid.LVQ_key``). As in Qpid's brokers, the new message is at
the end of the queue, so that browsers see every update that they have not passed. An unacked
message is not replaced: the queue then has both. An unacked message that is requeued is removed if
the queue has a newer message with its key. Messages without the header are never replaced.

Of two messages the one at the higher position is newer, also after a restart: a replaced message
whose removal was not durable is recovered and replaced again. A transaction's messages get their
positions when it is prepared.

Cost. Each message has two dictionary entries, and a digest of a long value. A replaced message
leaves a stale entry in the ring.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import GONE as C_GONE
    from headrace.model.message import Message
    from headrace.model.queue_kinds.inspecting import InspectingQueue

from headrace.model.arguments.canonical import canonical_or_digest

if TYPE_CHECKING:
    from typing import Unpack

    from headrace.model.queue.destination import Options


class LastValueQueue(InspectingQueue):
    """A queue with at most one ready message for each value of a header."""

    def __init__(self, name: str, **options: "Unpack[Options]") -> None:
        InspectingQueue.__init__(self, name, **options)
        self.is_inspecting = True
        self.key = ""  # The name of the header.
        # The messages with each key, by seq; the newest is last.
        self.alike: dict[object, dict[int, Message]] = {}
        self.keys: dict[int, object] = {}  # The key of each message that has one, by seq.

    def set_up(self, arguments: dict[str, object]) -> None:
        InspectingQueue.set_up(self, arguments)
        named = arguments.get("qpid.LVQ_key", "qpid.LVQ_key")
        self.key = str(arguments.get("qpid.last_value_queue_key", named))

    def enqueue(self, message: Message) -> int:
        if self.limits is not None and not self.has_room(message):
            self.limits.reject(self, message)
            return 1
        if not self.claim(message):
            self.supersede(message)
            return 0
        return InspectingQueue.enqueue(self, message)

    def enqueue_in_place(self, message: Message, promised: bool = False) -> None:
        if self.limits is not None and not promised and not self.has_room(message):
            self.limits.reject(self, message)
        elif not self.claim(message):
            self.supersede(message)
        else:
            InspectingQueue.enqueue_in_place(self, message, promised)

    def restore(self, message: Message, arrived_ms: int) -> None:
        if self.claim(message):
            InspectingQueue.restore(self, message, arrived_ms)
        else:
            self.supersede(message)

    def restore_unacked(self, message: Message) -> bool:
        key = self.message_key(message)
        if key is not None:
            alike = self.alike.setdefault(key, {})
            alike[message.seq] = message
            self.alike[key] = dict(sorted(alike.items()))
            self.keys[message.seq] = key
        return InspectingQueue.restore_unacked(self, message)

    def has_room(self, message: Message) -> bool:
        """Return True if the limits admit a message after the removal of the one it replaces."""
        if not self.would_reject(message.body_size):
            return True
        older = self.newest(self.message_key(message))
        if older is None or not self.is_ready(older):
            return False
        self.ready.count -= 1
        self.ready.bytes -= older.body_size
        refused = self.is_full_for(message.body_size)
        self.ready.count += 1
        self.ready.bytes += older.body_size
        return not refused

    def message_key(self, message: Message) -> object:
        """Return the value of the header in its comparable form; None if there is none."""
        key = self.keys.get(message.seq)
        return canonical_or_digest(self.reader.read(message, self.key)) if key is None else key

    def newest(self, key: object) -> Message | None:
        """Return the newest message with a key, unacked or ready; None if there is none."""
        alike = None if key is None else self.alike.get(key)
        if alike is None:
            return None
        message: Message = next(reversed(alike.values()))
        return message

    def claim(self, message: Message) -> bool:
        """Register a message as the newest with its key, and remove the ready one that it replaces.

        Return False if the queue has a newer message with this key.
        """
        key = self.message_key(message)
        if key is None:
            return True
        newest = self.newest(key)
        if newest is not None and newest.seq > message.seq:
            return False
        if newest is not message:
            if newest is not None and self.is_ready(newest):
                self.replace(newest)
            alike = self.alike.get(key)
            if alike is None:
                alike = self.alike[key] = {}
            alike[message.seq] = message
            self.keys[message.seq] = key
        return True

    def replace(self, message: Message) -> None:
        """Remove a ready message that a newer one replaces."""
        self.ready.withdraw(message)
        self.remove(message)
        self.ready.sweep_if_stale()

    def supersede(self, message: Message) -> None:
        """Settle an arrival that is older than the newest message with its key.

        The queue has not counted the arrival.
        """
        if message.position:
            self.store.bind()
            self.store.settle(self.id, message.seq, message.position)

    def reinsert(self, message: Message) -> None:
        if self.claim(message):
            InspectingQueue.reinsert(self, message)
        else:
            self.remove(message)

    def is_ready(self, message: Message) -> bool:
        """Return True if a message is neither unacked nor removed."""
        return not message.flags & C_GONE and message.consumer is None

    def remove(self, message: Message) -> None:
        key = self.keys.pop(message.seq, None)
        if key is not None:
            alike = self.alike[key]
            alike.pop(message.seq, None)
            if not alike:
                del self.alike[key]
        InspectingQueue.remove(self, message)

# SPDX-License-Identifier: Apache-2.0
"""Messages that tests put into queues and take out again, and a consumer that keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.message import Message, new_message
from headrace.model.queue.destination import Consumer

if TYPE_CHECKING:
    from headrace.model.host import Host
    from headrace.model.queue.queue import Queue


class Taker(Consumer):
    """A consumer with a fixed room that keeps what it is given."""

    def __init__(self, queue: Queue, room: int = 1000, *, no_ack: bool = False) -> None:
        super().__init__(queue, "taker", no_ack)
        self.room = room
        self.taken: list[Message] = []
        self.bodies: list[bytes | None] = []

    def has_room(self) -> bool:
        return self.room > 0

    def deliver(self, message: Message) -> None:
        self.room -= 1
        self.taken.append(message)
        self.bodies.append(message.data)


def message(body: bytes) -> Message:
    """A message to a queue ``q``."""
    return new_message(b"\x00\x01q\x00\x00" + body, 3, len(body))


def put(host: Host, queue: Queue, *bodies: bytes) -> None:
    """Deliver transient messages to a queue."""
    for body in bodies:
        host.deliver(message(body), [queue], False)


def take(queue: Queue) -> Message:
    """Take the first message, to settle it later."""
    found = queue.get(Consumer(queue, "", False))
    assert found is not None
    return found


def bodies(queue: Queue) -> list[bytes]:
    """Take all that is left."""
    found = []
    while (taken := queue.get(Consumer(queue, "", True))) is not None:
        assert taken.data is not None
        found.append(taken.data[5:])
        queue.remove(taken)
    return found

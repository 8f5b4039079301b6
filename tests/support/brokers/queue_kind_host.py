# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the tests of queue kinds: a virtual host, messages with headers, consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.model.counters import Counters
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.scheduler import Scheduler
from headrace.model.vhost.virtual_host import VirtualHost
from support.stored_message import stored_message

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue


class Host:
    """A virtual host in memory, and its clock."""

    def __init__(self) -> None:
        self.counters = Counters(now_ms=1_000_000)
        self.scheduler = Scheduler()
        self.vhost = VirtualHost(
            "/",
            store=Store(),
            counters=self.counters,
            scheduler=self.scheduler,
            contents=Contents(),
        )

    def queue(self, name: str = "q", /, **arguments: Any) -> Queue:
        return self.vhost.declare_queue(name, arguments=arguments)

    def pass_time(self, ms: int) -> None:
        self.counters.now_ms += ms
        self.scheduler.run(self.counters.now_ms)

    def turn(self) -> None:
        """Drain the queues that were woken, as the event loop does after an iteration."""
        waking = self.counters.to_drain
        while waking:
            waking.pop().drain()

    def message(
        self, body: str, headers: dict[str, Any] | None = None, priority: int = 0
    ) -> Message:
        message = stored_message(body.encode(), "", headers=headers or {})
        message.seq = self.counters.next_seq
        message.priority = priority
        self.counters.next_seq += 1
        return message

    def enqueue(self, queue: Queue, body: str, priority: int = 0, /, **headers: Any) -> int:
        return queue.enqueue(self.message(body, headers, priority))


def body_of(message: Message) -> str:
    """Return the body of a stored message."""
    data = message.data
    assert data is not None
    return data[len(data) - 1 - message.body_size : -1].decode()


class Taker(Consumer):
    """A consumer that records its deliveries, and takes `room` unacked messages at most."""

    def __init__(
        self, queue: Queue, room: int = 1000, *, no_ack: bool = False, browses: bool = False
    ) -> None:
        super().__init__(queue, "taker", no_ack)
        self.is_browser = browses
        self.room = room
        self.held: list[Message] = []  # Unacked messages.
        self.got: list[str] = []  # The bodies of all deliveries.

    def has_room(self) -> bool:
        return self.room > 0

    def deliver(self, message: Message) -> None:
        self.room -= 1
        self.got.append(body_of(message))
        if not self.no_ack:
            self.held.append(message)

    def start(self) -> Taker:
        self.queue.add_consumer(self)
        self.queue.drain()
        return self

    def settle(self, body: str) -> None:
        self._finish(body, self.queue.settle)

    def give_back(self, body: str) -> None:
        self._finish(body, self.queue.requeue)

    def _finish(self, body: str, operation: Any) -> None:
        message = next(message for message in self.held if body_of(message) == body)
        self.held.remove(message)
        self.room += 1
        operation(message)
        self.queue.unpark(self)
        self.queue.drain()


def left(queue: Queue) -> list[str]:
    """Remove all ready messages of a queue; return their bodies in order."""
    bodies = []
    while (message := queue.dequeue()) is not None:
        bodies.append(body_of(message))
        queue.remove(message)
    return bodies


@pytest.fixture
def host() -> Host:
    return Host()

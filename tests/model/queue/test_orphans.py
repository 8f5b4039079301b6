# SPDX-License-Identifier: Apache-2.0
"""Messages of a deleted queue go to its alternate exchange: some at once, all of them in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.gateway.conversion.headers import BasicContents
from headrace.model.counters import LETTERS_MAX, Counters
from headrace.model.ports import Store
from headrace.model.vhost.virtual_host import VirtualHost
from support.clients.manual_consumer import Taker
from support.stored_message import stored_message

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

ALTERNATE = {"alternate-exchange": "amq.fanout"}
MANY = 5 * LETTERS_MAX + 7


class Host:
    """A virtual host whose queue ``dead`` gets what goes to ``amq.fanout``."""

    def __init__(self) -> None:
        self.counters = Counters(now_ms=1_000_000)
        self.vhost = VirtualHost(
            "/",
            store=Store(),
            counters=self.counters,
            contents=BasicContents(),  # type: ignore[arg-type]
        )
        self.dead = self.vhost.declare_queue("dead")
        self.vhost.bind("amq.fanout", ("queue", "dead"))

    def queue(self, name: str = "q", /, **arguments: Any) -> Queue:
        return self.vhost.declare_queue(name, arguments={**ALTERNATE, **arguments})

    def publish(self, queue: Queue, numbers: range, priority: int = 0) -> None:
        for number in numbers:
            message = stored_message(number.to_bytes(4, "big"), priority=priority)
            message.priority = priority
            self.vhost.deliver(message, [queue], False)

    def pass_time(self, ms: int = 1) -> None:
        self.counters.now_ms += ms
        self.vhost.scheduler.run(self.counters.now_ms)

    def finish(self) -> None:
        while len(self.vhost.orphans):
            self.pass_time()

    def arrived(self) -> list[int]:
        """The numbers of all dead messages, in their order."""
        bodies = []
        while (message := self.dead.get(Taker(self.dead))) is not None:
            assert message.data is not None
            bodies.append(int.from_bytes(message.data[-5:-1], "big"))
            self.dead.settle(message)
        return bodies


@pytest.fixture
def host() -> Host:
    return Host()


def test_few_go_at_once(host: Host) -> None:
    host.publish(host.queue(), range(LETTERS_MAX))
    assert host.vhost.delete_queue("q") == LETTERS_MAX
    assert host.arrived() == list(range(LETTERS_MAX))
    assert not len(host.vhost.orphans)


def test_many_go_a_portion_at_a_time_in_order(host: Host) -> None:
    host.publish(host.queue(), range(MANY))
    assert host.vhost.delete_queue("q") == MANY
    for portion in range(1, MANY // LETTERS_MAX + 1):
        assert host.dead.ready_count == portion * LETTERS_MAX
        host.pass_time()
    assert host.arrived() == list(range(MANY))
    assert not len(host.vhost.orphans)
    assert host.counters.memory_used == 0


def test_the_queue_is_gone_at_once(host: Host) -> None:
    queue = host.queue()
    taker = Taker(queue)
    ended: list[str] = []
    taker.on_cancel = lambda: ended.append(taker.tag)  # type: ignore[method-assign]
    host.publish(queue, range(MANY))
    taker.room = 0
    queue.add_consumer(taker)
    host.vhost.delete_queue("q")
    assert ended == ["taker"]
    assert "q" not in host.vhost.queues
    again = host.queue()
    assert again is not queue
    assert again.ready_count == 0
    host.finish()
    assert ended == ["taker"]
    assert "q" in host.vhost.queues
    assert host.arrived() == list(range(MANY))


def test_all_queues_share_what_a_millisecond_has(host: Host) -> None:
    for number in range(10):
        first = number * LETTERS_MAX
        host.publish(host.queue(f"q{number}"), range(first, first + LETTERS_MAX))
    for number in range(10):
        host.vhost.delete_queue(f"q{number}")
    assert host.dead.ready_count == LETTERS_MAX
    assert len(host.vhost.orphans) == 9
    host.finish()
    assert host.arrived() == list(range(10 * LETTERS_MAX))


def test_higher_priorities_go_first(host: Host) -> None:
    queue = host.queue(**{"x-max-priority": 2})
    host.publish(queue, range(MANY), priority=1)
    host.publish(queue, range(MANY, 2 * MANY), priority=2)
    host.vhost.delete_queue("q")
    host.finish()
    assert host.arrived() == [*range(MANY, 2 * MANY), *range(MANY)]


def test_what_is_given_back_meanwhile_goes_there_too(host: Host) -> None:
    queue = host.queue()
    taker = Taker(queue, 3)
    host.publish(queue, range(MANY))
    queue.add_consumer(taker)
    queue.drain()
    host.vhost.delete_queue("q")
    returned, settled = taker.taken[0], taker.taken[1]
    queue.requeue(returned)
    queue.settle(settled)
    host.finish()
    queue.requeue(taker.taken[2])  # And so does what comes when the queue is forgotten.
    assert sorted(host.arrived()) == [0, *range(2, MANY)]


def test_what_expires_meanwhile_does_not(host: Host) -> None:
    host.publish(host.queue(**{"x-message-ttl": 1000}), range(MANY))
    host.vhost.delete_queue("q")
    assert host.arrived() == list(range(LETTERS_MAX))
    host.counters.now_ms += 2000
    host.finish()
    assert host.dead.published == LETTERS_MAX
    assert host.counters.memory_used == 0


def test_the_exchange_is_in_use_until_all_are_there(host: Host) -> None:
    host.publish(host.queue(), range(MANY))
    host.vhost.delete_queue("q")
    assert host.vhost.serves_as_alternate("amq.fanout")
    host.finish()
    assert not host.vhost.serves_as_alternate("amq.fanout")


def test_a_virtual_host_that_is_deleted_takes_them_with_it(host: Host) -> None:
    host.publish(host.queue(), range(MANY))
    host.vhost.delete_queue("q")
    host.vhost.orphans.close()
    host.dead.purge()
    assert host.counters.memory_used == 0

# SPDX-License-Identifier: Apache-2.0
"""The memory of definitions is counted correctly, bounded, and subtracted exactly."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.model.arguments import memory_estimate
from headrace.model.counters import Counters
from headrace.model.errors import LimitReached
from headrace.model.exchange.binding import Binding
from headrace.model.exchange.registry import TYPES
from headrace.model.operations.queue_view import get_view
from headrace.model.policy.rules import Limits, Rules
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.queue.queue import Queue
from headrace.model.queue_kinds.multi_queue import MultiQueue
from headrace.model.scheduler import Scheduler
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.definitions import (
    BindingRecord,
    NoDefinitions,
    QueueRecord,
    SavedDefinitions,
)
from headrace.model.vhost.virtual_host import VirtualHost
from support.memory import retained_bytes
from support.stored_message import stored_message


def made(most: int = -1, definitions: NoDefinitions | None = None) -> VirtualHost:
    def make_stream(name: str, **options: Any) -> Queue:
        return Stream(name, StreamLog(), **options)

    vhost = VirtualHost(
        "/",
        store=Store(),
        counters=Counters(now_ms=1000),
        scheduler=Scheduler(),
        make_stream=make_stream,
        definitions=definitions,
    )
    vhost.set_rules(Rules(limits=Limits(definitions_size=most)))
    return vhost


def counted(vhost: VirtualHost) -> int:
    """Return the count of all definitions if they were declared again in their order."""
    octets = sum(
        memory_estimate.queue_memory(queue.name, queue.arguments) for queue in vhost.queues.values()
    )
    twin = made()
    for exchange in vhost.exchanges.values():
        if exchange.name and not exchange.name.startswith("amq."):
            octets += exchange.memory()
        beside = twin.exchanges.get(exchange.name)
        if beside is None:
            beside = TYPES[exchange.type](exchange.name, arguments=exchange.arguments)
        for binding in exchange.bindings:
            again = Binding(beside, binding.destination, binding.routing_key, binding.arguments)
            octets += beside.binding_memory(again)
            beside.bind(again)
    return octets


ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"x-max-length": 5},
    {"x-expires": 1000},
    {"x-queue-type": "stream"},
    {"x-qpid-description": "d" * 5000},
    {"qpid.last_value_queue_key": "k"},
    {"x-qpid-dlq-enabled": True},
]
KINDS = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-random", "x-super-stream"]
KINDS += ["x-delayed-message", "x-recent-history"]


def exchange_arguments(kind: str) -> dict[str, Any]:
    if kind == "x-delayed-message":
        return {"x-delayed-type": "topic"}
    return {"x-partitions": 2} if kind == "x-super-stream" else {}


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_is_what_goes(seed: int) -> None:
    vhost = made()
    chance = random.Random(seed)
    owners = [object(), object()]

    def step() -> None:
        draw = chance.random()
        queues = [name for name in vhost.queues if not vhost.queues[name].is_hidden]
        exchanges = [name for name in vhost.exchanges if name]
        own = [name for name in exchanges if not name.startswith("amq.")]
        if draw < 0.25:
            exclusive = chance.random() < 0.3
            arguments = chance.choice(ARGUMENTS[:3] if exclusive else ARGUMENTS)
            vhost.declare_queue(
                f"q{chance.randrange(10**9)}",
                durable=not exclusive,
                exclusive=exclusive,
                owner=chance.choice(owners) if exclusive else None,
                arguments=arguments,
            )
        elif draw < 0.4:
            kind = chance.choice(KINDS)
            vhost.declare_exchange(
                f"x{chance.randrange(10**9)}",
                kind,
                durable=True,
                auto_delete=chance.random() < 0.3,
                arguments=exchange_arguments(kind),
            )
        elif draw < 0.8 and queues:
            source = vhost.exchanges[chance.choice(exchanges)]
            queue = vhost.queues[chance.choice(queues)]
            if source.type == "x-super-stream" and not queue.is_stream:
                return
            key = chance.choice(["a.b.c", "a.b.*", "a.#", "x"])
            arguments: dict[str, Any] = {}  # type: ignore[no-redef]
            if source.type == "x-consistent-hash":
                key = str(chance.randrange(1, 9))
            elif source.supports_selectors and chance.random() < 0.3:
                arguments = {"x-filter-jms-selector": chance.choice(["a = 1", "b = 'c'"])}
            elif source.type == "headers":
                arguments = {"x-match": chance.choice(["all", "any"]), "h": "v" * 99, "i": 1}
            vhost.bind(source.name, ("queue", queue.name), key, arguments, queue.exclusive_owner)
        elif draw < 0.85 and own:
            vhost.bind(chance.choice(["amq.topic", "amq.fanout"]), ("exchange", own[0]), "k")
        elif draw < 0.9 and queues:
            queue = vhost.queues[chance.choice(queues)]
            vhost.delete_queue(queue.name, owner=queue.exclusive_owner)
        elif draw < 0.94 and own:
            vhost.delete_exchange(chance.choice(own))
        elif draw < 0.97:
            vhost.on_owner_end(chance.choice(owners))
        else:
            vhost.counters.now_ms += 600
            vhost.scheduler.run(vhost.counters.now_ms)

    for number in range(400):
        step()
        if number % 20 == 0:
            assert vhost.definition_memory == counted(vhost)
    for owner in owners:
        vhost.on_owner_end(owner)
    for name in list(vhost.queues):
        if name in vhost.queues and not vhost.queues[name].is_hidden:
            vhost.delete_queue(name)
    for name in list(vhost.exchanges):
        if name and not name.startswith("amq."):
            vhost.delete_exchange(name)
    assert vhost.definition_memory == 0 == counted(vhost)
    assert not any(exchange.bindings for exchange in vhost.exchanges.values())


def refused(act: Callable[[], object], vhost: VirtualHost, text: str) -> None:
    before = (vhost.definition_memory, list(vhost.queues), list(vhost.exchanges))
    bindings = {name: list(vhost.exchanges[name].bindings) for name in vhost.exchanges}
    with pytest.raises(LimitReached, match=text):
        act()
    assert before == (vhost.definition_memory, list(vhost.queues), list(vhost.exchanges))
    assert bindings == {name: list(vhost.exchanges[name].bindings) for name in vhost.exchanges}


def test_more_is_refused_and_nothing_changed() -> None:
    vhost = made(3000)
    vhost.declare_queue("q", durable=True)
    vhost.declare_exchange("x", "topic")
    vhost.bind("x", ("queue", "q"), "k")
    text = r"may hold 3000 bytes of memory \(max-definitions-size\), and it needs \d+ beside \d+"
    long = "a" * 3000
    refused(
        lambda: vhost.declare_queue("r", arguments={"x-qpid-description": long}),
        vhost,
        f"cannot make queue 'r': the definitions of vhost '/' {text}",
    )
    refused(
        lambda: vhost.declare_queue("r", durable=True, arguments={"x-qpid-dlq-enabled": True}),
        vhost,
        "cannot make queue 'r'",
    )
    refused(
        lambda: vhost.declare_exchange("y", arguments={"alternate-exchange": long}),
        vhost,
        "cannot make exchange 'y'",
    )
    refused(
        lambda: vhost.declare_exchange(
            "y", "x-super-stream", durable=True, arguments={"x-partitions": 3}
        ),
        vhost,
        "cannot make the streams of exchange 'y'",
    )
    refused(
        lambda: vhost.bind("x", ("queue", "q"), "k", {"about": long}),
        vhost,
        "cannot make a binding of exchange 'x'",
    )
    refused(
        lambda: vhost.bind("x", ("queue", "q"), ".".join("abcdefghijkl")), vhost, "a binding of"
    )
    refused(
        lambda: vhost.make_hidden_stream("hidden", {"x-queue-type": "stream"}), vhost, "'hidden'"
    )
    vhost.declare_queue("q", durable=True)  # Existing objects may be declared again.
    vhost.bind("x", ("queue", "q"), "k")
    vhost.unbind("x", ("queue", "q"), "k")
    vhost.bind("x", ("queue", "q"), "l")
    vhost.delete_queue("q")
    vhost.declare_queue("r", durable=True)


def test_a_ring_of_hashes_counts() -> None:
    vhost = made(1 << 20)
    vhost.declare_queue("q")
    vhost.declare_exchange("x", "x-consistent-hash")
    refused(lambda: vhost.bind("x", ("queue", "q"), "1000"), vhost, "a binding of exchange 'x'")
    vhost.set_rules(Rules())
    for weight in range(900, 960):
        vhost.bind("x", ("queue", "q"), str(weight))
    assert vhost.definition_memory < 5 << 20  # It has no more points than it may have.
    vhost.delete_queue("q")
    assert vhost.definition_memory == vhost.exchanges["x"].memory()


class Kept(NoDefinitions):
    """Two queues and a binding."""

    def load(self) -> SavedDefinitions:
        queues = [QueueRecord(n, f"q{n}", False, {"x-qpid-description": "d"}) for n in (1, 2)]
        return SavedDefinitions(
            [], queues, [BindingRecord("amq.topic", "queue", "q1", "a.b", {"c": 1})]
        )


def test_what_is_kept_is_never_refused(caplog: pytest.LogCaptureFixture) -> None:
    vhost = made(100, Kept())
    vhost.load()
    assert list(vhost.queues) == ["q1", "q2"]
    assert vhost.exchanges["amq.topic"].bindings
    assert vhost.definition_memory == counted(vhost) > 2000
    (warning,) = [record for record in caplog.records if "its definitions use" in record.message]
    assert "more than the limit of 100" in warning.message
    refused(lambda: vhost.declare_queue("q3"), vhost, "cannot make queue 'q3'")
    vhost.delete_queue("q1")
    vhost.delete_queue("q2")
    assert vhost.definition_memory == 0


def test_equal_arguments_are_one_binding() -> None:
    vhost = made()
    vhost.declare_queue("q")
    for number in (1, 1.0, True):
        vhost.bind("amq.direct", ("queue", "q"), "k", {"a": [{"b": number}, "c" * 1000]})
    vhost.bind("amq.direct", ("queue", "q"), "k", {"a": [{"b": 1}, b"c" * 1000]})
    assert len(vhost.exchanges["amq.direct"].bindings) == 2
    assert vhost.unbind("amq.direct", ("queue", "q"), "k", {"a": [{"b": 1}, "c" * 1000]})
    assert vhost.unbind("amq.direct", ("queue", "q"), "k", {"a": [{"b": True}, "c" * 1000]})


def fresh(text: str) -> str:
    """A text of its own, as each one from the wire is."""
    return text.encode().decode()


HELD: dict[str, Callable[[VirtualHost, int], object]] = {
    "exchanges": lambda vhost, n: vhost.declare_exchange(f"exchange-{n}", "topic", durable=True),
    "keys": lambda vhost, n: vhost.bind("amq.topic", ("queue", "q"), f"a{n}.b{n}.c{n}"),
    "texts": lambda vhost, n: vhost.bind(
        "amq.direct", ("queue", "q"), "k", {fresh("about"): f"{n:010000}"}
    ),
    "lists": lambda vhost, n: vhost.bind(
        "amq.fanout", ("queue", "q"), "k", {fresh("list"): [n * 1000 + i for i in range(60)]}
    ),
    "headers": lambda vhost, n: vhost.bind(
        "amq.headers", ("queue", "q"), "", {f"name-{i}": f"value-{n}-{i}" for i in range(9)}
    ),
    "selectors": lambda vhost, n: vhost.bind(
        "amq.direct", ("queue", "q"), "k", {fresh("x-filter-jms-selector"): f"a = {n} AND b = 'c'"}
    ),
    "queues": lambda vhost, n: vhost.declare_queue(
        f"queue-{n}", arguments={fresh("x-max-length"): n, fresh("x-message-ttl"): n * 1000}
    ),
}


@pytest.mark.parametrize("what", HELD)
def test_the_estimate_is_honest(what: str) -> None:
    vhost = made()
    vhost.declare_queue("q")
    for number in range(1000, 1100):  # Whatever is made once is there.
        HELD[what](vhost, number)
    before = vhost.definition_memory

    def make() -> None:
        for number in range(2000, 2150):
            HELD[what](vhost, number)

    true = retained_bytes(make)
    ratio = (vhost.definition_memory - before) / true
    assert 1 / 1.5 < ratio < 1.6, (vhost.definition_memory - before, true)


def test_consumers_count_wherever_they_take_from() -> None:
    vhost = made()
    for name in ("q", "r", "s"):
        stream = {"x-queue-type": "stream"} if name == "s" else {}
        vhost.declare_queue(name, durable=True, arguments=stream)
    before = vhost.definition_memory
    queues = [vhost.queues["q"], vhost.queues["r"]]
    places: list[Any] = [queues[0], vhost.queues["s"], get_view(queues[0]), MultiQueue(queues)]
    for browses in (False, True):
        for place in places[:3] if browses else places:
            consumer = Consumer(place, "tag", True)
            consumer.arguments = {"x-note": "n" * 100}
            if place is vhost.queues["s"] or place is places[2]:
                place.check_consumer(consumer, False)
            consumer.is_browser = browses
            vhost.check_consumer(consumer)
            place.add_consumer(consumer)
            each = memory_estimate.consumer_memory("tag", consumer.arguments, None)
            held = vhost.definition_memory - before
            assert held == (2 * each if place is places[3] else each)
            place.remove_consumer(consumer)
            assert vhost.definition_memory == before
    consumer = Consumer(queues[0], "tag", True)
    queues[0].add_consumer(consumer)
    vhost.delete_queue("q")
    assert vhost.definition_memory < before
    for name in ("r", "s"):
        vhost.delete_queue(name)
    assert vhost.definition_memory == 0


class Idle(Consumer):
    """It has room once."""

    room = 1

    def has_room(self) -> bool:
        return self.room > 0

    def deliver(self, message: Any) -> None:
        self.room -= 1


def test_what_is_read_ahead_counts_as_memory_in_use() -> None:
    vhost = made()
    stream = vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    assert isinstance(stream, Stream)
    for number in range(5):
        message = stored_message(b"%d" % number, "", headers={"h": "v" * 100})
        message.seq = number
        stream.enqueue(message)
    assert stream.message_count() == 5
    before = vhost.counters.memory_used
    consumer = Idle(stream, "tag", True)
    consumer.arguments = {"x-stream-offset": "first"}
    stream.check_consumer(consumer, False)
    stream.add_consumer(consumer)
    stream.drain()
    ahead = vhost.counters.memory_used - before
    assert ahead > 100
    consumer.room = 2
    stream.unpark(consumer)
    stream.drain()
    assert vhost.counters.memory_used == before + ahead
    consumer.room = 9
    stream.unpark(consumer)
    stream.drain()
    assert vhost.counters.memory_used == before
    consumer.room = 0
    stream.remove_consumer(consumer)
    assert vhost.counters.memory_used == before

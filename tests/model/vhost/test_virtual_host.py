# SPDX-License-Identifier: Apache-2.0
"""Declaring, binding, routing and deleting in one virtual host."""

import re
from typing import Any

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import (
    AccessRefused,
    CommandInvalid,
    InvalidArgument,
    ModelError,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from headrace.model.message import new_message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.queue.queue import Queue
from headrace.model.vhost.virtual_host import VirtualHost


@pytest.fixture
def vhost() -> VirtualHost:
    return VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000))


def names(vhost: VirtualHost, exchange: str, key: str = "", **headers: Any) -> list[str]:
    return [queue.name for queue in vhost.route(exchange, key, lambda: headers).queues]


def fill(queue: Queue, count: int = 1) -> None:
    for _ in range(count):
        message = new_message(b"body", 0, 4)
        message.seq = queue.counters.next_seq
        queue.counters.next_seq += 1
        queue.enqueue(message)


def refusal(call: Any, *args: Any, raises: type[ModelError], **kwargs: Any) -> str:
    with pytest.raises(raises) as caught:
        call(*args, **kwargs)
    return caught.value.text


# --- Exchanges ----------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/exchange#03", "0-9-1/exchange#04")
def test_standard_exchanges_are_there(vhost: VirtualHost) -> None:
    kinds = {name: exchange.type for name, exchange in vhost.exchanges.items()}
    assert kinds == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.rabbitmq.trace": "topic",
    }
    assert vhost.declare_exchange("amq.topic", "topic", durable=True).durable


@pytest.mark.rule("0-9-1/s042")
def test_a_passive_declare_finds_or_fails(vhost: VirtualHost) -> None:
    text = refusal(vhost.declare_exchange, "x", passive=True, raises=NotFound)
    assert text == "no exchange 'x' in vhost '/'"
    made = vhost.declare_exchange("x", "fanout")
    assert vhost.declare_exchange("x", "anything", passive=True) is made


@pytest.mark.rule("0-9-1/s043", "0-9-1/s044")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "topic"}, "'type' for {}: received 'topic' but current is 'direct'"),
        ({"durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' for {}: received 'true' but current is 'false'"),
        (
            {"arguments": {"alternate-exchange": "b"}},
            "'alternate-exchange' for {}: received 'b' but current is 'a'",
        ),
    ],
)
def test_an_inequivalent_exchange_is_refused(
    vhost: VirtualHost, change: dict[str, Any], text: str
) -> None:
    same: dict[str, Any] = {"kind": "direct", "arguments": {"alternate-exchange": "a"}}
    made = vhost.declare_exchange("x", **same)
    assert vhost.declare_exchange("x", **same) is made
    got = refusal(vhost.declare_exchange, "x", **{**same, **change}, raises=PreconditionFailed)
    assert got == "inequivalent arg " + text.format("exchange 'x' in vhost '/'")


@pytest.mark.rule("0-9-1/s039", "0-9-1/s041")
def test_reserved_names_and_types_are_refused(vhost: VirtualHost) -> None:
    text = refusal(vhost.declare_exchange, "amq.mine", raises=AccessRefused)
    assert text == "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    text = refusal(vhost.declare_exchange, "", raises=AccessRefused)
    assert text == "operation not permitted on the default exchange"
    text = refusal(vhost.declare_exchange, "x", "nothing", raises=CommandInvalid)
    assert text == "unknown exchange type 'nothing'"
    refusal(vhost.declare_exchange, "a\r\nb", raises=PreconditionFailed)
    arguments = {"alternate-exchange": 5}
    refusal(vhost.declare_exchange, "x", arguments=arguments, raises=InvalidArgument)
    assert "x" not in vhost.exchanges


@pytest.mark.rule("0-9-1/s047")
def test_delete_exchange(vhost: VirtualHost) -> None:
    vhost.declare_exchange("x", "fanout")
    vhost.declare_queue("q")
    vhost.bind("x", ("queue", "q"))
    text = refusal(vhost.delete_exchange, "x", if_unused=True, raises=PreconditionFailed)
    assert text == "exchange 'x' in vhost '/' in use"
    vhost.delete_exchange("x")
    vhost.delete_exchange("x")  # It is gone, as was asked.
    assert vhost.bindings_to(vhost.queues["q"]) == ()
    text = refusal(vhost.delete_exchange, "amq.topic", raises=AccessRefused)
    assert text == "deletion of system exchange 'amq.topic' in vhost '/' not allowed"
    assert refusal(names, vhost, "x", raises=NotFound) == "no exchange 'x' in vhost '/'"


@pytest.mark.rule("0-9-1/s104")
def test_an_internal_exchange_takes_no_publishes(vhost: VirtualHost) -> None:
    vhost.declare_exchange("x", internal=True)
    text = refusal(vhost.check_publishable, "x", raises=AccessRefused)
    assert text == "cannot publish to internal exchange 'x' in vhost '/'"


def test_an_auto_delete_exchange_goes_with_its_last_binding(vhost: VirtualHost) -> None:
    for name in ("outer", "inner"):
        vhost.declare_exchange(name, "fanout", auto_delete=True)
    vhost.declare_queue("q")
    vhost.bind("outer", ("exchange", "inner"))
    vhost.bind("inner", ("queue", "q"))
    vhost.bind("inner", ("queue", "q"), "k")
    vhost.unbind("inner", ("queue", "q"))
    assert "inner" in vhost.exchanges
    vhost.delete_queue("q")
    assert "inner" not in vhost.exchanges
    assert "outer" not in vhost.exchanges  # Its only binding led to the other.


# --- Queues -------------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/s050")
def test_a_queue_without_a_name_is_given_one(vhost: VirtualHost) -> None:
    one, two = vhost.declare_queue(), vhost.declare_queue()
    assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", one.name)
    assert one.name != two.name
    assert vhost.declare_queue(one.name, passive=True) is one


@pytest.mark.rule("0-9-1/s051", "0-9-1/s052")
def test_names_of_queues(vhost: VirtualHost) -> None:
    text = refusal(vhost.declare_queue, "amq.mine", raises=AccessRefused)
    assert text == "queue name 'amq.mine' contains reserved prefix 'amq.*'"
    text = refusal(vhost.declare_queue, "q", passive=True, raises=NotFound)
    assert text == "no queue 'q' in vhost '/'"
    refusal(vhost.declare_queue, "a\0b", raises=PreconditionFailed)


@pytest.mark.rule("0-9-1/s054")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"durable": False}, "'durable' for {}: received 'false' but current is 'true'"),
        ({"auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
        (
            {"arguments": {"x-max-length": 6}},
            "'x-max-length' for {}: received '6' but current is '5'",
        ),
    ],
)
def test_an_inequivalent_queue_is_refused(
    vhost: VirtualHost, change: dict[str, Any], text: str
) -> None:
    same: dict[str, Any] = {"durable": True, "arguments": {"x-max-length": 5}}
    made = vhost.declare_queue("q", **same)
    assert vhost.declare_queue("q", **same) is made
    got = refusal(vhost.declare_queue, "q", **{**same, **change}, raises=PreconditionFailed)
    assert got == "inequivalent arg " + text.format("queue 'q' in vhost '/'")


@pytest.mark.rule("0-9-1/s058", "0-9-1/s057")
def test_an_exclusive_queue_is_its_connections_own(vhost: VirtualHost) -> None:
    mine, other = object(), object()
    queue = vhost.declare_queue("q", exclusive=True, durable=True, owner=mine)
    assert vhost.declare_queue("q", exclusive=True, durable=True, owner=mine) is queue
    locked = (
        "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally "
        "declared on another connection or the exclusive property value does not match that of "
        "the original declaration."
    )
    assert refusal(vhost.find_queue, "q", other, raises=ResourceLocked) == locked
    for owner, options in (
        (other, {"exclusive": True}),
        (other, {"passive": True}),
        (mine, {"exclusive": False}),
    ):
        text = refusal(vhost.declare_queue, "q", owner=owner, **options, raises=ResourceLocked)
        assert text == locked
    assert refusal(vhost.delete_queue, "q", owner=other, raises=ResourceLocked) == locked
    assert refusal(vhost.bind, "amq.fanout", ("queue", "q"), owner=other, raises=ResourceLocked)
    vhost.on_connection_closed(other)
    assert "q" in vhost.queues
    vhost.on_connection_closed(mine)
    assert "q" not in vhost.queues
    assert queue.deleted


@pytest.mark.rule("0-9-1/s083", "0-9-1/s084")
def test_delete_queue(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q")
    fill(queue, 3)
    text = refusal(vhost.delete_queue, "q", if_empty=True, raises=PreconditionFailed)
    assert text == "queue 'q' in vhost '/' not empty"
    queue.add_consumer(Consumer(queue, "tag", False))
    text = refusal(vhost.delete_queue, "q", if_unused=True, raises=PreconditionFailed)
    assert text == "queue 'q' in vhost '/' in use"
    assert vhost.delete_queue("q") == 3
    assert vhost.delete_queue("q") == 0


def test_an_unused_queue_expires(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", arguments={"x-expires": 500})
    assert vhost.scheduler.next_ms == 1_000_500
    vhost.counters.now_ms = 1_000_300
    vhost.declare_queue("q", arguments={"x-expires": 500})  # Declaring is using.
    vhost.scheduler.run(1_000_500)
    assert "q" in vhost.queues
    consumer = Consumer(queue, "tag", False)
    queue.add_consumer(consumer)
    vhost.scheduler.run(1_000_800)
    assert "q" in vhost.queues
    vhost.counters.now_ms = 1_001_000
    queue.remove_consumer(consumer)
    vhost.scheduler.run(1_001_499)
    assert "q" in vhost.queues
    vhost.counters.now_ms = 1_001_500
    assert vhost.scheduler.run(1_001_500) == 0
    assert "q" not in vhost.queues


def test_messages_expire_to_the_millisecond(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", arguments={"x-message-ttl": 100})
    fill(queue, 2)
    assert vhost.scheduler.next_ms == 1_000_100
    vhost.scheduler.run(1_000_099)
    assert queue.ready_count == 2
    assert vhost.scheduler.run(1_000_100) == 0
    assert queue.ready_count == 0


@pytest.mark.parametrize(
    ("options", "flaw"),
    [
        ({}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_a_stream_is_for_all_and_for_long(
    vhost: VirtualHost, options: dict[str, bool], flaw: str
) -> None:
    arguments = {"x-queue-type": "stream"}
    text = refusal(
        vhost.declare_queue, "s", arguments=arguments, raises=PreconditionFailed, **options
    )
    assert text == f"invalid property '{flaw}' for queue 's' in vhost '/'"


# --- Bindings and routes ------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/queue.declare#01")
def test_every_queue_is_bound_to_the_default_exchange(vhost: VirtualHost) -> None:
    vhost.declare_queue("q")
    assert names(vhost, "", "q") == ["q"]
    assert names(vhost, "", "p") == []


@pytest.mark.rule("0-9-1/s066", "0-9-1/s067", "0-9-1/exchange#05")
def test_both_ends_of_a_binding_must_be_there(vhost: VirtualHost) -> None:
    vhost.declare_queue("q")
    for call in (vhost.bind, vhost.unbind):
        text = refusal(call, "amq.direct", ("queue", "p"), raises=NotFound)
        assert text == "no queue 'p' in vhost '/'"
        text = refusal(call, "x", ("queue", "q"), raises=NotFound)
        assert text == "no exchange 'x' in vhost '/'"
        text = refusal(call, "", ("queue", "q"), raises=AccessRefused)
        assert text == "operation not permitted on the default exchange"
        refusal(call, "amq.direct", ("exchange", ""), raises=AccessRefused)
        refusal(call, "amq.direct", ("exchange", "x"), raises=NotFound)
    refusal(
        vhost.bind, "amq.headers", ("queue", "q"), "", {"x-match": "no"}, raises=InvalidArgument
    )


@pytest.mark.rule("0-9-1/queue.bind#02")
def test_a_message_reaches_a_queue_once(vhost: VirtualHost) -> None:
    vhost.declare_queue("q")
    for key in ("#", "a.*", "*.b", "a.b"):
        vhost.bind("amq.topic", ("queue", "q"), key)
    vhost.declare_exchange("x", "fanout")
    vhost.bind("amq.topic", ("exchange", "x"), "a.#")
    vhost.bind("x", ("queue", "q"))
    assert names(vhost, "amq.topic", "a.b") == ["q"]


def test_exchanges_bound_in_a_circle_route_once(vhost: VirtualHost) -> None:
    for name in ("a", "b"):
        vhost.declare_exchange(name, "fanout")
        vhost.declare_queue(name)
        vhost.bind(name, ("queue", name))
    vhost.bind("a", ("exchange", "b"))
    vhost.bind("b", ("exchange", "a"))
    assert sorted(names(vhost, "a")) == ["a", "b"]
    vhost.unbind("a", ("exchange", "b"))
    vhost.unbind("a", ("exchange", "b"))
    assert names(vhost, "a") == ["a"]


def test_the_alternate_takes_what_its_exchange_cannot_route(vhost: VirtualHost) -> None:
    vhost.declare_exchange("x", arguments={"alternate-exchange": "y"})
    assert names(vhost, "x", "k") == []  # An alternate that is not there is no error.
    vhost.declare_exchange("y", "fanout", arguments={"alternate-exchange": "x"})
    for name in ("hit", "missed"):
        vhost.declare_queue(name)
    vhost.bind("x", ("queue", "hit"), "k")
    vhost.bind("y", ("queue", "missed"))
    assert names(vhost, "x", "k") == ["hit"]
    assert names(vhost, "x", "other") == ["missed"]
    vhost.unbind("y", ("queue", "missed"))
    assert names(vhost, "x", "other") == []  # Two alternates in a circle end.


def test_a_route_through_a_headers_exchange_is_not_remembered(vhost: VirtualHost) -> None:
    vhost.declare_queue("q")
    vhost.bind("amq.headers", ("queue", "q"), "", {"n": 1})
    vhost.bind("amq.fanout", ("exchange", "amq.headers"))
    routed = vhost.route("amq.fanout", "", lambda: {"n": 1})
    assert [q.name for q in routed.queues] == ["q"]
    assert not routed.cacheable
    assert names(vhost, "amq.fanout", n=2) == []
    assert vhost.route("amq.topic", "", dict).cacheable


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.declare_queue("new"),
        lambda v: v.delete_queue("q"),
        lambda v: v.declare_exchange("new"),
        lambda v: v.delete_exchange("x"),
        lambda v: v.bind("x", ("queue", "q"), "new"),
        lambda v: v.unbind("x", ("queue", "q"), "old"),
        lambda v: v.on_connection_closed("me"),
    ],
)
def test_whatever_may_change_a_route_moves_the_generation(vhost: VirtualHost, change: Any) -> None:
    vhost.declare_queue("q")
    vhost.declare_queue("mine", exclusive=True, owner="me")
    vhost.declare_exchange("x")
    vhost.bind("x", ("queue", "q"), "old")
    before = vhost.generation
    vhost.declare_queue("q")
    vhost.bind("x", ("queue", "q"), "old")
    vhost.unbind("x", ("queue", "q"), "never was")
    assert vhost.generation == before
    change(vhost)
    assert vhost.generation > before


@pytest.mark.rule("0-9-1/s019", "0-9-1/s020")
def test_virtual_hosts_know_nothing_of_each_other() -> None:
    counters = Counters()
    one, two = (VirtualHost(name, store=Store(), counters=counters) for name in ("one", "two"))
    one.declare_queue("q")
    one.declare_exchange("x")
    assert refusal(two.find_queue, "q", raises=NotFound) == "no queue 'q' in vhost 'two'"
    assert refusal(two.find_exchange, "x", raises=NotFound) == "no exchange 'x' in vhost 'two'"

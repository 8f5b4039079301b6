# SPDX-License-Identifier: Apache-2.0
"""Deletes with many bindings return at once; exchanges drop the bindings in portions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.counters import Counters
from headrace.model.events import Event, Events
from headrace.model.exchange.binding import EXCHANGE as TO_EXCHANGE
from headrace.model.exchange.binding import QUEUE
from headrace.model.ports import Store
from headrace.model.vhost.topology import UNINDEXED_AT_ONCE
from headrace.model.vhost.virtual_host import VirtualHost

if TYPE_CHECKING:
    from headrace.model.exchange.exchange import Exchange

MANY = 5 * UNINDEXED_AT_ONCE
OWNER = object()


@pytest.fixture
def vhost() -> VirtualHost:
    return VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000))


def bound(vhost: VirtualHost, exchange: str, count: int = MANY) -> None:
    for n in range(count):
        arguments: dict[str, Any] = {"n": n} if exchange == "amq.headers" else {}
        vhost.bind(exchange, (QUEUE, "q"), str(n), arguments, OWNER)


def routed(vhost: VirtualHost, exchange: str, n: int) -> list[str]:
    routed_to = vhost.route(exchange, str(n), lambda: {"n": n})
    return [queue.name for queue in routed_to.queues]


def steps(vhost: VirtualHost, exchange: Exchange) -> list[int]:
    """How many bindings each step of the loop makes an exchange forget."""
    done: list[int] = []
    remove = exchange.remove_from_index
    exchange.remove_from_index = lambda binding: (done.append(done.pop() + 1), remove(binding))[1]  # type: ignore[method-assign]
    while due_ms := vhost.scheduler.next_ms:
        done.append(0)
        vhost.counters.now_ms = due_ms
        vhost.scheduler.run(due_ms)
    return done


GONE: dict[str, Callable[[VirtualHost], object]] = {
    "deleted": lambda vhost: vhost.delete_queue("q", owner=OWNER),
    "owner gone": lambda vhost: vhost.on_owner_end(OWNER),
}


@pytest.mark.parametrize("exchange", ["amq.direct", "amq.topic", "amq.fanout", "amq.headers"])
@pytest.mark.parametrize("how", GONE)
def test_bindings_of_a_queue_that_goes_are_forgotten_in_steps(
    vhost: VirtualHost, exchange: str, how: str
) -> None:
    before = vhost.definition_memory
    vhost.declare_queue("q", exclusive=True, owner=OWNER)
    bound(vhost, exchange)
    source = vhost.exchanges[exchange]
    assert routed(vhost, exchange, MANY - 1) == ["q"]
    GONE[how](vhost)
    assert not source.bindings
    assert routed(vhost, exchange, MANY - 1) == []
    vhost.declare_queue("q", exclusive=True, owner=OWNER)
    assert list(vhost.bindings_to(vhost.queues["q"])) == []
    assert routed(vhost, exchange, MANY - 1) == []
    vhost.bind(exchange, (QUEUE, "q"), str(MANY - 1), {"n": MANY - 1}, OWNER)
    assert routed(vhost, exchange, MANY - 1) == ["q"]
    done = steps(vhost, source)
    assert sum(done) == MANY - UNINDEXED_AT_ONCE
    assert max(done) <= UNINDEXED_AT_ONCE
    assert routed(vhost, exchange, MANY - 1) == ["q"]
    vhost.on_owner_end(OWNER)
    assert vhost.definition_memory == before


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-random"])
def test_an_exchange_that_picks_one_picks_none_that_is_gone(vhost: VirtualHost, kind: str) -> None:
    vhost.declare_exchange("x", kind)
    vhost.declare_queue("q", exclusive=True, owner=OWNER)
    vhost.declare_queue("stays")
    for n in range(1, 2 * UNINDEXED_AT_ONCE):
        vhost.bind("x", (QUEUE, "q"), str(n), {}, OWNER)
        if n > 8:
            break
    vhost.bind("x", (QUEUE, "stays"), "1")
    vhost.on_owner_end(OWNER)
    assert {name for n in range(100) for name in routed(vhost, "x", n)} == {"stays"}


def test_an_exchange_that_goes_takes_its_bindings_and_what_waits_for_the_last_of_them(
    vhost: VirtualHost,
) -> None:
    before = vhost.definition_memory
    vhost.declare_queue("q", exclusive=True, owner=OWNER)
    vhost.declare_exchange("first", "direct", auto_delete=True)
    vhost.declare_exchange("x", "topic")
    vhost.bind("first", (TO_EXCHANGE, "x"), "k")
    bound(vhost, "x")
    vhost.delete_exchange("x")
    assert list(vhost.exchanges) == list(
        VirtualHost("/", store=Store(), counters=Counters()).exchanges
    )
    assert not list(vhost.bindings_to(vhost.queues["q"]))
    vhost.declare_exchange("x", "topic")
    assert routed(vhost, "x", 1) == []
    while due_ms := vhost.scheduler.next_ms:
        vhost.scheduler.run(due_ms)
    vhost.delete_exchange("x")
    vhost.on_owner_end(OWNER)
    assert vhost.definition_memory == before


def test_an_auto_delete_exchange_goes_with_its_last_binding_at_once(vhost: VirtualHost) -> None:
    vhost.declare_exchange("x", "direct", auto_delete=True)
    vhost.declare_queue("q", exclusive=True, owner=OWNER)
    bound(vhost, "x")
    vhost.on_owner_end(OWNER)
    assert "x" not in vhost.exchanges


def test_the_alternate_has_what_only_a_queue_that_is_gone_was_bound_for(vhost: VirtualHost) -> None:
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "amq.fanout"})
    vhost.declare_queue("q", exclusive=True, owner=OWNER)
    vhost.declare_queue("other")
    vhost.bind("amq.fanout", (QUEUE, "other"))
    bound(vhost, "x")
    vhost.on_owner_end(OWNER)
    assert routed(vhost, "x", MANY - 1) == ["other"]


@pytest.mark.parametrize("exchange", ["amq.direct", "amq.fanout"])
@pytest.mark.parametrize("how", GONE)
def test_each_binding_that_goes_is_told_before_what_it_goes_with(exchange: str, how: str) -> None:
    heard: list[Event] = []
    events = Events(Counters(now_ms=1_000))
    vhost = VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000), events=events)
    vhost.declare_queue("q", exclusive=True, owner=OWNER)
    bound(vhost, exchange)
    events.add_listener(heard.append)
    GONE[how](vhost)
    *undone, last = heard
    assert (last.kind, last.facts["name"]) == ("queue.deleted", "q")
    assert {event.kind for event in undone} == {"binding.deleted"}
    assert [event.facts["routing_key"] for event in undone] == [str(n) for n in range(MANY)]
    steps(vhost, vhost.exchanges[exchange])
    assert heard == [*undone, last]  # None is told twice.

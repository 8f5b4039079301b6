# SPDX-License-Identifier: Apache-2.0
"""Exchanges that pick one destination: by hash, and at random."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import InvalidArgument, PreconditionFailed
from headrace.model.exchange import hash as hash_exchanges
from headrace.model.exchange.binding import Binding
from headrace.model.exchange.direct import DirectExchange
from headrace.model.exchange.hash import WEIGHT_MAX, WEIGHTS_MAX, jump_bucket
from headrace.model.exchange.random import RandomExchange
from headrace.model.exchange.registry import exchange_type, known_arguments, new_exchange
from headrace.model.ports import Store
from headrace.model.queue.queue import Queue
from headrace.model.vhost.virtual_host import VirtualHost

if TYPE_CHECKING:
    from headrace.model.exchange.exchange import Exchange

KEYS = [f"order.{number}" for number in range(10_000)]


class Headers:
    """Headers and properties of a message."""

    def __init__(self, headers: dict[str, Any], **properties: Any) -> None:
        self._headers = headers
        self._properties = properties

    def __call__(self) -> dict[str, Any]:
        return self._headers

    def properties(self) -> dict[str, Any]:
        return self._properties


def bound(
    kind: str, weights: dict[str, int | str], arguments: dict[str, Any] | None = None
) -> Exchange:
    exchange = new_exchange(kind, "x", arguments=arguments)
    for name, weight in weights.items():
        exchange.bind(Binding(exchange, DirectExchange(name), str(weight)))
    return exchange


def reached(exchange: Exchange, key: str = "", headers: Any = dict) -> list[str]:
    into: dict[Any, None] = {}
    exchange.match(key, headers, into)
    return [destination.name for destination in into]


def spread(exchange: Exchange) -> Counter[str]:
    return Counter(name for key in KEYS for name in reached(exchange, key))


@pytest.mark.parametrize("algorithm", ["ring", "jump"])
def test_a_weight_is_a_share_of_all_keys(algorithm: str) -> None:
    exchange = bound("x-consistent-hash", {"a": 1, "b": 2, "c": 5}, {"x-algorithm": algorithm})
    counts = spread(exchange)
    assert sum(counts.values()) == len(KEYS)
    for name, share in (("a", 1 / 8), ("b", 2 / 8), ("c", 5 / 8)):
        assert counts[name] == pytest.approx(share * len(KEYS), rel=0.35)


@pytest.mark.parametrize("algorithm", ["ring", "jump"])
def test_where_a_key_leads_does_not_depend_on_the_order_of_bindings(algorithm: str) -> None:
    arguments = {"x-algorithm": algorithm}
    one = bound("x-consistent-hash", {"a": 3, "b": 2, "c": 1}, arguments)
    other = bound("x-consistent-hash", {"c": 1, "a": 3, "b": 2}, arguments)
    assert all(reached(one, key) == reached(other, key) for key in KEYS[:1000])


def test_a_binding_more_moves_only_what_it_gets() -> None:
    before = bound("x-consistent-hash", dict.fromkeys("abcd", 1))
    after = bound("x-consistent-hash", dict.fromkeys("abcde", 1))
    moved = [key for key in KEYS if reached(before, key) != reached(after, key)]
    assert {name for key in moved for name in reached(after, key)} == {"e"}
    assert len(moved) == pytest.approx(len(KEYS) / 5, rel=0.35)


def test_jump_moves_only_into_the_new_bucket() -> None:
    values = [random.Random(number).getrandbits(64) for number in range(2000)]
    for buckets in (1, 2, 7, 100):
        for value in values:
            before, after = jump_bucket(value, buckets), jump_bucket(value, buckets + 1)
            assert 0 <= before < buckets
            assert after in (before, buckets)


def test_unbinding_gives_the_share_back() -> None:
    exchange = bound("x-consistent-hash", {"a": 1, "b": 1})
    (binding,) = [b for b in exchange.bindings if b.destination.name == "b"]
    exchange.unbind(binding)
    assert spread(exchange) == {"a": len(KEYS)}
    exchange.unbind(next(iter(exchange.bindings)))
    assert reached(exchange, "k") == []


@pytest.mark.parametrize("argument", ["hash-header", "x-hash-on"])
def test_a_header_is_hashed_instead_of_the_key(argument: str) -> None:
    exchange = bound("x-consistent-hash", dict.fromkeys("abcd", 1), {argument: "user"})
    assert not exchange.cacheable
    by_value: dict[str, set[str]] = {}
    for number in range(400):
        user = f"u{number % 40}"
        (name,) = reached(exchange, str(number), Headers({"user": user}))
        by_value.setdefault(user, set()).add(name)
    assert all(len(names) == 1 for names in by_value.values())
    assert len(set.union(*by_value.values())) == 4


@pytest.mark.parametrize("value", [None, [], [[]], {}, {"a": []}, 7, 1.5, True, b"\xff", ""])
def test_any_value_of_a_header_can_be_hashed(value: Any) -> None:
    """Also the empty array, at which others stumbled."""
    exchange = bound("x-consistent-hash", {"a": 1, "b": 1}, {"hash-header": "h"})
    assert len(reached(exchange, "k", Headers({"h": value}))) == 1
    assert len(reached(exchange, "k", Headers({}))) == 1


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_a_property_is_hashed(name: str) -> None:
    exchange = bound("x-consistent-hash", dict.fromkeys("abcd", 1), {"hash-property": name})
    names = {reached(exchange, "k", Headers({}, **{name: str(number)}))[0] for number in range(100)}
    assert names == set("abcd")
    assert len(reached(exchange, "k", dict)) == 1  # Where there are no properties at all.


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hash-property": "priority"}, "Unsupported property: priority"),
        ({"hash-property": "timestamp", "hash-header": "h"}, "mutually exclusive"),
        ({"x-hash-on": "timestamp", "hash-header": "h"}, "mutually exclusive"),
        ({"hash-header": 7}, "invalid arg 'hash-header' for exchange 'x'"),
        ({"x-algorithm": "md5"}, "unsupported algorithm 'md5'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        exchange_type("x-consistent-hash").check_arguments(arguments, "exchange 'x'")


@pytest.mark.parametrize(
    "key", ["", "x", "1.5", "0", "-1", "--5", "-", "5-", str(WEIGHT_MAX + 1), "9" * 100, "¹"]
)
def test_bad_weights_are_refused(key: str) -> None:
    exchange = bound("x-consistent-hash", {"a": 1})
    with pytest.raises(InvalidArgument, match="The binding key must"):
        exchange.check(key, {})


def test_all_weights_together_are_bounded() -> None:
    exchange = bound(
        "x-consistent-hash", dict.fromkeys(map(str, range(WEIGHTS_MAX // WEIGHT_MAX)), WEIGHT_MAX)
    )
    assert len(reached(exchange, "k")) == 1
    exchange.check_room(str(WEIGHTS_MAX % WEIGHT_MAX))
    with pytest.raises(PreconditionFailed, match=f"more than {WEIGHTS_MAX} in all"):
        exchange.check_room(str(WEIGHTS_MAX % WEIGHT_MAX + 1))


@pytest.mark.rule("0-9-1/queue.bind#01")
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("x-consistent-hash", {}),
        ("x-delayed-message", {"x-delayed-type": "x-consistent-hash"}),
    ],
)
def test_a_binding_is_repeated_at_the_limit_of_all_weights(
    kind: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_exchanges, "WEIGHTS_MAX", 10)
    vhost = VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000))
    vhost.declare_exchange("x", kind, arguments=arguments)
    vhost.declare_queue("q")
    vhost.bind("x", ("queue", "q"), "6")
    vhost.bind("x", ("queue", "q"), "6")
    with pytest.raises(PreconditionFailed, match="more than 10 in all"):
        vhost.bind("x", ("queue", "q"), "5")
    assert [binding.routing_key for binding in vhost.exchanges["x"].bindings] == ["6"]


def test_modulus_hash_picks_one_binding_by_the_key() -> None:
    exchange = bound("x-modulus-hash", dict.fromkeys("abc", ""))
    assert exchange.cacheable
    counts = spread(exchange)
    assert sum(counts.values()) == len(KEYS)
    assert all(counts[name] == pytest.approx(len(KEYS) / 3, rel=0.1) for name in "abc")
    assert reached(bound("x-modulus-hash", {}), "k") == []


@pytest.mark.parametrize("kind", ["x-random", "x-local-random"])
def test_random_exchanges_use_all_bindings(kind: str) -> None:
    exchange = bound(kind, dict.fromkeys("abc", ""))
    assert isinstance(exchange, RandomExchange)
    assert not exchange.cacheable
    exchange.random.seed(7)
    counts = spread(exchange)
    assert sum(counts.values()) == len(KEYS)
    assert all(counts[name] == pytest.approx(len(KEYS) / 3, rel=0.1) for name in "abc")


def test_local_random_takes_classic_queues_without_a_key() -> None:
    exchange = new_exchange("x-local-random", "x")
    counters = Counters()
    exchange.check("", {})
    exchange.check_destination(Queue("q", store=Store(), counters=counters))
    with pytest.raises(InvalidArgument, match="Non empty binding 'k' key not permitted"):
        exchange.check("k", {})
    quorum = Queue("q", store=Store(), counters=counters, arguments={"x-queue-type": "quorum"})
    with pytest.raises(InvalidArgument, match="Queue type rabbit_quorum_queue not valid"):
        exchange.check_destination(quorum)
    with pytest.raises(InvalidArgument, match=r"^Destination not found$"):
        exchange.check_destination(exchange)


def test_known_arguments_are_those_of_the_type() -> None:
    arguments = {"hash-header": "h", "alternate-exchange": "y", "x-super-stream": True, "z": 1}
    assert known_arguments("direct", arguments) == {
        "alternate-exchange": "y",
        "x-super-stream": True,
    }
    assert known_arguments("x-consistent-hash", arguments) == {
        "hash-header": "h",
        "alternate-exchange": "y",
    }

# SPDX-License-Identifier: Apache-2.0
"""Which bindings match, exchange type by exchange type."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.arguments.canonical import canonical
from headrace.model.errors import CommandInvalid, InvalidArgument
from headrace.model.exchange.binding import Binding
from headrace.model.exchange.fanout import FanoutExchange
from headrace.model.exchange.headers import HeadersExchange
from headrace.model.exchange.registry import new_exchange
from headrace.wire.types_0_10 import Bin8, Float32, Str8, UInt8, UInt64


def reached(exchange: Any, key: str = "", headers: dict[str, Any] | None = None) -> list[str]:
    into: dict[Any, None] = {}
    exchange.match(key, lambda: headers or {}, into)
    return [destination.name for destination in into]


def bind(exchange: Any, name: str, key: str = "", arguments: dict[str, Any] | None = None) -> Any:
    binding = Binding(exchange, FanoutExchange(name), key, arguments)
    assert exchange.bind(binding)
    return binding


@pytest.mark.rule("0-9-1/s069")
def test_direct_compares_the_whole_key() -> None:
    exchange = new_exchange("direct", "x")
    bind(exchange, "a", "k")
    bind(exchange, "b", "k")
    bind(exchange, "c", "k.c")
    assert reached(exchange, "k") == ["a", "b"]
    assert reached(exchange, "K") == []


@pytest.mark.rule("0-9-1/exchange#01")
def test_fanout_takes_every_binding() -> None:
    exchange = new_exchange("fanout", "x")
    bind(exchange, "a", "k")
    bind(exchange, "b")
    assert reached(exchange, "whatever") == ["a", "b"]


@pytest.mark.rule("0-9-1/queue.bind#01")
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_the_same_binding_twice_is_one(kind: str) -> None:
    exchange = new_exchange(kind, "x")
    binding = bind(exchange, "a", "k", {"n": 1})
    again = Binding(exchange, binding.destination, "k", {"n": 1})
    assert not exchange.bind(again)
    assert exchange.unbind(again)
    assert not exchange.unbind(again)
    assert reached(exchange, "k", {"n": 1}) == []


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_bindings_that_differ_in_arguments_are_two(kind: str) -> None:
    exchange = new_exchange(kind, "x")
    first = bind(exchange, "a", "k", {"n": 1})
    second = Binding(exchange, first.destination, "k", {"n": 2})
    assert exchange.bind(second)
    assert reached(exchange, "k") == ["a"]
    exchange.unbind(first)
    assert reached(exchange, "k") == ["a"]
    exchange.unbind(second)
    assert reached(exchange, "k") == []


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(CommandInvalid, match="unknown exchange type 'x-nothing'"):
        new_exchange("x-nothing", "x")


@pytest.mark.parametrize(
    ("asked", "given_headers", "hit"),
    [
        ({"x-match": "all", "a": 1, "b": "z"}, {"a": 1, "b": "z", "c": 0}, True),
        ({"x-match": "all", "a": 1, "b": "z"}, {"a": 1}, False),
        ({"a": 1, "b": "z"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": "z"}, {"b": "z"}, True),
        ({"x-match": "any", "a": 1}, {"a": 2}, False),
        ({"x-match": "any"}, {"a": 2}, False),
        ({"x-match": "all"}, {}, True),
        ({}, {"a": 2}, True),
        ({"a": None}, {"a": 2}, True),  # No value asks only that the header is there.
        ({"a": None}, {"b": 2}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": "text"}, {"a": b"text"}, True),
        ({"x-match": "all", "x-a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2, "x-a": 1}, True),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
    ],
)
def test_headers_match_as_their_x_match_says(
    asked: dict[str, Any], given_headers: dict[str, Any], hit: bool
) -> None:
    exchange = new_exchange("headers", "x")
    bind(exchange, "a", arguments=asked)
    assert reached(exchange, headers=given_headers) == (["a"] if hit else [])


VALUES = st.one_of(
    st.sampled_from(
        [1, 2, True, False, "s", b"s", "", None, 1.0, 1.5, -0.0, 0, [1], [1.0], [True]]
    ),
    st.sampled_from([{"k": 1}, {"k": b"s"}, {"k": "s"}, {}, {"k": [{"k": None}]}, "x" * 300]),
    st.sampled_from(
        [Decimal("1.5"), Decimal(1), 1 << 63, 2.0**63, datetime(2020, 1, 1, tzinfo=UTC)]
    ),
    st.sampled_from(
        [1577836800, float("inf"), UInt8(1), UInt64(2), Str8("s"), Bin8(b"s"), Float32(1.5)]
    ),
)
NAMES = st.sampled_from(["a", "b", "c", "d", "x-c"])
MATCH = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])


def scanned(exchange: HeadersExchange, headers: dict[str, Any]) -> set[str]:
    """Where the bindings lead that match when each is compared with the headers by itself."""
    destinations = set()
    for binding in exchange.bindings:
        arguments = dict(binding.arguments or {})
        match = str(arguments.pop("x-match", "all"))
        held = [
            name in headers and (value is None or canonical(headers[name]) == canonical(value))
            for name, value in arguments.items()
            if match.endswith("-with-x") or not name.startswith("x-")
        ]
        if all(held) if match.startswith("all") else any(held):
            destinations.add(binding.destination.name)
    return destinations


@given(
    st.lists(st.tuples(MATCH, st.dictionaries(NAMES, VALUES)), max_size=12),
    st.lists(st.dictionaries(NAMES, VALUES), max_size=4),
    st.randoms(use_true_random=False),
)
def test_the_index_of_headers_finds_what_a_scan_finds(
    asked: list[tuple[str, dict[str, Any]]], messages: list[dict[str, Any]], chance: Random
) -> None:
    exchange = HeadersExchange("x")
    for n, (match, arguments) in enumerate(asked):
        bind(exchange, str(n), arguments={"x-match": match, **arguments})
    while True:
        for headers in [*messages, *[arguments for _, arguments in asked]]:
            assert set(reached(exchange, headers=headers)) == scanned(exchange, headers)
        if not exchange.bindings:
            break
        for binding in chance.sample(
            sorted(exchange.bindings, key=id), -(-len(exchange.bindings) // 2)
        ):
            assert exchange.unbind(binding)
    assert not exchange.conditions.conditions
    assert not exchange.conditions.names


def bound(count: int, asks: Callable[[int], dict[str, Any]]) -> HeadersExchange:
    exchange = HeadersExchange("x")
    for n in range(count):
        bind(exchange, str(n), arguments=asks(n))
    return exchange


COMMON = {f"h{i}": "v" for i in range(9)}


@pytest.mark.parametrize(
    ("asks", "headers"),
    [
        (lambda n: {**COMMON, "mine": n}, {**COMMON, "mine": 7}),
        (lambda n: {"mine": n, **COMMON}, {**COMMON, "mine": 7}),
        (lambda n: {**COMMON, f"mine-{n}": None}, {**COMMON, "mine-7": "x"}),
        (lambda n: {"x-match": "any", "mine": n, "too": -n}, {**COMMON, "mine": 7}),
        (lambda n: {**COMMON, "n": n % 10, "m": n // 10}, {**COMMON, "n": 7, "m": 0}),
    ],
)
def test_what_a_headers_exchange_looks_at_follows_from_what_matches(
    asks: Callable[[int], dict[str, Any]], headers: dict[str, Any]
) -> None:
    looks = []
    for count in (100, 1000):
        exchange = bound(count, asks)
        assert reached(exchange, headers=headers) == ["7"]
        looks.append(exchange.conditions.sets_checked)
    assert looks[1] <= 10 * 10
    assert looks[1] <= 4 * max(looks[0], 1)


def test_bindings_that_ask_for_the_same_are_looked_at_once() -> None:
    exchange = bound(500, lambda n: {"a": 1, "b": 2})
    assert reached(exchange, headers={"a": 1, "b": 3}) == []
    assert len(reached(exchange, headers={"a": 1, "b": 2})) == 500
    assert exchange.conditions.sets_checked <= 2


class Read(dict[str, Any]):
    """Headers that count how many of them are read."""

    reads = 0

    def __getitem__(self, name: str) -> Any:
        self.reads += 1
        return super().__getitem__(name)


def test_of_very_many_headers_those_are_read_that_are_asked_for() -> None:
    exchange = bound(3, lambda n: {f"h{n}": n, "h9999": 9999})
    headers = Read({f"h{i}": i for i in range(10_000)})
    assert reached(exchange, headers=headers) == ["0", "1", "2"]
    assert headers.reads == 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            "some",
            'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x',
        ),
        (1, "Invalid x-match field type signedint (value 1); expected longstr"),
    ],
)
def test_a_wrong_x_match_is_refused(value: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        HeadersExchange("x").check("", {"x-match": value})
    assert caught.value.text == text


def test_equal_values_of_the_wire_are_equal() -> None:
    assert canonical({"a": [1, b"x"]}) == canonical({"a": [1, "x"]})
    assert canonical(True) != canonical(1)
    assert canonical(datetime(2026, 1, 1, tzinfo=UTC)) == canonical(1767225600)

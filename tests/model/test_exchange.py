# SPDX-License-Identifier: Apache-2.0
"""Which bindings match, exchange type by exchange type."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.binding import Binding, canonical
from headrace.model.errors import CommandInvalid, InvalidArgument
from headrace.model.exchange import FanoutExchange, HeadersExchange, matches
from headrace.model.exchange_types import new_exchange


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


VALUES = st.sampled_from([1, 2, True, "s", b"s", None, 1.5, [1], {"k": 1}])
NAMES = st.sampled_from(["a", "b", "x-c"])
MATCH = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])


@given(
    st.lists(st.tuples(MATCH, st.dictionaries(NAMES, VALUES)), max_size=8),
    st.dictionaries(NAMES, VALUES),
)
def test_the_index_of_headers_finds_what_a_scan_finds(
    asked: list[tuple[str, dict[str, Any]]], headers: dict[str, Any]
) -> None:
    exchange = HeadersExchange("x")
    for n, (match, arguments) in enumerate(asked):
        bind(exchange, str(n), arguments={"x-match": match, **arguments})
    asked_of = {name: canonical(value) for name, value in headers.items()}
    expected = {b.destination.name for b in exchange.bindings if matches(b, asked_of)}
    assert set(reached(exchange, headers=headers)) == expected
    for binding in list(exchange.bindings):
        exchange.unbind(binding)
    assert reached(exchange, headers=headers) == []
    assert not exchange._asking


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

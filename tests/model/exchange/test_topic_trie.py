# SPDX-License-Identifier: Apache-2.0
"""The topic trie against a matcher too simple to be wrong."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.exchange.binding import Binding
from headrace.model.exchange.fanout import FanoutExchange
from headrace.model.exchange.topic import TopicExchange, TopicTrie

WORDS = st.sampled_from(["a", "b", "", "long-word"])
KEYS = st.lists(WORDS, min_size=1, max_size=6).map(".".join)
PATTERNS = st.lists(st.one_of(WORDS, st.sampled_from(["*", "#"])), min_size=1, max_size=6).map(
    ".".join
)
ASKED_WORDS = st.one_of(WORDS, st.sampled_from(["*", "#"]))  # Keys may hold them, as plain words.


def fits(pattern: list[str], words: list[str]) -> bool:
    """Match by the letter of the standard, branching at every ``#``."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return fits(pattern[1:], words) or bool(words and fits(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and fits(pattern[1:], words[1:])


def split(key: str) -> list[str]:
    return key.split(".") if key else []


def bound(patterns: list[str]) -> tuple[TopicTrie, list[Binding]]:
    trie, source = TopicTrie(), TopicExchange("t")
    bindings = [Binding(source, FanoutExchange(p), p) for p in patterns]
    for binding in bindings:
        trie.add(binding.routing_key, binding)
    return trie, bindings


def reached(trie: TopicTrie, key: str) -> set[str]:
    into = {}
    trie.match(key, into)
    return {destination.name for destination in into}


@given(st.lists(PATTERNS, unique=True, max_size=20), st.lists(ASKED_WORDS, min_size=1, max_size=6))
@settings(max_examples=400)
@pytest.mark.rule("0-9-1/exchange#02")
def test_the_trie_matches_what_the_standard_says(patterns: list[str], words: list[str]) -> None:
    trie, _ = bound(patterns)
    key = ".".join(words)
    expected = {p for p in patterns if fits(split(p), split(key))}
    assert reached(trie, key) == expected


def test_an_empty_key_has_no_words() -> None:
    trie, _ = bound(["", "#", "*", "*.#", "#.#", "a", ".", "#.*"])
    assert reached(trie, "") == {"", "#", "#.#"}


@given(st.lists(PATTERNS, unique=True, min_size=1, max_size=12), st.data())
def test_an_unbound_pattern_leaves_nothing_behind(patterns: list[str], data: st.DataObject) -> None:
    trie, bindings = bound(patterns)
    gone = data.draw(st.lists(st.sampled_from(bindings), unique=True))
    for binding in gone:
        trie.remove(binding.routing_key, binding)
        trie.remove(binding.routing_key, binding)  # Twice is once.
    fresh, _ = bound([b.routing_key for b in bindings if b not in gone])
    key = data.draw(KEYS)
    assert reached(trie, key) == reached(fresh, key)
    if len(gone) == len(bindings):
        assert trie._root.children is None


def test_two_bindings_of_one_pattern_are_told_apart() -> None:
    trie, source = TopicTrie(), TopicExchange("t")
    one = Binding(source, FanoutExchange("one"), "a.#")
    two = Binding(source, FanoutExchange("two"), "a.#.#")  # Means the same.
    trie.add(one.routing_key, one)
    trie.add(two.routing_key, two)
    assert reached(trie, "a") == {"one", "two"}
    trie.remove(one.routing_key, one)
    assert reached(trie, "a.b") == {"two"}


@pytest.mark.parametrize("pattern", ["#.a" * 40 + ".x", ".".join(["#"] * 100), "*.#." * 40 + "x"])
def test_no_pattern_makes_matching_slow(pattern: str) -> None:
    trie, _ = bound([pattern.strip(".")])
    started = time.process_time()
    reached(trie, ".".join(["a"] * 120))
    assert time.process_time() - started < 1.0  # Branching would take longer than the universe.

# SPDX-License-Identifier: Apache-2.0
"""The topic exchange, and the trie of its patterns.

A pattern consists of words between dots. ``*`` matches one word, ``#`` any number of words; the
empty pattern has no words. Matching follows all branches at once, word by word, and visits a node
at most once for each word of the routing key, so that its time is never exponential. Several
consecutive ``#`` mean the same as one ``#``, and share its node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headrace.model.arguments.memory_estimate import NODE
from headrace.model.exchange.binding import add_binding, add_destinations, remove_binding
from headrace.model.exchange.exchange import Exchange, ExchangeProperties, Headers

if TYPE_CHECKING:
    from headrace.model.exchange.binding import Binding, BindingDestination, BindingEntry

_ONLY_KEY = 0  # The only key of a node's ``bindings``.


class Node:
    """A node of the trie: a word of a pattern, and the words that follow it."""

    __slots__ = ("bindings", "children", "loops")

    def __init__(self, loops: bool = False) -> None:
        self.children: dict[str, Node] | None = None
        self.bindings: dict[int, BindingEntry] | None = None
        self.loops = loops  # True for ``#``, which also matches every further word.


def split_words(pattern: str) -> list[str]:
    """Return the words of a pattern, with one ``#`` for several in a row; [] for ""."""
    words: list[str] = []
    for word in pattern.split(".") if pattern else ():
        if word != "#" or not words or words[-1] != "#":
            words.append(word)
    return words


class TopicTrie:
    """All bindings of one topic exchange."""

    def __init__(self) -> None:
        self._root = Node()

    def add(self, pattern: str, binding: Binding) -> None:
        """Add a binding under its pattern."""
        node = self._root
        for word in split_words(pattern):
            children = node.children
            if children is None:
                children = node.children = {}
            following = children.get(word)
            if following is None:
                following = children[word] = Node(word == "#")
            node = following
        if node.bindings is None:
            node.bindings = {}
        add_binding(node.bindings, _ONLY_KEY, binding)

    def remove(self, pattern: str, binding: Binding) -> None:
        """Remove a binding, and nodes that no other binding needs."""
        node = self._root
        path: list[tuple[Node, str]] = []
        for word in split_words(pattern):
            following = node.children.get(word) if node.children is not None else None
            if following is None:
                return
            path.append((node, word))
            node = following
        if node.bindings is not None:
            remove_binding(node.bindings, _ONLY_KEY, binding)
            if not node.bindings:
                node.bindings = None
        for parent, word in reversed(path):
            assert parent.children is not None
            child = parent.children[word]
            if child.bindings is not None or child.children:
                return
            del parent.children[word]
            if not parent.children:
                parent.children = None

    def count_missing_nodes(self, pattern: str) -> int:
        """Return the number of nodes that a pattern would add."""
        node = self._root
        words = split_words(pattern)
        for number, word in enumerate(words):
            following = node.children.get(word) if node.children is not None else None
            if following is None:
                return len(words) - number
            node = following
        return 0

    def match(self, routing_key: str, matched: dict[BindingDestination, None]) -> None:
        """Add the destinations of bindings whose pattern matches the routing key."""
        reached = self._add_hash_nodes({self._root: None})
        for word in routing_key.split(".") if routing_key else ():
            following: dict[Node, None] = {}
            for node in reached:
                if node.loops:
                    following[node] = None
                children = node.children
                if children is not None:
                    child = children.get(word)
                    if child is not None and not child.loops:
                        following[child] = None
                    child = children.get("*")
                    if child is not None:
                        following[child] = None
            reached = self._add_hash_nodes(following)
            if not reached:
                return
        for node in reached:
            if node.bindings is not None:
                add_destinations(node.bindings.get(_ONLY_KEY), matched)

    @staticmethod
    def _add_hash_nodes(nodes: dict[Node, None]) -> dict[Node, None]:
        """Add the ``#`` children of nodes, because ``#`` may match no word."""
        for node in list(nodes):
            children = node.children
            if children is not None:
                child = children.get("#")
                if child is not None:
                    nodes[child] = None
        return nodes


class TopicExchange(Exchange):
    """Matches bindings whose key is a pattern of the routing key."""

    type = "topic"
    supports_selectors = True
    unindexes_later = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._trie = TopicTrie()

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        self._trie.match(routing_key, matched)

    def index_memory(self, binding: Binding) -> int:
        return NODE * self._trie.count_missing_nodes(binding.routing_key)

    def _add_to_index(self, binding: Binding) -> None:
        self._trie.add(binding.routing_key, binding)

    def _remove_from_index(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, binding)

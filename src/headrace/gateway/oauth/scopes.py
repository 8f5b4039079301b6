# SPDX-License-Identifier: Apache-2.0
"""Scopes of tokens as permissions: ``read:vhost/name/routing-key``, ``tag:administrator``.

The form is that of RabbitMQ's: a prefix that names the broker, the permission, and patterns in
which ``*`` is any text and everything else is percent-encoded. Without a routing key there is no
restriction of topics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

from headrace.gateway.patterns import PatternError, Search, compile_search, quoted

SCOPES_MAX = 256  # Of one token; a token with more is refused.
SCOPE_CHARACTERS_MAX = 1024
VERDICTS_MAX = 4096  # Of one token; the least recently asked is forgotten.
PERMISSIONS = ("configure", "write", "read")
TAG = "tag"
TAGS = ("administrator", "management", "monitoring", "policymaker", "impersonator")


class ScopeError(ValueError):
    """The scopes of a token cannot be used."""


class Scope(NamedTuple):
    """One permission."""

    permission: str
    vhost: Search
    name: Search
    routing_key: Search


class Scopes:
    """What the bearer of a token may do; see `headrace.gateway.access.Grants`."""

    def __init__(self, scopes: Iterable[str], prefix: str) -> None:
        """Scopes without the prefix are another's, and those that cannot be read grant nothing.

        Raises:
            ScopeError: there are too many.
        """
        texts = list(scopes)
        if len(texts) > SCOPES_MAX:
            raise ScopeError(f"a token with more than {SCOPES_MAX} scopes")
        self._scopes: list[Scope] = []
        self.tags: tuple[str, ...] = ()
        self._verdicts: OrderedDict[tuple[str, ...], bool] = OrderedDict()
        for text in texts:
            if text.startswith(prefix) and len(text) <= SCOPE_CHARACTERS_MAX:
                self._add(text[len(prefix) :])

    def _add(self, text: str) -> None:
        kind, colon, rest = text.partition(":")
        if kind == TAG and rest in TAGS:
            self.tags = (*self.tags, rest)
        parts = rest.split("/")
        if kind not in PERMISSIONS or not colon or not 2 <= len(parts) <= 3 or not all(parts):
            return
        try:
            searches = [wildcard(part) for part in (*parts, "*")[:3]]
        except (PatternError, UnicodeDecodeError):
            return
        self._scopes.append(Scope(kind, *searches))

    def may_open(self, vhost: str) -> bool:
        """Tell whether there is any permission in the virtual host."""
        return self._any(("", vhost))

    def allowed(self, vhost: str, permission: str, name: str) -> bool:
        """Tell whether one of the scopes permits it."""
        return self._any((permission, vhost, name))

    def topic_allowed(self, vhost: str, permission: str, exchange: str, routing_key: str) -> bool:
        """Tell whether one of the scopes permits this routing key there."""
        return self._any((permission, vhost, exchange, routing_key))

    def _any(self, asked: tuple[str, ...]) -> bool:
        verdict = self._verdicts.get(asked)
        if verdict is None:
            verdict = any(matches(scope, asked) for scope in self._scopes)
            self._verdicts[asked] = verdict
            if len(self._verdicts) > VERDICTS_MAX:
                self._verdicts.popitem(last=False)
        else:
            self._verdicts.move_to_end(asked)
        return verdict


def matches(scope: Scope, asked: tuple[str, ...]) -> bool:
    """Tell whether a scope grants what is asked: permission, virtual host, name, routing key."""
    permission, *texts = asked
    if permission and scope.permission != permission:
        return False
    searches = (scope.vhost, scope.name, scope.routing_key)
    return all(search(text) is not None for search, text in zip(searches, texts, strict=False))


def wildcard(text: str) -> Search:
    """Return what matches a whole text against a pattern with ``*``.

    Raises:
        PatternError, UnicodeDecodeError: it is none.
    """
    pieces = [quoted(unquote(piece, errors="strict")) for piece in text.split("*")]
    return compile_search("(?s)^" + ".*".join(pieces) + r"\z")


def read_scopes(claim: object) -> list[str]:
    """Read the claim: a text with spaces, or a list of texts.

    Raises:
        ScopeError: it is neither.
    """
    if claim is None:
        return []
    if isinstance(claim, str):
        return claim.split()
    if isinstance(claim, list) and all(isinstance(each, str) for each in claim):
        return [scope for each in claim for scope in each.split()]
    raise ScopeError("the claim of scopes is neither a text nor a list of texts")

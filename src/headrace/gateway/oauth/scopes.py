# SPDX-License-Identifier: Apache-2.0
"""Scopes of tokens as permissions: ``read:vhost/name/routing-key``, ``tag:administrator``.

The form is RabbitMQ's: a prefix that names the broker, the permission, and patterns in which ``*``
is any text and everything else is percent-encoded. Without a routing key there is no restriction of
topics. ``{vhost}`` stands for the virtual host of the request, ``{sub}`` for that claim of the
token; both are literal text. An alias is a scope, or a role, that an operator has mapped to scopes.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Self
from urllib.parse import quote, unquote

from headrace.gateway.security.permissions import PERMISSIONS
from headrace.gateway.security.regex import PatternError, Search, compile_search, escape

SCOPES_MAX = 256  # Permissions and tags of one token; a token with more is refused.
SCOPE_CHARACTERS_MAX = 1024
VERDICTS_MAX = 4096  # Cached checks of one token; the least recently used one is removed.
ALIASES_MAX = 1024
TAG = "tag"
TAGS = ("administrator", "management", "monitoring", "policymaker", "impersonator")
VHOST = "vhost"
_VARIABLE = re.compile(r"\{([^{}]*)\}")

Aliases = Mapping[str, tuple[str, ...]]
Matcher = Callable[[str, str], object]  # Arguments: virtual host and text; true if it matches.


class ScopeError(ValueError):
    """The scopes of a token, or their aliases, are invalid."""


class Scope(NamedTuple):
    """A permission on the names and topics that match."""

    permission: str
    matchers: tuple[Matcher, Matcher, Matcher]  # Virtual host, name, routing key.
    every_key: bool = False  # True: the last matcher matches every routing key.


class Scopes:
    """Permissions of a token; see `headrace.gateway.security.user.Grants`."""

    def __init__(
        self,
        scopes: Iterable[str],
        prefix: str,
        *,
        aliases: Aliases | None = None,
        claims: Mapping[str, object] | None = None,
    ) -> None:
        """Scopes without the prefix are ignored, and malformed ones grant nothing.

        Scopes of an alias need no prefix; ``claims`` are the values of variables.

        Raises:
            ScopeError: the token has too many.
        """
        self._scopes: list[Scope] = []
        self.texts: list[str] = []  # The texts for `from_texts` at another broker.
        self.tags: tuple[str, ...] = ()
        self._verdicts: OrderedDict[tuple[str, ...], bool] = OrderedDict()
        for text in dict.fromkeys(scopes):
            if text.startswith(prefix) and len(text) <= SCOPE_CHARACTERS_MAX:
                self._add(text[len(prefix) :], claims or {})
            for scope in (aliases or {}).get(text, ()):
                self._add(scope.removeprefix(prefix), claims or {})

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Self:
        """Return the scopes that another broker has read from a token.

        Raises:
            ScopeError: the token has too many scopes.
        """
        scopes = cls((), "")
        for text in texts:
            scopes._add(text, {})
        return scopes

    def _add(self, text: str, claims: Mapping[str, object]) -> None:
        scope = read_scope(text, claims)
        if isinstance(scope, str):
            self.tags = (*self.tags, scope)
        elif scope is not None:
            self._scopes.append(scope)
        if scope is not None:
            word, colon, pattern = text.partition(":")
            self.texts.append(f"{word}{colon}{fill_variables(pattern, claims)}")
        if len(self._scopes) + len(self.tags) > SCOPES_MAX:
            raise ScopeError(f"a token with more than {SCOPES_MAX} scopes for this broker")

    def may_open(self, vhost: str) -> bool:
        """Return True if there is any permission in the virtual host."""
        return self._grants(("", vhost))

    def allowed(self, vhost: str, permission: str, name: str) -> bool:
        """Return True if one of the scopes grants the permission on the name."""
        return self._grants((permission, vhost, name))

    def topic_allowed(self, vhost: str, permission: str, exchange: str, routing_key: str) -> bool:
        """Return True if one of the scopes permits this routing key."""
        return self._grants((permission, vhost, exchange, routing_key))

    def every_topic_allowed(self, vhost: str, permission: str, exchange: str) -> bool:
        """Return True if one of the scopes permits all routing keys."""
        requested = (permission, vhost, exchange)
        return any(scope.every_key and matches(scope, requested) for scope in self._scopes)

    def _grants(self, requested: tuple[str, ...]) -> bool:
        verdict = self._verdicts.get(requested)
        if verdict is None:
            verdict = any(matches(scope, requested) for scope in self._scopes)
            self._verdicts[requested] = verdict
            if len(self._verdicts) > VERDICTS_MAX:
                self._verdicts.popitem(last=False)
        else:
            self._verdicts.move_to_end(requested)
        return verdict


def matches(scope: Scope, requested: tuple[str, ...]) -> bool:
    """Return True if a scope grants a permission on a virtual host, a name, a routing key."""
    permission, *texts = requested
    if permission and scope.permission != permission:
        return False
    pairs = zip(scope.matchers, texts, strict=False)
    return all(matcher(texts[0], text) for matcher, text in pairs)


def read_scope(text: str, claims: Mapping[str, object]) -> Scope | str | None:
    """Read a scope without its prefix: a permission or a tag; None for anything else."""
    permission, colon, pattern = text.partition(":")
    if permission == TAG:
        return pattern if pattern in TAGS else None
    if permission not in PERMISSIONS or not colon:
        return None
    try:
        parts = fill_variables(pattern, claims).split("/")  # A claim's slashes are encoded.
        if not 2 <= len(parts) <= 3 or not all(parts):
            return None
        first, second, third = [compile_scope_pattern(part) for part in (*parts, "*")[:3]]
    except (PatternError, UnicodeError, ScopeError):
        return None
    return Scope(permission, (first, second, third), len(parts) == 2 or parts[2] == "*")


def fill_variables(text: str, claims: Mapping[str, object]) -> str:
    """Replace the variables of a scope by the claims that they name.

    Raises:
        ScopeError: the claim is missing or not a string.
    """

    def replacement(variable: re.Match[str]) -> str:
        value = variable[0] if variable[1] == VHOST else claims.get(variable[1])
        if not isinstance(value, str):
            raise ScopeError(f"the token has no string {variable[1]!r}")
        return value if variable[1] == VHOST else quote(value, safe="")

    return _VARIABLE.sub(replacement, text)


def compile_scope_pattern(pattern: str) -> Matcher:
    """Compile a pattern with ``*`` and ``{vhost}``, which matches whole texts.

    Raises:
        PatternError, UnicodeDecodeError: the text is not a pattern.
    """
    if f"{{{VHOST}}}" not in pattern:
        search = compile_wildcard(pattern)
        return lambda _, requested: search(requested) is not None

    def matches_at_vhost(vhost: str, requested: str) -> bool:
        try:
            search = compile_wildcard(pattern.replace(f"{{{VHOST}}}", quote(vhost, safe="")))
        except (PatternError, UnicodeError):  # It is too long with this name.
            return False
        return search(requested) is not None

    matches_at_vhost("/", "")  # Compiled to find mistakes at once.
    return matches_at_vhost


def compile_wildcard(text: str) -> Search:
    """Compile a pattern with ``*``, which matches whole texts.

    Raises:
        PatternError, UnicodeDecodeError: the text is not a pattern.
    """
    literals = [escape(unquote(literal, errors="strict")) for literal in text.split("*")]
    return compile_search("(?s)^" + ".*".join(literals) + r"\z")


def read_scopes(claims: Mapping[str, object], paths: Iterable[str], audience: str) -> list[str]:
    """Read the claims at the paths: texts with spaces, or lists of texts, or maps of them.

    In a map only the scopes of ``audience`` count, and need no prefix.

    Raises:
        ScopeError: an item of the list is not a text.
    """
    values = [value for path in paths for value in find_values(claims, path)]
    return [scope for value in values for scope in read_claim(value, audience)]


def read_claim(value: object, audience: str) -> list[str]:
    """Return the scopes in one claim.

    Raises:
        ScopeError: the claim is neither a text, nor a list of texts, nor a map.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [scope for item in value for scope in item.split()]
    if isinstance(value, dict):
        return [f"{audience}.{scope}" for scope in read_claim(value.get(audience), audience)]
    raise ScopeError("a claim of scopes must be a string or a list of strings")


def find_values(value: object, path: str) -> Iterator[object]:
    """Yield the values at a path such as ``realm_access.roles``, through maps and lists of maps.

    A name may contain dots: the longest match wins.
    """
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield from find_values(item, path)
        return
    if not isinstance(value, dict):
        return
    names = path.split(".")
    for count in range(len(names), 0, -1):
        name = ".".join(names[:count])
        if name in value:
            if count == len(names):
                yield value[name]
            else:
                yield from find_values(value[name], ".".join(names[count:]))
            return


def read_aliases(text: str) -> dict[str, tuple[str, ...]]:
    """Read ``alias=scope,scope alias=scope``; spaces, commas and ``=`` are percent-encoded.

    Raises:
        ScopeError: the text cannot be read, or an alias is not mapped to scopes.
    """
    aliases: dict[str, tuple[str, ...]] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        scopes = tuple(value.split(","))
        if not name or not equals or not all(scopes):
            raise ScopeError(f"{word!r} is not alias=scope,scope")
        aliases[unquote(name)] = scopes
    if len(aliases) > ALIASES_MAX:
        raise ScopeError(f"there are more than {ALIASES_MAX} aliases")
    return aliases


def check_aliases(aliases: Aliases, prefix: str) -> None:
    """Refuse aliases that would grant nothing.

    Raises:
        ScopeError: an alias grants nothing; the text names it.
    """
    for name, scopes in aliases.items():
        for scope in scopes:
            pattern = _VARIABLE.sub("*", scope.removeprefix(prefix))
            if read_scope(pattern, {}) is None:
                raise ScopeError(f"alias {name!r}: {scope!r} is neither a permission nor a tag")

# SPDX-License-Identifier: Apache-2.0
"""Scopes of tokens as permissions: ``read:vhost/name/routing-key``, ``tag:administrator``.

The form is that of RabbitMQ's: a prefix that names the broker, the permission, and patterns in
which ``*`` is any text and everything else is percent-encoded. Without a routing key there is no
restriction of topics. ``{vhost}`` stands for the virtual host of the request, ``{sub}`` for that
claim of the token; both are literal text. An alias is a scope, or a role,
that an operator has mapped to scopes.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Self
from urllib.parse import quote, unquote

from headrace.gateway.security.permissions import PERMISSIONS
from headrace.gateway.security.regex import PatternError, Search, compile_search, quoted

SCOPES_MAX = 256  # Of one token that grant something; a token with more is refused.
SCOPE_CHARACTERS_MAX = 1024
VERDICTS_MAX = 4096  # Of one token; the least recently asked is forgotten.
ALIASES_MAX = 1024
TAG = "tag"
TAGS = ("administrator", "management", "monitoring", "policymaker", "impersonator")
VHOST = "vhost"
_VARIABLE = re.compile(r"\{([^{}]*)\}")

Aliases = Mapping[str, tuple[str, ...]]
Part = Callable[[str, str], object]  # Of a virtual host and a text: whether the text matches.


class ScopeError(ValueError):
    """The scopes of a token, or aliases of them, cannot be used."""


class Scope(NamedTuple):
    """One permission."""

    permission: str
    parts: tuple[Part, Part, Part]  # Virtual host, name, routing key.
    every_key: bool = False  # The last one is any.


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
        self.texts: list[str] = []  # What `again` makes the same of, elsewhere.
        self.tags: tuple[str, ...] = ()
        self._verdicts: OrderedDict[tuple[str, ...], bool] = OrderedDict()
        for text in dict.fromkeys(scopes):
            if text.startswith(prefix) and len(text) <= SCOPE_CHARACTERS_MAX:
                self._add(text[len(prefix) :], claims or {})
            for meant in (aliases or {}).get(text, ()):
                self._add(meant.removeprefix(prefix), claims or {})

    @classmethod
    def again(cls, texts: Iterable[str]) -> Self:
        """Return the scopes that another broker has found in a token.

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
            kind, colon, rest = text.partition(":")
            self.texts.append(f"{kind}{colon}{filled(rest, claims)}")
        if len(self._scopes) + len(self.tags) > SCOPES_MAX:
            raise ScopeError(f"a token with more than {SCOPES_MAX} scopes for us")

    def may_open(self, vhost: str) -> bool:
        """Return True if there is any permission in the virtual host."""
        return self._any(("", vhost))

    def allowed(self, vhost: str, permission: str, name: str) -> bool:
        """Return True if one of the scopes permits it."""
        return self._any((permission, vhost, name))

    def topic_allowed(self, vhost: str, permission: str, exchange: str, routing_key: str) -> bool:
        """Return True if one of the scopes permits this routing key."""
        return self._any((permission, vhost, exchange, routing_key))

    def every_topic_allowed(self, vhost: str, permission: str, exchange: str) -> bool:
        """Return True if one of the scopes permits all routing keys."""
        requested = (permission, vhost, exchange)
        return any(scope.every_key and matches(scope, requested) for scope in self._scopes)

    def _any(self, requested: tuple[str, ...]) -> bool:
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
    return all(part(texts[0], text) for part, text in zip(scope.parts, texts, strict=False))


def read_scope(text: str, claims: Mapping[str, object]) -> Scope | str | None:
    """Read a scope without its prefix: a permission, a tag, or nothing that we know."""
    kind, colon, rest = text.partition(":")
    if kind == TAG:
        return rest if rest in TAGS else None
    if kind not in PERMISSIONS or not colon:
        return None
    try:
        parts = filled(rest, claims).split("/")  # A claim has no slash then.
        if not 2 <= len(parts) <= 3 or not all(parts):
            return None
        first, second, third = [wildcard(part) for part in (*parts, "*")[:3]]
    except (PatternError, UnicodeError, ScopeError):
        return None
    return Scope(kind, (first, second, third), len(parts) == 2 or parts[2] == "*")


def filled(text: str, claims: Mapping[str, object]) -> str:
    """Return a scope in which claims have taken the places of their variables.

    Raises:
        ScopeError: a variable has no text.
    """

    def meant(variable: re.Match[str]) -> str:
        value = variable[0] if variable[1] == VHOST else claims.get(variable[1])
        if not isinstance(value, str):
            raise ScopeError(f"the token has no string {variable[1]!r}")
        return value if variable[1] == VHOST else quote(value, safe="")

    return _VARIABLE.sub(meant, text)


def wildcard(pattern: str) -> Part:
    """Compile a pattern with ``*`` and the virtual host, which matches whole texts.

    Raises:
        PatternError, UnicodeDecodeError: it is not a pattern.
    """
    if f"{{{VHOST}}}" not in pattern:
        search = compiled(pattern)
        return lambda _, requested: search(requested) is not None

    def of_vhost(vhost: str, requested: str) -> bool:
        try:
            search = compiled(pattern.replace(f"{{{VHOST}}}", quote(vhost, safe="")))
        except (PatternError, UnicodeError):  # It is too long with this name.
            return False
        return search(requested) is not None

    of_vhost("/", "")  # Compiled to find mistakes at once.
    return of_vhost


def compiled(text: str) -> Search:
    """Compile a pattern with ``*``, which matches whole texts.

    Raises:
        PatternError, UnicodeDecodeError: it is not a pattern.
    """
    pieces = [quoted(unquote(piece, errors="strict")) for piece in text.split("*")]
    return compile_search("(?s)^" + ".*".join(pieces) + r"\z")


def read_scopes(claims: Mapping[str, object], paths: Iterable[str], audience: str) -> list[str]:
    """Read the claims at the paths: texts with spaces, or lists of texts, or maps of them.

    In a map those of ``audience`` are ours, and need no prefix.

    Raises:
        ScopeError: an item of the list is not a text.
    """
    values = [value for path in paths for value in at_path(claims, path)]
    return [scope for value in values for scope in texts(value, audience)]


def texts(value: object, audience: str) -> list[str]:
    """Return the scopes in one claim.

    Raises:
        ScopeError: the claim is neither a text, nor a list of texts, nor a map.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [scope for each in value for scope in each.split()]
    if isinstance(value, dict):
        return [f"{audience}.{each}" for each in texts(value.get(audience), audience)]
    raise ScopeError("a claim of scopes must be a string or a list of strings")


def at_path(value: object, path: str) -> Iterator[object]:
    """Yield the values at a path such as ``realm_access.roles``, through maps and lists of maps.

    Names with dots are found, too: the longest match wins.
    """
    if isinstance(value, list):
        for each in value:
            if isinstance(each, dict):
                yield from at_path(each, path)
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
                yield from at_path(value[name], ".".join(names[count:]))
            return


def read_aliases(text: str) -> dict[str, tuple[str, ...]]:
    """Read ``alias=scope,scope alias=scope``; spaces, commas and ``=`` are percent-encoded.

    Raises:
        ScopeError: the text cannot be read, or an alias is not mapped to scopes.
    """
    aliases: dict[str, tuple[str, ...]] = {}
    for part in text.split():
        name, equals, meant = part.partition("=")
        scopes = tuple(meant.split(","))
        if not name or not equals or not all(scopes):
            raise ScopeError(f"{part!r} is not alias=scope,scope")
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

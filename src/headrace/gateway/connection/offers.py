# SPDX-License-Identifier: Apache-2.0
"""Settings for clients of other versions than 0-9-1: hosts, realms, proxies.

Each is text of the form ``name=value name=value``. In names and values ``%20`` stands for a space
and ``%3D`` for an equals sign, as in URLs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from headrace.gateway.security.regex import PatternError, compile_search

HOSTS_BYTES_MAX = 255  # They are sent as one short string.
REALMS = "/data=.* /admin=.*"  # The realms that clients ask for by custom; all resources in each.
RESUME_S = 10.0

Pattern = Callable[[str], object]


class OfferError(ValueError):
    """The text of a setting is malformed."""


def parse_pairs(text: str) -> dict[str, str]:
    """Read a text of the form ``name=value name=value``.

    Raises:
        OfferError: a word of the text is not a pair, or a name is in it twice.
    """
    values: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise OfferError(f"{word!r} is not of the form name=value")
        if unquote(name) in values:
            raise OfferError(f"{unquote(name)!r} is named twice")
        values[unquote(name)] = unquote(value)
    return values


def parse_realms(text: str) -> dict[str, Pattern]:
    """Read realms and the patterns of the names that belong to them.

    Raises:
        OfferError: the text is malformed or a pattern is not a regular expression.
    """
    patterns: dict[str, Pattern] = {}
    for name, pattern in parse_pairs(text).items():
        try:
            patterns[name] = compile_search(pattern)
        except PatternError as error:
            raise OfferError(f"{pattern!r} is not a valid regular expression: {error}") from None
    return patterns


def parse_hosts(text: str) -> dict[str, str]:
    """Read the hosts, separated by commas, of each virtual host.

    Raises:
        OfferError: the text is malformed or too long for one short string.
    """
    hosts_by_vhost = parse_pairs(text)
    for name, hosts in hosts_by_vhost.items():
        if len(hosts.encode()) > HOSTS_BYTES_MAX:
            raise OfferError(f"the hosts of {name!r} are longer than {HOSTS_BYTES_MAX} bytes")
    return hosts_by_vhost


@dataclass(frozen=True, slots=True)
class Offers:
    """The offers of one broker."""

    known_hosts: Mapping[str, str] = field(default_factory=dict)  # The hosts of connection.open-ok.
    redirect: Mapping[str, str] = field(default_factory=dict)  # Hosts for connection.redirect.
    realms: Mapping[str, Pattern] = field(default_factory=lambda: parse_realms(REALMS))
    proxies: Mapping[str, str] = field(default_factory=dict)  # Queues, for blocks in tunnels.
    resume_ms: int = int(RESUME_S * 1000)  # Channels of a lost connection are kept so long.

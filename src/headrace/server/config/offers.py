# SPDX-License-Identifier: Apache-2.0
"""The broker's offers to clients of other versions than 0-9-1, read from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headrace.gateway.connection.offers import (
    OfferError,
    Offers,
    parse_hosts,
    parse_pairs,
    parse_realms,
)
from headrace.server.config.settings import StartError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.server.config.settings import Settings


Value = TypeVar("Value")


def read_offers(settings: Settings) -> Offers:
    """Return the offers that the settings describe.

    Raises:
        StartError: a setting cannot be used.
    """

    def read(name: str, text: str, reader: Callable[[str], Value]) -> Value:
        try:
            return reader(text)
        except OfferError as error:
            raise StartError(f"setting {name}: {error}") from None

    return Offers(
        known_hosts=read("known_hosts", settings.known_hosts, parse_hosts),
        redirect=read("redirect", settings.redirect, parse_hosts),
        realms=read("realms", settings.realms, parse_realms),
        proxies=read("tunnel_proxies", settings.tunnel_proxies, parse_pairs),
        resume_ms=int(settings.channel_resume_s * 1000),
    )

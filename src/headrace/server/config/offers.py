# SPDX-License-Identifier: Apache-2.0
"""Settings of the broker's offers to clients of 0-8 and 0-9."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headrace.gateway.connection.offers import OfferError, Offers, hosts_of, pairs, realms_of
from headrace.server.config.settings import StartError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.server.config.settings import Settings


Value = TypeVar("Value")


def offers_of(settings: Settings) -> Offers:
    """Return the offers to clients of 0-8 and 0-9.

    Raises:
        StartError: one of the settings cannot be used.
    """

    def read(name: str, text: str, reader: Callable[[str], Value]) -> Value:
        try:
            return reader(text)
        except OfferError as error:
            raise StartError(f"setting {name}: {error}") from None

    return Offers(
        known_hosts=read("known_hosts", settings.known_hosts, hosts_of),
        redirect=read("redirect", settings.redirect, hosts_of),
        realms=read("realms", settings.realms, realms_of),
        proxies=read("tunnel_proxies", settings.tunnel_proxies, pairs),
        resume_ms=int(settings.channel_resume_s * 1000),
    )

# SPDX-License-Identifier: Apache-2.0
"""The settings for clients of 0-8 and 0-9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.connection.offers import OfferError, Offers, hosts_of, pairs, realms_of
from headrace.server.config.errors import StartError

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings


def offers_of(settings: Settings) -> Offers:
    """What is configured for clients of 0-8 and 0-9.

    Raises:
        StartError: one of the settings cannot be used.
    """
    values: dict[str, Any] = {}
    for name, key, read in (
        ("known_hosts", "known_hosts", hosts_of),
        ("redirect", "redirect", hosts_of),
        ("realms", "realms", realms_of),
        ("tunnel_proxies", "proxies", pairs),
    ):
        try:
            values[key] = read(getattr(settings, name))
        except OfferError as error:
            raise StartError(f"setting {name}: {error}") from None
    return Offers(**values, resume_ms=int(settings.channel_resume_s * 1000))

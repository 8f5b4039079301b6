# SPDX-License-Identifier: Apache-2.0
"""Open a link in the version of the URL, and follow redirections."""

from __future__ import annotations

import logging
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.client.errors import ConnectFailed
from headrace.client.link.link_0_10 import Link010
from headrace.client.link.link_0_x import Link
from headrace.client.link.link_early import EarlyLink
from headrace.client.url import PORT, PORT_TLS, Settings
from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version

if TYPE_CHECKING:
    from headrace.client.link.link_0_x import LinkOwner

log = logging.getLogger(__name__)

REDIRECTS_MAX = 5  # The maximum number of successive redirections, which may be circular.

LINKS: dict[Version, type[Link]] = {
    V0_8: EarlyLink,
    V0_9: EarlyLink,
    V0_9_1: Link,
    V0_10: Link010,
}


# Keeps 0-9/connection.redirect#usage, 0-10/s026.
async def open_link(
    settings: Settings,
    owner: LinkOwner,
    ssl_context: ssl.SSLContext | None,
    timeout_s: float | None = None,
    redirects: int = 0,
) -> Link:
    """Connect, and follow the broker's redirections: the host named first, then the known ones.

    `timeout_s` replaces the time limit of the settings for each broker on the way.
    """
    kind = LINKS[settings.version]
    try:
        return await kind.open(settings, owner, ssl_context, timeout_s)
    except ConnectFailed as error:
        if not error.redirected:
            raise
        if redirects >= REDIRECTS_MAX:
            raise ConnectFailed(f"more than {REDIRECTS_MAX} redirections: {error}") from None
        last_error = error
        for host in error.redirected:
            log.info("%s redirects to %s", settings.address, host)
            redirected = redirected_settings(host, settings)
            try:
                return await open_link(redirected, owner, ssl_context, timeout_s, redirects + 1)
            except ConnectFailed as failure:
                last_error = failure
        raise last_error from None


def redirected_settings(host: str, settings: Settings) -> Settings:
    """Return the settings for another broker, named by the broker of `settings`."""
    name, port = _parse_address(host, settings.tls)
    return replace(settings, host=name, port=port)


def _parse_address(text: str, tls: bool) -> tuple[str, int]:
    """Return host and port of a broker's address: `host`, `host:port`, `[::1]:port` or a URL."""
    text = text.partition("://")[2] or text
    text = text.removeprefix("amqp:").removeprefix("tcp:").split("/")[0]
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or (":" in host and not host.endswith("]")):
        host, port = text, ""
    port_number = int(port) if port and len(port) <= 5 else 0
    return host.strip("[]"), port_number or (PORT_TLS if tls else PORT)

# SPDX-License-Identifier: Apache-2.0
"""The host names of this server: a request for any other host is refused (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import platform
from collections.abc import Iterable

LOOPBACK = "localhost"


class AllowedHosts:
    """The host names of this server. IP addresses are always allowed: DNS cannot rebind them."""

    def __init__(self, names: Iterable[str]) -> None:
        node = platform.node().lower()
        self._names = {LOOPBACK, node, *(name.lower().rstrip(".") for name in names)}

    def allow(self, host: str | None) -> bool:
        """Return True for the value of a Host header that names this server.

        HTTP/1.0 has no Host header, and no browser speaks it.
        """
        if host is None:
            return True
        name = host_name(host).lower().rstrip(".")
        return name in self._names or is_address(name)


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_address(name: str) -> bool:
    """Return True for the text of an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

# SPDX-License-Identifier: Apache-2.0
"""Lists of addresses and networks in settings."""

from __future__ import annotations

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse a list of networks such as ``10.0.0.0/8, 192.0.2.7, 2001:db8::/32``.

    Raises:
        ValueError: an item is neither an address nor a network; the text names it.
    """
    return tuple(ipaddress.ip_network(network) for network in text.replace(",", " ").split())


def contains(networks: tuple[Network, ...], host: str) -> bool:
    """Return True if an address is in one of the networks."""
    if not networks:
        return False
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return any(address in network for network in networks)

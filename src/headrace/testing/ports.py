# SPDX-License-Identifier: Apache-2.0
"""Reserve free ports for servers that bind a port by its number.

A port that was free a moment ago may be assigned to another process before the server listens on
it. The same may happen to the port of a server between its stop and its next start.
"""

from __future__ import annotations

import ipaddress
import socket
import weakref


def reserve(host: str = "127.0.0.1") -> socket.socket:
    """Return a socket that reserves a free port of an address until the socket is closed.

    The socket is bound and never listens. Therefore the kernel assigns its port to no other socket,
    but a server with SO_REUSEADDR can bind it by its number any number of times.

    Raises:
        OSError: the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reservation = socket.socket(family, socket.SOCK_STREAM)
    try:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((host, 0))
    except BaseException:
        reservation.close()
        raise
    return reservation


def reserve_for(owner: object, host: str = "127.0.0.1") -> int:
    """Reserve a port for the lifetime of an object; return its number.

    Returns 0, by which the kernel assigns a port, unless the host is an address of this machine.
    """
    try:
        reservation = reserve(str(ipaddress.ip_address(host)))
    except (OSError, ValueError):
        return 0
    weakref.finalize(owner, reservation.close)
    port: int = reservation.getsockname()[1]
    return port

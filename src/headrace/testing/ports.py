# SPDX-License-Identifier: Apache-2.0
"""Ports that a server gets by their number, and nothing else by chance.

A port that was free a moment ago may be assigned to another process before a server listens on it,
and so may the port of a server between its end and its next start.
"""

from __future__ import annotations

import ipaddress
import socket
import weakref


def reserve(host: str = "127.0.0.1") -> socket.socket:
    """Reserve a free port of an address until the socket that this returns is closed.

    The kernel assigns the port to no other socket, while servers may bind it by its number again
    and again: this socket is bound and never listens, and it has SO_REUSEADDR, as theirs have.

    Raises:
        OSError: the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, 0))
    except BaseException:
        reserved.close()
        raise
    return reserved


def reserve_for(owner: object, host: str = "127.0.0.1") -> int:
    """Reserve a port for as long as an object lives, and return it.

    Returns 0, which has the kernel assign one, unless the host is one address of this machine.
    """
    try:
        reserved = reserve(str(ipaddress.ip_address(host)))
    except (OSError, ValueError):
        return 0
    weakref.finalize(owner, reserved.close)
    port: int = reserved.getsockname()[1]
    return port

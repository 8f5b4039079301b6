# SPDX-License-Identifier: Apache-2.0
"""Listening sockets of the console, opened by its process or by the broker that starts it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKLOG = 1024  # Connections that wait to be accepted.


class ConsoleError(Exception):
    """The console cannot start; the text is the reason."""


def check_loopback(host: str) -> None:
    """Refuse an address that other machines can reach.

    Raises:
        ConsoleError: the address is not a loopback address.
    """
    with contextlib.suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return
    raise ConsoleError(
        f"{host} is not a loopback address, and passwords would cross the network in clear: set "
        "tls_cert and tls_key, or console_plain_ok where a proxy encrypts"
    )


async def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Return sockets that listen on one port of every host; 0 picks a free port of the first.

    Connections wait in the backlog until a process accepts them.

    Raises:
        OSError: the port cannot be used.
    """
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        for host in hosts:
            server = await loop.create_server(
                asyncio.Protocol, host, port, reuse_address=True, start_serving=False
            )
            try:
                sockets += (socket.socket(fileno=os.dup(sock.fileno())) for sock in server.sockets)
                port = server.sockets[0].getsockname()[1]
            finally:
                server.close()
        for sock in sockets:
            sock.listen(BACKLOG)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def host_and_port(sock: socket.socket) -> str:
    """Return ``HOST:PORT`` of a listening socket, with brackets around an IPv6 address."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

# SPDX-License-Identifier: Apache-2.0
"""Sockets whose peer is not the client, but a proxy, a relay or another broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

Address = tuple[str, int]


class ClientAddress:
    """A stand-in for a socket that another process owns; it has only the addresses."""

    def __init__(self, peer: Address, own: Address) -> None:
        self._peer = peer
        self._own = own

    def fileno(self) -> int:
        """Return -1, since this process has no descriptor of the socket."""
        return -1

    def close(self) -> None:
        """Do nothing, since another process owns the socket."""

    def getpeername(self) -> Address:
        """Return the address of the client."""
        return self._peer

    def getsockname(self) -> Address:
        """Return the broker's address, to which the client connected."""
        return self._own


class ClientSocket(ClientAddress):
    """A socket with the address of the client behind its peer."""

    def __init__(self, sock: socket.socket, peer: Address) -> None:
        super().__init__(peer, sock.getsockname()[:2])
        self._sock = sock
        self.fileno = sock.fileno  # type: ignore[method-assign]
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.sendmsg = sock.sendmsg
        self.shutdown = sock.shutdown
        self.getsockopt = sock.getsockopt
        self.close = sock.close  # type: ignore[method-assign]


def with_peer(sock: socket.socket | ClientAddress, peer: Address) -> ClientAddress:
    """Return a socket with the address of the client in place of its peer's."""
    if isinstance(sock, ClientAddress) and not isinstance(sock, ClientSocket):
        return ClientAddress(peer, sock.getsockname())
    return ClientSocket(sock, peer)  # type: ignore[arg-type]  # A ClientSocket acts as a socket.

# SPDX-License-Identifier: Apache-2.0
"""The PROXY protocol, versions 1 and 2: the client's address, as a load balancer sends it.

Source: "The PROXY protocol", HAProxy Technologies, 2020/03/05. The header is the first thing that a
proxy sends, before a TLS handshake. Addresses of other families than TCP over IPv4 and IPv6 are
ignored, as are the fields after the addresses in version 2.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

Address = tuple[str, int]

SIZE_MAX = 4096  # Bytes of a header of version 2, with the fields after the addresses.
LINE_MAX = 107  # Bytes of a header of version 1, with CR and LF, by the standard.
WAITING_MAX = 1024  # Connections of a port that wait for their header.
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
FIXED = struct.Struct(">12sBBH")
LINE = re.compile(r"PROXY TCP([46]) (\S+) (\S+) (\d{1,5}) (\d{1,5})")
WORD = b"PROXY "
LOCAL, PROXY = 0x20, 0x21
TCP4, TCP6 = 0x11, 0x21
SIZES = {TCP4: 12, TCP6: 36}


class ProxyError(Exception):
    """An unusable header; the text is the reason."""


def read_header(data: bytes) -> tuple[int, Address | None] | None:
    """Return the size of a header in bytes, and the client's address.

    Return None while the header is incomplete. If the address is None, the client is the peer of
    the socket.

    Raises:
        ProxyError: the data is not a header.
    """
    if data[: len(WORD)] == WORD[: len(data)]:
        return _read_line(data)
    if data[: len(SIGNATURE)] == SIGNATURE[: len(data)]:
        return _read_binary(data)
    raise ProxyError("the PROXY header is missing, which is required from this address")


def _read_line(data: bytes) -> tuple[int, Address | None] | None:
    """Read a header of version 1, a line of text."""
    end = data.find(b"\r\n", 0, LINE_MAX)
    if end < 0:
        if len(data) >= LINE_MAX:
            raise ProxyError(f"the PROXY line has no end within {LINE_MAX} bytes")
        return None
    line = data[:end].decode("ascii", "replace")
    if line.startswith("PROXY UNKNOWN"):
        return end + 2, None
    match = LINE.fullmatch(line)
    if match is None:
        raise ProxyError(f"the PROXY line is malformed: {line!r}")
    version, host, _, port, _ = match.groups()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ProxyError(f"the PROXY line has no address: {line!r}") from None
    if address.version != int(version) or int(port) > 65535:
        raise ProxyError(f"the PROXY line is malformed: {line!r}")
    return end + 2, (str(address), int(port))


def _read_binary(data: bytes) -> tuple[int, Address | None] | None:
    """Read a header of version 2, in binary."""
    if len(data) < FIXED.size:
        return None
    _, command, family, length = FIXED.unpack_from(data)
    size = FIXED.size + length
    if command not in (LOCAL, PROXY):
        raise ProxyError(f"the PROXY header has an unknown version or command: {command:#x}")
    if size > SIZE_MAX:
        raise ProxyError(f"the PROXY header has {size} bytes, more than {SIZE_MAX}")
    if command == PROXY and length < SIZES.get(family, 0):
        raise ProxyError(f"the PROXY header is too short for its addresses: {length} bytes")
    if len(data) < size:
        return None
    if command == LOCAL or family not in SIZES:
        return size, None
    port_offset = 24 if family == TCP4 else 48
    width = 4 if family == TCP4 else 16
    address = ipaddress.ip_address(data[16 : 16 + width])
    mapped = getattr(address, "ipv4_mapped", None)
    (port,) = struct.unpack_from(">H", data, port_offset)
    return size, (str(mapped or address), port)


class AwaitedHeaders:
    """The accepted sockets of one port that wait for their header."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[socket.socket, tuple[asyncio.TimerHandle, bytearray]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(
        self,
        sock: socket.socket,
        limit_s: float,
        accept_client: Callable[[Address | None], None],
        refuse_client: Callable[[str], None],
    ) -> None:
        """Read the header from a socket, for ``limit_s`` seconds at most.

        Then call ``accept_client`` with the client's address, or ``refuse_client`` with a reason
        and close the socket. The bytes after the header stay in the socket.
        """
        if len(self._waiting) >= WAITING_MAX:
            refuse_client(f"{WAITING_MAX} connections wait for their PROXY header")
            sock.close()
            return

        def fail(reason: str) -> None:
            self._forget(sock)
            refuse_client(reason)
            sock.close()

        def receive_header() -> None:
            received = self._waiting[sock][1]
            try:
                data = sock.recv(SIZE_MAX, socket.MSG_PEEK)
                if not data:
                    raise ProxyError("it ended before its PROXY header")
                header = read_header(bytes(received) + data)
                # The bytes after the header are for the connection.
                size = len(data) if header is None else header[0] - len(received)
                received += sock.recv(size)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                fail(error.strerror or str(error))
                return
            except ProxyError as error:
                fail(str(error))
                return
            if header is not None:
                self._forget(sock)
                accept_client(header[1])

        sock.setblocking(False)
        late = f"no PROXY header within {limit_s:g} s"
        self._waiting[sock] = (self._loop.call_later(limit_s, fail, late), bytearray())
        self._loop.add_reader(sock.fileno(), receive_header)
        receive_header()

    def _forget(self, sock: socket.socket) -> None:
        self._waiting.pop(sock)[0].cancel()
        self._loop.remove_reader(sock.fileno())

    def close(self) -> None:
        """Close the sockets."""
        for sock in list(self._waiting):
            self._forget(sock)
            sock.close()
